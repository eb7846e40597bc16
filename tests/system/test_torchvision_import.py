"""Importing torchvision after wcl, each time in a Python of its own."""

import os
import subprocess
import sys
from pathlib import Path

BROKEN_ONCE = """
import builtins
if not hasattr(builtins, "seen_torchvision"):
    builtins.seen_torchvision = True
    from torchvision import part
    raise RuntimeError("operator torchvision::nms does not exist")
from torchvision import part
whole = True
"""


def python(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that finds the given folders first."""
    search = [*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(search)},
    )


def fake_torchvision(folder: Path, code: str) -> Path:
    package = folder / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(code)
    (package / "part.py").write_text("")
    return folder


def test_torchvision_and_timm_import_and_work_after_wcl() -> None:
    ran = python(
        "import wcl, torchvision, timm, torch\n"
        "from torchvision.transforms import v2\n"
        "picture = torch.arange(48, dtype=torch.uint8).reshape(3, 4, 4)\n"
        "assert v2.functional.horizontal_flip(picture).equal(picture.flip(2))\n"
        "assert torchvision.transforms.CenterCrop(2)(picture).equal(picture[:, 1:3, 1:3])\n"
        "assert timm.is_model('resnet18')\n"
    )
    assert ran.returncode == 0, ran.stderr


def test_importing_wcl_imports_neither_torch_nor_torchvision() -> None:
    ran = python(
        "import sys, wcl\n"
        "print([name for name in ('torch', 'torchvision', 'timm', 'numpy') if name in sys.modules])"
    )
    assert (ran.stdout.strip(), ran.returncode) == ("[]", 0), ran.stderr


def test_installing_twice_adds_one_finder_for_each_package() -> None:
    ran = python(
        "import sys\n"
        "before = len(sys.meta_path)\n"
        "import wcl\n"
        "wcl.system.torchvision_import.install()\n"
        "wcl.system.lightning_import.install()\n"
        "print(len(sys.meta_path) - before)"
    )
    assert (ran.stdout.strip(), ran.returncode) == ("2", 0), ran.stderr


def test_a_failure_of_another_kind_passes_through(tmp_path: Path) -> None:
    fake = fake_torchvision(tmp_path, "raise RuntimeError('other')\n")
    ran = python(
        "import sys, wcl\n"
        "try:\n"
        "    import torchvision\n"
        "except RuntimeError as error:\n"
        "    print(error, 'torchvision' in sys.modules, 'torch' in sys.modules)",
        fake,
    )
    assert (ran.stdout.strip(), ran.returncode) == ("other False False", 0), ran.stderr


def test_a_missing_operator_is_declared_and_the_import_done_again(tmp_path: Path) -> None:
    fake = fake_torchvision(tmp_path, BROKEN_ONCE)
    ran = python(
        "import wcl, torchvision, sys, torch\n"
        "assert torchvision.whole and torchvision.part is sys.modules['torchvision.part']\n"
        "print(torch.ops.torchvision.nms.default._schema.name)",
        fake,
    )
    assert (ran.stdout.strip(), ran.returncode) == ("torchvision::nms", 0), ran.stderr


def test_a_healthy_torchvision_is_left_alone(tmp_path: Path) -> None:
    ran = python(
        "import wcl, torchvision, sys\nprint(torchvision.whole, 'torch' in sys.modules)",
        fake_torchvision(tmp_path, "whole = True\n"),
    )
    assert (ran.stdout.strip(), ran.returncode) == ("True False", 0), ran.stderr


def test_without_torchvision_the_error_is_the_usual_one() -> None:
    ran = python(
        "import sys, wcl\n"
        "sys.path[:] = []\n"
        "try:\n"
        "    import torchvision\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error)"
    )
    assert ran.stdout.strip() == "No module named 'torchvision'", ran.stderr
