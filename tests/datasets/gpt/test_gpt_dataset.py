"""GPTDataset: megatron-core's recorded samples, batches, errors, and its place among the other classes."""

from __future__ import annotations

import json
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from megatron_corpora import Configuration, digest, random_configuration, write_corpora, write_megatron

import fastpack
from fastpack.datasets.gpt.blends import exhaustive_order, parse_blend, weighted_order
from fastpack.datasets.gpt.splits import split_shares

LENGTHS = [9, 1, 14, 30, 2, 7, 21, 5, 16, 3, 12, 8]
L = 8


def recorded(golden: Path) -> list[dict[str, Any]]:
    return json.loads((golden / "megatron_core" / "gpt_samples.json").read_text())


def corpus(folder: Path, lengths: list[int] | None = None, dtype: str = "uint16", name: str = "corpus") -> str:
    """Write documents of tokens from 1 on, each ended by token 0; return the prefix."""
    lengths = LENGTHS if lengths is None else lengths
    tokens = np.arange(1, sum(lengths) + 1)
    tokens[np.cumsum(lengths) - 1] = 0
    write_megatron(str(folder / name), tokens.astype(dtype), lengths)
    return str(folder / name)


def build(blend: Any, **options: Any) -> tuple[Any, Any, Any]:
    arguments = {"sequence_length": L, "random_seed": 1234, "num_samples": (30, 5, 0), "split": "8,2,0"}
    return fastpack.GPTDataset.build(blend, **{**arguments, **options})


def train_of(blend: Any, **options: Any) -> Any:
    return build(blend, **{"split": "1,0,0", "num_samples": (30, 0, 0), **options})[0]


@pytest.mark.parametrize("number", range(48))
def test_samples_equal_those_recorded_from_megatron_core(golden: Path, number: int, tmp_path: Path) -> None:
    entry = recorded(golden)[number]
    configuration = Configuration(**entry["configuration"])
    found = fastpack.GPTDataset.build(**configuration.arguments(write_corpora(configuration, tmp_path)))
    for ours, expected in zip(found, entry["splits"], strict=True):
        assert (ours is None) == (expected is None)
        if ours is not None:
            assert len(ours) == expected["n_samples"]
            assert digest(ours[k] for k in range(len(ours))) == expected["sha256"]


@pytest.mark.parametrize("options", [{}, {"pad_token_id": 3}, {"eod_mask_loss": True, "eod_token_id": 0}])
@pytest.mark.parametrize("masking", [False, True])
@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_batches_are_their_samples(
    backend: str, tmp_path: Path, dtype: str, masking: bool, options: dict[str, Any]
) -> None:
    blend = [2, corpus(tmp_path, dtype=dtype), 1, corpus(tmp_path, LENGTHS[::-1], "uint8", "other")]
    dataset = train_of(blend, inter_document_masking=masking, **options)
    order = [3, 0, -1, 17, 3]
    batch = dataset.batch(order)
    assert list(batch) == ["tokens", "labels", "loss_mask", "position_ids"]
    for name, array in batch.items():
        assert np.array_equal(array, np.stack([dataset[k][name] for k in order])), name
        assert array.dtype == dataset[0][name].dtype
    narrow = dataset.batch(order, dtype="int32")
    assert narrow["tokens"].dtype == np.int32
    assert narrow["loss_mask"].dtype == np.float32
    assert all(np.array_equal(narrow[name], batch[name]) for name in batch)
    for name in batch:  # each output by itself
        assert np.array_equal(dataset.batch(order, outputs=(name,))[name], batch[name])


def test_bounds_of_documents_are_those_of_the_sample_order(tmp_path: Path) -> None:
    dataset = train_of(corpus(tmp_path), inter_document_masking=True)
    for k in range(len(dataset)):
        sample = dataset[k]
        bounds = np.unique(sample["cu_seqlens"])
        assert sample["cu_seqlens"].dtype == np.int32
        assert len(sample["cu_seqlens"]) == L + 1
        assert sample["max_seqlen"] == np.diff(bounds).max()
        ends = np.flatnonzero(sample["tokens"] == 0) + 1  # every document ends in 0, and has no other
        assert bounds.tolist() == sorted({0, L, *ends.tolist()})
        assert sample["position_ids"].tolist() == [int(i - bounds[bounds <= i].max()) for i in range(L)]
    batch = dataset.batch([4, 0], outputs=("tokens", "cu_seqlens", "max_seqlen"))
    both = [np.unique(dataset[k]["cu_seqlens"]) for k in (4, 0)]
    assert batch["cu_seqlens"].tolist() == [*both[0].tolist(), *(both[1][1:] + L).tolist()]
    assert batch["max_seqlen"] == max(np.diff(bounds).max() for bounds in both)


def test_every_token_of_an_epoch_is_used_once(tmp_path: Path) -> None:
    dataset = train_of(corpus(tmp_path), num_samples=(None, 0, 0))
    labels = np.sort(dataset.batch(range(len(dataset)))["labels"], axis=None)
    assert len(dataset) == (sum(LENGTHS) - 1) // L
    assert len(np.unique(labels[labels > 0])) == np.count_nonzero(labels)


def test_the_padded_end_has_no_loss(tmp_path: Path) -> None:
    _, valid, _ = build(
        corpus(tmp_path), split="0,1,0", num_samples=(0, None, 0), drop_last_partial_validation_sequence=False
    )
    n_labels = sum(LENGTHS) - 1
    assert len(valid) == -(-n_labels // L)
    assert valid.batch(range(len(valid)))["loss_mask"].sum() == n_labels
    assert valid[None]["loss_mask"].sum() == 0
    assert np.array_equal(valid[None]["tokens"], valid[0]["tokens"])


@pytest.mark.parametrize("format", ["pbin", "datatrove", "olmo", "litdata", "mds"])
def test_files_of_any_format_give_the_same_samples(format: str, tmp_path: Path) -> None:
    prefix = corpus(tmp_path)
    suffix = {"pbin": ".pbin", "datatrove": ".ds", "olmo": ".npy"}.get(format, "")
    other = tmp_path / f"converted_{format}{suffix}"
    fastpack.convert(prefix, other, format=format)
    expected, found = train_of(prefix), train_of(other)
    assert digest(expected[k] for k in range(30)) == digest(found[k] for k in range(30))


def test_documents_may_be_in_any_order_in_the_file(tmp_path: Path) -> None:
    prefix, shuffled = corpus(tmp_path), tmp_path / "shuffled.pbin"
    packed, kept = tmp_path / "corpus.pbin", tmp_path / "kept.pbin"
    fastpack.convert(prefix, packed)
    fastpack.modalities.shuffle_tokenized_data(packed, shuffled, 64, seed=1)
    fastpack.filter_packed_data(shuffled, kept, lambda _number, _tokens: True)
    assert digest(map(train_of(shuffled).__getitem__, range(30))) == digest(map(train_of(kept).__getitem__, range(30)))


def test_end_of_document_tokens_divide_files_without_documents(tmp_path: Path) -> None:
    prefix, flat = corpus(tmp_path), tmp_path / "flat.npy"
    fastpack.convert(prefix, flat)
    expected, found = train_of(prefix), train_of(flat, eod_token_id=0)
    assert digest(expected[k] for k in range(30)) == digest(found[k] for k in range(30))
    with pytest.raises(ValueError, match="pass eod_token_id"):
        train_of(flat)


def test_megatrons_folder_of_indices_does_not_hide_the_files(tmp_path: Path) -> None:
    prefix = corpus(tmp_path)
    folder = Path(prefix) / "cache" / "GPTDataset_indices"
    folder.mkdir(parents=True)
    index = folder / "0-GPTDataset-train-sample_index.npy"
    index.touch()
    assert len(train_of(prefix)) >= 30
    os.utime(index, (1, 1))
    with pytest.warns(fastpack.DataWarning, match="older than the tokens"):
        train_of(prefix)


def test_rounding_errors_of_megatron_are_named_and_repeated(tmp_path: Path) -> None:
    n = (1 << 25) + 3
    write_megatron(str(tmp_path / "large"), np.zeros(n, np.uint8), [n])
    arguments = {
        "split": "0,1,0",
        "num_samples": (0, None, 0),
        "sequence_length": 1 << 12,
        "drop_last_partial_validation_sequence": False,
    }
    with pytest.warns(fastpack.DataWarning, match="8193 samples; Megatron computes 8192"):
        _, valid, _ = build(str(tmp_path / "large"), **arguments)
    assert len(valid) == 8193
    _, valid, _ = build(str(tmp_path / "large"), **arguments, compat="megatron")
    assert len(valid) == 8192


def test_datasets_pickle_and_close(tmp_path: Path) -> None:
    blend = [1, corpus(tmp_path), 2, corpus(tmp_path, LENGTHS[::-1], name="other")]
    dataset, expected = train_of(blend), digest(map(train_of(blend).__getitem__, range(30)))
    assert digest(map(dataset.__getitem__, range(30))) == expected
    copy = pickle.loads(pickle.dumps(dataset))
    assert digest(map(copy.__getitem__, range(30))) == expected
    assert len(pickle.dumps(dataset)) < 20_000
    dataset.close()
    with pytest.raises(ValueError, match="closed"):
        dataset.batch([0])
    assert "closed=True" in repr(dataset)


def test_changed_files_are_noticed(tmp_path: Path) -> None:
    prefix = corpus(tmp_path)
    dataset = train_of(prefix)
    pickled = pickle.dumps(dataset)
    dataset.check_unchanged()
    corpus(tmp_path, [3, *LENGTHS])
    with pytest.raises(fastpack.FormatError):
        dataset.check_unchanged()
    with pytest.raises(fastpack.FormatError, match="another file of that name"):
        pickle.loads(pickled)


def test_loaders_mixtures_and_hints(tmp_path: Path) -> None:
    one, other = train_of(corpus(tmp_path)), train_of(corpus(tmp_path, LENGTHS[::-1], name="other"))
    sampler = fastpack.MegatronPretrainingSampler(len(one), 8, 4, 0, 1)
    loader = fastpack.StatefulDataLoader(one, 4, sampler, outputs=("tokens", "loss_mask", "cu_seqlens"))
    batch = next(iter(loader))
    assert np.array_equal(batch["tokens"], one.batch(range(8, 12))["tokens"])
    assert batch["cu_seqlens"].tolist() == [0, 8, 16, 24, 32]
    mixture = fastpack.MixtureDataset([one, other], ["one", "other"])
    numbers = [0, len(one), 2, len(one) + 5]
    found = mixture.batch(numbers)
    assert np.array_equal(found["tokens"], np.stack([mixture[k]["tokens"] for k in numbers]))
    assert found["dataset_idx"].tolist() == [0, 1, 0, 1]
    one.will_need([0, 1])
    rows = one.__getitems__([3, 1])
    assert np.array_equal(rows[1]["labels"], one[1]["labels"])


def test_blends_with_weights_have_the_share_of_each_file(tmp_path: Path) -> None:
    paths = [corpus(tmp_path, name=f"corpus{k}") for k in range(3)]
    train, valid, test = build([6, paths[0], "3", paths[1], 1.0, paths[2]], num_samples=(1000, 0, 0))
    files = np.bincount([train[k]["dataset_id"] for k in range(1000)])
    assert files.tolist() == [600, 300, 100]
    assert len(valid) == 0
    assert test is None
    by_size, _, _ = build(paths, split="1,0,0", num_samples=(None, 0, 0))
    assert len(by_size) == 3 * ((sum(LENGTHS) - 1) // L)


@pytest.mark.parametrize("exhaustive", [False, True])
def test_the_order_of_a_blend_is_the_same_from_every_block(
    exhaustive: bool, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [700, 1, 2500, 300]
    order = exhaustive_order(sizes) if exhaustive else weighted_order([7, 0.01, 25, 3], [9000] * 4, 3501)
    files, numbers = order.locate(np.arange(order.n_samples))
    assert np.bincount(files).tolist() == (sizes if exhaustive else [700, 1, 2500, 300])
    for file in range(4):
        assert numbers[files == file].tolist() == list(range(np.count_nonzero(files == file)))
    monkeypatch.setattr("fastpack.datasets.gpt.blends.RECENT", 0)  # one block is kept
    places = np.random.default_rng(1).permutation(order.n_samples)[:300]
    again = pickle.loads(pickle.dumps(order))
    for one in (order, again):
        found = one.locate(places)
        assert np.array_equal(found[0], files[places])
        assert np.array_equal(found[1], numbers[places])


def test_blends_per_split_take_whole_files(tmp_path: Path) -> None:
    one, other = corpus(tmp_path), corpus(tmp_path, LENGTHS[::-1], name="other")
    train, valid, test = build(None, blend_per_split=[one, [1, one, 1, other], None], num_samples=(5, 6, 7), split=None)
    assert "dataset_id" not in train[0]
    assert valid[0]["dataset_id"] == 0
    assert test is None


def test_files_of_a_blend_are_not_kept_open(tmp_path: Path) -> None:
    paths = [corpus(tmp_path, [20, 30], name=f"corpus{k}") for k in range(100)]
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    dataset = train_of([item for path in paths for item in (1, path)], num_samples=(1000, 0, 0))
    dataset.batch(range(0, 1000, 9))
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": (1, 2)}, "three numbers are needed"),
        ({"num_samples": (-1, 0, 0)}, "three numbers are needed"),
        ({"split": "a"}, "weights of train, valid and test"),
        ({"split": "1,2,3,4"}, "weights of train, valid and test"),
        ({"split": [(0, 2), None, None]}, "three pairs of bounds"),
        ({"split": None}, "split is needed"),
        ({"random_seed": -1}, "from 0 to 2\\^32 - 1"),
        ({"sequence_length": 0}, "at least 1 is needed"),
        ({"compat": "gpt"}, "'megatron' or None"),
        ({"eod_mask_loss": True}, "need eod_token_id"),
        ({"blend_per_split": [None] * 3}, "pass blend, or blend_per_split"),
        ({"num_samples": (1, 1, 1), "split": "1000,1,1"}, "valid split has no tokens, only documents 12 to 12 of 12"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        build(corpus(tmp_path), **options)


def test_wrong_blends_are_refused(tmp_path: Path) -> None:
    path = corpus(tmp_path)
    for blend, message in [
        ([], "no paths"),
        ([1, path, "x", path], "a positive weight is needed before each path"),
        ([0, path, 1, path], "a positive weight"),
        ([1, 2, path], "is not a path"),
    ]:
        with pytest.raises(ValueError, match=message):
            build(blend)
    with pytest.raises(ValueError, match="needs a number of samples"):
        build([1, path], num_samples=(None, 0, 0))
    short = corpus(tmp_path, [3, 2], name="short")
    with pytest.raises(ValueError, match="short: its 5 tokens in the train split are too few"):
        build([path, short], split="1,0,0")
    with pytest.raises(FileNotFoundError):
        build(str(tmp_path / "missing"))
    with pytest.raises(IndexError, match="out of range"):
        train_of(path)[10_000]
    with pytest.raises(IndexError, match="out of range"):
        train_of(path).batch([0, -10_000])


def test_outputs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    dataset = train_of(corpus(tmp_path))
    grid = np.empty((1, L), np.int64)
    for out, message in [
        ({"input_ids": grid}, "unknown output 'input_ids'"),
        ({"tokens": grid[:, 1:]}, "has shape"),
        ({"loss_mask": grid}, "float32 is needed"),
        ({"tokens": grid, "labels": np.empty((1, L), np.int32)}, "one dtype"),
        ({"tokens": [1]}, "is a list"),
    ]:
        with pytest.raises(ValueError, match=message):
            dataset.fill([0], out)
    with pytest.raises(ValueError, match="unknown output"):
        dataset.batch([0], outputs=("doc_ids",))
    with pytest.raises(ValueError, match="which was not requested"):
        dataset.batch([0], cu_seqlens_length=9)
    assert dataset.batch([0], outputs=("cu_seqlens",), cu_seqlens_length=4)["cu_seqlens"].tolist() == [0, 8, 8, 8]
    write_megatron(str(tmp_path / "wide"), np.full(sum(LENGTHS), 1 << 40), LENGTHS)
    with pytest.raises(OverflowError, match="pass dtype='int64'"):
        train_of(str(tmp_path / "wide")).batch([0], dtype="int32")


def test_the_padding_token_may_not_be_the_eod_token(tmp_path: Path) -> None:
    path = corpus(tmp_path)
    with pytest.warns(fastpack.DataWarning, match="pad_token_id is eod_token_id"):
        dataset = train_of(path, pad_token_id=0, eod_token_id=0)
    assert dataset.batch(range(30))["loss_mask"].all()


def test_shares_of_splits() -> None:
    assert split_shares("99,1,0") == [(0.0, 0.99), (0.99, 1.0), None]
    assert split_shares([(0, 0.5), None, (0.5, 1)]) == [(0.0, 0.5), None, (0.5, 1.0)]
    assert split_shares("5") == [(0.0, 1.0), None, None]


def test_forms_of_blends() -> None:
    assert parse_blend("a") == (["a"], None)
    assert parse_blend(Path("a")) == (["a"], None)
    assert parse_blend(["a", " b "]) == (["a", "b"], None)
    assert parse_blend(["30", "a", 70, "b"]) == (["a", "b"], [30.0, 70.0])


def test_random_configurations_do_not_warn(tmp_path: Path) -> None:
    configuration = random_configuration(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fastpack.GPTDataset.build(**configuration.arguments(write_corpora(configuration, tmp_path)))
