"""Importing Lightning Fabric after wcl, each time in a Python of its own."""

import os
import subprocess
import sys
from pathlib import Path


def printed(code: str, *path: Path) -> str:
    """Run code in a fresh interpreter that finds the given folders first."""
    search = [*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])]
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(search)},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def fake_package(folder: Path, name: str, code: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(code)


def test_fabric_imports_neither_torchmetrics_nor_the_compiler_which_work_afterwards() -> None:
    assert (
        printed(
            "import wcl, lightning_fabric, sys, torch\n"
            "assert not {'torchmetrics', 'torch._dynamo', 'sympy'} & {*sys.modules}\n"
            "layer = torch.nn.Linear(2, 2)\n"
            "compiled = torch.compile(layer, backend='eager')\n"
            "assert compiled(torch.ones(1, 2)).equal(layer(torch.ones(1, 2)))\n"
            "print(type(compiled).__module__)"
        )
        == "torch._dynamo.eval_frame"
    )


def test_a_fabric_that_needs_more_of_them_gets_it(tmp_path: Path) -> None:
    fake_package(tmp_path, "torchmetrics", "needed = 3\n")
    fake_package(tmp_path, "lightning_fabric", "from torchmetrics import needed as found\n")
    assert printed("import wcl, lightning_fabric\nprint(lightning_fabric.found)", tmp_path) == "3"


def test_what_is_imported_already_is_left_alone(tmp_path: Path) -> None:
    fake_package(tmp_path, "torchmetrics", "")
    fake_package(tmp_path, "lightning_fabric", "import torchmetrics\n")
    code = (
        "import wcl, torchmetrics, lightning_fabric\nprint(lightning_fabric.torchmetrics.__name__)"
    )
    assert printed(code, tmp_path) == "torchmetrics"
