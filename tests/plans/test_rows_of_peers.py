"""Rows of best-fit plans compared with those of TRL and OLMo-core on the same documents, if they are installed.

    pip install trl ai2-olmo-core && pytest tests/plans/test_rows_of_peers.py

The order of documents of equal length differs (OLMo-core's sort is unstable), so rows are compared as the lengths of
their documents, in order.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack
from fastpack.plans.plan_file import PlanFile

CASES = [(64, 0), (64, 1), (100, 2), (1000, 3), (4096, 4)]


def documents(folder: Path, seq_length: int, seed: int) -> tuple[Path, list[int]]:
    rng = np.random.default_rng(seed)
    lengths = np.maximum(1, rng.lognormal(np.log(seq_length / 3), 1, 3000)).astype(int)
    lengths[::50] = seq_length * rng.integers(1, 4, 60)
    tokens = np.ones(lengths.sum(), np.uint16)
    tokens[np.cumsum(lengths) - 1] = 0
    with fastpack.PackedWriter(folder / "a.pbin", 2) as writer:
        writer.append_many(tokens, lengths)
    tokens.tofile(folder / "a.npy")
    return folder / "a.pbin", lengths.tolist()


def rows_of_plan(source: Path, seq_length: int, long: Any) -> list[list[int]]:
    fastpack.plan(source, source.with_suffix(".plan"), seq_length=seq_length, long=long)
    plan = PlanFile(source.with_suffix(".plan"))
    found: list[list[int]] = [[] for _ in range(plan.n_rows)]
    segments = plan.segments(range(plan.n_rows))
    for row, length in zip(segments.row.tolist(), (segments.end - segments.start).tolist(), strict=True):
        found[row].append(length)
    return sorted(found)


@pytest.mark.parametrize(("long", "strategy"), [("truncate", "bfd"), ("split", "bfd_split")])
@pytest.mark.parametrize(("seq_length", "seed"), CASES)
def test_rows_are_those_of_trl(tmp_path: Path, seq_length: int, seed: int, long: str, strategy: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trl = pytest.importorskip("trl.data_utils")
        datasets = pytest.importorskip("datasets")
        source, lengths = documents(tmp_path, seq_length, seed)
        dataset = datasets.Dataset.from_dict({"input_ids": [[1] * length for length in lengths]})
        packed = trl.pack_dataset(dataset, seq_length, strategy, map_kwargs={"batch_size": None})
    assert rows_of_plan(source, seq_length, long) == sorted(packed["seq_lengths"])


@pytest.mark.parametrize(("long", "strategy"), [("truncate", "truncate"), ("split", "fragment")])
@pytest.mark.parametrize(("seq_length", "seed"), [case for case in CASES if case[0].bit_count() == 1])  # as it requires
def test_rows_are_those_of_olmo_core(tmp_path: Path, seq_length: int, seed: int, long: str, strategy: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        olmo = pytest.importorskip("olmo_core.data.utils")
        types = pytest.importorskip("olmo_core.data.types")
    source, _ = documents(tmp_path, seq_length, seed)
    rows, indices, _ = olmo.pack_documents_into_instances(
        tmp_path / "a.npy",
        max_sequence_length=seq_length,
        eos_token_id=0,
        dtype=np.uint16,
        long_doc_strategy=types.LongDocStrategy(strategy),
    )
    lengths = (indices[:, 1] - indices[:, 0]).tolist()
    assert rows_of_plan(source, seq_length, long) == sorted([lengths[i] for i in row] for row in rows)
