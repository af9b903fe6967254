"""Options of `verify` and `inspect` as they are passed to the functions for each format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastpack.io import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Options of `verify`; see `fastpack.verify` for their meaning."""

    vocab_size: int | None = None
    eos_token_id: int | None = None
    deep: bool = False
    trust_code: bool = False
    split_config: str = "split.yaml"
    dataset_config: str = "dataset.yaml"
    split_parts: Sequence[str] | None = None
    threads: int = 2
    progress: Progress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectOptions:
    """Options of `inspect`; see `fastpack.inspect` for their meaning. `count_ids`: count each token id."""

    eos_token_id: int | None = None
    seq_lens: Sequence[int] = ()
    quick: bool = False
    count_ids: bool = False
    progress: Progress | None = None
    dtype: str | None = None
    split_config: str = "split.yaml"
    dataset_config: str = "dataset.yaml"
    split_parts: Sequence[str] | None = None
    text_field: str | None = None
    split_on: str | None = None
