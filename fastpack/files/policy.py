"""What to do with a target that is there already; the types that everything about files shares."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import numpy.typing as npt

PathLike: TypeAlias = str | os.PathLike[str]


class FileExistencePolicy(StrEnum):
    """Modalities' name for what to do with a target that exists; the plain words do as well."""

    SKIP = "skip"
    ERROR = "error"
    OVERRIDE = "override"


ExistencePolicy: TypeAlias = Literal["skip", "error", "override"] | FileExistencePolicy
Progress: TypeAlias = Callable[[int, int], None]  # (bytes done, bytes in all)
Bytes: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[Any]  # what has a C-contiguous buffer

POLICIES: tuple[ExistencePolicy, ...] = ("skip", "error", "override")
CHECKSUMS = ".fpsum"  # of the file of that name without it, see formats/checksums.py


class TargetExists(FileExistsError, ValueError):
    """The target is there already and the policy is "error" (Modalities raises ValueError here)."""


def may_write(path: PathLike, policy: ExistencePolicy) -> bool:
    """True when `path` may be written under `policy`; False means: it exists and is to be kept ("skip").

    Raises TargetExists (a ValueError and FileExistsError) for "error", ValueError for an unknown policy.
    """
    if policy not in POLICIES:
        raise ValueError(f"unknown file existence policy {policy!r}: choose one of {', '.join(POLICIES)}")
    if not os.path.exists(path):
        return True
    if policy == "error":
        raise TargetExists(
            f"File already exists. Delete it or specify different output folder. ({os.fspath(path)}; "
            "or choose the file existence policy skip or override)"
        )
    return policy == "override"
