"""Reading the `index.json` of folders of chunks (litdata, MDS)."""

from __future__ import annotations

import fnmatch
import os
from typing import Any, NoReturn

from fastpack.errors import FormatError
from fastpack.io import AnyPath, names_in, read_head
from fastpack.io.atomic_folder import INDEX

_HEAD_BYTES = 64 << 10  # requested first: most indexes are smaller
_MAX_INDEX_BYTES = 1 << 30


class ChunkIndex:
    """The contents of an `index.json`; every value is checked when it is read."""

    def __init__(self, folder: AnyPath) -> None:
        from fastpack.io.parsing import ParseError, parse_json  # it imports yaml, which the detection must not

        self.folder, self.path = folder, folder / INDEX
        self._files: dict[str, AnyPath] | None = None
        data, status = read_head(self.path, _HEAD_BYTES)
        if status.st_size > _MAX_INDEX_BYTES:
            raise FormatError(self.path, 0, f"an index of {status.st_size} bytes", f"at most {_MAX_INDEX_BYTES}")
        if status.st_size > len(data):
            data = read_head(self.path, status.st_size)[0]
        try:
            self.tree: Any = parse_json(data) if data else None
        except ParseError as error:
            raise FormatError(self.path, error.offset, str(error), "JSON") from error

    def wrong(self, found: str, expected: str) -> NoReturn:
        """Raise FormatError for this index."""
        raise FormatError(self.path, 0, found, expected)

    def entries(self, key: str) -> list[dict[str, Any]]:
        """Return the list of objects under a key."""
        found = self.tree.get(key) if isinstance(self.tree, dict) else None
        if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
            self.wrong(f"no list of objects under {key!r}", f"a list of {key}")
        return found

    def number(self, tree: dict[str, Any], key: str) -> int:
        """Return a number of 0 or more."""
        found = tree.get(key)
        if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 1 << 62:
            self.wrong(f"{key} {str(found)[:60]!r}", "a number of 0 or more")
        return found

    def file(self, name: Any) -> AnyPath:
        """Return the path of a file of the folder; its name may not lead elsewhere."""
        if not isinstance(name, str) or not name or name in (".", "..") or os.path.basename(name) != name:
            self.wrong(f"the file name {str(name)[:60]!r}", "the name of a file in this folder")
        if self._files is None:
            self._files = {path.name: path for path in self.folder.iterdir()}
        if name not in self._files:
            self.wrong(f"the missing file {name}", "the files of the folder")
        return self._files[name]


def has_index(path: AnyPath, key: str, chunks: str) -> bool:
    """Return whether a folder has an `index.json` with a list under `key`.

    An index that is not JSON is damaged if there are files named as `chunks`, and belongs to another program if not.
    """
    try:
        tree = ChunkIndex(path).tree
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    except FormatError:
        return any(fnmatch.fnmatchcase(name, chunks) for name in names_in(path))
    return isinstance(tree, dict) and isinstance(tree.get(key), list)
