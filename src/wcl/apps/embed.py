"""`wcl embed`: the vectors of all images of a source in one file, in constant memory.

Vectors are computed a chunk at a time, and finished chunks stay in a folder beside the output, so
that a stopped command can continue. The output is assembled from the chunks at the end and appears
completely or not at all.
"""

import filecmp
from itertools import islice
from pathlib import Path

from wcl.apps.embed_chunks import ChunkStore, chunks
from wcl.apps.vector_files import WRITERS, Shape, paths_file
from wcl.config import EmbedConfig
from wcl.data import open_split, with_channels
from wcl.evaluation.features import none_can_be_read
from wcl.models.encoder import Encoder, load
from wcl.system.errors import InputError
from wcl.system.files import errors_naming, fsync, must_be_new, new_file
from wcl.system.machine import best_device, check_workers, use_threads
from wcl.system.paths import expanded, one_line
from wcl.system.progress import log

_UNREADABLE_NAMED = 5


def embed(run: str | Path | Encoder, config: EmbedConfig) -> Path:
    """Write path, label and vector of every image, like `wcl embed RUN --data SRC`.

    Returns:
        The path of the file.

    Raises:
        InputError: no encoder, no such data, or an output that exists or cannot be written.
        OSError: writing failed; a second call continues where this one stopped.
    """
    out = new_file(config.out, tuple(WRITERS))
    suffix = out.suffix.lower()
    partial = expanded(out.with_name(out.name + ".partial"))
    paths = expanded(paths_file(out))
    if suffix == ".npy" and not partial.exists():
        must_be_new(paths)
    if not config.data:
        raise InputError("--data: give the images to embed")
    use_threads(config.threads)
    check_workers(config.num_workers)
    encoder = run if isinstance(run, Encoder) else load(run, best_device(config.device))
    channels = encoder.description.channels
    sources = [with_channels(s, channels) for s in open_split(config.data, config.split)]
    store = ChunkStore(partial, encoder, sources)
    try:
        for number, source in enumerate(sources):
            for chunk in chunks(encoder, source, store.images_done(number), config.num_workers):
                store.add(number, chunk)
    except KeyboardInterrupt:
        log("stopped; run the same command to continue")
        raise
    count = store.count()
    if count == 0:
        store.remove()
        raise InputError(f"{config.data}: {none_can_be_read(sum(map(len, sources)))}")
    labeled = any(s.labels is not None or s.multi_labels is not None for s in sources)
    assembled = store.folder / out.name
    with errors_naming(out, store.folder):
        WRITERS[suffix](assembled, store.parts(), Shape(count, encoder.feature_dim, labeled))
        fsync(assembled)
    if suffix == ".npy":
        # A command that was stopped right here has left the same file.
        if not (paths.is_file() and filecmp.cmp(paths_file(assembled), paths, shallow=False)):
            must_be_new(paths)
        paths_file(assembled).replace(paths)
    must_be_new(out)
    assembled.replace(out)
    fsync(out.parent)
    _report_unreadable(store, count, config.data)
    store.remove()
    print(f"wrote {one_line(str(out))}: {count:,} vectors of {encoder.feature_dim} numbers")
    return out


def _report_unreadable(store: ChunkStore, count: int, data: str) -> None:
    total = sum(len(source) for source in store.sources)
    if missing := total - count:
        names = ", ".join(map(one_line, islice(store.unreadable(), _UNREADABLE_NAMED)))
        more = ", …" if missing > _UNREADABLE_NAMED else ""
        log(
            f"{missing} of {total} images cannot be read and are left out: {names}{more}; "
            f"`wcl data {data}` shows the reasons"
        )
