"""How a run was made, as the report tells it."""

import json
from pathlib import Path
from typing import Any

import pytest

from report_pages import (
    Page,
    report_of,
)
from runs import tiny_run
from wcl.config.layering import recipe_names, settings
from wcl.methods import method_settings
from wcl.report.provenance import evaluation_command, nearest_recipe, recipe_of
from wcl.report.runs import read_run, short


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_nearest_to_itself(name: str) -> None:
    assert nearest_recipe(settings(name, {"data": "x"}, method_settings))[1] == []


def test_settings_that_differ_are_shown_as_one_types_them(page: Page) -> None:
    assert "--crops.scale '[0.3, 0.6]'" in page.text
    assert "--config" in page.text
    assert any(f"pretrain {recipe}" in page.text for recipe in recipe_names())


def provenance(run: Path, **changes: Any) -> list[dict[str, Any]]:
    """Change what the first sitting says."""
    file = run / "provenance.json"
    sessions: list[dict[str, Any]] = json.loads(file.read_text())
    sessions[0] |= changes
    file.write_text(json.dumps(sessions))
    return sessions


def test_the_recipe_is_the_one_that_the_run_names(copy: Path) -> None:
    provenance(copy, recipe="imagenet100", command="wcl pretrain imagenet100 --out '<b>'")
    run = read_run(str(copy))
    recipe = recipe_of(run)
    assert run.config is not None and recipe is not None
    assert recipe.known and recipe.name == "imagenet100"
    wanted = settings("imagenet100", {"data": "x"}, method_settings)
    named = {different.name: different.recipe for different in recipe.differences}
    assert named["batch_size"] == str(wanted.batch_size)
    assert named["epochs"] == str(wanted.epochs)
    assert len(recipe.differences) > len(nearest_recipe(run.config)[1])
    page = report_of(copy)
    assert "It was made from the recipe imagenet100; these settings differ" in page.text
    assert "as it was made\nwcl pretrain imagenet100 --out '<b>'\n" in page.text
    assert "wcl pretrain imagenet100 --" in page.text


def test_the_evaluation_is_of_the_classes_that_were_trained_on(tmp_path: Path) -> None:
    some = read_run(str(tiny_run(tmp_path / "some", epochs=1, classes=3)))
    every = read_run(str(tiny_run(tmp_path / "every", epochs=1)))
    assert evaluation_command(some, "digits").endswith("--data digits --classes 3")
    assert evaluation_command(every, "digits").endswith("--data digits")


@pytest.mark.parametrize("changes", [{"recipe": ""}, {"recipe": "of another version"}, None])
def test_without_a_known_recipe_it_is_the_nearest(
    copy: Path, changes: dict[str, str] | None
) -> None:
    if changes is None:
        (copy / "provenance.json").unlink()
    else:
        provenance(copy, **changes, config="mine.yaml")
    text = report_of(copy).text
    assert "It is nearest to the recipe" in text and "made from the recipe" not in text
    assert ("It was made from mine.yaml." in text) == (changes is not None)
    assert ("It was trained with" in text) == (changes is not None)


def test_versions_of_later_sittings_are_told_where_they_are_others(copy: Path) -> None:
    (first,) = provenance(copy, versions={"wcl": "0.1.0", "torch": "2.6.0"}, machine={"cores": "7"})
    same = {**first, "step": 3}
    other = {**first, "step": 1234, "versions": {"wcl": "0.1.0", "torch": "2.7.<i>"}}
    (copy / "provenance.json").write_text(json.dumps([first, same, other]))
    text = "".join(report_of(copy).text.splitlines())
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
