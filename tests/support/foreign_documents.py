"""Documents and files for tests in which other projects read our files, and fastpack reads theirs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import fastpack

EOS = 0
Documents = list[list[int]]


def random_documents(largest: int) -> Documents:
    """Return documents that end with EOS, half of them of one token, with ids up to `largest`."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 40, 300) * rng.integers(0, 2, 300)
    return [[*rng.integers(1, largest, size, endpoint=True).tolist(), EOS] for size in lengths] + [[largest, EOS]]


NARROW, WIDE = random_documents(65_535), random_documents(199_999)
BOTH = [(NARROW, 2), (WIDE, 4)]  # with the token size


@dataclass
class OurFile:
    """A file that fastpack wrote, and its documents."""

    path: Path
    documents: Documents
    token_size: int

    @property
    def flat(self) -> list[int]:
        return flat(self.documents)

    @property
    def dtype(self) -> type[np.unsignedinteger]:  # type: ignore[type-arg]
        return np.uint16 if self.token_size == 2 else np.uint32


def flat(documents: Documents) -> list[int]:
    return [token for document in documents for token in document]


def read(path: Path, **options: object) -> Documents:
    """Read the documents of a file with fastpack."""
    with fastpack.open_tokens(path, **options) as tokens:  # type: ignore[arg-type]
        assert tokens.n_documents is not None
        return [tokens.document(i).tolist() for i in range(tokens.n_documents)]
