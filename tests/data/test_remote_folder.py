"""Images behind URLs, against the same images in a local folder."""

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from http_folder import served
from images import encoded, flat_folder, photo_folder, picture
from runs import assert_same_run, photo_run
from wcl.cli import run_command
from wcl.data import Source, open_source, open_splits
from wcl.data.decode import UnreadableImage, whole_pixels
from wcl.data.parquet import ParquetSource
from wcl.system.errors import InputError

PROTOCOLS = ("memory", "http", "file", "zip", "cache")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Photos with names that URLs must encode, and files to leave out."""
    root = photo_folder(tmp_path / "photos", ("cat & dog", "Ä %20#?", "a.jpg"), 3)
    flat_folder(root / ".hidden", 1)
    (root / "a.jpg" / "deeper").mkdir()
    shutil.copy(root / "a.jpg" / "000.jpg", root / "a.jpg" / "deeper" / "x.PNG")
    shutil.copy(root / "a.jpg" / "000.jpg", root / "a.jpg" / ".x.jpg")
    (root / "a.jpg" / "notes.txt").touch()
    return root


@pytest.fixture(params=PROTOCOLS)
def url(request: pytest.FixtureRequest, photos: Path, tmp_path: Path) -> Iterator[str]:
    """The photos by each protocol."""
    match request.param:
        case "memory" | "cache":
            files = fsspec.filesystem("memory")
            for file in photos.rglob("*"):
                if file.is_file():
                    files.pipe_file(f"/photos/{file.relative_to(photos)}", file.read_bytes())
            yield f"{'simplecache::' if request.param == 'cache' else ''}memory://photos"
            files.rm("/photos", recursive=True)
        case "http":
            with served(tmp_path) as address:
                yield f"{address}/photos/"
        case "file":
            yield f"file://{photos}"
        case "zip":
            yield f"zip://::{shutil.make_archive(str(tmp_path / 'packed'), 'zip', photos)}"


def pixels(source: Source) -> list[bytes]:
    return [whole_pixels(source.image(i)).numpy().tobytes() for i in range(len(source))]


def test_a_remote_folder_is_the_local_one(url: str, photos: Path) -> None:
    local, remote = open_source(str(photos)), open_source(url)
    assert len(local) == 10
    assert remote.classes == local.classes == ["a.jpg", "cat & dog", "Ä %20#?"]
    assert remote.labels is not None and local.labels is not None
    assert remote.labels.tolist() == local.labels.tolist()
    assert pixels(remote) == pixels(local)
    # So a run continues with a copy of its images elsewhere.
    assert remote.fingerprint() == local.fingerprint()
    assert remote.fingerprint(times=True) == open_source(url).fingerprint(times=True)


def test_a_copy_of_a_source_in_another_process_opens_its_own_files(url: str) -> None:
    source = open_source(url)
    assert pixels(pickle.loads(pickle.dumps(source))) == pixels(source)
    process = os.fork()
    if process == 0:
        try:
            pixels(source)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(process, 0)[1] == 0


def test_names_are_urls_that_can_be_opened(url: str, photos: Path) -> None:
    source = open_source(url)
    for number in (0, len(source) - 1):
        with fsspec.open(source.where(number)) as file:
            content = file.read()
        assert whole_pixels(source.image(number)).numel() > 0
        assert content == Path(open_source(str(photos)).where(number)).read_bytes()


def test_train_and_test_folders_are_splits(tmp_path: Path) -> None:
    photo_folder(tmp_path / "photos" / "train", each=2)
    photo_folder(tmp_path / "photos" / "val", each=1)
    with served(tmp_path / "photos") as address:
        train, test = open_splits(address)
    assert (len(train), len(test)) == (4, 2)
    assert test.where(0) == f"{address}/val/cat/000.jpg"


@pytest.mark.parametrize("url", ["http", "file"], indirect=True)  # the others copy the photos
def test_changed_and_lost_files_change_the_fingerprint(url: str, photos: Path) -> None:
    source = open_source(url)
    before, exact = source.fingerprint(), source.fingerprint(times=True)
    file = photos / "a.jpg" / "000.jpg"
    os.utime(file, (1, 1))
    assert source.fingerprint() == before
    assert source.fingerprint(times=True) != exact
    file.write_bytes(file.read_bytes() + b"\0")
    larger = source.fingerprint()
    file.unlink()
    assert len({before, larger, source.fingerprint()}) == 3
    with pytest.raises(UnreadableImage, match="no such file"):
        source.image(0)


def test_pages_that_link_elsewhere_lead_nowhere(tmp_path: Path) -> None:
    flat_folder(tmp_path / "photos", 2)
    flat_folder(tmp_path / "other", 2)
    links = ["0.png", "1.png", "./", "../", "../other/", "/other/", "/", "?C=N;O=D", "1.png#top"]
    links += ["http://127.0.0.1:9/x.png", "%00.png", "mailto:a.png"]
    page = "".join(f'<a href="{link}">{link}</a>' for link in links)
    (tmp_path / "photos" / "index.html").write_text(page)
    with served(tmp_path) as address:
        source = open_source(f"{address}/photos")
        found = [source.where(i) for i in range(len(source))]
    assert found[:2] == [f"{address}/photos/{i}.png" for i in range(2)]
    assert found[2:] in ([], [f"{address}/photos/mailto%3Aa.png"])


def test_remote_parquet_is_the_local_one(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name, labels in {"train-0": [0, 1, 0], "train-1": [2, 2], "test-0": [0, 1]}.items():
        images = [{"bytes": encoded(picture(len(name) + i))} for i in range(len(labels))]
        file = tmp_path / "data" / f"{name}.parquet"
        pq.write_table(pa.table({"image": images, "label": labels}), file, row_group_size=2)
    local = open_splits(str(tmp_path))
    with served(tmp_path) as address:
        for url in (address, f"{address}/data/*.parquet"):
            for here, there in zip(local, open_splits(url), strict=True):
                assert isinstance(there, ParquetSource)
                assert here.labels is not None and there.labels is not None
                assert there.labels.tolist() == here.labels.tolist()
                assert pixels(there) == pixels(here)
                assert there.fingerprint() == here.fingerprint()
        one = open_source(f"{address}/data/train-1.parquet?signature=secret")
        assert len(one) == 2
        assert one.where(0) == f"{address}/data/train-1.parquet row 0"
        (tmp_path / "data" / "train-1.parquet").unlink()
        again = pickle.loads(pickle.dumps(one))
        with pytest.raises(UnreadableImage):
            again.image(0)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("memory://nowhere", "no such folder"),
        ("memory://nowhere/*.jpg", "no such folder"),
        ("http://127.0.0.1:9/photos", "cannot be read .*; check the address"),
        ("https://me:secret@127.0.0.1:9/photos?secret", "cannot be read .*credentials"),
        ("foo://photos", "unknown protocol foo"),
        ("htps://photos", "did you mean https"),
        ("://", "no such folder"),
        ("memory://photos/a.jpg", "single file must be .parquet"),
        ("memory://photos/a.parquet", "no such folder or file"),
    ],
)
def test_what_cannot_be_opened_is_one_clear_line(spec: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        open_source(spec)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("protocol", "package"), [("s3", "s3fs"), ("gs", "gcsfs")])
def test_a_missing_package_is_named(protocol: str, package: str) -> None:
    with pytest.raises(InputError, match=f"pip install {package}"):
        open_source(f"{protocol}://bucket/photos")


def test_voc_must_be_local(tmp_path: Path) -> None:
    for part in ("Annotations", "ImageSets/Main", "JPEGImages"):
        flat_folder(tmp_path / part, 1)
    with served(tmp_path) as address, pytest.raises(InputError, match="copy it"):
        open_source(address)


def test_a_run_and_its_vectors_over_http_are_those_of_a_local_folder(tmp_path: Path) -> None:
    """Real processes, a server with a password, and an image that cannot be read."""
    photos = photo_folder(tmp_path / "photos", ("cat", "dog"), 10)
    (photos / "cat" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    here = photo_run(photos, tmp_path / "here")
    there, vectors = tmp_path / "there", tmp_path / "there.npy"
    settings = (here / "config.yaml").read_text().replace(str(here), str(there))
    with served(tmp_path, password="secret") as address:
        url = address.replace("//", "//me:secret@") + "/photos?signature=secret"
        (tmp_path / "settings.yaml").write_text(settings.replace(str(photos), f"'{url}'"))
        wcl = [sys.executable, "-m", "wcl"]
        commands = [
            [*wcl, "pretrain", "--config", str(tmp_path / "settings.yaml")],
            [*wcl, "embed", str(there), f"--data={url}", f"--out={vectors}", "--num_workers=1"],
        ]
        done = [subprocess.run(words, capture_output=True, text=True) for words in commands]
    printed = "".join(process.stdout + process.stderr for process in done)
    assert [process.returncode for process in done] == [0, 0], printed
    assert f"{address}/photos/cat/broken.jpg" in printed
    assert_same_run(here, there)
    local = tmp_path / "here.npy"
    assert run_command(["embed", str(here), f"--data={photos}", f"--out={local}"]) == 0
    assert local.read_bytes() == vectors.read_bytes()
    tables = [file.with_suffix(".paths.csv").read_text() for file in (local, vectors)]
    assert tables[0].replace(str(tmp_path), address) == tables[1]
    files = [file.read_bytes() for file in there.rglob("*") if file.is_file()]
    assert not any(b"secret" in content for content in [*files, printed.encode()])
