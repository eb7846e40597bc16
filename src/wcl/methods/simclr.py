"""SimCLR: instance discrimination with one projection head (Chen et al., 2020)."""

from wcl.encoder import Embeddings
from wcl.losses import nt_xent
from wcl.methods.method import Losses, Method


class SimCLR(Method):
    """L = L_NCE."""

    @property
    def heads(self) -> tuple[str, ...]:
        return ("g",)

    def __call__(self, first: Embeddings, second: Embeddings) -> Losses:
        assert first.z is not None and second.z is not None
        nce = nt_xent(first.z, second.z, self.config.tau)
        return Losses(nce, {"nce": nce})
