"""Labels of tokens that do not count are -100 in every dataset that has labels."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack
from fastpack.tokens.mask_bits import MaskBits

LENGTHS = [7, 12, 5, 16, 9, 11]
TOKENS = np.arange(1, 61)
MASK = np.random.default_rng(0).random(60) < 0.5


def write(path: Path, format: str | None = None, mask: bool = True) -> str:
    if path.suffix == ".npy":
        from fastpack.tokens.flat.npy_writer import NpyWriter

        writer: Any = NpyWriter(path, 2)
    else:
        writer = fastpack.PackedWriter(path, 2)
    with writer:
        writer.append_many(TOKENS, LENGTHS)
        writer.mask = MaskBits(MASK) if mask else None
    return str(path)


def check(dataset: Any, windows: list[int], mask: Any = MASK) -> None:
    """Check the labels of a dataset whose sample i begins at token windows[i]."""
    assert len(dataset) == len(windows)
    for copy in (dataset, pickle.loads(pickle.dumps(dataset))):
        order = np.random.default_rng(1).permutation(len(windows))
        batch = copy.batch(order, outputs=("input_ids", "labels"))
        length = batch["labels"].shape[1]
        for row, number in enumerate(order.tolist()):
            start = windows[number]
            expected = np.where(mask[start + 1 : start + 1 + length], TOKENS[start + 1 : start + 1 + length], -100)
            assert batch["labels"][row].tolist() == expected.tolist()
            assert batch["input_ids"][row].tolist() == TOKENS[start : start + length].tolist()


@pytest.mark.parametrize("reuse", [True, False])
def test_continuous_blocks(tmp_path: Path, reuse: bool) -> None:
    path = write(tmp_path / "a.pbin")
    dataset = fastpack.PackedMemMapDatasetContinuous(path, "x", 9, reuse_last_target=reuse)
    check(dataset, list(range(0, 60 - 8, 8 if reuse else 9)))
    with pytest.warns(fastpack.DataWarning, match="samples without labels"):
        assert dataset[1]["x"].tolist() == TOKENS[8 if reuse else 9 :][:9].tolist()


def test_megatron_blocks(tmp_path: Path) -> None:
    dataset = fastpack.PackedMemMapDatasetMegatron(write(tmp_path / "a.pbin"), "x", 9)
    with pytest.warns(fastpack.DataWarning, match="samples without labels"):
        starts = [int(block[0]) - 1 for block in dataset[:]["x"]]
    check(dataset, starts)


@pytest.mark.parametrize("format", ["megatron", "datatrove", "olmo", "llmc", "nanogpt", "litdata", "mds"])
def test_token_files_of_other_formats(tmp_path: Path, format: str) -> None:
    source = write(tmp_path / "a.pbin")
    target = tmp_path / ("b.npy" if format == "olmo" else "b.bin" if format in ("llmc", "nanogpt") else "b")
    output = fastpack.convert(source, target, format=format).output
    dtype = "uint16" if format == "olmo" else None
    dataset = fastpack.PackedMemMapDatasetContinuous(output, "x", 9, reuse_last_target=True, format=format, dtype=dtype)
    check(dataset, list(range(0, 52, 8)))


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_flat_windows(tmp_path: Path, io: Any) -> None:
    for name, masked in (("0.npy", True), ("1.npy", False)):
        write(tmp_path / name, mask=masked)
    dataset = fastpack.MemoryMappedDataset(tmp_path, 10, io=io)
    assert len(dataset) == 12
    labels = dataset.batch(range(12))["labels"]
    starts = np.arange(6)[:, None] * 10 + np.arange(1, 10)
    assert labels[:6].tolist() == np.where(MASK[starts], TOKENS[starts], -100).tolist()
    assert labels[6:].tolist() == TOKENS[starts].tolist()
    for number in range(12):
        assert dataset[number]["labels"].tolist() == labels[number].tolist()
    packed = fastpack.MemoryMappedDataset(tmp_path, 10, io=io, pack_sequences=True, eos_token_id=7)
    assert (
        packed[0]["labels"].tolist()
        == np.where(MASK[starts[0]] & (TOKENS[starts[0] - 1] != 7), TOKENS[starts[0]], -100).tolist()
    )


def test_concatenated_datasets(tmp_path: Path) -> None:
    datasets = [
        fastpack.PackedMemMapDatasetContinuous(write(tmp_path / name, mask=masked), "x", 9, reuse_last_target=True)
        for name, masked in (("a.pbin", True), ("b.pbin", False))
    ]
    mixture = fastpack.MixtureDataset(datasets, ["a", "b"])
    labels = mixture.batch(range(14), outputs=("labels",))["labels"]
    assert labels[:7].tolist() == datasets[0].batch(range(7), outputs=("labels",))["labels"].tolist()
    assert labels[7:].min() > 0
    assert labels[:7].min() == -100


def test_a_stale_mask_is_refused_when_a_batch_needs_it(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "a.pbin"))
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)
    dataset = fastpack.PackedMemMapDatasetContinuous(path, "x", 9, reuse_last_target=True)
    with pytest.raises(fastpack.FormatError, match="the loss mask of another file"):
        dataset.batch([0], outputs=("labels",))


@pytest.mark.parametrize("outputs", [("input_ids", "labels"), ("loss_mask",), ("loss_mask", "labels", "input_ids")])
@pytest.mark.parametrize("multiple", [1, 4])
def test_planned_rows(tmp_path: Path, outputs: tuple[str, ...], multiple: int) -> None:
    paths = [write(tmp_path / "a.pbin", mask=False), write(tmp_path / "b.pbin")]
    fastpack.plan(paths, tmp_path / "a.plan", seq_length=12, pad_to_multiple=multiple)
    dataset = fastpack.PlannedDataset(tmp_path / "a.plan", outputs=outputs)
    bounds = np.cumsum([0, *LENGTHS])
    for copy in (dataset, pickle.loads(pickle.dumps(dataset))):
        batch = copy.batch(range(len(copy)))
        for row in range(len(copy)):
            labels: list[int] = []
            for document, start, end in copy.documents(row).tolist():
                first = int(bounds[document % len(LENGTHS)])
                counts = MASK if document >= len(LENGTHS) else np.ones(60, np.bool_)
                places = range(first + start + 1, first + end)
                labels += [int(TOKENS[i]) if counts[i] else -100 for i in places] + [-100]
                labels += [-100] * (-len(labels) % multiple)
            labels += [-100] * (12 - len(labels))
            if "labels" in outputs:
                assert batch["labels"][row].tolist() == labels
            if "loss_mask" in outputs:
                assert batch["loss_mask"][row].tolist() == [label != -100 for label in labels]


@pytest.mark.parametrize("extra", [True, False])
@pytest.mark.parametrize("pad", [None, 3])
def test_gpt_samples(tmp_path: Path, extra: bool, pad: int | None) -> None:
    made = []
    for masked in (True, False):
        folder = tmp_path / str(masked)
        folder.mkdir()
        blend = [write(folder / "a.pbin", mask=False), write(folder / "b.pbin", mask=masked)]
        options: Any = {"add_extra_token_to_sequence": extra, "pad_token_id": pad}
        made.append(fastpack.GPTDataset.build(blend, 8, 5, (20, 0, 0), "1,0,0", **options)[0])
    masked_one, plain = made
    assert masked_one is not None
    assert plain is not None
    for dataset in (masked_one, pickle.loads(pickle.dumps(masked_one))):
        batch, expected = dataset.batch(range(len(dataset))), plain.batch(range(len(plain)))
        for number in range(len(dataset)):
            sample = dataset[number]
            allowed = expected["loss_mask"][number]
            if sample["dataset_id"] == 1:
                labels = expected["labels"][number]
                known = (labels > 0) & (np.arange(8) < (8 if extra else 7))
                allowed = np.where(known, allowed * MASK[labels - 1], allowed)
            assert batch["loss_mask"][number].tolist() == allowed.tolist()
            assert sample["loss_mask"].tolist() == allowed.tolist()
        assert batch["labels"].tolist() == expected["labels"].tolist()
        assert batch["loss_mask"].sum() < expected["loss_mask"].sum()


@pytest.mark.parametrize("layout", ["zigzag", "contiguous"])
@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_shares_of_rows(tmp_path: Path, layout: Any, io: Any) -> None:
    for name, masked in (("0.npy", True), ("1.npy", False)):
        write(tmp_path / name, mask=masked)
    dataset = fastpack.MemoryMappedDataset(tmp_path, 9, io=io)
    whole = dataset.batch(range(4), outputs=("input_ids", "labels"))
    assert (whole["labels"] == -100).any()
    labels = dict(zip(whole["input_ids"].ravel().tolist(), whole["labels"].ravel().tolist(), strict=True))
    for rank in range(2):
        loader = fastpack.StatefulDataLoader(
            dataset, batch_size=4, sampler=range(4), context_parallel=(rank, 2), cp_layout=layout
        )
        (batch,) = loader
        assert batch["labels"].tolist() == np.vectorize(labels.get)(batch["input_ids"]).tolist()


def test_excluded_documents_and_masks_add_up(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pbin")
    dataset = fastpack.PackedMemMapDatasetContinuous(path, "x", 9, reuse_last_target=True)
    loader = fastpack.StatefulDataLoader(dataset, batch_size=7, sampler=range(7), outputs=("input_ids", "labels"))
    (tmp_path / "list").write_text(f"{path}:1\n")
    loader.exclude(documents=tmp_path / "list")
    (batch,) = loader
    counts = MASK.copy()
    counts[7:19] = False
    expected = np.where(counts[1:57], TOKENS[1:57], -100)
    assert batch["labels"].ravel().tolist() == expected.tolist()
