"""Division of a corpus into shards, and the names of the shards in each format."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.errors import spoken
from fastpack.io import AnyPath, as_path, is_folder, names_in
from fastpack.tokens.interop_formats import first_output

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}
_COUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMBGT]?)", re.IGNORECASE)
_MEGATRON = "_text_document"  # the end of names that Megatron's preprocess_data gives


class Shard(NamedTuple):
    """The tokens [start, end) and the documents [first, stop) of a corpus; no documents if they are not stored."""

    start: int
    end: int
    first: int = 0
    stop: int = 0


def token_count(text: int | str) -> int:
    """Return a number of tokens: an integer, or a text such as "500M", "1B" or "1.5B"; ValueError for others."""
    match = _COUNT.fullmatch(str(text).strip().replace("_", "").replace(",", ""))
    number, rest = (0, 0.0) if match is None else divmod(float(match[1]) * _UNITS[match[2].upper()], 1)
    if match is not None and not match[2] and "." not in match[1]:
        number = int(match[1])
    if number < 1 or rest:
        raise ValueError(
            f"{spoken('shard_tokens')}: found {text!r}, expected a number of tokens such as 1000000, 500M or 1B"
        )
    return int(number)


def cut_documents(lengths: npt.NDArray[np.int64], n_tokens: int) -> list[Shard]:
    """Return shards of whole documents with at most `n_tokens` tokens; a longer document gets its own."""
    ends = np.cumsum(lengths)
    shards, first, before = [], 0, 0
    while first < len(ends):
        stop = max(first + 1, int(np.searchsorted(ends, before + n_tokens, "right")))
        shards.append(Shard(before, int(ends[stop - 1]), first, stop))
        first, before = stop, int(ends[stop - 1])
    return shards or [Shard(0, 0)]


def cut_tokens(total: int, n_tokens: int) -> list[Shard]:
    """Return shards of exactly `n_tokens` tokens, the last of which may be shorter."""
    return [Shard(start, min(start + n_tokens, total)) for start in range(0, max(1, total), n_tokens)]


def shard_paths(name: str, target: AnyPath, n_shards: int) -> list[AnyPath]:
    """Return the paths of the shards of an output, which sort in order.

    name: of the format, whose own names are followed where it has such: Megatron's `corpus_00000_text_document`, the
    `00000_corpus.ds` of datatrove's merger, `part-00000.npy` of OLMo, `train_000000.bin` of llm.c.
    """
    before, after = _affixes(name, target)
    digits = max(6 if name == "llmc" else 5, len(str(n_shards - 1)))
    return [as_path(f"{before}{number:0{digits}}{after}") for number in range(n_shards)]


def existing_shards(name: str, target: AnyPath) -> list[AnyPath]:
    """Return the shards that exist under the names of an output, however many."""
    before, after = _affixes(name, target)
    folder, start = os.path.split(before)
    if not is_folder(folder or "."):
        return []
    end = os.fspath(first_output(name, as_path(f"{before}0{after}")))[len(before) + 1 :]
    is_shard = re.compile(f"({re.escape(start)}[0-9]{{5,}}){re.escape(end)}").fullmatch
    found = sorted(match[1] for match in map(is_shard, names_in(folder or ".")) if match)
    return [as_path(f"{os.path.join(folder, name)}{after}") for name in found]


_SUFFIXES = {"pbin": ".pbin", "npy": ".npy", "bin": ".bin", "llmc": ".bin", "nanogpt": ".bin"}


def _affixes(name: str, target: AnyPath) -> tuple[str, str]:
    """Return what precedes and follows the number of a shard."""
    text = os.fspath(target)
    folder, base = os.path.split(text)
    match name:
        case "megatron":
            return f"{text.removesuffix(_MEGATRON)}_", _MEGATRON
        case "datatrove":
            return os.path.join(folder, ""), f"_{base}"
        case "olmo":
            return f"{text.removesuffix('.npy')}-", ".npy"
    stem, suffix = os.path.splitext(text)
    return f"{stem}_", suffix or _SUFFIXES.get(name, "")
