"""`StatefulDataLoader.exclude`: the tokens of excluded documents are no labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numbered import Numbers

import fastpack

EOS = 0
OUTPUTS = ("input_ids", "labels")


def packed(path: Path, first: int) -> Path:
    """Write documents of 1 to 9 tokens; every token of the file is another one, except EOS."""
    with fastpack.PackedWriter(path, token_size_in_bytes=2) as writer:
        for number in range(200):
            writer.append([*range(first, first + number % 9), EOS])
            first += number % 9
    return path


@pytest.fixture
def mixture(tmp_path: Path) -> fastpack.MixtureDataset:
    paths = [packed(tmp_path / "a.pbin", 1), packed(tmp_path / "b.pbin", 5000)]
    blocks = [fastpack.PackedMemMapDatasetContinuous(path, "tokens", 12, True, eos_token_id=EOS) for path in paths]
    return fastpack.MixtureDataset(blocks, ["a", "b"])


def loader_of(mixture: Any, **options: Any) -> Any:
    sampler = fastpack.MixtureSampler(mixture.cumulative_sizes, [1, 1], 1, 0, seed=1, no_repeat=True, names=["a", "b"])
    return fastpack.StatefulDataLoader(mixture, 4, sampler, outputs=OUTPUTS, **options)


def listed(folder: Path, numbers: list[int]) -> Path:
    lines = ["# a list", "", *(f"{folder / 'a.pbin'}:{number}" for number in numbers)]
    (folder / "bad.txt").write_text("\n".join(lines))
    return folder / "bad.txt"


def tokens_of(folder: Path, numbers: list[int]) -> set[int]:
    with fastpack.open_tokens(folder / "a.pbin") as tokens:
        return {int(token) for number in numbers for token in tokens.document(number)} - {EOS}


@pytest.mark.parametrize("prefetch", [0, 2])
def test_labels_of_excluded_documents_are_masked(
    tmp_path: Path, mixture: fastpack.MixtureDataset, prefetch: int
) -> None:
    numbers = [*range(5, 25), 26, 60, 199]
    whole, loader = loader_of(mixture), loader_of(mixture, prefetch=prefetch)
    batches, excluded, masked = iter(loader), tokens_of(tmp_path, numbers), 0
    for step, (batch, expected) in enumerate(zip(batches, whole, strict=True)):
        labels = expected["labels"].copy()
        if step >= 3:
            labels[np.isin(labels, list(excluded))] = -100
            masked += int((labels != expected["labels"]).sum())
        assert np.array_equal(batch["input_ids"], expected["input_ids"])
        own = np.isin(expected["labels"], [EOS])  # which document an EOS belongs to is tested by its neighbours
        assert np.array_equal(batch["labels"][~own], labels[~own])
        if step == 2:
            assert loader.exclude(documents=listed(tmp_path, numbers)) == len(numbers)
        if step == 6:
            state = json.loads(json.dumps(loader.state_dict()))
    assert masked > 40
    resumed = loader_of(mixture)
    resumed.load_state_dict(state)
    again = loader_of(mixture)
    iter(again)
    for _ in range(7):
        next(again)
    again.exclude(documents=tmp_path / "bad.txt")
    for first, second in zip(resumed, again, strict=True):
        assert np.array_equal(first["labels"], second["labels"])
    for one in (loader, whole, resumed, again):
        one.close()


def test_an_eos_of_an_excluded_document_is_no_label(tmp_path: Path) -> None:
    with fastpack.PackedWriter(tmp_path / "a.pbin", token_size_in_bytes=2) as writer:
        for document in ([1, 2, EOS], [3, EOS], [4, 5, 6, EOS]):
            writer.append(document)
    dataset = fastpack.PackedMemMapDatasetContinuous(tmp_path / "a.pbin", "tokens", 9, True)
    loader = fastpack.StatefulDataLoader(dataset, 1, range(1), outputs=OUTPUTS, prefetch=0)
    loader.exclude(documents=listed(tmp_path, [1]))
    assert next(iter(loader))["labels"].tolist() == [[2, EOS, -100, -100, 4, 5, 6, EOS]]


def planned(folder: Path) -> Any:
    fastpack.plan(
        [packed(folder / name, first) for name, first in (("a.pbin", 1), ("b.pbin", 5000))],
        folder / "a.plan",
        seq_length=20,
        seed=3,
        pad_to_multiple=2,
    )
    return fastpack.PlannedDataset(folder / "a.plan", outputs=("input_ids", "labels", "loss_mask"))


def gpt(folder: Path) -> Any:
    blend = [1, packed(folder / "a.pbin", 1), 1, packed(folder / "b.pbin", 5000)]
    return fastpack.GPTDataset.build(blend, 20, 1, (60, 0, 0), "1,0,0")[0]


@pytest.mark.parametrize("make", [planned, gpt])
@pytest.mark.parametrize("in_mixture", [False, True])
def test_rows_of_plans_and_blends(tmp_path: Path, make: Any, in_mixture: bool) -> None:
    numbers = [*range(5, 25), 26, 60, 199]
    dataset = make(tmp_path)
    if in_mixture:
        dataset = fastpack.MixtureDataset([dataset], ["one"])
    sampler = fastpack.DistributedSampler(dataset, 1, 0, seed=1)
    whole, loader = (fastpack.StatefulDataLoader(dataset, 3, sampler, prefetch=0) for _ in range(2))
    assert loader.exclude(documents=listed(tmp_path, numbers)) == len(numbers)
    excluded, masked = list(tokens_of(tmp_path, numbers)), 0
    for batch, expected in zip(list(loader), list(whole), strict=True):
        own = expected["labels"] == EOS  # which document an EOS belongs to is tested by its neighbours
        is_excluded = np.isin(expected["labels"], excluded)
        masked += int(is_excluded.sum())
        assert (batch["labels"] == np.where(is_excluded, -100, expected["labels"]))[~own].all()
        assert (batch["loss_mask"] == expected["loss_mask"] * ~is_excluded)[~own].all()
        tokens = "tokens" if "tokens" in batch else "input_ids"
        assert np.array_equal(batch[tokens], expected[tokens])
        ends = own[:, 1:] & is_excluded[:, :-1] & (expected["labels"][:, 1:] == EOS)
        assert (batch["labels"][:, 1:][ends] == -100).all()
    assert masked > 20


def windows(folder: Path) -> Any:
    packed(folder / "a.pbin", 1)
    return fastpack.PackedMemMapDatasetContinuous(folder / "a.pbin", "tokens", 25, True, eos_token_id=EOS)


@pytest.mark.parametrize(
    ("make", "layout"),
    [
        *((make, layout) for make in (windows, planned, "mixture") for layout in ("zigzag", "contiguous", "documents")),
        (gpt, "zigzag"),  # which does not know the documents of its rows
        (gpt, "contiguous"),
    ],
)
def test_shares_of_context_parallel_ranks(tmp_path: Path, make: Any, layout: str, request: Any) -> None:
    """The shares with excluded documents are the shares without, less the labels of these documents."""
    numbers, size = [*range(5, 25), 26, 60, 199], 2
    if make == "mixture":
        one = windows(tmp_path)
        dataset = fastpack.MixtureDataset([one, one], ["a", "b"])
    else:
        dataset = make(tmp_path)
    excluded, masked, state = list(tokens_of(tmp_path, numbers)), 0, None
    outputs = ("labels", "loss_mask") if make in (planned, gpt) else ("labels",)
    for rank in range(size):
        loaders = [
            fastpack.StatefulDataLoader(
                dataset,
                3,
                fastpack.DistributedSampler(dataset, 1, 0, seed=1),
                outputs=outputs,
                context_parallel=(rank, size),
                cp_layout=layout,  # type: ignore[arg-type]
            )
            for _ in range(2)
        ]
        whole, loader = loaders
        if state is None:
            assert loader.exclude(documents=listed(tmp_path, numbers)) == len(numbers)
            state = loader.state_dict()
        else:
            loader.load_state_dict(state)
        for batch, expected in zip(loader, whole, strict=True):
            own = expected["labels"] == EOS  # which document an EOS belongs to is tested by its neighbours
            is_excluded = np.isin(expected["labels"], excluded)
            masked += int(is_excluded.sum())
            assert (batch["labels"] == np.where(is_excluded, -100, expected["labels"]))[~own].all()
            assert ((batch["labels"] == -100) >= (expected["labels"] == -100)).all()
            if "loss_mask" in batch:
                assert (batch["loss_mask"] == expected["loss_mask"] * ~is_excluded)[~own].all()
        for one in loaders:
            one.close()
    assert masked > 40


def test_shapes_only(tmp_path: Path) -> None:
    """A pipeline stage that needs only shapes excludes as the others do, and its state continues on any stage."""
    dataset = windows(tmp_path)
    options: Any = {"outputs": OUTPUTS, "prefetch": 0}
    middle, last = (fastpack.StatefulDataLoader(dataset, 4, **options, shapes_only=one) for one in (True, False))
    for loader in (middle, last):
        assert loader.exclude(documents=listed(tmp_path, [3, 4])) == 2
        next(iter(loader))
    assert middle.state_dict() == last.state_dict()
    resumed = fastpack.StatefulDataLoader(dataset, 4, **options, shapes_only=True)
    resumed.load_state_dict(last.state_dict())
    batch = next(iter(resumed))
    assert not batch["labels"].any()
    assert batch["labels"].shape == next(last)["labels"].shape
    assert resumed.state_dict() == last.state_dict()


def test_lists_that_cannot_be_used(tmp_path: Path, mixture: fastpack.MixtureDataset) -> None:
    loader = loader_of(mixture, prefetch=0)
    path = listed(tmp_path, [3])
    for line, message in (("x", "line 1: 'x' is not FILE:NUMBER"), (f"{tmp_path / 'a.pbin'}:200", "has 200 documents")):
        (tmp_path / "wrong.txt").write_text(line)
        with pytest.raises(ValueError, match=message):
            loader.exclude(documents=tmp_path / "wrong.txt")
    loader.exclude(documents=path)
    state = loader.state_dict()
    path.write_text("")
    with pytest.raises(ValueError, match="it has changed"):
        loader_of(mixture, prefetch=0).load_state_dict(state)
    blocks = fastpack.StatefulDataLoader(mixture, 4, range(8), prefetch=0)
    with pytest.raises(ValueError, match="request them with outputs="):
        blocks.exclude(documents=path)
    with pytest.raises(ValueError, match="documents of a Numbers cannot be excluded"):
        fastpack.StatefulDataLoader(Numbers(4), 1, range(4)).exclude(documents=path)
