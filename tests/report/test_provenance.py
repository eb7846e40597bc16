"""How a run was trained, as the report shows it."""

import json
from pathlib import Path
from typing import Any

import pytest

from report_pages import Page, report_of
from runs import tiny_run
from wcl.config.layering import settings
from wcl.config.recipes import recipe_names
from wcl.methods import method_settings
from wcl.report.provenance import closest_recipe, evaluation_command, recipe_of
from wcl.report.runs import read_run, shortened


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_closest_to_itself(name: str) -> None:
    assert closest_recipe(settings(name, {"data": "x"}, method_settings)).differences == []


def test_settings_that_differ_are_shown_as_one_types_them(page: Page) -> None:
    assert "--crops.scale '[0.3, 0.6]'" in page.text
    assert "--config" in page.text
    assert any(f"pretrain {recipe}" in page.text for recipe in recipe_names())


def provenance(run: Path, **changes: Any) -> list[dict[str, Any]]:
    """Change what the first session recorded."""
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
    assert len(recipe.differences) > len(closest_recipe(run.config).differences)
    page = report_of(copy)
    assert "Recipe: imagenet100; these settings differ" in page.text
    assert "the original command\nwcl pretrain imagenet100 --out '<b>'\n" in page.text
    assert "wcl pretrain imagenet100 --" in page.text


def test_the_evaluation_is_of_the_classes_that_were_trained_on(tmp_path: Path) -> None:
    some = read_run(str(tiny_run(tmp_path / "some", epochs=1, classes=3)))
    every = read_run(str(tiny_run(tmp_path / "every", epochs=1)))
    assert evaluation_command(some, "digits").endswith("--data digits --classes 3")
    assert evaluation_command(every, "digits").endswith("--data digits")


@pytest.mark.parametrize("changes", [{"recipe": ""}, {"recipe": "of another version"}, None])
def test_without_a_known_recipe_it_is_the_closest(
    copy: Path, changes: dict[str, str] | None
) -> None:
    if changes is None:
        (copy / "provenance.json").unlink()
    else:
        provenance(copy, **changes, config="mine.yaml")
    text = report_of(copy).text
    assert "Closest recipe: " in text and "Recipe: " not in text
    assert ("Settings file: mine.yaml." in text) == (changes is not None)
    assert ("Trained with:" in text) == (changes is not None)


def test_versions_of_later_sessions_are_shown_where_they_differ(copy: Path) -> None:
    (first,) = provenance(copy, versions={"wcl": "0.1.0", "torch": "2.6.0"}, machine={"cores": "7"})
    same = {**first, "step": 3}
    other = {**first, "step": 1234, "versions": {"wcl": "0.1.0", "torch": "2.7.<i>"}}
    (copy / "provenance.json").write_text(json.dumps([first, same, other]))
    text = "".join(report_of(copy).text.splitlines())
    assert "Trained with:wcl0.1.0torch2.6.0cores7Changed from step" in text
    assert "Changed from step 1,234 on:torch2.7.<i>Commands" in text


def test_paths_are_shown_whole_to_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(user: int) -> None:
        raise KeyError(user)

    monkeypatch.setenv("HOME", "/home/somebody")
    assert shortened("/home/somebody/runs/a") == "~/runs/a"
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert shortened("/home/somebody/runs/a") == "/home/somebody/runs/a"
