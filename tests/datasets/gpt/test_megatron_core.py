"""GPTDataset compared with megatron-core, element for element, over random configurations.

Runs where megatron-core and torch are installed, as `.ci/run foreign` does; the fast suite compares with recorded
results instead (test_gpt_dataset.py). inter_document_masking needs megatron-core 0.17.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from megatron_corpora import Configuration, random_configuration, write_corpora, write_megatron

import fastpack

pytestmark = pytest.mark.slow

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    builder = pytest.importorskip("megatron.core.datasets.blended_megatron_dataset_builder")
    gpt_dataset = pytest.importorskip("megatron.core.datasets.gpt_dataset")


class Tokenizer:
    """What megatron-core asks of a tokenizer."""

    vocab_size = 1000

    def __init__(self, eod: int, pad: int | None) -> None:
        self.eod = eod
        if pad is not None:
            self.pad = pad

    @property
    def unique_identifiers(self) -> dict[str, Any]:
        return {"eod": self.eod}


def built_by_megatron(configuration: Configuration, paths: list[str], **more: Any) -> list[Any]:
    c, weights = configuration, configuration.weights
    if c.inter_document_masking:
        more["inter_document_masking"] = True
    options = {
        "random_seed": c.seed,
        "sequence_length": c.sequence_length,
        "blend": (paths, weights) if not c.per_split else None,
        "blend_per_split": [(paths, weights)] * 3 if c.per_split else None,
        "split": None if c.per_split else c.split,
        "tokenizer": Tokenizer(c.eod, c.pad),
        "reset_position_ids": c.reset_position_ids,
        "reset_attention_mask": False,
        "eod_mask_loss": c.eod_mask_loss,
        "create_attention_mask": False,
        "drop_last_partial_validation_sequence": c.drop_last,
        "add_extra_token_to_sequence": c.extra,
    }
    config = gpt_dataset.GPTDatasetConfig(**{**options, **more})
    built: list[Any] = builder.BlendedMegatronDatasetBuilder(
        gpt_dataset.GPTDataset, list(c.num_samples), lambda: True, config
    ).build()
    for split in built:
        for dataset in [] if split is None else getattr(split, "datasets", [split]):
            # Otherwise the padding of the first sample that is read has no loss in any later sample either.
            dataset.masks_and_position_ids_are_cacheable = False
    return built


def assert_equal_samples(ours: Any, theirs: Any, numbers: Any) -> None:
    assert len(ours) == len(theirs)
    for k in numbers:
        sample, other = ours[k], theirs[k]
        assert list(sample) == list(other)
        for name, value in other.items():
            array = np.asarray(value)
            assert np.array_equal(sample[name], array), (name, k)
            assert sample[name].dtype == array.dtype, name


def compare(configuration: Configuration, folder: Path) -> None:
    paths = write_corpora(configuration, folder)
    expected = built_by_megatron(configuration, paths)
    found = fastpack.GPTDataset.build(**configuration.arguments(paths))
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert_equal_samples(ours, theirs, range(len(ours)))
            order = np.random.default_rng(configuration.seed).permutation(len(ours))[:40]
            batch = ours.batch(order) if len(ours) else {}
            for name, array in batch.items():
                assert np.array_equal(array, np.stack([ours[k][name] for k in order.tolist()])), name


@pytest.mark.parametrize("seed", range(300))
@pytest.mark.filterwarnings("ignore")
def test_samples_equal_those_of_megatron_core(seed: int, tmp_path: Path) -> None:
    compare(random_configuration(seed), tmp_path)


@pytest.mark.skipif(
    all(field.name != "inter_document_masking" for field in fields(gpt_dataset.GPTDatasetConfig)),
    reason="this megatron-core has no inter_document_masking",
)
@pytest.mark.parametrize("seed", range(300, 400))
@pytest.mark.filterwarnings("ignore")
def test_masks_of_documents_equal_those_of_megatron_core(seed: int, tmp_path: Path) -> None:
    found = random_configuration(seed)
    lengths = [[max(1, length) for length in file] for file in found.lengths]  # its cu_seqlens has no room for empty
    length = max(7, found.sequence_length)  # documents, nor for parts without tokens in short samples
    compare(replace(found, lengths=lengths, sequence_length=length, inter_document_masking=True), tmp_path)


@pytest.mark.parametrize("seed", range(400, 420))
@pytest.mark.filterwarnings("ignore")
def test_bounds_after_eod_tokens_are_the_attention_mask_of_megatron_core(seed: int, tmp_path: Path) -> None:
    configuration = replace(random_configuration(seed), reset_position_ids=True)
    paths = write_corpora(configuration, tmp_path)
    expected = built_by_megatron(configuration, paths, reset_attention_mask=True, create_attention_mask=True)
    found = fastpack.GPTDataset.build(**configuration.arguments(paths))
    for ours, theirs in zip(found, expected, strict=True):
        for k in range(0 if ours is None or theirs is None else len(ours)):
            bounds = ours.batch([k], outputs=("cu_seqlens",))["cu_seqlens"]
            documents = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
            attends = (documents[:, None] == documents).astype(bool) & np.tri(len(documents), dtype=bool)
            assert np.array_equal(~attends, np.asarray(theirs[k]["attention_mask"])[0]), k


def wide_validation(folder: Path, **options: Any) -> tuple[Configuration, list[str]]:
    """Return a validation set of 2^25 tokens, whose last sample is incomplete."""
    lengths = np.random.default_rng(1).integers(1, 5000, 20_000)
    lengths = lengths[: np.searchsorted(np.cumsum(lengths), 1 << 25)].tolist()
    lengths.append((1 << 25) + 3 - sum(lengths))
    path = str(folder / "large")
    write_megatron(path, (np.arange(sum(lengths)) % 251).astype(np.uint8), lengths)
    configuration = replace(random_configuration(1), sequence_length=1 << 12, weights=None, per_split=False)
    return replace(configuration, split="0,1,0", num_samples=(0, None, 0), extra=True, drop_last=False), [path]


@pytest.mark.filterwarnings("ignore")
def test_its_rounding_of_the_number_of_samples_is_repeated(tmp_path: Path) -> None:
    configuration, paths = wide_validation(tmp_path)
    theirs = built_by_megatron(configuration, paths)[1]
    ours = fastpack.GPTDataset.build(**configuration.arguments(paths), compat="megatron")[1]
    assert ours is not None
    assert len(ours) == 8192  # the exact number is 8193
    assert_equal_samples(ours, theirs, [0, 1, 17, 4711, 8190, 8191])


@pytest.mark.filterwarnings("ignore:.*(Transformer|absl|deprecated).*")
def test_its_stale_indices_are_named(tmp_path: Path) -> None:
    configuration = replace(random_configuration(7), weights=None, per_split=False, split="1,0,0")
    configuration = replace(configuration, num_samples=(40, 0, 0), sequence_length=16, lengths=[[9, 30, 12, 7, 25]])
    paths = write_corpora(replace(configuration, dtypes=["uint8"]), tmp_path)
    old = built_by_megatron(configuration, paths)[0].shuffle_index.tolist()
    fastpack.GPTDataset.build(**configuration.arguments(paths))  # without a warning
    other = replace(configuration, dtypes=["uint8"], lengths=[[40, 8, 31, 5, 120, 33, 70]])
    write_corpora(other, tmp_path)
    for suffix in (".bin", ".idx"):
        os.utime(paths[0] + suffix, ns=(int(4e18), int(4e18)))
    stale = built_by_megatron(configuration, paths)[0]
    assert stale.shuffle_index.tolist() == old  # of the replaced file
    with pytest.warns(fastpack.DataWarning, match="older than the tokens"):
        ours = fastpack.GPTDataset.build(**configuration.arguments(paths))[0]
    fresh = built_by_megatron(configuration, paths, path_to_cache=str(tmp_path / "fresh"))[0]
    assert ours is not None
    assert_equal_samples(ours, fresh, range(len(ours)))
