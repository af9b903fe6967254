"""The settings of a plan, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from fastpack.errors import spoken
from fastpack.plans.balance import Balance

Algorithm: TypeAlias = Literal["best_fit", "first_fit", "none"]
Long: TypeAlias = Literal["split", "truncate", "drop"]

ALGORITHMS = ("best_fit", "first_fit", "none")
LONG = ("split", "truncate", "drop")
MOST_TOKENS = 1 << 24  # of a row: packing takes 16 bytes for each


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """How documents are packed; see `plan`."""

    seq_length: int
    algorithm: str = "best_fit"
    long: str = "split"
    seed: int | None = None
    max_documents: int | None = None
    balance: Balance | None = None
    pad_to_multiple: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.seq_length <= MOST_TOKENS:
            raise ValueError(f"{spoken('seq_length')}: found {self.seq_length}, expected 1 to {MOST_TOKENS}")
        if self.algorithm not in ALGORITHMS:
            raise ValueError(
                f"{spoken('algorithm')}: found {self.algorithm!r}, expected one of {', '.join(ALGORITHMS)}"
            )
        if self.long not in LONG:
            raise ValueError(f"{spoken('long')}: found {self.long!r}, expected one of {', '.join(LONG)}")
        if self.seed is not None and self.seed < 0:
            raise ValueError(f"{spoken('seed')}: found {self.seed}, expected 0 or more")
        if self.max_documents is not None and self.max_documents < 1:
            raise ValueError(f"{spoken('max_documents')}: found {self.max_documents}, expected 1 or more")
        if self.pad_to_multiple < 1 or self.seq_length % self.pad_to_multiple:
            found = f"found {self.pad_to_multiple}, expected a divisor of {spoken('seq_length')} {self.seq_length}"
            raise ValueError(f"{spoken('pad_to_multiple')}: {found}")
        if self.pad_to_multiple > 1 and self.algorithm == "none":
            raise ValueError(f"{spoken('pad_to_multiple')}: the algorithm none does not pad: choose another one")
        if self.balance is not None and self.algorithm == "none":
            raise ValueError(f"{spoken('balance')}: rows of the algorithm none have a fixed order: choose another one")
