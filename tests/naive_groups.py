"""Groups of similar rows, found by comparing every pair."""

import torch
import torch.nn.functional as F


def disjoint_sets(features: torch.Tensor, threshold: float) -> list[set[int]]:
    """Groups of at least two, by comparing every pair."""
    unit = F.normalize(features.double(), dim=1)
    sets = [{i} for i in range(len(features))]
    for i in range(len(features)):
        for j in range(i):
            if float(unit[i] @ unit[j]) >= threshold and sets[i] is not sets[j]:
                sets[i] |= sets[j]
                for member in sets[j]:
                    sets[member] = sets[i]
    return [group for i, group in enumerate(sets) if len(group) > 1 and min(group) == i]
