"""input_ids and labels as views of one array: values, where it is possible, and where it is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack
from fastpack import StatefulDataLoader
from fastpack.tokens.mask_bits import MaskBits

EOS = 0
PAIR = ("input_ids", "labels")

pytestmark = pytest.mark.usefixtures("no_threads")


def plain(shards: Path) -> Any:
    return fastpack.MemoryMappedDataset(shards, 33)


def masked(shards: Path) -> Any:
    return fastpack.MemoryMappedDataset(shards, 33, "*.npy", True, EOS)


def mixture(shards: Path) -> Any:
    return fastpack.MixtureDataset([plain(shards), plain(shards)], ["a", "b"])


def read(shards: Path) -> Any:
    return fastpack.MixtureDataset([plain(shards), fastpack.MemoryMappedDataset(shards, 33, io="pread")], ["a", "b"])


def packed_file(shards: Path, **options: Any) -> Any:
    with fastpack.PackedWriter(shards / "a.pbin", 2) as writer:
        writer.append_many(np.arange(1000) % 7, lengths=[300, 700])
    return fastpack.PackedMemMapDatasetContinuous(writer.path, "tokens", 33, True, **options)


def is_one_array(batch: Any) -> bool:
    ids, labels = batch["input_ids"], batch["labels"]
    return bool(np.shares_memory(ids, labels)) and labels.ctypes.data == ids.ctypes.data + ids.itemsize


@pytest.mark.parametrize("make", [plain, mixture, read, packed_file])
@pytest.mark.parametrize("options", [{}, {"dtype": "int32", "num_threads": 3}])
def test_views_have_the_values_of_separate_arrays(
    shards: Path, make: Callable[[Path], Any], options: Any, backend: str
) -> None:
    dataset = make(shards)
    options = {"outputs": (*PAIR, "dataset_idx") if isinstance(dataset, fastpack.MixtureDataset) else PAIR, **options}
    shared, explicit, separate = (
        StatefulDataLoader(dataset, 4, share_memory=share, **options) for share in (None, True, False)
    )
    for one, same, other in zip(shared, explicit, separate, strict=True):
        assert is_one_array(one)
        assert is_one_array(same)
        assert not np.shares_memory(other["input_ids"], other["labels"])
        assert list(one) == list(other)
        for name, array in other.items():
            assert one[name].dtype == array.dtype
            assert one[name].tolist() == same[name].tolist() == array.tolist()
    assert shared.state_dict() == separate.state_dict()


def test_kept_views_never_change(shards: Path) -> None:
    loader = StatefulDataLoader(plain(shards), 4, prefetch=1)
    kept = [batch["labels"] for batch in loader]  # without input_ids
    copies = [batch["labels"].copy() for batch in StatefulDataLoader(plain(shards), 4, share_memory=False)]
    assert [one.tolist() for one in kept] == [one.tolist() for one in copies]


def masked_by_file(shards: Path) -> Any:
    with fastpack.PackedWriter(shards / "masked.pbin", 2) as writer:
        writer.mask = MaskBits(np.arange(200) % 3 > 0)
        writer.append_many(np.arange(200), lengths=[200])
    return fastpack.PackedMemMapDatasetContinuous(writer.path, "tokens", 9, True)


CASES: dict[str, tuple[Callable[[Path], Any], dict[str, Any], str]] = {
    "masked after documents": (masked, {}, "end of a document"),
    "one dataset of a mixture": (
        lambda p: fastpack.MixtureDataset([plain(p), masked(p)], ["a", "b"]),
        {"outputs": PAIR},
        "end of a document",
    ),
    "masked by a file": (masked_by_file, {"outputs": PAIR}, "loss mask says so"),
    "blocks": (packed_file, {}, "request both by outputs="),
    "no labels": (plain, {"outputs": ("input_ids",)}, "request both by outputs="),
    "cut rows": (plain, {"context_parallel": (0, 2)}, "context_parallel cuts each row"),
    "collated": (plain, {"collate_fn": list}, "not filled as rows of tokens"),
    "samples": (lambda _: [{"input_ids": np.arange(3), "labels": np.arange(3)}] * 8, {}, "not filled as rows"),
}


@pytest.mark.parametrize("case", CASES)
def test_arrays_of_their_own_where_sharing_is_not_possible(shards: Path, case: str) -> None:
    make, options, reason = CASES[case]
    dataset = make(shards)
    batch: Any = next(iter(StatefulDataLoader(dataset, 2, range(8), **options)))
    if isinstance(batch, dict) and set(PAIR) <= set(batch):
        assert not np.shares_memory(batch["input_ids"], batch["labels"])
    with pytest.raises(ValueError, match=f"share_memory=True is not possible: .*{reason}"):
        StatefulDataLoader(dataset, 2, range(8), share_memory=True, **options)


def test_rows_of_another_kind_are_refused(shards: Path) -> None:
    packed_file(shards)
    fastpack.plan(shards / "a.pbin", shards / "a.plan", seq_length=64)
    planned = fastpack.PlannedDataset(shards / "a.plan", outputs=PAIR)
    with pytest.raises(ValueError, match="labels of a PlannedDataset"):
        StatefulDataLoader(planned, 2, share_memory=True)
    assert next(iter(StatefulDataLoader(planned, 2)))["labels"].flags.c_contiguous


def test_a_dataset_that_fills_its_own_way_keeps_it(shards: Path) -> None:
    class Own(fastpack.MemoryMappedDataset):
        def fill(self, indices: Any, out: Any) -> None:
            super().fill(indices, out)
            out["labels"] += 1000

    batch = next(iter(StatefulDataLoader(Own(shards, 33), 4)))
    assert batch["labels"].min() >= 1000 > batch["input_ids"].max()


def test_excluded_documents_end_the_sharing(shards: Path) -> None:
    dataset = packed_file(shards)
    (shards / "bad.txt").write_text(f"{shards / 'a.pbin'}:1\n")
    loader = StatefulDataLoader(dataset, 4, outputs=PAIR)
    other = StatefulDataLoader(dataset, 4, outputs=PAIR, share_memory=False)
    batches, others = iter(loader), iter(other)
    assert is_one_array(next(batches))
    next(others)
    loader.exclude(documents=shards / "bad.txt")
    other.exclude(documents=shards / "bad.txt")
    found, expected = next(batches), next(others)
    assert (expected["labels"] == -100).any()
    assert [found[name].tolist() for name in PAIR] == [expected[name].tolist() for name in PAIR]
    refused = StatefulDataLoader(dataset, 4, outputs=PAIR, share_memory=True)
    with pytest.raises(ValueError, match="omit share_memory=True"):
        refused.exclude(documents=shards / "bad.txt")


def test_shapes_only_takes_the_option(shards: Path) -> None:
    batch = next(iter(StatefulDataLoader(plain(shards), 4, shapes_only=True, share_memory=True)))
    assert batch["labels"].shape == (4, 32)


def test_a_closed_dataset_is_refused(shards: Path) -> None:
    dataset = plain(shards)
    loader = StatefulDataLoader(dataset, 4, prefetch=0)
    dataset.close()
    with pytest.raises(ValueError, match="closed"):
        next(iter(loader))


@pytest.mark.parametrize("outputs", [("input_ids", "doc_ids"), ("position_ids",)])
def test_documents_without_boundaries_are_refused(shards: Path, outputs: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="eos_token_id"):
        next(iter(StatefulDataLoader(plain(shards), 4, outputs=outputs)))
