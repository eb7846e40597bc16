"""Prototypes of clusters and their concentrations, found by k-means (Li et al., 2020)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcl.distributed.world import World
from wcl.ops.tiled_losses import log_sum_over_all

_KMEANS_ROUNDS = 20
_POINTS_PER_CLUSTER = 1000  # k-means learns from a sample of at most that many
_SMOOTHING = 10  # α of the concentration: small clusters are not taken for dense ones
# Clusters of duplicates have a distance of 0; their concentration is this share of the mean.
_LEAST_SHARE = 0.01


class Prototypes(nn.Module):
    """Clusters of the images of a run; none before the first `update`.

    Args:
        images: number of images.
        clusters: number of clusters.
        dim: dimensions of a feature.
    """

    centers: Tensor
    concentrations: Tensor
    assignments: Tensor

    def __init__(self, images: int, clusters: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("centers", torch.zeros(clusters, dim))
        self.register_buffer("concentrations", torch.ones(clusters))
        self.register_buffer("assignments", torch.full((images,), -1))

    @torch.no_grad()
    def update(self, features: Tensor, seen: Tensor, temperature: float, world: World) -> None:
        """Cluster the images anew. All processes must call this.

        Rank 0 computes and the others receive, so that all have the same clusters. Without enough
        images for the clusters, nothing changes.

        Args:
            features: (images, dim) unit vectors.
            seen: (images,) whether an image has a feature yet; others have no cluster.
            temperature: mean of the concentrations.
            world: the processes.
        """
        if int(seen.sum()) < len(self.centers):
            return
        if world.is_rank_zero:
            centers, distances, nearest = kmeans(features[seen].float().cpu(), len(self.centers))
            self.centers.copy_(F.normalize(centers, dim=1))
            self.concentrations.copy_(concentration(distances, nearest, len(centers), temperature))
            self.assignments.fill_(-1)
            self.assignments[seen] = nearest.to(self.assignments.device)
        for values in (self.centers, self.concentrations, self.assignments):
            world.broadcast(values, 0)

    def losses(self, q: Tensor, images: Tensor) -> Tensor:
        """Compute −log softmax of each query's own cluster, (n,); 0 for images without one.

        Args:
            q: (n, dim) queries of length one.
            images: (n,) their images.
        """
        own = self.assignments[images]
        scaled = self.centers / self.concentrations[:, None]
        positive = (q * scaled[own.clamp(min=0)]).sum(dim=1)
        return (log_sum_over_all(q, scaled) - positive) * (own >= 0)


def kmeans(features: Tensor, clusters: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cluster features with faiss, which starts from the same rows every time.

    Args:
        features: (N, D), on the host.
        clusters: number k of clusters, at most N.

    Returns:
        (k, D) centers, (N,) distances of the features to their centers, (N,) their clusters.
    """
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    rows = features.contiguous().numpy()
    found = faiss.Kmeans(
        rows.shape[1],
        clusters,
        niter=_KMEANS_ROUNDS,
        min_points_per_centroid=1,
        max_points_per_centroid=_POINTS_PER_CLUSTER,
    )
    found.train(rows)
    squared, nearest = (torch.from_numpy(each[:, 0]) for each in found.index.search(rows, 1))
    return torch.from_numpy(found.centroids), squared.clamp(min=0).sqrt(), nearest


def concentration(distances: Tensor, clusters: Tensor, count: int, temperature: float) -> Tensor:
    """Compute the concentration of each cluster, φ = Σ‖v − c‖ / (Z·log(Z + α)) (Eq. 12).

    As in the authors' code, clusters of one image have the largest φ, values are clipped to the
    10th and the 90th percentile, and their mean is scaled to the temperature.

    Args:
        distances: (N,) of the features to the centers of their clusters.
        clusters: (N,) the cluster of each feature.
        count: number k of clusters.
        temperature: mean of the concentrations.

    Returns:
        (k,) concentrations.
    """
    sizes = clusters.bincount(minlength=count)
    sums = torch.zeros(count).index_add(0, clusters, distances)
    phi = sums / (sizes.clamp(min=1) * torch.log(sizes + float(_SMOOTHING)))
    phi = torch.where(sizes > 1, phi, phi.max())
    phi = phi.clamp(phi.quantile(0.1), phi.quantile(0.9))
    mean = phi.mean()
    share = torch.where(mean > 0, phi / mean, 1.0)
    return temperature * share.clamp(min=_LEAST_SHARE)
