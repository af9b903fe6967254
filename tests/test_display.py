"""The `repr` of public objects is one short line that tells them apart; results are tables in a notebook."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack
from fastpack import (
    CombinedDataset,
    DistributedSampler,
    LargeFileLinesReader,
    MemMapDataset,
    MemoryMappedDataset,
    MixtureDataset,
    MixtureSampler,
    PackedFile,
    PackedMemMapDatasetBase,
    PackedMemMapDatasetContinuous,
    PackedMemMapDatasetMegatron,
    PackedWriter,
    PhaseSchedule,
    PreTrainedHFTokenizer,
    ResumableDistributedSampler,
    StatefulDataLoader,
    TatmMemmapDataset,
    TrainingPhase,
    WebDataset,
)

HOSTILE = "<script>\n\x1b[31m"


@pytest.fixture
def data(tmp_path: Path, golden: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    fastpack.pack(folder / "a.jsonl", tokenizer="bytes")
    np.save(folder / "a.npy", np.arange(100, dtype=np.uint16))
    return folder


def mixture(data: Path) -> MixtureDataset:
    return MixtureDataset([MemoryMappedDataset(data, 10)] * 2, ["web", "code"])


OBJECTS: dict[str, tuple[Callable[[Path], Any], tuple[str, ...]]] = {
    "lines": (lambda data: LargeFileLinesReader(data / "a.jsonl"), ("a.jsonl", "samples=2")),
    "packed": (lambda data: PackedMemMapDatasetBase(data / "a.pbin", "x"), ("a.pbin", "samples=2")),
    "blocks": (
        lambda data: PackedMemMapDatasetContinuous(data / "a.pbin", "x", 3, True),
        ("a.pbin", "samples=3", "block_size=3"),
    ),
    "megatron": (lambda data: PackedMemMapDatasetMegatron(data / "a.pbin", "x", 2), ("a.pbin", "block_size=2")),
    "flat": (lambda data: MemoryMappedDataset(data, 10), ("data", "samples=10", "seq_len=10")),
    "combined": (lambda data: CombinedDataset([MemoryMappedDataset(data, 10)] * 9), ("<9 items>", "samples=90")),
    "mixture": (mixture, ("web", "code", "samples=20")),
    "tatm": (lambda data: TatmMemmapDataset(str(data / "a"), 10, "uint16", file_suffix="npy"), ("context_length=10",)),
    "sampler": (lambda _: DistributedSampler(range(50), 2, 1, seed=7), ("rank=1", "num_samples=25", "seed=7")),
    "mixed": (lambda _: MixtureSampler([0, 5, 9], [0.5, 0.5], 1, 0), ("num_samples=", "epoch=0")),
    "resumable": (lambda _: ResumableDistributedSampler(range(50), 0, 2), ("rank=0", "num_samples=25")),
    "loader": (
        lambda data: StatefulDataLoader(MemoryMappedDataset(data, 10), 4, range(10)),
        ("MemoryMappedDataset", "batch_size=4"),
    ),
    "file": (lambda data: PackedFile(data / "a.pbin"), ("a.pbin",)),
    "phases": (
        lambda _: PhaseSchedule([TrainingPhase(0, {"web": 1.0})], None, ["web"], [1.0]),
        ("names=['web']", "weights=[1.0]"),
    ),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_are_shown_on_one_line(name: str, data: Path) -> None:
    make, expected = OBJECTS[name]
    shown = repr(make(data))
    assert "\n" not in shown
    assert len(shown) < 300
    assert " object at 0x" not in shown
    for text in expected:
        assert text in shown, shown


def test_what_needs_more_than_a_file(data: Path, golden: Path) -> None:
    web = repr(WebDataset(golden / "energon" / "split", "train"))
    assert "split_part='train'" in web
    assert "samples=" in web
    with PackedWriter(data / "b.pbin", 2) as writer:
        writer.append([1, 2, 3])
        assert "n_tokens=3" in repr(writer)
    tokenizer = PreTrainedHFTokenizer(golden / "modalities" / "tokenizers" / "tok_bpe2000")
    assert "a.jsonl" in repr(MemMapDataset(data / "a.jsonl", tokenizer, "x"))


def test_a_closed_and_a_half_made_object_are_shown(data: Path) -> None:
    dataset = PackedMemMapDatasetContinuous(data / "a.pbin", "x", 3, True)
    dataset.close()
    assert "a.pbin" in repr(dataset)
    assert repr(object.__new__(MemoryMappedDataset)) == "MemoryMappedDataset()"
    assert repr(pickle.loads(pickle.dumps(dataset))) == repr(dataset)


def test_results_count_what_is_long(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "one"}\n' + '{"text": 1}\n' * 500)
    result = fastpack.pack(source, tokenizer="bytes")
    assert len(repr(result)) < 700
    assert "documents=1, tokens=4" in repr(result)
    assert "skipped=<500 items>" in repr(result)
    report = fastpack.verify(result.path)
    assert repr(report).startswith("VerifyReport(")
    assert "<td>1</td>" in result._repr_html_()


def test_names_are_escaped(tmp_path: Path) -> None:
    folder = tmp_path / HOSTILE
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "one"}\n')
    result = fastpack.create_raw_index(folder / "a.jsonl")
    assert "\n" not in repr(result)
    assert "\x1b" not in repr(result)
    page = result._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
