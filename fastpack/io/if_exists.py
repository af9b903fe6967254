"""Policies for outputs that exist, and types that all modules about files share."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import numpy.typing as npt

PathLike: TypeAlias = str | os.PathLike[str]


class FileExistencePolicy(StrEnum):
    """What to do if an output exists (as Modalities); plain strings are accepted too.

    Examples
    --------
    >>> from fastpack.modalities import FileExistencePolicy
    >>> FileExistencePolicy("skip"), FileExistencePolicy.SKIP == "skip"
    (<FileExistencePolicy.SKIP: 'skip'>, True)
    """

    SKIP = "skip"
    ERROR = "error"
    OVERRIDE = "override"


ExistencePolicy: TypeAlias = Literal["error", "skip", "overwrite", "override"] | FileExistencePolicy
Progress: TypeAlias = Callable[[int, int], None]  # (bytes done, total bytes)


Bytes: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[Any]  # objects with a C-contiguous buffer

OVERWRITING = ("overwrite", "override")  # "override" is Modalities' word
POLICIES = ("error", "skip", *OVERWRITING)
CHECKSUMS = ".fpsum"  # suffix of the checksums of a file; see checksum_blocks.py
TOKENIZER = ".fptok"  # suffix of the tokenizer fingerprint of a token file; see tokenizer_fingerprint.py
MASK = ".mask"  # suffix of the loss mask of a token file; see mask_bits.py
SIDES = (TOKENIZER, MASK)
LOSS = ".loss"  # suffix of datatrove's own loss mask, a byte per token; see datatrove.py


class TargetExists(FileExistsError, ValueError):
    """Raised when the output exists and the policy is "error" (Modalities raises ValueError)."""
