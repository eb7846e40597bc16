"""Shell completion, in a real bash."""

import io
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from wcl.cli import COMMANDS, run_command
from wcl.config.completion import SHELLS


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("shell") / "wcl.bash"
    file.write_text(printed("bash"))
    return file


def printed(shell: str) -> str:
    text = io.StringIO()
    with redirect_stdout(text):
        assert run_command(["completion", shell]) == 0
    return text.getvalue()


def completed(script: Path, line: str) -> list[str]:
    """Return what bash offers for the last word of a command line."""
    words = line.split(" ")
    asking = (
        'source "$1"; COMP_WORDS=("${@:2}"); COMP_CWORD=$(($# - 2)); _wcl; echo "${COMPREPLY[@]}"'
    )
    command = ["bash", "-c", asking, "bash", str(script), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("wcl ", list(COMMANDS)),
        ("wcl du", ["duplicates"]),
        ("wcl eval l", ["linear", "lowshot"]),
        ("wcl eval linear runs/a --mo", ["--mode"]),
        ("wcl eval linear runs/a --mode ", ["fast", "paper"]),
        ("wcl pretrain dig", ["digits"]),
        ("wcl pretrain digits --optim.l", ["--optim.lr", "--optim.lr_scaling"]),
        ("wcl pretrain digits --re", ["--resume"]),
        ("wcl export runs/a --to on", ["onnx"]),
        ("wcl completion ", list(SHELLS)),
        ("wcl reproduce cif", ["cifar"]),
        ("wcl duplicates runs/a --js", ["--json"]),
    ],
)
def test_bash_offers_commands_settings_and_their_choices(
    script: Path, line: str, offered: list[str]
) -> None:
    assert completed(script, line) == offered


@pytest.mark.parametrize("line", ["wcl embed ", "wcl pretrain --out ", "wcl embed runs/a --data p"])
def test_where_nothing_is_offered_bash_completes_files(script: Path, line: str) -> None:
    assert completed(script, line) == []
    asking = f'source "{script}"; complete -p wcl'
    done = subprocess.run(["bash", "-c", asking], capture_output=True, text=True, check=True)
    assert done.stdout == "complete -o default -F _wcl wcl\n"


def test_zsh_uses_the_script_for_bash_and_fish_knows_every_command() -> None:
    assert printed("zsh").endswith(printed("bash"))
    fish = printed("fish").splitlines()
    for name, command in COMMANDS.items():
        described = [line for line in fish if f" -a {name} -d " in line]
        assert len(described) == 1 and command.about in described[0]
    assert any("export" in line and "-l to -x -a 'timm safetensors" in line for line in fish)


def test_another_shell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["completion", "cmd"]) == 2
    assert "there are bash, zsh, fish" in capsys.readouterr().err
    assert run_command(["completion", "bash", "zsh"]) == 2
    assert "zsh: unexpected" in capsys.readouterr().err
