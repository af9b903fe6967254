"""GPTDataset compared with megatron-core, element for element, over random configurations.

Runs where megatron-core is installed (pip install megatron-core pybind11 torch); the fast suite compares with recorded
results instead (test_gpt_golden.py).
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from megatron_corpora import Configuration, random_configuration, write_corpora

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


def built_by_megatron(configuration: Configuration, paths: list[str]) -> list[Any]:
    c, weights = configuration, configuration.weights
    config = gpt_dataset.GPTDatasetConfig(
        random_seed=c.seed,
        sequence_length=c.sequence_length,
        blend=(paths, weights) if not c.per_split else None,
        blend_per_split=[(paths, weights)] * 3 if c.per_split else None,
        split=None if c.per_split else c.split,
        tokenizer=Tokenizer(c.eod, c.pad),
        reset_position_ids=c.reset_position_ids,
        reset_attention_mask=False,
        eod_mask_loss=c.eod_mask_loss,
        create_attention_mask=False,
        drop_last_partial_validation_sequence=c.drop_last,
        add_extra_token_to_sequence=c.extra,
    )
    built: list[Any] = builder.BlendedMegatronDatasetBuilder(
        gpt_dataset.GPTDataset, list(c.num_samples), lambda: True, config
    ).build()
    for split in built:
        for dataset in [] if split is None else getattr(split, "datasets", [split]):
            # Otherwise the padding of the first sample that is read has no loss in any later sample either.
            dataset.masks_and_position_ids_are_cacheable = False
    return built


@pytest.mark.parametrize("seed", range(300))
@pytest.mark.filterwarnings("ignore")
def test_samples_equal_those_of_megatron_core(seed: int, tmp_path: Path) -> None:
    configuration = random_configuration(seed)
    paths = write_corpora(configuration, tmp_path)
    expected = built_by_megatron(configuration, paths)
    found = fastpack.GPTDataset.build(**configuration.arguments(paths))
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is None or theirs is None:
            continue
        assert len(ours) == len(theirs)
        for k in range(len(ours)):
            sample, other = ours[k], theirs[k]
            assert list(sample) == list(other)
            for name, value in other.items():
                array = np.asarray(value)
                assert np.array_equal(sample[name], array), (name, k)
                assert sample[name].dtype == array.dtype, name
        if len(ours):
            order = np.random.default_rng(seed).permutation(len(ours))[:40]
            batch = ours.batch(order)
            for name, array in batch.items():
                assert np.array_equal(array, np.stack([ours[k][name] for k in order.tolist()])), name
