"""What adapting changed: the neighbors of the untouched encoder beside those of the run."""

from pathlib import Path

import torch.nn.functional as F

import wcl
from report_pages import report_of
from runs import TINY, tiny_run
from wcl.data import ArraySource, limited, open_source, with_format
from wcl.evaluation.references import pretrained_encoder
from wcl.models.encoder import load
from wcl.report.changed_neighbors import changed_neighbors
from wcl.report.images import EncodedImages, choose
from weight_files import weights_file

K = 10


def adapted(folder: Path, lr: float) -> Path:
    model = {**TINY["model"], "backbone": "test_resnet", "freeze_batch_norm": True}
    model["weights"] = str(weights_file(folder / "w.safetensors"))
    return tiny_run(folder / "run", model=model, image_size=32, optim={"lr": lr}, epochs=1)


def test_the_share_is_that_of_a_loop_and_the_most_changed_come_first(tmp_path: Path) -> None:
    encoder = load(adapted(tmp_path, 0.05))
    source = with_format(limited(open_source("digits"), 40, 0), 3, ())
    images = choose(source, 40, 0)
    untouched = pretrained_encoder(encoder)
    assert untouched is not None
    assert isinstance(images.source, ArraySource)
    pixels = images.source.pixels
    nearest = []
    for network in (untouched, encoder):
        f = F.normalize(network.embed(pixels), dim=1)
        nearest.append((f @ f.T).fill_diagonal_(-1).topk(K).indices.tolist())
    new = [len(set(after) - set(before)) / K for before, after in zip(*nearest, strict=True)]
    found = changed_neighbors(EncodedImages(encoder, encoder.embed(pixels), None), images)
    assert found is not None and 0 < found.share < 1
    # Rounding may order two neighbors that are equally near either way.
    assert abs(found.share - sum(new) / len(new)) < 2.5 / (40 * K)
    assert [row.caption for row in found.rows[:2]] == ["untouched", "adapted"]
    (first,) = (i for i in range(40) if found.rows[0].pictures[0].alt.endswith(images.alt(i)))
    assert new[first] > max(new) - 1.5 / K


def test_the_report_shows_them_only_for_runs_from_weights(tmp_path: Path) -> None:
    still = adapted(tmp_path, 0.0)
    text = " ".join(report_of(still).text.split())
    assert "What adapting changed" in text and "neighbors of an image, 0% were not" in text
    assert wcl.evaluate(still, "unlabeled").as_dict()["changed_by_adapting"] == 0
    assert "What adapting changed" not in report_of(tiny_run(tmp_path / "plain", epochs=1)).text
