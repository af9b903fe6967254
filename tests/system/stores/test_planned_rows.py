"""Rows of a plan whose sources are objects in a store."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stores import frequent_faults

import fastpack
from fastpack import PlannedDataset
from fastpack.errors import FastpackError

pytestmark = pytest.mark.usefixtures("small_blocks")
OUTPUTS = ("input_ids", "labels", "doc_ids", "position_ids", "loss_mask")


def planned(path: Path, sources: list[str]) -> Path:
    fastpack.plan(sources, path, seq_length=512, pad_to_multiple=8)
    return path


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Write the same documents in several formats, 0.8 MB each."""
    rng, folder = np.random.default_rng(0), tmp_path / "sources"
    folder.mkdir()
    lengths = rng.integers(1, 2000, 400)
    with fastpack.PackedWriter(folder / "a.pbin", 2) as writer:
        writer.append_many(rng.integers(1, 60_000, lengths.sum()), lengths)
    for name, kind in (("b", "megatron"), ("c", "mds"), ("d", "litdata")):
        fastpack.convert(folder / "a.pbin", folder / name, format=kind)
    return folder


def test_rows_are_those_of_local_files(store: Any, sources: Path) -> None:
    url = store.put_folder(sources, "sources")
    names = ["a.pbin", "b", "c", "d"]
    expected = PlannedDataset(planned(sources / "local.plan", [str(sources / name) for name in names]))
    plan = planned(sources / "remote.plan", [f"{url}/{name}" for name in names])
    store.put("remote.plan", plan.read_bytes())
    rows = np.random.default_rng(1).permutation(len(expected))[:40]
    store.proxy.choose = frequent_faults
    for where in (plan, f"{store.url}/remote.plan"):
        dataset = PlannedDataset(where)
        dataset.will_need(rows)
        for one in (dataset, pickle.loads(pickle.dumps(dataset))):
            found = one.batch(rows, OUTPUTS)
            for name, array in expected.batch(rows, OUTPUTS).items():
                np.testing.assert_array_equal(found[name], array)
            one.check_unchanged()
            one.close()


def test_only_the_blocks_of_the_rows_are_read(store: Any, sources: Path) -> None:
    url = store.put("a.pbin", (sources / "a.pbin").read_bytes())
    dataset = PlannedDataset(planned(sources / "a.plan", [url]))
    dataset.batch([0])
    before = store.proxy.sent
    dataset.batch([1, 2])
    assert store.proxy.sent - before < (sources / "a.pbin").stat().st_size / 2


def test_a_replaced_object_is_an_error(store: Any, sources: Path) -> None:
    url = store.put("a.pbin", (sources / "a.pbin").read_bytes())
    dataset = PlannedDataset(planned(sources / "a.plan", [url]))
    content = bytearray((sources / "a.pbin").read_bytes())
    content[1000] ^= 1
    store.put("a.pbin", bytes(content))
    with pytest.raises(FastpackError, match=r"a\.pbin"):
        dataset.batch(range(0, len(dataset), 10))
