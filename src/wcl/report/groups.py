"""What did it group? Weak labels of a batch, neighbors and augmentations, as rows of pictures."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from wcl.config import PretrainConfig
from wcl.data import with_channels
from wcl.data.loader import Batch, views_of
from wcl.data.views import ViewSpec
from wcl.methods import build_method
from wcl.models.encoder import Encoder
from wcl.models.multiview import view_specs
from wcl.neighbors import nearest
from wcl.ops.diagnostics import weak_label_quality
from wcl.ops.randomness import Integers
from wcl.ops.weak_labels import weak_labels
from wcl.report.page import escape
from wcl.report.shown import EncodedImages, ReportImages, embedding, members, shares
from wcl.report.sprites import picture
from wcl.system.errors import RunError

_LARGEST_BATCH = 512
_ROWS = 3
_ACROSS = 12
_FEWEST = 3  # images of a group that can be called pure or mixed
_MAJORITY = 0.5  # of one class, or it is not pure even beside others that are less so
_ANCHORS = 6
_NEIGHBORS = 8
_AUGMENTED = 4
_VIEWS = 6


@dataclass
class Group:
    """A component of a batch."""

    rows: list[int]
    classes: list[tuple[int, float]]
    """Each class in it and its share, the commonest first; empty without labels."""

    @property
    def purity(self) -> float:
        return self.classes[0][1]

    @property
    def mixture(self) -> float:
        """The entropy of its classes."""
        return -sum(share * math.log(share) for _, share in self.classes)


def grouped(encoder: Encoder, shown: ReportImages, config: PretrainConfig) -> str:
    """The groups of one batch of augmented views, as in a step of training."""
    rows = np.random.default_rng(config.seed).permutation(len(shown))
    rows = rows[: min(config.batch_size, _LARGEST_BATCH)].astype(np.int64)
    batch, _ = _views(shown, rows, encoder, config, 1)
    rows = batch.index
    if len(rows) < 2:
        raise RunError("there are too few images for a batch")
    with torch.no_grad():
        first = batch.views[0].to(encoder.device)
        values = torch.cat([encoder.backbone(part).float().cpu() for part in first.split(256)])
    labels = weak_labels(embedding(encoder, values, config.loss))
    groups = [_group(shown, rows[group].tolist()) for group in members(labels)]
    said = f"{len(rows)} images fell into {len(groups)} groups; the largest has "
    said += f"{len(groups[0].rows)} of them."
    classes = shown.source.labels
    if classes is not None:
        found = weak_label_quality(labels, classes[rows], len(shown.source.classes))
        said += f" {float(found['purity']):.0%} of the images are of their group's main class"
        said += f", and {float(found['collision_rate']):.0%} of the pairs that are pushed apart"
        said += " are really of one class."
    if not build_method(config.method, config.loss, config.crops.count > 0).learns_from_groups:
        said += " (This run does not learn from groups; these are the ones its embeddings give.)"
    parts = [f"<p>{escape(said)}</p>", _group_rows(shown, notable(groups))]
    if classes is None:
        parts.append(_note("Which groups are pure or mixed cannot be told without labels."))
    return "".join(parts)


def notable(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups to show, by what they are; one of the largest may be something else besides.

    Args:
        groups: of a batch, the largest first.
    """
    chosen = {"largest": [*groups[:_ROWS]]}
    enough = [group for group in groups if group.classes and len(group.rows) >= _FEWEST]
    # Of a few groups the purest would be the most mixed as well.
    count = min(_ROWS, len(enough) // 2)
    by_purity = sorted(enough, key=lambda group: (-group.purity, -len(group.rows)))
    chosen["purest"] = [group for group in by_purity[:count] if group.purity > _MAJORITY]
    mixed = [group for group in by_purity[count:] if group.purity < 1]
    chosen["most mixed"] = sorted(mixed, key=lambda group: -group.mixture)[:count]
    return chosen


def anchors(shown: ReportImages, seen: EncodedImages, config: PretrainConfig) -> str:
    """Some images, and the nearest others by the cosine of their features."""
    crops = config.crops
    count = min(crops.count if crops.count and crops.neighbors else _NEIGHBORS, _ACROSS)
    count = min(count, len(shown) - 1)
    if count < 1:
        return _note("There are too few images for neighbors.")
    rows = torch.from_numpy(_some(len(shown), _ANCHORS, config.seed))
    cosines, near = nearest(seen.features[rows], seen.features, count, rows)
    lines, kinds = [], set()
    for row, values, others in zip(rows.tolist(), cosines.tolist(), near.tolist(), strict=True):
        tiles = [_tile(shown, row, f"image: {shown.alt(row)}", "lead", shown.label(row))]
        for value, other in zip(values, others, strict=True):
            same = shown.label(row) == shown.label(other)
            kind = "" if not shown.label(row) else "same" if same else "other"
            said = f"cosine {value:.2f}: {shown.alt(other)}"
            tiles.append(_tile(shown, other, said, kind, f"{value:.2f}"))
            kinds.add(kind)
        lines.append(_row("", tiles))
    meanings = {"same": "of the image’s class", "other": "of another class"}
    keys = [
        f'<span class="key {kind}"></span> {meaning} '
        for kind, meaning in meanings.items()
        if kind in kinds
    ]
    return "".join(lines) + (f'<p class="legend">{"".join(keys)}</p>' if keys else "")


def augmented(encoder: Encoder, shown: ReportImages, config: PretrainConfig) -> str:
    """Some images and what the augmentations make of them."""
    rows = _some(len(shown), _AUGMENTED, config.seed + 1)
    batch, specs = _views(shown, rows, encoder, config, _VIEWS)
    pixels = [
        spec.maker.to_pixels(views).unflatten(0, (spec.count, -1))
        for spec, views in zip(specs, batch.views, strict=True)
    ]
    lines = []
    for number, row in enumerate(batch.index.tolist()):
        below = shown.label(row) or "image"
        tiles = [_tile(shown, row, f"image: {shown.alt(row)}", "lead", below)]
        for kind, views in enumerate(pixels):
            what = "small crop" if kind else "view"
            for count, view in enumerate(views[:, number], 1):
                said = f"{what} {count} of {shown.name(row)}"
                tiles.append(_img(picture(view, shown.side), said, "crop" if kind else "", ""))
        lines.append(_row("", tiles))
    return "".join(lines)


def _views(
    shown: ReportImages, rows: Integers, encoder: Encoder, config: PretrainConfig, count: int
) -> tuple[Batch, list[ViewSpec]]:
    """Return views of the images that can be read, and their specifications.

    Small crops are left out if only one view is wanted.
    """
    source = with_channels(shown.source, encoder.description.channels)
    full, *small = view_specs(config, source.channels)
    specs = [dataclasses.replace(full, count=count), *(small if count > 1 else [])]
    return views_of(source, rows, specs, config.seed), specs


def _some(count: int, most: int, seed: int) -> Integers:
    return np.random.default_rng(seed).permutation(count)[:most].astype(np.int64)


def _group(shown: ReportImages, rows: list[int]) -> Group:
    labels = shown.source.labels
    return Group(rows, [] if labels is None else shares(labels[rows].tolist()))


def _group_rows(shown: ReportImages, chosen: dict[str, list[Group]]) -> str:
    """Each group once, under the first thing that it is; beside it stands what else it is."""
    parts: list[str] = []
    done: list[Group] = []
    for what, groups in chosen.items():
        new = [group for group in groups if group not in done]
        if new:
            parts.append(f"<h4>{escape(what.capitalize())}</h4>")
        for group in new:
            also = [
                f"the {other}" if len(chosen[other]) == 1 else f"one of the {other}"
                for other in chosen
                if other != what and group in chosen[other]
            ]
            parts.append(_group_row(shown, group, also))
        done += new
    return "".join(parts)


def _group_row(shown: ReportImages, group: Group, also: Sequence[str]) -> str:
    said = f"{len(group.rows)} images"
    if group.classes:
        names = [f"{share:.0%} {shown.source.classes[label]}" for label, share in group.classes[:3]]
        said += f" · {', '.join(names)}"
        if len(group.classes) > len(names):
            said += f" and {len(group.classes) - len(names)} more"
    said += "".join(f" · also {what}" for what in also)
    tiles = [_tile(shown, row, shown.alt(row), "", "") for row in group.rows[:_ACROSS]]
    if len(group.rows) > _ACROSS:
        tiles.append(f'<li class="more">+{len(group.rows) - _ACROSS}</li>')
    return _row(said, tiles)


def _row(said: str, tiles: Sequence[str]) -> str:
    caption = f"<figcaption>{escape(said)}</figcaption>" if said else ""
    return f'<figure class="row">{caption}<ul>{"".join(tiles)}</ul></figure>'


def _tile(shown: ReportImages, row: int, alt: str, kind: str, below: str) -> str:
    return _img(picture(shown.tiles[row], shown.side), alt, kind, below)


def _img(uri: str, alt: str, kind: str, below: str) -> str:
    words = f"<small>{escape(below)}</small>" if below else ""
    said = escape(alt)
    return f'<li class="{kind}"><img src="{uri}" alt="{said}" title="{said}">{words}</li>'


def _note(words: str) -> str:
    return f'<p class="note">{escape(words)}</p>'
