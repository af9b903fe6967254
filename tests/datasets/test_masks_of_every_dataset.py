"""No public dataset ignores a loss mask, and none accepts one that does not fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack
from fastpack.tokens.mask_bits import MaskBits

EOS = 7
LIMIT = 1000  # of the tokens that count
LENGTH = 17

Build = Callable[[Path], Any]


def write(folder: Path, masked: bool) -> Path:
    """Write the files of one dataset; the mask says of each token whether it is below LIMIT."""
    for number in range(3):
        rng = np.random.default_rng(number)
        lengths = rng.integers(2, 40, 30)
        tokens = rng.integers(8, 2000, int(lengths.sum()))
        tokens[np.cumsum(lengths) - 1] = EOS
        for suffix in (".pbin", ".npy", ".ds", ".idx"):
            (folder / suffix[1:]).mkdir(parents=True, exist_ok=True)
        path = folder / "pbin" / f"{number}.pbin"
        with fastpack.PackedWriter(path, 2) as writer:
            writer.append_many(tokens, lengths)
            writer.mask = MaskBits(tokens < LIMIT) if masked and number != 1 else None
        fastpack.convert(path, folder / "npy" / f"{number}.npy")
        fastpack.convert(path, folder / "ds" / f"{number}.ds")
        fastpack.convert(path, folder / "idx" / f"{number}.idx")
    for number in (0, 2) if masked else ():
        (folder / "ds" / f"{number}.ds.mask").unlink()  # datatrove's own mask remains
    fastpack.write_manifest(folder / "pbin", folder / "pbin.fpm")
    fastpack.write_manifest(folder / "npy")
    return folder


def continuous(path: Path, **options: Any) -> Any:
    return fastpack.PackedMemMapDatasetContinuous(path, "x", LENGTH, **{"reuse_last_target": True, **options})


def several(folder: Path) -> list[Any]:
    return [continuous(folder / f"pbin/{number}.pbin", eos_token_id=EOS) for number in range(3)]


def planned(folder: Path, pattern: str, **options: Any) -> Any:
    plan = folder / "rows.fpplan"
    if not plan.exists():
        fastpack.plan(sorted(folder.glob(pattern)), plan, seq_length=LENGTH - 1, **options)
    return fastpack.PlannedDataset(plan)


def gpt(folder: Path, **options: Any) -> Any:
    blend = [str(path) for path in sorted((folder / "idx").glob("*.idx"))]
    return fastpack.GPTDataset.build(blend, LENGTH - 1, 5, (60, 0, 0), "1,0,0", **options)[0]


DATASETS: dict[str, Build] = {
    "continuous": lambda folder: continuous(folder / "pbin/0.pbin"),
    "continuous, Modalities' blocks": lambda folder: continuous(folder / "pbin/2.pbin", reuse_last_target=False),
    "continuous, documents": lambda folder: continuous(folder / "pbin/0.pbin", eos_token_id=EOS),
    "continuous, manifest": lambda folder: continuous(folder / "pbin.fpm"),
    "continuous, datatrove": lambda folder: continuous(folder / "ds/0.ds"),
    "continuous, Megatron": lambda folder: continuous(folder / "idx/2.idx"),
    "megatron": lambda folder: fastpack.PackedMemMapDatasetMegatron(folder / "pbin/0.pbin", "x", LENGTH),
    "windows": lambda folder: fastpack.MemoryMappedDataset(folder / "npy", LENGTH),
    "windows, pread": lambda folder: fastpack.MemoryMappedDataset(folder / "npy", LENGTH, io="pread"),
    "windows, packed": lambda folder: fastpack.MemoryMappedDataset(
        folder / "npy", LENGTH, pack_sequences=True, eos_token_id=EOS
    ),
    "windows, manifest": lambda folder: fastpack.MemoryMappedDataset(next((folder / "npy").glob("*.fpm")), LENGTH),
    "mixture": lambda folder: fastpack.MixtureDataset(several(folder), list("abc")),
    "combined": lambda folder: fastpack.modalities.CombinedDataset(several(folder)),
    "plan": lambda folder: planned(folder, "pbin/*.pbin"),
    "plan, truncated": lambda folder: planned(folder, "idx/*.idx", long="truncate", seed=3),
    "plan, datatrove": lambda folder: planned(folder, "ds/*.ds", algorithm="none"),
    "plan, shards": lambda folder: planned(folder, "npy/*.npy", eos_token_id=EOS, algorithm="first_fit"),
    "GPT": gpt,
    "GPT, documents apart": lambda folder: gpt(folder, eod_token_id=EOS, inter_document_masking=True),
    "GPT, one token less": lambda folder: gpt(folder, add_extra_token_to_sequence=False),
}  # fmt: skip
WITHOUT_LABELS: dict[str, Build] = {
    "blocks": lambda folder: continuous(folder / "pbin/0.pbin")[0],
    "a batch of blocks": lambda folder: continuous(folder / "pbin/0.pbin").batch([0, 3]),
    "blocks of Megatron": lambda folder: fastpack.PackedMemMapDatasetMegatron(folder / "pbin/2.pbin", "x", LENGTH)[1],
    "blocks of a stream": lambda folder: continuous(folder / "ds/0.ds")[0],
    "tatm": lambda folder: fastpack.tatm.TatmMemmapDataset(f"{folder}/npy/", LENGTH, "uint16", file_suffix="npy"),
}
NO_TOKENS = {"WebDataset"}


def labels(dataset: Any) -> Any:
    """Return the labels of all rows, -100 where they do not count."""
    if isinstance(dataset, fastpack.GPTDataset):
        batch = dataset.batch(range(len(dataset)))
        return np.where(batch["loss_mask"] > 0, batch["labels"], -100)
    return dataset.batch(range(len(dataset)), outputs=("input_ids", "labels"))["labels"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    return {masked: write(tmp_path_factory.mktemp("masks"), masked) for masked in (True, False)}


def is_masked(found: Any, plain: Any) -> bool:
    """Return whether these are plain labels with -100 where a file has a mask; file 1 counts completely."""
    counts = (found != -100) | (plain == -100)
    return bool((found[counts] == plain[counts]).all() and not (plain[~counts] < LIMIT).any())


@pytest.mark.parametrize("name", DATASETS)
def test_the_labels_of_every_dataset(folders: dict[bool, Path], name: str) -> None:
    found, plain = (labels(DATASETS[name](folders[masked])) for masked in (True, False))
    assert found.shape == plain.shape
    assert is_masked(found, plain)
    unmasked = np.concatenate([fastpack.PackedFile(folders[True] / "pbin/1.pbin").data])
    left = found[(found >= LIMIT)]
    assert len(left) < 0.5 * (plain >= LIMIT).sum()
    assert np.isin(left, unmasked).all()


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("damage", ["another length", "another file"])
def test_a_mask_that_does_not_fit_is_an_error(tmp_path: Path, name: str, damage: str) -> None:
    folder = write(tmp_path, masked=True)
    for path in [*folder.rglob("*.mask"), *folder.rglob("*.loss")]:
        if damage == "another length":
            path.write_bytes(path.read_bytes() + b"\0")
        elif path.suffix == ".mask":
            data = bytearray(path.read_bytes())
            data[40] ^= 1  # the hash of the file
            path.write_bytes(data)
        else:
            path.write_bytes(b"\2" + path.read_bytes()[1:])
    with pytest.raises(fastpack.FormatError, match=r"\.mask|\.loss"):
        labels(DATASETS[name](folder))


@pytest.mark.parametrize("name", WITHOUT_LABELS)
def test_samples_without_labels_say_so(folders: dict[bool, Path], name: str) -> None:
    WITHOUT_LABELS[name](folders[False])
    with pytest.warns(fastpack.DataWarning, match="samples without labels do not show which tokens of"):
        WITHOUT_LABELS[name](folders[True])


def test_every_public_dataset_is_here() -> None:
    public = {
        name for name in fastpack.__all__ if inspect.isclass(getattr(fastpack, name)) and name.endswith("Dataset")
    }
    tested = {"PackedMemMapDatasetContinuous", "PackedMemMapDatasetMegatron"}
    tested |= {"MemoryMappedDataset", "MixtureDataset", "PlannedDataset", "GPTDataset"}
    assert public - NO_TOKENS <= tested


@pytest.mark.parametrize("layout", ["zigzag", "contiguous", "documents"])
@pytest.mark.parametrize("name", ["windows, packed", "continuous, documents", "mixture", "plan", "GPT"])
def test_shares_of_context_parallel_ranks(folders: dict[bool, Path], name: str, layout: Any) -> None:
    batches: dict[bool, list[Any]] = {True: [], False: []}
    for masked, found in batches.items():
        for rank in range(2):
            options: Any = {
                "context_parallel": (rank, 2),
                "cp_layout": layout,
            }
            options |= {} if name == "GPT" else {"outputs": ("input_ids", "labels")}
            loader = fastpack.StatefulDataLoader(
                DATASETS[name](folders[masked]), batch_size=4, sampler=range(8), **options
            )
            gpt = name == "GPT"
            found += [np.where(one["loss_mask"] > 0, one["labels"], -100) if gpt else one["labels"] for one in loader]
            assert all(one["labels"].shape == (4, 8) for one in loader) or layout == "documents"
    assert all(is_masked(*pair) for pair in zip(*batches.values(), strict=True))
    assert any((found != plain).any() for found, plain in zip(*batches.values(), strict=True))
