"""The one room that opens, maps and atomically replaces files."""

from fastpack.files.atomic import AtomicFile, may_write, partial_path, remove, write_durably
from fastpack.files.mapping import drop_pages, is_in_memory, read_at_random, will_need
from fastpack.files.paths import (
    AnyPath,
    RemotePath,
    as_path,
    exists,
    is_file,
    is_folder,
    is_remote,
    names_in,
    plain_path,
    size_of,
    stat_of,
)
from fastpack.files.policy import (
    CHECKSUMS,
    POLICIES,
    Bytes,
    ExistencePolicy,
    FileExistencePolicy,
    PathLike,
    Progress,
    TargetExists,
)
from fastpack.files.reading import Reader, local_file, map_bytes, open_reader, open_stream

__all__ = [
    "CHECKSUMS",
    "POLICIES",
    "AnyPath",
    "AtomicFile",
    "Bytes",
    "ExistencePolicy",
    "FileExistencePolicy",
    "PathLike",
    "Progress",
    "Reader",
    "RemotePath",
    "TargetExists",
    "as_path",
    "drop_pages",
    "exists",
    "is_file",
    "is_folder",
    "is_in_memory",
    "is_remote",
    "local_file",
    "map_bytes",
    "may_write",
    "names_in",
    "open_reader",
    "open_stream",
    "partial_path",
    "plain_path",
    "read_at_random",
    "remove",
    "size_of",
    "stat_of",
    "will_need",
    "write_durably",
]
