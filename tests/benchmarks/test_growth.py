"""How cost grows: fits, plots, and the series of tiny sizes."""

import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.growth import batch, image_size, images, processes, table
from benchmarks.growth.draw import draw
from benchmarks.growth.fit import power_law, upper_half
from benchmarks.growth.series import PLOTS, SERIES, points
from benchmarks.memory import Cost
from wcl.data import open_source

FIGURES = {
    f"{name}_{kind}_{size}": float(cost)
    for name in SERIES
    for kind in ("seconds", "gb")
    for size, cost in ((1, 1), (2, 2), (4, 4), ("exponent", 1))
}


def test_a_power_law_is_fitted_exactly() -> None:
    law = power_law({size: 3e-4 * size**1.5 for size in (10, 20, 70, 1000)})
    assert law.exponent == pytest.approx(1.5)
    assert law.factor == pytest.approx(3e-4)
    assert law.at(100) == pytest.approx(0.3)


def test_the_fit_is_the_least_squares_line_between_logarithms() -> None:
    costs = {1: 1.0, 2: 5.0, 4: 4.0, 8: 30.0}
    x = torch.tensor([math.log(size) for size in costs])
    y = torch.tensor([math.log(cost) for cost in costs.values()])
    slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    law = power_law(costs)
    assert law.exponent == pytest.approx(float(slope), rel=1e-5)
    assert math.log(law.factor) == pytest.approx(float(y.mean() - slope * x.mean()), rel=1e-5)


def test_costs_that_are_not_known_are_left_out_of_the_fit() -> None:
    costs = {1: math.nan, 2: 4.0, 3: 0.0, 4: 16.0}
    assert power_law(costs).exponent == pytest.approx(2)
    assert math.isnan(power_law({1: math.nan, 2: 4.0}).exponent)


def test_fixed_costs_of_small_sizes_do_not_reach_the_fit() -> None:
    sizes = [2**n for n in range(9)]
    assert upper_half(sizes) == [16, 32, 64, 128, 256]


def test_every_plot_is_written(tmp_path: Path) -> None:
    files = draw(FIGURES, tmp_path / "plots")
    assert [file.name for file in files] == [f"growth-{name}.png" for name in PLOTS]
    for file in files:
        assert file.read_bytes().startswith(b"\x89PNG")


def test_the_table_has_a_row_for_every_series() -> None:
    shown = table(FIGURES | {"elapsed_efficiency_2": 0.9})
    assert [*shown.columns[0].cells] == [
        *(s.label for s in SERIES.values()),
        "elapsed_efficiency_2",
    ]
    assert {*shown.columns[3].cells} == {"1.00", ""}


def test_all_sizes_are_measured_fitted_and_drawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tiny: dict[ModuleType, dict[str, Any]] = {
        batch: {"_SIZES": (8, 16), "_WHOLE": (0, 16), "_MICRO": (0, 16), "_MICRO_BATCH": 4},
        image_size: {"_SIZES": (32, 48), "_BATCH": 4},
        images: {"_SIZES": (200, 400), "_SETTLED": 0, "_PHOTO_BATCH": 4, "_SMALL_BATCH": 16},
    }
    for module, values in tiny.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
        # A new process for each would take long.
        monkeypatch.setattr(module, "in_new_process", lambda call, *args: call(*args))
    costs = {size: Cost(2.0 / size, 0.1) for size in processes.SIZES}
    monkeypatch.setattr(processes, "measure", lambda _: {"elapsed": costs, "computed": costs})
    main(["growth", "--rounds", "1", "--json", "--out", str(tmp_path)])
    found = json.loads(capsys.readouterr().out)
    for name in SERIES:
        seconds = points(found, name, "seconds")
        assert min(seconds.values()) >= 0
        exponent = power_law({size: seconds[size] for size in upper_half(list(seconds))}).exponent
        assert found[f"{name}_seconds_exponent"] == pytest.approx(exponent, nan_ok=True)
    assert found["elapsed_seconds_exponent"] == pytest.approx(-1)
    assert found["elapsed_efficiency_4"] == pytest.approx(4)
    assert len([*tmp_path.iterdir()]) == len(PLOTS)


def test_nested_folders_hold_the_numbers_of_images_that_they_stand_for(tmp_path: Path) -> None:
    folders = images.write_nested(tmp_path / "images", (3, 1200, 1300))
    assert {size: len(open_source(str(folder))) for size, folder in folders.items()} == {
        size: size for size in (3, 1200, 1300)
    }


def test_a_step_of_one_process_is_measured() -> None:
    share = processes._share(0, 1, 0, 8)
    assert min(share.seconds, share.cpu_seconds) > 0


@pytest.mark.soak
def test_every_number_of_processes_is_measured() -> None:
    costs = processes.measure(1, batch_size=8)
    for by_size in costs.values():
        assert {*by_size} == {1, 2, 4}
        assert min(cost.seconds for cost in by_size.values()) > 0


def test_benchmarks_without_plots_take_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["labels", "--out", str(tmp_path)])
