"""A folder of images in object storage or behind a URL."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from wcl.data.decode import open_image
from wcl.data.folder import FileList
from wcl.data.matching_files import MatchingFiles
from wcl.data.planes import Picture
from wcl.data.remote_path import RemotePath
from wcl.system.progress import track

_REQUESTS_AT_ONCE = 16
_STAMPS_AT_ONCE = 1000


class RemoteFolder(FileList):
    """Image files below a remote folder, sorted and labeled as those of a local one.

    Its fingerprint is that of a local folder with the same files, so a run may continue with a copy
    of its images elsewhere.
    """

    def __init__(self, files: MatchingFiles[RemotePath]) -> None:
        self.name = str(files.root)
        self.root = files.root
        self._use(files.image_paths(), files.left_out())

    def image(self, index: int) -> Picture:
        return open_image((self.root / self.paths[index]).content())

    def where(self, index: int) -> str:
        return os.fsencode(str(self.root / self.paths[index])).decode(errors="replace")

    def _stamps(self, indices: range, times: bool) -> Iterator[bytes]:
        # Only the asynchronous file systems, among them those that ask a server for each file,
        # can be used by several threads.
        threads = _REQUESTS_AT_ONCE if self.root.file_system.async_impl else 1
        starts = range(0, len(indices), _STAMPS_AT_ONCE)
        with ThreadPoolExecutor(threads) as pool:
            for start in track(starts, "comparing files"):
                chosen = indices[start : start + _STAMPS_AT_ONCE]
                files = (self.root / self.paths[index] for index in chosen)
                yield from pool.map(lambda file: file.stamp(times).encode(), files)
