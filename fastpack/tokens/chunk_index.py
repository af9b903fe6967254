"""Reading the `index.json` of folders of chunks (litdata, MDS)."""

from __future__ import annotations

import fnmatch
import os
from typing import Any, NoReturn

from fastpack.errors import FormatError
from fastpack.io import AnyPath, as_path, check_exists, exists, names_in, open_bytes, size_of
from fastpack.io.atomic_folder import INDEX

_MAX_INDEX_BYTES = 1 << 30


class ChunkIndex:
    """The contents of an `index.json`; every value is checked when it is read."""

    def __init__(self, folder: AnyPath) -> None:
        from fastpack.io.parsing import ParseError, parse_json  # it imports yaml, which the detection must not

        self.folder, self.path = folder, folder / INDEX
        check_exists(self.path)
        n_bytes = size_of(self.path)
        if n_bytes > _MAX_INDEX_BYTES:
            raise FormatError(self.path, 0, f"an index of {n_bytes} bytes", f"at most {_MAX_INDEX_BYTES}")
        try:
            self.tree: Any = parse_json(bytes(open_bytes(self.path)[:n_bytes])) if n_bytes else None
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
        path = as_path(self.folder / name)
        if not exists(path):
            self.wrong(f"the missing file {name}", "the files of the folder")
        return path


def has_index(path: AnyPath, key: str, chunks: str) -> bool:
    """Return whether a folder has an `index.json` with a list under `key`.

    An index that is not JSON is damaged if there are files named as `chunks`, and belongs to another program if not.
    """
    if not path.is_dir() or not exists(path / INDEX):
        return False
    try:
        tree = ChunkIndex(path).tree
    except FormatError:
        return any(fnmatch.fnmatchcase(name, chunks) for name in names_in(path))
    return isinstance(tree, dict) and isinstance(tree.get(key), list)
