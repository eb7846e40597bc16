"""The images of the scale smoke, written by several processes at once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wcl.paper.synthetic import write_smoke_data


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_writing_at_once_leaves_the_same_files_as_writing_alone(tmp_path: Path) -> None:
    together, alone = tmp_path / "together", tmp_path / "alone"
    together.mkdir()
    alone.mkdir()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write_smoke_data, [together] * 4))
    write_smoke_data(alone)
    assert sorted(path.name for path in together.iterdir()) == ["photos", "voc"]
    assert files(together) == files(alone)
