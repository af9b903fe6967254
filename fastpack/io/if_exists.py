"""What to do with a target that is there already; the types that everything about files shares."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy.typing as npt

PathLike: TypeAlias = str | os.PathLike[str]


class FileExistencePolicy(StrEnum):
    """Modalities' name for what to do with a target that exists; the plain words do as well."""

    SKIP = "skip"
    ERROR = "error"
    OVERRIDE = "override"


ExistencePolicy: TypeAlias = Literal["skip", "error", "override"] | FileExistencePolicy
Progress: TypeAlias = Callable[[int, int], None]  # (bytes done, bytes in all)


@runtime_checkable
class CountsDocuments(Protocol):
    """A `Progress` that also shows how many documents and tokens a run has packed so far."""

    def count(self, documents: int, tokens: int) -> None:
        """Take the numbers; called before the call that reports the bytes."""
        ...


Bytes: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[Any]  # what has a C-contiguous buffer

POLICIES: tuple[ExistencePolicy, ...] = ("skip", "error", "override")
CHECKSUMS = ".fpsum"  # of the file of that name without it, see formats/checksums.py


class TargetExists(FileExistsError, ValueError):
    """The target is there already and the policy is "error" (Modalities raises ValueError here)."""
