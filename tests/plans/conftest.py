"""Token files to make plans from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import fastpack

Corpus = Callable[..., Path]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Writes `<name>.pbin` with documents of these lengths; token `t` of document `d` is 100 * d + t, modulo 2^16."""

    def write(lengths: Sequence[int], name: str = "corpus") -> Path:
        path = tmp_path / f"{name}.pbin"
        with fastpack.PackedWriter(path, 2) as writer:
            for number, length in enumerate(lengths):
                writer.append((np.arange(length) + 100 * number) % (1 << 16))
        return path

    return write
