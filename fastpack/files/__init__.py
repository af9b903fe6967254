"""The one room that opens, maps and atomically replaces files."""

from fastpack.files.atomic import AtomicFile, partial_path, remove, write_durably
from fastpack.files.mapping import drop_pages, is_in_memory, read_at_random, will_need
from fastpack.files.policy import (
    CHECKSUMS,
    POLICIES,
    Bytes,
    ExistencePolicy,
    FileExistencePolicy,
    PathLike,
    Progress,
    TargetExists,
    may_write,
)
from fastpack.files.reading import ReadFile, map_bytes, open_stream

__all__ = [
    "CHECKSUMS",
    "POLICIES",
    "AtomicFile",
    "Bytes",
    "ExistencePolicy",
    "FileExistencePolicy",
    "PathLike",
    "Progress",
    "ReadFile",
    "TargetExists",
    "drop_pages",
    "is_in_memory",
    "map_bytes",
    "may_write",
    "open_stream",
    "partial_path",
    "read_at_random",
    "remove",
    "will_need",
    "write_durably",
]
