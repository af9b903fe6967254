"""Random corpora in Megatron's format, and random arguments of `GPTDataset.build`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastpack.io import as_path
from fastpack.tokens.formats import format_named


@dataclass(frozen=True)
class Configuration:
    """Arguments of `GPTDataset.build`, in the words of megatron-core, and the documents of each file."""

    seed: int
    lengths: list[list[int]]
    dtypes: list[str]
    weights: list[float] | None
    per_split: bool
    sequence_length: int
    num_samples: tuple[int | None, int | None, int | None]
    split: str
    extra: bool
    drop_last: bool
    eod: int
    pad: int | None
    reset_position_ids: bool
    eod_mask_loss: bool
    inter_document_masking: bool = False

    def arguments(self, paths: list[str]) -> dict[str, Any]:
        """Return the arguments of `GPTDataset.build`."""
        blend: Any = paths[0] if len(paths) == 1 else paths
        if self.weights is not None:
            blend = [item for pair in zip(self.weights, paths, strict=True) for item in pair]
        elif len(paths) == 2 and self.seed % 2:
            blend = [Path(path) for path in paths]
        blends = {"blend": None, "blend_per_split": [blend] * 3} if self.per_split else {"blend": blend}
        return {
            **blends,
            "sequence_length": self.sequence_length,
            "random_seed": self.seed,
            "num_samples": self.num_samples,
            "split": self.split,
            "add_extra_token_to_sequence": self.extra,
            "drop_last_partial_validation_sequence": self.drop_last,
            "eod_token_id": self.eod,
            "pad_token_id": self.pad,
            "reset_position_ids": self.reset_position_ids,
            "eod_mask_loss": self.eod_mask_loss,
            "inter_document_masking": self.inter_document_masking,
        }


def random_configuration(seed: int) -> Configuration:
    """Return a configuration that megatron-core accepts."""
    rng: Any = np.random.default_rng(seed)
    n_files = int(rng.choice([1, 1, 2, 3, 5]))
    shortest = int(rng.choice([0, 1]))
    lengths = []
    for _ in range(n_files):
        found = rng.integers(shortest, int(rng.choice([3, 20, 60])), int(rng.integers(20, 60)))
        found[:: max(1, len(found) // 8)] += 60  # every split of every file has a sample
        found[-3:] += 60
        lengths.append(found.tolist())
    weights = [float(w) for w in rng.integers(1, 9, n_files)] if rng.random() < 0.5 else None
    numbers = [int(n) for n in rng.integers(0, 90, 3)]
    num_samples: list[int | None] = list(numbers)
    if weights is None:
        num_samples = [None if rng.random() < 0.3 else n for n in numbers]
    return Configuration(
        seed=seed,
        lengths=lengths,
        dtypes=[str(rng.choice(["uint8", "uint16", "int32", "int64"])) for _ in range(n_files)],
        weights=weights,
        per_split=bool(rng.random() < 0.25),
        sequence_length=int(rng.choice([1, 4, 7, 16, 33])),
        num_samples=(num_samples[0], num_samples[1], num_samples[2]),
        split=str(rng.choice(["900,70,30", "80,15,5", "1,1,1", "1,0,0", "5,5", "0,1,0", "0.5,0.25,0.25"])),
        extra=bool(rng.random() < 0.7),
        drop_last=bool(rng.random() < 0.5) or shortest == 0,  # an empty last document is an AssertionError there
        eod=0,
        pad=[None, None, 3, 99][int(rng.integers(4))],
        reset_position_ids=bool(rng.random() < 0.4),
        eod_mask_loss=bool(rng.random() < 0.4),
    )


def write_corpora(configuration: Configuration, folder: Path) -> list[str]:
    """Write the files of a configuration, tokens below 100 with `eod` at document ends; return their prefixes."""
    paths = []
    for number, (lengths, dtype) in enumerate(zip(configuration.lengths, configuration.dtypes, strict=True)):
        tokens = (np.arange(sum(lengths)) + number) * 2_654_435_761 // 128 % 100
        ends = np.cumsum(lengths)
        tokens[ends[ends > 0] - 1] = configuration.eod
        paths.append(str(folder / f"corpus_{number}"))
        write_megatron(paths[-1], tokens.astype(dtype), lengths)
    return paths


def digest(samples: Iterable[dict[str, Any]]) -> str:
    """Return the SHA-256 of the names, dtypes and values of samples."""
    found = hashlib.sha256()
    for sample in samples:
        for name, value in sample.items():
            array = np.asarray(value)
            found.update(f"{name} {array.dtype} {array.shape}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def write_megatron(path: str, tokens: np.ndarray, lengths: list[int]) -> None:
    """Write tokens and the lengths of documents as Megatron's files."""
    create = format_named("megatron").create
    assert create is not None
    with create(as_path(path), tokens.dtype, "overwrite") as writer:
        writer.append_many(tokens, np.array(lengths))
