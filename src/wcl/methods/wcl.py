"""WCL without crops: instance discrimination and weakly supervised contrast (Zheng et al., 2021).

L = L_NCE + β·L_swap. The ablations of the paper's Table 2 that need no crops are settings:
`loss.nce 0` leaves φ alone, `loss.heads shared` puts both losses on one head.
"""

import torch
from torch import Tensor

from wcl.config import LossConfig
from wcl.encoder import Embeddings
from wcl.errors import InputError
from wcl.graph import components, nearest_neighbours
from wcl.losses import nt_xent, swap
from wcl.methods.method import Losses, Method


class WCL(Method):
    """L = L_NCE + β·L_swap, by default on a head each."""

    def __init__(self, config: LossConfig) -> None:
        super().__init__(config)
        if config.nce == 0 and config.swap == 0:
            raise InputError("loss.nce and loss.swap are both 0: nothing would be learnt")

    @property
    def heads(self) -> tuple[str, ...]:
        if self.config.heads == "shared" or not self.config.swap:
            return ("g",)
        return ("g", "phi") if self.config.nce else ("phi",)

    def __call__(self, first: Embeddings, second: Embeddings) -> Losses:
        config = self.config
        parts: dict[str, Tensor] = {}
        labels: tuple[Tensor, ...] = ()
        if config.nce:
            assert first.z is not None and second.z is not None
            parts["nce"] = nt_xent(first.z, second.z, config.tau)
        if config.swap:
            v1, v2 = (first.z, second.z) if config.heads == "shared" else (first.v, second.v)
            assert v1 is not None and v2 is not None
            # Not `weak_labels`: its check for NaN would make the host wait for the device in every
            # step. A non-finite embedding makes the loss non-finite, which stops the run.
            y1, y2 = (components(nearest_neighbours(v, v)) for v in (v1.detach(), v2.detach()))
            parts["swap"] = swap(v1, v2, y1, y2, config.tau, config.positives, config.key_gradient)
            labels = (y1, y2)
        weights = {"nce": config.nce, "swap": config.swap}
        total = torch.stack([weights[name] * part for name, part in parts.items()]).sum()
        return Losses(total, parts, labels)
