"""Every public dataset can be described and traced: to tokens of a file, a key, or a line."""

from __future__ import annotations

import importlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack
import fastpack.modalities
import fastpack.tatm
from fastpack.datasets.base import Dataset
from fastpack.inspection.trace import TracedRun

EOS = 0
MODULES = ("fastpack", "fastpack.modalities", "fastpack.tatm", "fastpack.webdataset", "fastpack.energon")


def packed(folder: Path) -> Path:
    with fastpack.PackedWriter(folder / "a.pbin", token_size_in_bytes=2) as writer:
        for number in range(40):
            writer.append([*range(20 * number + 1, 20 * number + 2 + number % 9), EOS])
    return folder / "a.pbin"


def shards(folder: Path) -> Path:
    (folder / "shards").mkdir()
    for number in range(3):
        np.save(folder / "shards" / f"{number}.npy", np.arange(100 + 7 * number, dtype=np.uint16) % 90)
    return folder / "shards"


def windows(folder: Path) -> Any:
    return fastpack.MemoryMappedDataset(shards(folder), 13, pack_sequences=True, eos_token_id=EOS)


def blocks(folder: Path) -> Any:
    return fastpack.PackedMemMapDatasetContinuous(packed(folder), "tokens", 13, True, eos_token_id=EOS)


def combined(folder: Path) -> Any:
    return fastpack.modalities.CombinedDataset([windows(folder), blocks(folder)])


def mixture(folder: Path) -> Any:
    (folder / "plan").mkdir()
    return fastpack.MixtureDataset([planned(folder / "plan"), combined(folder), windows(folder / "plan")], [*"abc"])


def planned(folder: Path) -> Any:
    fastpack.plan([packed(folder)], folder / "a.plan", seq_length=12, seed=4)
    return fastpack.PlannedDataset(folder / "a.plan")


def gpt(folder: Path) -> Any:
    return fastpack.GPTDataset.build([1, packed(folder)], 12, 1, (30, 0, 0), "1,0,0", eod_token_id=EOS)[0]


def tatm(folder: Path) -> Any:
    for number in range(2):
        tokens = np.arange(1, 75 + number, dtype=np.uint16)
        tokens[::9] = EOS
        tokens.tofile(folder / f"tokens_{number}.bin")
    options: Any = {"token_output_format": "numpy", "eos_token": EOS, "val_split_size": 3, "split": "validation"}
    return fastpack.tatm.TatmMemmapDataset(f"{folder}/tokens", 10, **options)


def json_lines(folder: Path) -> Any:
    (folder / "a.jsonl").write_text("".join(f'{{"text": "{number}"}}\n' + "\n" * (number % 3) for number in range(30)))
    with pytest.warns(UserWarning, match="faulty line"):  # the empty ones
        fastpack.modalities.create_raw_index(folder / "a.jsonl", drop_faulty_entries=True)
    return fastpack.modalities.MemMapDataset(folder / "a.jsonl", lambda text: [int(text)], "tokens")


def webdataset(folder: Path) -> Any:
    with tarfile.open(folder / "0.tar", "w") as tar:
        for number in range(12):
            info = tarfile.TarInfo(f"sample{number}.txt")
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
    fastpack.prepare(folder, split_ratio=(1, 0, 0), sample_type="TextSample", field_map={"text": "txt"})
    return fastpack.WebDataset(folder, "train")


def dummy(folder: Path) -> Any:
    del folder
    return fastpack.modalities.DummyDataset(20, [{"sample_key": "x", "sample_shape": [2], "sample_type": "int"}])


MAKERS: dict[str, Callable[[Path], Any]] = {
    "CombinedDataset": combined,
    "DummyDataset": dummy,
    "GPTDataset": gpt,
    "MemMapDataset": json_lines,
    "MemoryMappedDataset": windows,
    "MixtureDataset": mixture,
    "PackedMemMapDatasetBase": lambda folder: fastpack.modalities.PackedMemMapDatasetBase(packed(folder), "tokens"),
    "PackedMemMapDatasetContinuous": blocks,
    "PackedMemMapDatasetMegatron": lambda folder: fastpack.PackedMemMapDatasetMegatron(packed(folder), "tokens", 50),
    "PlannedDataset": planned,
    "TatmMemmapDataset": tatm,
    "WebDataset": webdataset,
}


def public_datasets() -> dict[str, type]:
    modules: list[Any] = [importlib.import_module(name) for name in MODULES]
    names = [(module, name) for module in modules for name in getattr(module, "__all__", dir(module))]
    found = {name: getattr(module, name) for module, name in names if not name.startswith("_")}
    return {name: one for name, one in found.items() if isinstance(one, type) and issubclass(one, Dataset)}


def test_every_public_dataset_has_a_case() -> None:
    assert {one.__name__ for one in public_datasets().values()} == set(MAKERS)


def sample_tokens(dataset: Any, number: int) -> list[int]:
    """Return the tokens of a sample, without padding."""
    if isinstance(dataset, fastpack.tatm.TatmMemmapDataset):
        return [int(token) for token in dataset._window(number)]
    sample = dataset[number]
    return [int(token) for token in sample.get("tokens", sample.get("input_ids"))]


@pytest.mark.parametrize("name", MAKERS)
def test_every_dataset_is_traced(tmp_path: Path, name: str) -> None:
    dataset = MAKERS[name](tmp_path)
    sampler = fastpack.DistributedSampler(dataset, 1, 0, seed=3, order="feistel")
    loader = fastpack.StatefulDataLoader(dataset, 4, sampler, collate_fn=len, prefetch=0)
    run = TracedRun(json.loads(json.dumps(loader.describe())))
    expected = sampler.indices().tolist()
    for step in range(len(loader)):
        entries = run.rows(step)
        samples = {entry["row"]: entry["sample"] for entry in entries}
        assert list(samples.values()) == expected[4 * step : 4 * step + 4]
        for row, number in samples.items():
            check_row(run, dataset, number, [entry for entry in entries if entry["row"] == row])
    dataset.close()


def check_row(run: TracedRun, dataset: Any, number: int, entries: list[dict[str, Any]]) -> None:
    if isinstance(dataset, fastpack.modalities.DummyDataset):
        assert "file" not in entries[0]  # it has no files: the sample's number is all
    elif isinstance(dataset, fastpack.WebDataset):
        assert [entry["key"] for entry in entries] == [dataset[number].__key__]
    elif isinstance(dataset, fastpack.modalities.MemMapDataset):
        lines = Path(entries[0]["corpus"]).read_text().splitlines()
        assert json.loads(lines[entries[0]["line"] - 1])["text"] == dataset.text(number)
    else:
        tokens = [token for entry in entries for token in run.tokens(entry).tolist()]
        inputs = sample_tokens(dataset, number)
        assert tokens
        assert tokens[: len(inputs)] == inputs[: len(tokens)]
        assert all(entry["document"] is not None for entry in entries)


def test_a_mixture_of_everything(tmp_path: Path) -> None:
    """Rows of datasets with and without files, of other libraries, and of concatenations in a concatenation."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    parts = [combined(tmp_path / "a"), webdataset(tmp_path / "b"), ["x", "y"], json_lines(tmp_path / "c")]
    dataset = fastpack.modalities.CombinedDataset(parts)
    loader = fastpack.StatefulDataLoader(dataset, len(dataset), range(len(dataset)), prefetch=0, collate_fn=len)
    with pytest.raises(ValueError, match="in the order of a range"):
        loader.describe()
    sampler = fastpack.DistributedSampler(dataset, 1, 0, shuffle=False)
    loader = fastpack.StatefulDataLoader(dataset, len(dataset), sampler, prefetch=0, collate_fn=len)
    next(iter(loader))
    run = TracedRun(json.loads(json.dumps(loader.describe())))
    rows = run.rows(0)
    assert [row["sample"] for row in rows if row["sample"] >= len(parts[0])] == [*range(len(parts[0]), len(dataset))]
    assert [row["source"] for row in rows] == sorted(row["source"] for row in rows)
    assert {row["source"]: sorted({*row} & {"file", "key", "line"}) for row in rows} == {
        "0": ["file"], "1": ["key"], "2": [], "3": ["line"],
    }  # fmt: skip
    pbin = str(tmp_path / "a" / "a.pbin")
    expected = {row["sample"] for row in rows if row.get("file") == pbin and row["document"] == 7}
    assert expected
    assert {row["sample"] for row in run.steps_of(f"{pbin}:7")} == expected


def test_datasets_of_other_libraries(tmp_path: Path) -> None:
    """Their samples are traced by number, and by the dataset itself where it is passed."""
    del tmp_path
    samples = [f"text {number}" for number in range(50)]
    loader = fastpack.StatefulDataLoader(samples, 5, fastpack.DistributedSampler(samples, 1, 0), prefetch=0)
    run = json.loads(json.dumps(loader.describe()))
    batches = list(loader)
    for dataset in (None, samples):
        rows = fastpack.trace(run, step=4, dataset=dataset)
        assert [samples[row["sample"]] for row in rows] == batches[4]
    with pytest.raises(ValueError, match=r"it has 49 samples, the run's had 50"):
        fastpack.trace(run, step=4, dataset=samples[1:])
