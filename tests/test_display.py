"""`repr` and `_repr_html_` of the public classes: short, informative, safe."""

from __future__ import annotations

import builtins
import importlib
import json
import mmap
import os
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tar_files import write_tar

import fastpack
from fastpack.webdataset.preparation.metadataset import MetadatasetResult

LINE = 120
HOSTILE = '<script>alert("&")\n\x1b'
COVERED = re.compile(
    r"(Result|Report|Dataset(Base|Continuous|Megatron)?|Sampler|Loader|Reader|Phase|Schedule|Packed(File|Writer|Pack)"
    r"|PlannedPack|Prepared\w+)$"
)

Example = tuple[Any, list[str]]  # an object, and strings that its repr contains


def packed(folder: Path) -> Path:
    path = folder / "corpus.pbin"
    with fastpack.PackedWriter(path, 2) as writer:
        for length in (3, 4, 5):
            writer.append(np.arange(length))
    return path


def lines(folder: Path) -> Path:
    path = folder / "corpus.jsonl"
    path.write_text('{"text": "a"}\n{"text": "b"}\n')
    fastpack.create_raw_index(path)
    return path


def shards(folder: Path) -> Path:
    np.arange(40, dtype=np.uint16).tofile(folder / "shard.bin")
    np.save(folder / "shard.npy", np.arange(40, dtype=np.uint16))
    return folder


def tars(folder: Path) -> Path:
    write_tar(folder / "shard_0.tar", {f"{number}.txt": b"x" for number in range(3)})
    fastpack.prepare(folder, split_ratio=[1, 0, 0])
    return folder


def windows(folder: Path, where: Any = fastpack) -> Any:
    return where.MemoryMappedDataset(shards(folder), 8)


def planned(folder: Path) -> Any:
    fastpack.plan(packed(folder), folder / "corpus.plan", seq_length=8)
    return fastpack.PlannedDataset(folder / "corpus.plan")


def gpt(folder: Path) -> Any:
    return fastpack.GPTDataset.build(packed(folder), 8, 1, (2, 0, 0), "1,0,0")[0]


def closed_writer(folder: Path) -> Any:
    writer = fastpack.PackedWriter(folder / "new.pbin", 2)
    writer.append([1, 2, 3])
    writer.close()
    return writer


def tatm(folder: Path) -> Any:
    prefix = os.path.join(str(shards(folder)), "shard")
    return fastpack.TatmMemmapDataset(prefix, 8, token_output_format="numpy")


MIXED = ["web", "code"]
OBJECTS: dict[str, Callable[[Path], Example]] = {
    "MemMapDataset": lambda at: (
        fastpack.MemMapDataset(lines(at), str.split, "text"),
        ["corpus.jsonl'", "samples=2"],
    ),
    "LargeFileLinesReader": lambda at: (fastpack.LargeFileLinesReader(lines(at)), ["corpus.jsonl'", "lines=2"]),
    "PackedFile": lambda at: (fastpack.PackedFile(packed(at)), ["corpus.pbin'", "tokens=12"]),
    "PackedWriter": lambda at: (closed_writer(at), ["new.pbin'", "documents=1", "tokens=3", "closed=True"]),
    "PackedMemMapDatasetBase": lambda at: (
        fastpack.PackedMemMapDatasetBase(packed(at), "ids"),
        ["corpus.pbin'", "samples=3"],
    ),
    "PackedMemMapDatasetContinuous": lambda at: (
        fastpack.PackedMemMapDatasetContinuous(packed(at), "ids", 4, False),
        ["corpus.pbin'", "samples=3", "block_size=4"],
    ),
    "PackedMemMapDatasetMegatron": lambda at: (
        fastpack.PackedMemMapDatasetMegatron(packed(at), "ids", 4),
        ["corpus.pbin'", "block_size=4"],
    ),
    "PlannedDataset": lambda at: (
        planned(at),
        ["corpus.plan'", "rows=2", "seq_length=8", "sources=1"],
    ),
    "MemoryMappedDataset": lambda at: (windows(at), [repr(at.name)[1:], "samples=5", "seq_len=8", "shards=1"]),
    "TatmMemmapDataset": lambda at: (tatm(at), ["shard'", "samples=5", "context_length=8", "files=1"]),
    "DummyDataset": lambda _: (
        fastpack.DummyDataset(10, [{"sample_key": "x", "sample_shape": [2], "sample_type": "int"}]),
        ["samples=10", "keys='x'", "seed=0"],
    ),
    "WebDataset": lambda at: (fastpack.WebDataset(tars(at), "train"), ["samples=3", "split_part='train'"]),
    "CombinedDataset": lambda at: (
        fastpack.CombinedDataset([windows(at), windows(at)]),
        ["datasets=2", "samples=10"],
    ),
    "MixtureDataset": lambda at: (
        fastpack.MixtureDataset([windows(at), windows(at)], MIXED),
        ["datasets=2", "samples=10", "names='web, code'"],
    ),
    "GPTDataset": lambda at: (gpt(at), ["samples=", "split='train'", "files=1"]),
    "MegatronPretrainingSampler": lambda _: (
        fastpack.MegatronPretrainingSampler(100, 0, 2, 1, 2),
        ["rank=1", "num_replicas=2"],
    ),
    "MegatronPretrainingRandomSampler": lambda _: (
        fastpack.MegatronPretrainingRandomSampler(range(100), 100, 0, 2, 1, 2),
        ["rank=1", "num_replicas=2"],
    ),
    "DistributedSampler": lambda _: (
        fastpack.DistributedSampler(range(100), num_replicas=2, rank=1),
        ["num_samples=50", "rank=1", "num_replicas=2", "epoch=0", "shuffle=True"],
    ),
    "ResumableDistributedSampler": lambda _: (
        fastpack.ResumableDistributedSampler(range(100), rank=1, num_replicas=2, skip_num_global_samples=20),
        ["num_samples=40", "rank=1", "num_replicas=2", "skipped=20", "shuffle=False", "seed=0"],
    ),
    "MixtureSampler": lambda _: (
        fastpack.MixtureSampler([0, 60, 100], [1, 1], num_replicas=2, rank=0),
        ["num_samples=", "rank=0", "datasets=2"],
    ),
    "StatefulDataLoader": lambda at: (
        fastpack.StatefulDataLoader(windows(at), 2),
        ["dataset=MemoryMappedDataset", "batch_size=2", "sampler=DistributedSampler", "batches_yielded=0"],
    ),
    "TrainingPhase": lambda _: (
        fastpack.TrainingPhase(1000, {f"dataset{k}": 1.0 for k in range(50)}, 0.1),
        ["start_step=1000", "datasets=50", "lr_scale=0.1"],
    ),
    "PhaseSchedule": lambda _: (
        fastpack.PhaseSchedule([fastpack.TrainingPhase(5)] * 1, names=MIXED, weights=[1, 1]),
        ["phases=1", "started=0", "datasets=2"],
    ),
}
MANY = [{"line": number, "reason": "no text in <b>it</b>"} for number in range(1000)]
NAMES = {f"shard_{number}.tar": number for number in range(1000)}


def findings(path: str) -> Any:
    found = fastpack.VerifyReport(path, "packed file", {"documents": 7})
    found.add("error", path, 8, "<b>", "a token")
    return found


RESULTS: dict[str, Callable[[str], Example]] = {
    "PackResult": lambda at: (
        fastpack.PackResult(at, 1234, 56789, MANY),  # type: ignore[arg-type]
        ["path=", "documents=1234", "tokens=56789", "skipped=1000"],
    ),
    "ChatResult": lambda at: (
        fastpack.ChatResult(at, 1234, 56789, MANY, loss_tokens=4321, turns=99),  # type: ignore[arg-type]
        ["path=", "documents=1234", "tokens=56789", "loss_tokens=4321", "turns=99", "skipped=1000"],
    ),
    "PlanResult": lambda at: (
        fastpack.PlanResult(at, 8, "best_fit", "split", 3, 4, 4, 20, 4, 0, 0, 1, 4, 20),
        ["output=", "rows=3", "seq_length=8", "tokens=20", "padding=4"],
    ),
    "PlannedPack": lambda at: (
        fastpack.PlannedPack(at, ["a.jsonl"] * 500, 10**9, 10**6, 4, "tokenizers", None, True),
        ["sources=500", "source_bytes=1000000000", "kept_existing=True"],
    ),
    "IndexResult": lambda at: (
        fastpack.IndexResult(Path(at), 12, 3, 456, written=False),
        ["entries=12", "dropped=3", "bytes=456", "written=False"],
    ),
    "EditResult": lambda at: (fastpack.EditResult(Path(at), 12, 345), ["path=", "documents=12", "tokens=345"]),
    "ConvertResult": lambda at: (
        fastpack.ConvertResult(at, "megatron", "uint16", 12, 345),
        ["output=", "format='megatron'", "documents=12", "tokens=345", "dtype='uint16'"],
    ),
    "RepairResult": lambda at: (
        fastpack.RepairResult(Path(at), "the index is cut off <i>", 3, 12, 5, written=True),
        ["documents=3", "tokens=12", "lost_bytes=5", "written=True"],
    ),
    "ManifestResult": lambda at: (
        fastpack.ManifestResult(at, 3, 100, None, 200, ["uint16"], True, 300, warnings=["odd"] * 99),
        ["shards=3", "tokens=100", "bytes=200", "warnings=99"],
    ),
    "JsonlIndexResult": lambda at: (fastpack.JsonlIndexResult(Path(at), 12, 345), ["samples=12", "bytes=345"]),
    "PrepareResult": lambda at: (
        fastpack.PrepareResult(Path(at), NAMES, {"train": list(NAMES)}, warnings=["odd"] * 99),
        ["samples=499500", "shards=1000", "splits=1", "warnings=99"],
    ),
    "MetadatasetResult": lambda at: (
        MetadatasetResult(Path(at), {"join.bin": None}, warnings=["odd"] * 99),
        ["joins=1", "warnings=99"],
    ),
    "PreparedPartition": lambda at: (
        fastpack.PreparedPartition(at, 12, "train.jsonl", documents=11, tokens=345),
        ["name=", "rows=12", "documents=11", "tokens=345", "skipped=0"],
    ),
    "PreparedChat": lambda at: (
        fastpack.PreparedChat(at, "c.yaml", [fastpack.PreparedPartition("train", 1, "t.jsonl")], dry_run=True),
        ["folder=", "partitions=1", "dry_run=True"],
    ),
    "VerifyReport": lambda at: (
        findings(at),
        ["kind='packed file'", "errors=1", "warnings=0", "checked='7 documents'"],
    ),
    "ReportResult": lambda at: (
        fastpack.ReportResult(
            at, {"sources": [{}] * 3, "documents": 7, "tokens": 90, "bytes": 180, "warnings": MANY, "ids": None}
        ),
        ["sources=3", "documents=7", "tokens=90", "warnings=1000"],
    ),
}


@pytest.fixture(params=["data", HOSTILE], ids=["plain", "hostile"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    path.mkdir()
    return path


@pytest.fixture
def file_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return the list of the called file functions."""
    calls: list[str] = []

    def recorded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            calls.append(name)
            return original(*arguments, **more)

        return call

    for module, name in ((builtins, "open"), (os, "open"), (os, "stat"), (os, "scandir"), (mmap, "mmap")):
        monkeypatch.setattr(module, name, recorded(name, getattr(module, name)))
    return calls


def check_line(text: str, name: str) -> None:
    assert text.startswith(f"{name}(")
    assert text.endswith(")")
    assert len(text) <= LINE, len(text)
    assert text.isprintable(), text


def test_every_public_class_of_these_types_is_tested() -> None:
    classes = {name for name in fastpack.__all__ if isinstance(getattr(fastpack, name), type)} - {
        "InspectResult"
    }  # a dict
    assert {name for name in classes if COVERED.search(name)} <= {*OBJECTS, *RESULTS}


@pytest.mark.parametrize("name", OBJECTS)
def test_datasets_samplers_and_loaders_describe_themselves(name: str, folder: Path, file_calls: list[str]) -> None:
    instance, expected = OBJECTS[name](folder)
    file_calls.clear()
    open_text = repr(instance)
    assert not file_calls
    check_line(open_text, name)
    for fact in expected:
        assert fact in open_text, open_text
    file_calls.clear()
    page = instance._repr_html_()
    assert not file_calls
    table = Cells(page)
    assert table.tags <= {"table", "caption", "tr", "th", "td", "br"}
    assert all(fact.partition("=")[0].strip("'") in table.text for fact in expected), page
    assert len(page) < 2000
    if hasattr(instance, "close"):
        instance.close()
        file_calls.clear()
        closed_text = repr(instance)
        assert not file_calls
        check_line(closed_text, name)
        for fact in expected:
            assert fact in closed_text, closed_text
        assert ("closed=True" in closed_text) == (name not in ("LargeFileLinesReader", "StatefulDataLoader"))


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_whose_constructor_failed_has_a_repr(name: str) -> None:
    kind = getattr(fastpack, name)
    check_line(repr(kind.__new__(kind)), name)
    assert kind.__new__(kind)._repr_html_().startswith(f"<table><caption>{name}</caption>")


def test_a_path_with_markup_is_escaped(tmp_path: Path) -> None:
    where = tmp_path / "<b>bold<"
    where.mkdir()
    with fastpack.PackedFile(packed(where)) as file:
        page = file._repr_html_()
    assert "&lt;b&gt;bold&lt;" in page
    assert "<b>" not in page


def test_an_unpickled_dataset_shows_its_length_without_reading_the_index(tmp_path: Path, file_calls: list[str]) -> None:
    import pickle

    dataset = pickle.loads(pickle.dumps(fastpack.PackedMemMapDatasetBase(packed(tmp_path), "ids")))
    file_calls.clear()
    assert "samples=3" in repr(dataset)
    assert dataset._file._index is None
    assert not file_calls


def test_a_loader_shows_where_it_is(tmp_path: Path) -> None:
    with windows(tmp_path) as dataset:
        loader = fastpack.StatefulDataLoader(dataset, 2)
        next(iter(loader))
        assert "epoch=0, batches_yielded=1" in repr(loader)
        loader.close()


@pytest.mark.parametrize("name", ["MemoryMappedDataset", "StatefulDataLoader"])
def test_the_torch_classes_describe_themselves_alike(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    where = importlib.import_module("fastpack.torch")
    dataset = windows(tmp_path, where)
    instance = dataset if name == "MemoryMappedDataset" else where.StatefulDataLoader(dataset, 2)
    assert repr(instance) == repr(OBJECTS[name](tmp_path)[0])


class Cells(HTMLParser):
    """The tags and the text of a table."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("path", ["corpus.pbin", f"{HOSTILE}.pbin", "/long" * 200 + "/corpus.pbin"])
@pytest.mark.parametrize("name", RESULTS)
def test_results_are_one_line_and_a_table(name: str, path: str, file_calls: list[str]) -> None:
    instance, expected = RESULTS[name](path)
    file_calls.clear()
    text, page = repr(instance), instance._repr_html_()
    assert not file_calls
    check_line(text, name)
    for fact in (*expected, ".pbin'"):
        assert fact in text, text
    table = Cells(page)
    assert table.tags <= {"table", "caption", "tr", "th", "td", "br"}
    assert name in table.text
    assert table.text.isprintable()
    assert len(page) < 20_000
    if path.startswith("<"):
        assert repr(HOSTILE)[1:-1] in table.text
    check_line(repr(type(instance).__new__(type(instance))), name)
    assert type(instance).__new__(type(instance))._repr_html_().startswith("<table>")


def test_a_table_contains_the_first_items_and_the_number_of_others() -> None:
    page = RESULTS["PackResult"]("corpus.pbin")[0]._repr_html_()
    assert "line: 9, reason: no text in &lt;b&gt;it&lt;/b&gt;<br>and 990 more" in page
    assert "<th>tokens</th><td>56,789</td>" in page


def test_results_are_compared_by_value_and_frozen() -> None:
    first, second = RESULTS["PackResult"]("a.pbin")[0], RESULTS["PackResult"]("a.pbin")[0]
    assert first == second
    with pytest.raises(AttributeError):
        first.path = "b.pbin"
    assert json.dumps(first.skipped[0])


def test_values_without_a_text_form_cause_no_error() -> None:
    phase = fastpack.TrainingPhase(10**5000)
    check_line(repr(phase), "TrainingPhase")
    assert "lr_scale=1" in repr(phase)
