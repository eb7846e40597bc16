"""`wcl report`: what the page says is what was measured, and what is missing is said."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import wcl
from images import flat_folder
from report_pages import WICKED_CLASS, WICKED_FILE, Page, tiny_photo_run, wicked_photos
from runs import CROPS, tiny_run
from wcl.cli import run_command
from wcl.config import ReportConfig
from wcl.data import open_source
from wcl.encoder import Encoder, load
from wcl.errors import InputError
from wcl.report.build import usual_file, write_report
from wcl.report.charts import charts
from wcl.report.groups import Group, notable
from wcl.report.measured import measured
from wcl.report.provenance import nearest_recipe, recipe_of, training_facts
from wcl.report.runs import Run, read_run, read_runs, short
from wcl.report.scores import Row, Scores, evaluated, verdict
from wcl.report.sections import score_table
from wcl.report.shown import choose, see
from wcl.report.watch import state
from wcl.settings import recipe_names, settings


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wicked_photos(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    crops = CROPS
    return tiny_photo_run(photos, tmp_path_factory.mktemp("runs") / "first", crops=crops)


@pytest.fixture(scope="module")
def page(run: Path) -> Page:
    return Page(write_report([str(run)], ReportConfig()))


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """The run, to be changed."""
    return Path(shutil.copytree(run, tmp_path / "copy"))


def report_of(*runs: Path, **options: Any) -> Page:
    return Page(write_report([str(one) for one in runs], ReportConfig(**options)))


def test_the_questions_come_in_their_order(page: Page) -> None:
    questions = ("Did it work?", "Is it healthy?", "What did it group?", "Where does everything")
    places = [page.text.rindex(question) for question in (*questions, "How was it made?")]
    assert places == sorted(places)


def test_it_is_one_file_that_refers_to_nothing_else(page: Page) -> None:
    for _, attributes in page.elements:
        for name in ("src", "href"):
            assert attributes.get(name, "#").startswith(("#", "data:")), attributes


def test_names_from_the_disk_stay_text(page: Page) -> None:
    assert len(page.all("script")) == 2
    assert not [attributes for attributes in page.all("img") if "onerror" in attributes]
    assert not [attributes for attributes in page.all("b") if "title" in attributes]
    assert f"{WICKED_CLASS}/{WICKED_FILE}" in page.data["map"]["names"]
    assert page.data["map"]["classes"] == [WICKED_CLASS, "dog"]


def test_every_picture_has_words(page: Page) -> None:
    assert len(page.all("img")) > 20
    assert all(attributes["alt"] for attributes in page.all("img"))


def test_curves_are_the_lines_of_the_run(run: Path, page: Page) -> None:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    drawn = {chart["name"]: chart["lines"][0] for chart in page.data["charts"]}
    assert {"loss", "nce", "swap", "rate", "rankme", "components", "purity"} <= drawn.keys()
    assert {"collision_rate", "neighbour_similarity", "images_per_second"} <= drawn.keys()
    rankme = [line["rankme"] for line in lines if line["kind"] == "epoch"]
    assert page.data["x"] == "epoch"
    assert drawn["rankme"][0] == [1, 2]
    assert drawn["rankme"][1] == pytest.approx(rankme, rel=1e-4)
    rates = [line["rate"] for line in lines if line["kind"] == "step"]
    assert drawn["rate"][1] == pytest.approx(rates, rel=1e-4)
    (loss,) = [chart for chart in page.data["charts"] if chart["name"] == "loss"]
    losses = [line["loss"] for line in lines if line["kind"] == "step"]
    assert loss["dots"][0][1] == pytest.approx(losses, rel=1e-4)


def logged(kind: str, values: Sequence[float]) -> Run:
    """A run of these losses and rates, one a step."""
    lines = [
        {"kind": kind, "step": n, "epoch": n, "loss": value, "rate": value}
        for n, value in enumerate(values, 1)
    ]
    return Run(Path(), "a", None, lines, None)


def test_long_curves_are_thinned_to_means() -> None:
    values = np.random.default_rng(0).normal(size=3000)
    x, y = charts([logged("step", values.tolist())])["charts"][0]["dots"][0]
    assert y == pytest.approx(values.reshape(300, 10).mean(axis=1), rel=1e-4)
    assert x == pytest.approx(np.arange(3000).reshape(300, 10).mean(axis=1) + 1, rel=1e-4)


def test_steps_scatter_about_a_line_of_their_means() -> None:
    loss, rate = charts([logged("step", [5.0, 1, 6, 2, 7, 3])])["charts"]
    assert loss["dots"][0][1] == [5, 1, 6, 2, 7, 3]
    assert loss["lines"][0][1] == [3, 4, 3, 5, 4, 5]
    assert loss["lines"][0][0] == loss["dots"][0][0]
    assert rate["lines"][0][1] == [5, 1, 6, 2, 7, 3] and rate["dots"] == [None]  # it is planned
    two, _ = charts([logged("step", [5.0, 1])])["charts"]
    assert two["lines"][0][1] == [5, 1] and two["dots"] == [None]


def test_of_many_epochs_the_line_has_one_point_each() -> None:
    loss, _ = charts([logged("epoch", [5.0, 1, 6, 2, 7, 3])])["charts"]
    assert loss["lines"][0][1] == [5, 1, 6, 2, 7, 3] and loss["dots"] == [None]


def test_lines_that_are_no_numbers_are_left_out(copy: Path) -> None:
    with (copy / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "epoch", "step": 9, "epoch": 3, "rankme": NaN}\n[1]\n{"kind": "ep')
    drawn = charts(read_runs([str(copy)]))["charts"]
    assert [len(c["lines"][0][0]) for c in drawn if c["name"] == "rankme"] == [2]


_EDITED = [
    '{"kind": "epoch", "step": 9}',
    '{"kind": "epoch", "step": 9, "epoch": "three"}',
    '{"kind": "step", "step": 9, "epoch": null}',
    '{"kind": "epoch", "step": 9, "epoch": 1e-320}',
    f'{{"kind": "step", "step": {10**400}, "epoch": 3}}',
    '{"kind": "step", "step": -1, "epoch": 3}',
    "[" * 5000,
]


@pytest.mark.parametrize("line", _EDITED, ids=lambda line: line[:45])
def test_lines_that_no_run_writes_are_passed_over(run: Path, tmp_path: Path, line: str) -> None:
    for name in ("config.yaml", "metrics.jsonl"):
        shutil.copy(run / name, tmp_path)
    whole = read_run(str(tmp_path))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    edited = read_run(str(tmp_path))
    assert edited.lines == whole.lines
    assert charts([edited]) == charts([whole])
    assert training_facts(edited)[:3] == training_facts(whole)[:3]
    assert state(edited) == state(whole)


def test_numbers_beyond_all_that_a_run_finds_are_not_drawn(copy: Path) -> None:
    seconds = [training_facts(read_run(str(copy)))[2]]
    with (copy / "metrics.jsonl").open("a") as file:
        for number in ("1e308", "1e308", str(10**400)):
            file.write(f'{{"kind": "epoch", "step": 8, "epoch": 2, "seconds": {number}}}\n')
    assert [training_facts(read_run(str(copy)))[2]] == seconds


def test_the_map_groups_images_as_the_paper_does(run: Path, photos: Path) -> None:
    encoder, shown = load(run), choose(open_source(str(photos)), 100, 0)
    seen = see(encoder, shown, 0)
    assert encoder.phi is not None
    with torch.no_grad():
        expected = wcl.weak_labels(encoder.phi(seen.features), backend="scipy")
    same = seen.components[:, None] == seen.components[None]
    assert torch.equal(same, expected[:, None] == expected[None])


def test_a_quick_look_is_that_of_the_evaluation(run: Path, photos: Path) -> None:
    (row,) = measured([read_run(str(run))], [load(run)], str(photos), 0).rows
    found = wcl.evaluate(run, "knn", photos, workers=0)
    assert row.runs == [found.score]
    assert (row.n_train, row.n_test) == (found.n_train, found.n_test)
    description = load(run).description
    torch.manual_seed(0)
    blank = Encoder(description).eval()
    assert row.untrained == [wcl.evaluate(blank, "knn", photos, workers=0).score]


def test_raw_pixels_vote_by_cosine(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "digits")
    (row,) = measured([read_run(str(run))], [load(run)], "digits", 0).rows
    train, test = wcl.data.open_splits("digits")
    assert isinstance(train, wcl.data.ArraySource) and isinstance(test, wcl.data.ArraySource)
    assert train.labels is not None and test.labels is not None
    bank, queries = (F.normalize(s.pixels.flatten(1).double(), dim=1) for s in (train, test))
    right = 0
    k = int(row.setting.removeprefix("k = "))
    for query, label in zip(queries, test.labels, strict=True):
        cosines, near = (bank @ query).topk(k)
        votes = [float(torch.exp(cosines[train.labels[near] == c] / 0.1).sum()) for c in range(10)]
        right += int(np.argmax(votes)) == int(label)
    assert row.pixels == pytest.approx(right / len(queries), abs=0.004)


def test_what_was_evaluated_is_shown_and_not_measured_again(copy: Path, photos: Path) -> None:
    rows = [{"protocol": "knn", "measure": "top1", "setting": "k = 3", "encoder": 0.875}]
    rows += [{"protocol": "linear", "measure": "top1", "setting": "x", "encoder": 0.9375}]
    sha256 = load(copy).description.sha256
    found = {"data": str(photos), "rows": rows, "left_out": {"lowshot": "too few"}}
    (copy / "evaluation.json").write_text(json.dumps({**found, "sha256": sha256}))
    page = report_of(copy)
    assert "87.5% of" in page.text and "0.938" in page.text
    assert "no lowshot: too few" in page.text
    assert "quick look" not in page.text
    assert "trained further" not in page.text
    (copy / "evaluation.json").write_text(json.dumps({**found, "sha256": "0" * 64}))
    assert "trained further after it was evaluated" in report_of(copy).text


def test_a_copy_of_a_run_was_not_trained_further(copy: Path) -> None:
    def notes(of: Path) -> list[str]:
        return evaluated(read_runs([str(of)])).notes

    evaluation = {"rows": [], "sha256": load(copy).description.sha256}
    (copy / "evaluation.json").write_text(json.dumps(evaluation))
    for second, name in enumerate(("evaluation.json", "encoder.safetensors")):
        os.utime(copy / name, (second, second))  # as when it was copied later
    assert notes(copy) == []
    encoder = load(copy)
    with torch.no_grad():
        next(encoder.backbone.parameters()).add_(1)
    encoder.save(copy / "encoder.safetensors")
    (note,) = notes(copy)
    assert "trained further after it was evaluated" in note
    for content in (b"", b"damaged", b"\2\0\0\0\0\0\0\0{}"):  # of which nothing can be said
        (copy / "encoder.safetensors").write_bytes(content)
        assert notes(copy) == []


def test_what_was_evaluated_on_other_data_says_so(copy: Path) -> None:
    rows = [{"protocol": "knn", "measure": "top1", "setting": "k = 3", "encoder": 0.875}]
    (copy / "evaluation.json").write_text(json.dumps({"data": "elsewhere", "rows": rows}))
    page = report_of(copy)
    assert "k = 3, on elsewhere" in page.text and "0.875" in page.text
    assert "quick look" in page.text and "87.5%" not in page.text


@pytest.mark.parametrize("count", [None, "many", 0, -5])
def test_scores_of_an_unknown_number_of_images_are_said_without_it(run: Path, count: Any) -> None:
    row = {"protocol": "knn", "measure": "top1", "encoder": 0.875, "untrained": 0.5}
    found = evaluated([Run(run, "a", None, [], {"rows": [row | {"n_test": count}]})])
    (said,) = verdict(found, ["a"])
    assert "classifies 87.5% of the test images rightly" in said


def test_an_evaluation_that_is_nested_without_end_is_said(copy: Path) -> None:
    (copy / "evaluation.json").write_text("[" * 100_000)
    assert "its evaluation.json cannot be read" in read_run(str(copy)).missing[0]


@pytest.mark.parametrize(
    ("score", "answer"), [(0.9, "Yes: the"), (0.81, "Not clearly: the"), (0.5, "No: the")]
)
def test_the_answer_depends_on_the_better_baseline(score: float, answer: str) -> None:
    row = Row("knn", "k = 5", "top1", 900, 1000, [score], [0.3], pixels=0.8)
    (said,) = verdict(Scores([row]), ["a"])
    assert said.startswith(answer)
    assert f"{abs(score - 0.8) * 100:.1f} points" in said


def test_runs_side_by_side_share_lines_maps_and_names(
    run: Path, photos: Path, tmp_path: Path
) -> None:
    other = tiny_photo_run(photos, tmp_path / "second" / "first", method="simclr")
    (run / "report.html").write_text("of the first run alone")
    page = report_of(run, other)
    assert (run / "report.html").read_text() == "of the first run alone"
    assert len([*run.glob("report-with-second-first-*.html")]) == 1
    assert len(set(page.data["runs"])) == 2
    assert [one["run"] for one in page.data["map"]["maps"]] == [0, 1]
    swap = next(chart for chart in page.data["charts"] if chart["name"] == "swap")
    assert swap["lines"][0] and swap["lines"][1] is None
    assert "does not learn from groups" in page.text
    assert page.text.count("Weak labels of one batch") == 2


@pytest.mark.parametrize(
    ("names", "file"),
    [
        (["a"], "report.html"),
        (["a", "b.2"], "report-with-b.2.html"),
        (["a", "b-2"], "report-with-b-2.html"),
        (["x/a", "y/a", "ß b"], "report-with-y-a-ß-b-########.html"),
        (["a", "a (2)"], "report-with-a-2-########.html"),
        (["a", "<b>/c"], "report-with-b-c-########.html"),
        (["a", "***"], "report-with--########.html"),
        (["a", "b" * 150, "c" * 150], "report-with-2-others-########.html"),
    ],
)
def test_a_comparison_has_a_file_of_its_own(names: list[str], file: str) -> None:
    runs = [Run(Path("runs") / name, name, None, [], None) for name in names]
    pattern = re.escape(file).replace(re.escape("#"), "[0-9a-f]")
    assert usual_file(runs).parent == Path("runs") / names[0]
    assert re.fullmatch(pattern, usual_file(runs).name)


def test_no_comparison_has_the_file_of_another() -> None:
    def file(*places: str) -> Path:
        return usual_file([Run(Path(p), Path(p).name, None, [], None) for p in places])

    long = "b" * 150
    found = [
        file("runs/a", *others)
        for others in (
            ["runs/b"],
            ["old/b"],
            ["older/b"],
            ["runs/b c"],
            ["runs/b-c"],
            ["runs/b", "runs/c"],
            ["runs/c", "runs/b"],
            [f"runs/{long}", f"runs/{long}2"],
            [f"runs/{long}", f"runs/{long}3"],
        )
    ]
    assert len({*found}) == len(found)
    assert file("runs/a", "old/b") == file("runs/a", "./old/b") == found[1]


def settings_alone(folder: Path, **values: Any) -> Path:
    """A run that has just begun."""
    folder.mkdir()
    (folder / "config.yaml").write_text(json.dumps({"data": "digits", **values}))
    return folder


def test_the_headline_counts_the_images_that_were_trained_on(page: Page, tmp_path: Path) -> None:
    assert f"trained on all its {len(page.data['map']['names'])} images; all of them" in page.text
    every = settings_alone(tmp_path / "every")
    some = settings_alone(tmp_path / "some", limit=128)
    classes = settings_alone(tmp_path / "classes", classes=3, limit=1000)
    assert "wcl on digits: trained on all its 1,297 images" in report_of(every).text
    assert "wcl on digits: trained on 128 of its 1,297 images" in report_of(some).text
    labels = open_source("digits").labels
    assert labels is not None
    several = f"trained on {int((labels < 3).sum())} (classes) and 128 (some) of its 1,297 images"
    assert several in report_of(classes, some).text


def test_the_headline_says_how_many_images_are_shown(tmp_path: Path) -> None:
    page = report_of(tiny_run(tmp_path / "run", epochs=1), images=40)
    assert "trained on 128 of its 1,297 images; 40 of the 1,297 are shown here" in page.text


_MARKS = r'<rect class="(pixels)"|<circle class="(?:dot )?(\w+)"'


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            Row("knn", "", "top1", 9, 9, [0.9, 0.8], [0.5, 0.5], pixels=0.7),
            ["raw pixels", "a", "b"],
        ),
        (Row("knn", "", "top1", 9, 9, [0.9, 0.8], [0.5, 0.5]), ["untrained", "a", "b"]),
        (Row("linear", "", "top1", 9, 9, [None, 0.8], [None, None]), ["b"]),
        (Row("finetune", "", "top1", 9, 9, [0.8, None], [0.3, None]), ["from scratch", "a"]),
    ],
)
def test_the_legend_of_scores_has_every_mark_that_is_drawn_and_no_other(
    row: Row, says: list[str]
) -> None:
    table, legend = score_table(Scores([row]), ["a", "b"]).split('class="legend')
    assert {*re.findall(_MARKS, table)} == {*re.findall(_MARKS, legend)}
    assert ("raw pixels" in legend) == ("raw pixels" in says)
    assert all(word in legend for word in says)
    assert ("from scratch" in legend) == ("from scratch" in says)


def test_every_group_is_shown_once(page: Page) -> None:
    rows: list[list[str]] = []
    for tag, attributes in page.elements:
        if tag == "figure":
            rows.append([])
        elif tag == "img" and attributes["src"].startswith("data:"):
            rows[-1].append(attributes["title"])
    own = rows[: next(n for n, row in enumerate(rows) if row[0].startswith("image: "))]
    assert own and len({*map(tuple, own)}) == len(own)


def test_no_group_is_both_pure_and_mixed() -> None:
    pure, half, mixed = (
        Group([*range(n, n + 4)], classes)
        for n, classes in ((0, [(0, 1.0)]), (4, [(0, 0.5), (1, 0.5)]), (8, [(0, 0.25)] * 4))
    )
    pair = Group([12, 13], [(0, 0.5), (1, 0.5)])
    assert notable([pure]) == {"largest": [pure], "purest": [], "most mixed": []}
    found = {"largest": [pure, half], "purest": [pure], "most mixed": [half]}
    assert notable([pure, half]) == found
    assert notable([pure, half, mixed, pair])["most mixed"] == [mixed]
    assert notable([pure, pure])["most mixed"] == []
    assert notable([Group([1, 2, 3], [])])["purest"] == []  # without labels


def test_without_labels_what_needs_them_is_left_out_and_said(tmp_path: Path) -> None:
    data = flat_folder(tmp_path / "flat", 16)
    page = report_of(tiny_photo_run(data, tmp_path / "run"))
    assert page.data["map"]["labels"] is None
    assert "the images have no labels" in page.text
    assert "cannot be told without labels" in page.text
    assert "Purest" not in page.text
    assert "purity" not in [chart["name"] for chart in page.data["charts"]]


def test_a_run_in_its_first_epoch_has_curves_by_step(copy: Path) -> None:
    lines = (copy / "metrics.jsonl").read_text().splitlines()
    (copy / "metrics.jsonl").write_text(lines[0] + "\n")
    (copy / "encoder.safetensors").unlink()
    page = report_of(copy)
    assert page.data["x"] == "step" and page.data["map"] is None
    assert "first epoch has not ended" in page.text


def test_a_run_without_metrics_has_all_but_curves(copy: Path) -> None:
    (copy / "metrics.jsonl").unlink()
    page = report_of(copy)
    assert page.data["charts"] == [] and page.data["map"]
    assert "no metrics.jsonl" in page.text


def test_settings_that_cannot_be_read_are_said(copy: Path, photos: Path) -> None:
    (copy / "config.yaml").write_text("colour: blue\n")
    page = report_of(copy, data=str(photos))
    assert "its settings cannot be read" in page.text and page.data["map"]


def test_images_that_are_gone_are_said(tmp_path: Path) -> None:
    data = wicked_photos(tmp_path / "photos")
    run = tiny_photo_run(data, tmp_path / "run")
    for file in sorted(data.rglob("0*.jpg"))[:5]:
        file.write_bytes(b"")
    assert "5 images cannot be read" in report_of(run).text
    shutil.rmtree(data)
    page = report_of(run)
    assert "are not there" in page.text and page.data["map"] is None and page.data["charts"]


def test_runs_of_different_data_must_say_which_to_show(run: Path, tmp_path: Path) -> None:
    other = tiny_run(tmp_path / "digits", epochs=1)
    with pytest.raises(InputError, match="--data: the runs are of different data"):
        write_report([str(run), str(other)], ReportConfig())
    page = report_of(run, other, data="digits", images=40, out=str(tmp_path / "r.html"))
    assert "trained on different data" in page.text and len(page.data["map"]["maps"]) == 2


def test_the_usual_file_is_replaced_and_no_other(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.html").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        write_report([str(run)], ReportConfig(out=str(tmp_path / "mine.html")))
    assert (tmp_path / "mine.html").read_text() == "mine"
    (run / "report.html").write_text("old")
    write_report([str(run)], ReportConfig())
    assert "Did it work?" in (run / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["report"], "run is missing"),
        (["report", "nowhere"], "nowhere: no run there"),
        (["report", "RUN", "--data", "nowhere"], "nowhere: no such data"),
        (["report", "RUN", "--images", "1"], "--images: must be between"),
        (["report", "RUN", "--out", "a.pdf"], "must be a .html file"),
    ],
)
def test_mistakes_are_one_line(
    run: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([str(run) if word == "RUN" else word for word in words]) == 2
    complaint = capsys.readouterr().err
    assert says in complaint and complaint.count("\n") == 1


@pytest.fixture
def read_only(run: Path, tmp_path: Path) -> Iterator[Path]:
    """The run on a disk that takes nothing."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        shutil.copytree(run, disk / "run")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        yield disk / "run"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_page_that_cannot_be_written_is_said_before_all_work(
    read_only: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = ["--data", "nowhere"]  # which would be said first otherwise
    for out in ([], ["--out", f"{read_only}/page.html"]):
        assert run_command(["report", str(read_only), *later, *out]) == 2
        complaint = capsys.readouterr().err
        file = read_only / ("page.html" if out else "report.html")
        assert f"{file}: cannot be written (Read-only file system); give another" in complaint
        assert "--out" in complaint and complaint.count("\n") == 1
    page = tmp_path / "page.html"
    assert run_command(["report", str(read_only), "--images", "8", "--out", str(page)]) == 0


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_nearest_to_itself(name: str) -> None:
    assert nearest_recipe(settings(name, {"data": "x"}))[1] == []


def test_settings_that_differ_are_shown_as_one_types_them(page: Page) -> None:
    assert "--crops.area '[0.3, 0.6]'" in page.text
    assert "--config" in page.text
    assert any(f"pretrain {recipe}" in page.text for recipe in recipe_names())


def made_with(run: Path, **changes: Any) -> list[dict[str, Any]]:
    """Change what the first sitting says."""
    file = run / "made_with.json"
    sittings: list[dict[str, Any]] = json.loads(file.read_text())
    sittings[0] |= changes
    file.write_text(json.dumps(sittings))
    return sittings


def test_the_recipe_is_the_one_that_the_run_names(copy: Path) -> None:
    made_with(copy, recipe="imagenet100", command="wcl pretrain imagenet100 --out '<b>'")
    run = read_run(str(copy))
    recipe = recipe_of(run)
    assert run.config is not None and recipe is not None
    assert recipe.known and recipe.name == "imagenet100"
    wanted = settings("imagenet100", {"data": "x"})
    named = {different.name: different.recipe for different in recipe.differences}
    assert named["batch"] == wanted.batch and named["epochs"] == wanted.epochs
    assert len(recipe.differences) > len(nearest_recipe(run.config)[1])
    page = report_of(copy)
    assert "It was made from the recipe imagenet100; these settings differ" in page.text
    assert "as it was made\nwcl pretrain imagenet100 --out '<b>'\n" in page.text
    assert "wcl pretrain imagenet100 --" in page.text


@pytest.mark.parametrize("changes", [{"recipe": ""}, {"recipe": "of another version"}, None])
def test_without_a_known_recipe_it_is_the_nearest(
    copy: Path, changes: dict[str, str] | None
) -> None:
    if changes is None:
        (copy / "made_with.json").unlink()
    else:
        made_with(copy, **changes, config="mine.yaml")
    text = report_of(copy).text
    assert "It is nearest to the recipe" in text and "made from the recipe" not in text
    assert ("It was made from mine.yaml." in text) == (changes is not None)
    assert ("It was trained with" in text) == (changes is not None)


def test_versions_of_later_sittings_are_told_where_they_are_others(copy: Path) -> None:
    (first,) = made_with(copy, versions={"wcl": "0.1.0", "torch": "2.6.0"}, machine={"cores": "7"})
    same = {**first, "step": 3}
    other = {**first, "step": 1234, "versions": {"wcl": "0.1.0", "torch": "2.7.<i>"}}
    (copy / "made_with.json").write_text(json.dumps([first, same, other]))
    text = report_of(copy).text
    assert "It was trained with:wcl0.1.0torch2.6.0cores7From step" in text
    assert "From step 1,234 on it was trained with:torch2.7.<i>To repeat it" in text


def test_paths_are_shown_whole_to_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(user: int) -> None:
        raise KeyError(user)

    monkeypatch.setenv("HOME", "/home/somebody")
    assert short("/home/somebody/runs/a") == "~/runs/a"
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert short("/home/somebody/runs/a") == "/home/somebody/runs/a"
