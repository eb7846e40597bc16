"""PCL v2: prototypical contrastive learning (Li et al., 2021, arXiv 2005.04966).

MoCo v2 and, after `warmup_epochs`, a second term that draws each query q to the prototype c_s of
its cluster, in M clusterings of all images (ProtoNCE, Eq. 11):

    L = L_MoCo + 1/M Σ_m −log exp(q·c_s/φ_s) / Σ_j exp(q·c_j/φ_j)

At the end of every epoch k-means clusters the keys of all images, with k, k/2, k/4 … clusters, of
which k is `clusters`. The concentration φ of a cluster (Eq. 12) is small if its images are close to
its center and many, and has the mean τ. The weak labels are the clusters of the finest clustering.

The authors train with τ = 0.2, a queue of 16,384 keys, 25,000, 50,000 and 100,000 clusters for the
1.28 million images of ImageNet, 20 epochs of warm-up, and otherwise as MoCo v2. They encode all
images once more, without augmentation, before they cluster; ours clusters the keys of the epoch,
which cost nothing. They draw 16,384 negative prototypes; ours takes all.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcl.config.bounds import at_least, between
from wcl.distributed.sharding import BatchShard
from wcl.distributed.world import World
from wcl.methods.method import Losses, RunInfo
from wcl.methods.moco import MoCo, MoCoSettings
from wcl.methods.prototypes import Prototypes
from wcl.models.encoder import Encoder
from wcl.neighbors import FeatureBank
from wcl.ops.weak_labels import first_of_same
from wcl.system.errors import InputError

_AUTHORS_CLUSTERS = 100_000
_IMAGES_PER_CLUSTER = 13  # the authors' on ImageNet


@dataclass
class PCLSettings(MoCoSettings):
    """Settings of PCL v2."""

    clusters: Annotated[int, at_least(0)] = 0
    """Clusters of the finest clustering; 0 for 100,000 or, if that is less, for a 13th of the
    images."""
    clusterings: Annotated[int, between(1, 16)] = 3
    """Number M of clusterings, each with half the clusters of the one before."""
    warmup_epochs: Annotated[int, at_least(0)] = 20
    """Epochs at the start without clusters."""


class PCL(MoCo):
    """A query finds the key of its own image and the prototypes of its clusters."""

    Settings: ClassVar[type[Any]] = PCLSettings
    weak_labels_need_state = True

    bank: Tensor
    seen: Tensor
    epochs: Tensor

    def __init__(self, encoder: Encoder, settings: PCLSettings, info: RunInfo) -> None:
        super().__init__(encoder, settings, info)
        if settings.clusters > info.images:
            raise InputError(
                f"--loss.clusters: {settings.clusters} are more than the {info.images} images; "
                "use 0 to choose by the number of images"
            )
        finest = settings.clusters or max(
            1, min(_AUTHORS_CLUSTERS, info.images // _IMAGES_PER_CLUSTER)
        )
        dim = encoder.description.model.head_out_dim
        self._clusterings = [
            Prototypes(info.images, max(1, finest // 2**number), dim)
            for number in range(settings.clusterings)
        ]
        self.prototypes = nn.ModuleList(self._clusterings)
        self.register_buffer("bank", torch.zeros(info.images, dim))
        self.register_buffer("seen", torch.zeros(info.images, dtype=torch.bool))
        self.register_buffer("epochs", torch.zeros((), dtype=torch.long))
        self._images: Tensor | None = None

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        moco = super().loss(out, targets, shard)
        images, q = shard.image_index, moco.pair[0]
        local = shard.local(images)
        terms = [prototypes.losses(q, local).sum() for prototypes in self._clusterings]
        proto = torch.stack(terms).sum() / (len(terms) * len(shard))
        self._images = images
        labels = first_of_same(self._clusterings[0].assignments[images])
        parts = {**moco.parts, "proto": proto}
        return Losses(moco.total + proto, parts, moco.pair, (labels,))

    @torch.no_grad()
    def after_step(self, progress: float) -> None:
        super().after_step(progress)
        assert self._images is not None and self._keys is not None
        self.bank[self._images] = self._keys.to(self.bank.dtype)
        self.seen[self._images] = True

    def end_of_epoch(self, bank: FeatureBank | None) -> None:
        self.epochs.add_(1)
        if int(self.epochs) >= self.settings.warmup_epochs:
            world = World.current()
            for prototypes in self._clusterings:
                prototypes.update(self.bank, self.seen, self.settings.temperature, world)

    def weak_labels(self, embeddings: dict[str, Tensor]) -> Tensor | None:
        centers = self._clusterings[0].centers
        if not centers.any():  # still warming up
            return None
        return first_of_same((F.normalize(embeddings["g"], dim=1) @ centers.T).argmax(dim=1))
