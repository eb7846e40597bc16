"""The pages in a real browser: they draw, they can be operated, and they fetch nothing."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import pytest
from PIL import Image
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

from report_pages import (
    MAGENTA,
    WICKED_CLASS,
    WICKED_FILE,
    tiny_photo_run,
    wicked_photos,
    write_evaluation,
)
from report_pages import Page as Parsed
from wcl.config import ReportConfig
from wcl.report.build import write_report
from wcl.report.watch import open_server

_BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
# .ci/run sets WCL_REQUIRE_BROWSER, so that these tests fail there instead of being skipped.
pytestmark = pytest.mark.skipif(
    _BROWSER is None and not os.environ.get("WCL_REQUIRE_BROWSER"),
    reason="no chromium: apt-get install chromium",
)

_PHONE, _DESK = 400, 1400
Opener = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert _BROWSER, "no chromium, and WCL_REQUIRE_BROWSER is set: apt-get install chromium"
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_BROWSER, args=options)
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opener]:
    """Open pages; fail if they log, open dialogs or fetch anything."""
    wrong: list[str] = []
    contexts = []

    def dismiss(dialog: Dialog) -> None:
        wrong.append(dialog.message)
        dialog.dismiss()

    def open_page(address: str, width: int, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", dismiss)
        own = ("data:", "blob:", address.split("?")[0])
        page.on("request", lambda r: None if r.url.startswith(own) else wrong.append(r.url))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    photos = wicked_photos(folder / "photos")
    methods = ("wcl", "simclr")
    return [tiny_photo_run(photos, folder / method, method=method) for method in methods]


@pytest.fixture(scope="module")
def report(runs: list[Path]) -> Path:
    return write_report([str(run) for run in runs], ReportConfig(num_workers=0))


def place_of(page: Page, data: dict[str, Any], index: int) -> tuple[float, float]:
    """Return where an image is on the screen, on the first map before any zoom."""
    canvas = page.locator(".frame > canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    unit = (min(box["width"], box["height"]) - 28) / 10_000
    middle = {axis: (min(data[axis]) + max(data[axis])) / 2 for axis in ("x", "y")}
    return (
        box["x"] + box["width"] / 2 + (data["x"][index] - middle["x"]) * unit,
        box["y"] + box["height"] / 2 + (data["y"][index] - middle["y"]) * unit,
    )


def color_of(page: Page, selector: str) -> list[int]:
    """Return the pixel in the middle of a canvas."""
    found: list[int] = page.locator(selector).first.evaluate(
        "c => [...c.getContext('2d').getImageData(c.width / 2, c.height / 2, 1, 1).data]"
    )
    return found


def drawing(page: Page, number: int) -> str:
    found: str = page.locator(".frame > canvas").nth(number).evaluate("c => c.toDataURL()")
    return found


@pytest.mark.parametrize(("width", "scheme"), [(_PHONE, "dark"), (_DESK, "light")])
def test_the_page_draws_and_shows_the_image_of_a_dot(
    report: Path, opened: Opener, width: int, scheme: str
) -> None:
    data = Parsed(report).data
    names = data["map"]["names"]
    wicked = names.index(f"{WICKED_CLASS}/{WICKED_FILE}")
    page = opened(report.as_uri(), width, color_scheme=scheme, has_touch=width == _PHONE)
    page.locator(".kinds button").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("#charts svg").count() == len(data["charts"])
    assert page.locator("script").count() == 2
    x, y = place_of(page, data["map"]["maps"][0], wicked)
    if width == _PHONE:
        page.touchscreen.tap(x, y)
    else:
        page.mouse.move(x, y)
    card = page.locator(".card")
    card.wait_for(state="visible")
    assert card.locator("b").inner_text() == names[wicked]
    assert color_of(page, ".card canvas")[:3] == pytest.approx(MAGENTA, abs=25)


def test_a_button_of_the_legend_keeps_the_focus(report: Path, opened: Opener) -> None:
    page = opened(report.as_uri(), _DESK)
    button = page.locator(".kinds button").first
    button.wait_for()
    button.focus()
    for pressed in ("true", "false", "true"):
        page.keyboard.press("Space")
        assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == pressed
    page.locator("input[value=group]").check()
    assert page.locator(".kinds button[aria-pressed=true]").count() == 0


def test_the_keyboard_goes_from_image_to_image_on_both_maps(report: Path, opened: Opener) -> None:
    page = opened(report.as_uri(), _DESK)
    page.locator(".kinds button").first.wait_for()
    before = [drawing(page, number) for number in (0, 1)]
    page.locator(".frame > canvas").first.focus()
    page.keyboard.press("ArrowRight")
    page.locator(".card").wait_for(state="visible")
    first = page.locator(".card b").inner_text()
    assert all(drawing(page, number) != before[number] for number in (0, 1))
    for key in ("ArrowLeft", "ArrowUp", "ArrowDown"):
        page.keyboard.press(key)
        if page.locator(".card b").inner_text() != first:
            break
    assert page.locator(".card b").inner_text() != first
    page.keyboard.press("Escape")
    assert [drawing(page, number) for number in (0, 1)] == before
    page.keyboard.press("+")
    assert drawing(page, 0) != before[0] and drawing(page, 1) == before[1]
    page.keyboard.press("0")
    assert drawing(page, 0) == before[0]


def test_a_selection_is_shown_in_pictures_and_on_all_maps(report: Path, opened: Opener) -> None:
    page = opened(report.as_uri(), _DESK)
    page.locator(".kinds button").first.wait_for()
    other = drawing(page, 1)
    data = Parsed(report).data["map"]["maps"][0]
    x, y = place_of(page, data, 0)
    page.keyboard.down("Shift")
    page.mouse.move(x - 8, y - 8)
    page.mouse.down()
    page.mouse.move(x + 8, y + 8, steps=3)
    page.mouse.up()
    page.keyboard.up("Shift")
    titles = page.locator(".strip .tile").evaluate_all("all => all.map((tile) => tile.title)")
    assert any(title.startswith(Parsed(report).data["map"]["names"][0]) for title in titles)
    assert drawing(page, 1) != other
    page.get_by_role("button", name="Clear").click()
    assert page.locator(".strip .tile").count() == 0


def test_curves_are_read_with_the_arrow_keys(report: Path, opened: Opener) -> None:
    page = opened(report.as_uri(), _DESK)
    chart = page.locator(".chart", has_text="RankMe")
    assert not chart.is_visible()  # of no importance for a verdict
    page.get_by_text("More curves").click()
    values = next(c for c in Parsed(report).data["charts"] if c["name"] == "rankme")["lines"]
    chart.locator("svg").focus()
    page.keyboard.press("Home")
    said = chart.locator("output").inner_text()
    assert said.startswith("epoch 1 ·")
    assert all(f" {float(f'{line[1][0]:.3g}'):g}" in said for line in values)


def strokes(page: Page, selector: str) -> set[tuple[str, str]]:
    """Return the kinds of marks and their colors on the screen."""
    found = page.locator(selector).evaluate_all(
        "all => all.map((mark) => [mark.classList[0], getComputedStyle(mark)])"
        ".map(([kind, style]) => [kind, kind === 'line' ? style.stroke : style.fill])"
    )
    return {(kind, color) for kind, color in found}


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_legends_have_the_colors_that_are_drawn(report: Path, opened: Opener, scheme: str) -> None:
    page = opened(report.as_uri(), _DESK, color_scheme=scheme)
    page.locator(".kinds button").first.wait_for()
    lines = strokes(page, "#charts .line")
    assert len(lines) == 2 and lines == strokes(page, "#runs .line")
    assert page.locator("#charts .step").count() and page.locator("#runs .step").count()
    marks = strokes(page, ".scores .dot")
    assert len(marks) == 2 and marks == strokes(page, ".marks .dot")
    assert {color for _, color in marks} == {color for _, color in lines}
    page.get_by_label("run", exact=True).check()
    assert page.locator(".kinds button").all_inner_texts() == Parsed(report).data["runs"]
    page.get_by_label("group", exact=True).check()
    first, second = Parsed(report).data["map"]["maps"]
    count = max(first["group"]) + 1
    assert second["group"] is None  # SimCLR has no weak labels
    assert page.locator(".kinds button").count() == count


@pytest.mark.parametrize(
    ("width", "media"), [(_PHONE, "screen"), (_DESK, "screen"), (700, "print")]
)
def test_long_commands_are_wrapped_and_copied_whole(
    report: Path, opened: Opener, width: int, media: Literal["screen", "print"]
) -> None:
    page = opened(report.as_uri(), width)
    page.emulate_media(media=media)
    commands = page.locator("pre")
    assert commands.evaluate("pre => pre.scrollWidth <= pre.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    lines = commands.inner_text().splitlines()
    assert max(map(len, lines)) > 100
    copied = "pre => (getSelection().selectAllChildren(pre), getSelection().toString())"
    assert commands.evaluate(copied).splitlines() == lines
    assert not [line for line in lines if line.startswith("--")]


def test_paper_is_white_also_for_those_who_read_in_the_dark(
    report: Path, opened: Opener, tmp_path: Path
) -> None:
    page = opened(report.as_uri(), _DESK, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    page.screenshot(path=tmp_path / "printed.png")
    assert Image.open(tmp_path / "printed.png").convert("L").getpixel((3, 3)) > 245  # type: ignore[operator]


def test_the_live_page_follows_the_run(runs: list[Path], opened: Opener, tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs[0], tmp_path / WICKED_CLASS))
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text(lines[0])
    with open_server(str(run), 0) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            page = opened(server.address, _PHONE)
            page.locator("#charts svg").first.wait_for()
            assert page.locator("h1").inner_text() == WICKED_CLASS
            assert page.locator("#stop").is_hidden()
            assert "not training" in page.locator("#status").inner_text()
            (run / "metrics.jsonl").write_text("".join(lines))
            expect(page.locator("#status")).to_contain_text("finished", timeout=60_000)
            assert page.evaluate("document.documentElement.scrollWidth") == _PHONE
        finally:
            server.shutdown()
            thread.join()


def test_the_page_that_waits_becomes_that_of_the_run(
    runs: list[Path], opened: Opener, tmp_path: Path
) -> None:
    later = tmp_path / "later"
    with open_server(str(later), 0) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            page = opened(server.address, _PHONE)
            expect(page.locator("#status")).to_contain_text("no run here yet")
            assert page.locator("h1").inner_text() == "later"
            shutil.copytree(runs[0], tmp_path / "copy").rename(later)
            expect(page.locator("#status")).to_contain_text("finished", timeout=60_000)
            expect(page.locator("#scores")).to_contain_text(f"wcl eval all {later} --data ")
            write_evaluation(later, {"encoder": 0.875})
            expect(page.locator("#scores")).to_contain_text("87.5%", timeout=60_000)
        finally:
            server.shutdown()
            thread.join()
