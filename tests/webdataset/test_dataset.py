"""WebDataset: samples by number and by key, iteration, exclusions and errors."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import pickle
import sqlite3
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import fastpack
from fastpack import FormatError, WebDataset
from fastpack.webdataset import open_shards as shards_module


def keys_of(dataset: Any) -> list[str]:
    return [sample["__key__"] for sample in dataset]


def digest(data: bytes) -> list[Any]:
    return [len(data), hashlib.sha256(data).hexdigest()[:16]]


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_samples_match_energon(golden: Path, io: Any, backend: str) -> None:
    folder = golden / "energon" / "split"
    expected = json.loads((folder / "reads.json").read_text())
    raw, crude = WebDataset(folder, raw=True, io=io), WebDataset(folder, io=io)
    assert len(raw) == len(expected["sequential"])
    for i, (sample, wanted) in enumerate(zip(raw, expected["sequential"], strict=True)):
        assert sample["__key__"] == wanted["__key__"] == raw.key(i)
        assert {field: digest(data) for field, data in list(sample.items())[1:]} == wanted["parts"]
        found = crude[i]
        assert list(found.__restore_key__) == wanted["__restore_key__"]
        assert found.__sources__[0].shard_name == wanted["__shard__"]
        # The field map reads only the fields that it needs.
        assert set(found.__sources__[0].file_names) <= set(wanted["file_names"])
        assert raw.index(wanted["__key__"]) == i
    for name, wanted in expected["by_name"].items():
        assert digest(raw.get_file(name)) == wanted
        assert raw.get(name.partition(".")[0]).keys() >= {"__key__", "jpg"}


def test_samples_of_a_split_by_number(three: Path) -> None:
    train = WebDataset(three, "train")
    assert len(train) == 5
    assert keys_of(train) == ["s0", "s1", "s2", "d/s4", "d/s5"]
    assert train[-1]["txt"] == train[np.int64(4)]["txt"] == "text of d/s5"
    assert train[3]["json"] == {"k": "d/s4"}
    assert train[3]["__restore_key__"] == ("Webdataset", 3)
    assert train[3]["__shard__"] == "x2.tar"
    (source,) = train[3]["__sources__"]
    expected = fastpack.SourceInfo(
        dataset_path=three, index=3, shard_name="x2.tar", file_names=("d/s4.txt", "d/s4.json")
    )
    assert source == expected
    for index in (5, -6, 1 << 70):
        with pytest.raises(IndexError, match="out of range for 5 samples"):
            train[index]
    with pytest.raises(TypeError):
        train["s0"]  # type: ignore[index]
    assert keys_of(WebDataset(three)) == ["s0", "s1", "s2", "s3", "d/s4", "d/s5"]


def test_raw_samples_are_bytes(three: Path) -> None:
    assert WebDataset(three, "val", raw=True)[0] == {"__key__": "s3", "txt": b"text of s3", "json": b'{"k": "s3"}'}
    only = WebDataset(three, "val", raw=True, part_filter=["txt"])
    assert only[0] == {"__key__": "s3", "txt": b"text of s3"}
    assert only.get_file("s3.json") == b'{"k": "s3"}'


def test_samples_by_key(three: Path) -> None:
    train = WebDataset(three, "train")
    assert train.get("d/s5")["txt"] == "text of d/s5"
    assert train.index("d/s5") == 4
    assert train.get_file("d/s5.json") == {"k": "d/s5"}
    for key in ("s", "S0", "", "s0.txt"):
        with pytest.raises(KeyError):
            train.get(key)
    for name in ("s0", "s0.jpg", "s9.txt"):
        with pytest.raises(KeyError):
            train.get_file(name)
    with pytest.raises(KeyError, match=r"x1\.tar, which is not in this split"):
        train.get("s3")


def drop_index(folder: Path) -> None:
    (folder / ".nv-meta" / "index.sqlite").unlink()


def to_version_5(folder: Path) -> None:
    """A dataset of Energon 5: counts in YAML, no index.sqlite."""
    drop_index(folder)
    info = folder / ".nv-meta" / ".info.json"
    counts = {"shard_counts": json.loads(info.read_text())["shard_counts"]}
    info.with_suffix(".yaml").write_text(yaml.dump(counts, sort_keys=False))
    info.unlink()


def to_version_6(folder: Path) -> None:
    path = folder / ".nv-meta" / "index.sqlite"
    with sqlite3.connect(path) as old:
        rows = old.execute("SELECT * FROM samples ORDER BY rowid DESC").fetchall()
    path.unlink()
    with sqlite3.connect(path) as new:
        new.execute(
            "CREATE TABLE samples (id INTEGER PRIMARY KEY AUTOINCREMENT, tar_file_id INTEGER, sample_key TEXT, "
            "sample_index INTEGER, byte_offset INTEGER, byte_size INTEGER)"
        )
        names = "tar_file_id, sample_key, sample_index, byte_offset, byte_size"
        new.executemany(f"INSERT INTO samples ({names}) VALUES (?, ?, ?, ?, ?)", rows)
    old.close()
    new.close()


def without_sample_tables(folder: Path) -> None:
    path = folder / ".nv-meta" / "index.sqlite"
    path.unlink()
    with sqlite3.connect(path) as new:
        new.execute("CREATE TABLE media_metadata (entry_key TEXT PRIMARY KEY)")
    new.close()


@pytest.mark.parametrize("age", [to_version_5, to_version_6, drop_index, without_sample_tables])
def test_older_datasets_and_those_without_an_index(three: Path, age: Any) -> None:
    age(three)
    train = WebDataset(three, "train")
    assert keys_of(train) == ["s0", "s1", "s2", "d/s4", "d/s5"]
    assert [train.index(key) for key in keys_of(train)] == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError):
        train.get("s3")


@pytest.mark.parametrize("index", [True, False])
def test_excluded_samples_and_shards_are_left_out(three: Path, prepare: Any, index: bool) -> None:
    shards = {"x0.tar": None, "x1.tar": None, "x2.tar": None}
    exclude = ["x0.tar/s1", "x2.tar/d/s4", "x1.tar", "x1.tar/s0", "other.tar/s2"]
    if not index:
        drop_index(three)
    prepare(three, shards, {"train": ["x0.tar", "x1.tar", "x2.tar"]}, exclude, index=index)
    train = WebDataset(three, "train")
    assert keys_of(train) == ["s0", "s2", "d/s5"]
    assert len(train) == 3
    assert [train[i]["__key__"] for i in (-1, -2, -3)] == ["d/s5", "s2", "s0"]
    assert [sample["__restore_key__"][1] for sample in train] == [0, 2, 4]  # as in Energon
    assert [train.index(key) for key in ("s0", "s2", "d/s5")] == [0, 1, 2]
    with pytest.raises(KeyError, match="excluded"):
        train.get("s1")
    assert keys_of(WebDataset(three)) == ["s0", "s2", "d/s5"]


@pytest.mark.parametrize("order", ["torch", "feistel"])
def test_shuffled_iteration_has_the_order_of_the_sampler(three: Path, order: Any) -> None:
    dataset = WebDataset(three)
    sampler = fastpack.DistributedSampler(dataset, 1, 0, seed=7, order=order)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        expected = [dataset.key(i) for i in sampler]
        assert [s["__key__"] for s in dataset.iterate(shuffle=True, seed=7, epoch=epoch, order=order)] == expected
    with pytest.raises(ValueError, match="choose torch or feistel"):
        dataset.iterate(shuffle=True, order="sideways")  # type: ignore[arg-type]


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_loader_makes_batches_with_a_collate_function(three: Path, io: Any) -> None:
    def collate(samples: list[Any]) -> dict[str, Any]:
        return {"keys": [sample["__key__"] for sample in samples], "n": np.array([len(s["txt"]) for s in samples])}

    dataset = WebDataset(three, io=io)
    sampler = fastpack.DistributedSampler(dataset, 1, 0, seed=1)
    loader = fastpack.StatefulDataLoader(dataset, 2, sampler, collate_fn=collate)
    first = [batch["keys"] for batch in loader]
    assert sorted(key for keys in first for key in keys) == sorted(keys_of(dataset))
    again = fastpack.StatefulDataLoader(dataset, 2, sampler, collate_fn=collate)
    batches = iter(again)
    next(batches)
    resumed = fastpack.StatefulDataLoader(dataset, 2, sampler, collate_fn=collate)
    resumed.load_state_dict(again.state_dict())
    again.close()
    assert [batch["keys"] for batch in resumed] == first[1:]
    plain = fastpack.StatefulDataLoader(WebDataset(three, raw=True, part_filter=["txt"]), 6, range(6))
    (batch,) = list(plain)
    assert batch["__key__"] == keys_of(dataset)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_other_processes_can_read(three: Path, method: str, io: Any) -> None:
    dataset = WebDataset(three, "train", io=io)
    assert dataset.get("s1")["txt"] == "text of s1"  # files and the index are open in the parent
    with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        by_number = [pool.submit(dataset.__getitem__, i) for i in (0, 4)]
        by_key = pool.submit(dataset.get, "s0")
        assert [sample.result()["txt"] for sample in by_number] == ["text of s0", "text of d/s5"]
        assert by_key.result()["__key__"] == "s0"


def test_pickles_as_paths(three: Path) -> None:
    dataset = WebDataset(three, "train", subflavors={"a": 1})
    dataset[0]
    data = pickle.dumps(dataset)
    assert b"text of s0" not in data
    copy = pickle.loads(data)
    assert keys_of(copy) == keys_of(dataset)
    assert copy[0]["__subflavors__"] == {"a": 1}


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_threads_can_read_concurrently(three: Path, io: Any) -> None:
    dataset = WebDataset(three, io=io)
    expected = keys_of(dataset)
    wrong: list[int] = []

    def read(seed: int) -> None:
        numbers = np.random.default_rng(seed).integers(0, len(dataset), 200).tolist()
        wrong.extend(i for i in numbers if dataset[i]["txt"] != f"text of {expected[i]}")

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_open_files_are_limited(tmp_path: Path, prepare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = {f"{number:02}.tar": [(f"{number}.txt", b"%d" % number)] for number in range(20)}
    folder = prepare(tmp_path, shards)
    monkeypatch.setattr(shards_module, "MAX_OPEN", {"mmap": 4, "pread": 4})
    before = len(os.listdir("/proc/self/fd"))
    for io in ("pread", "mmap"):
        with WebDataset(folder, io=io) as dataset:
            for i in np.random.default_rng(1).integers(0, 20, 100).tolist():
                assert dataset[i]["txt"] == str(i)
            assert len(os.listdir("/proc/self/fd")) - before <= (5 if io == "pread" else 1)  # one is index.sqlite
    assert len(os.listdir("/proc/self/fd")) == before


def test_closed_dataset(three: Path) -> None:
    dataset = WebDataset(three)
    with dataset:
        dataset[0]
    dataset.close()
    for use in (lambda: dataset[0], lambda: dataset.get("s0"), lambda: dataset.iterate()):
        with pytest.raises(ValueError, match="WebDataset is closed"):
            use()
    assert len(dataset) == 6


def test_state_and_hints(three: Path) -> None:
    dataset = WebDataset(three)
    assert dataset.state_dict() == {"epoch": 0, "total_samples": 6}
    dataset.will_need([0, -1, np.int64(3)])
    with pytest.raises(IndexError):
        dataset.will_need([6])


def test_unprepared_datasets_are_errors(three: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not prepared"):
        WebDataset(tmp_path / "nothing")
    with pytest.raises(ValueError, match="has no split 'traim', only 'train', 'val', 'test'"):
        WebDataset(three, "traim")
    with pytest.raises(FormatError, match="the split 'test' without shards"):
        WebDataset(three, "test")
    with pytest.raises(ValueError, match="choose mmap or pread"):
        WebDataset(three, io="tape")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        WebDataset(three, "train", split_config="other.yaml")
    (three / ".nv-meta" / "other.yaml").write_text("split_parts: {train: [x1.tar]}\nexclude: []\n")
    assert len(WebDataset(three, "train", split_config="other.yaml")) == 1
    (three / ".nv-meta" / "split.yaml").write_text("split_parts: {train: ['x{0..3}.tar']}\nexclude: []\n")
    with pytest.raises(FormatError, match=r"the shard 'x3\.tar' in the split 'train'"):
        WebDataset(three, "train")
    (three / "x1.tar.idx").unlink()
    with pytest.raises(FormatError, match=r"x1\.tar\.idx"):
        WebDataset(three)


def damage(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize(
    ("offset", "data", "text"),
    [
        (2048 + 60, b"x", "at byte 2048: found a block that sums to"),
        (2048, bytes(512), "at byte 2048: found the end of the archive"),
        (2048 + 1024, bytes(1024), "at byte 3072: found the end of the archive"),
    ],
)
def test_damaged_samples_are_errors_and_others_are_read(
    three: Path, io: Any, offset: int, data: bytes, text: str
) -> None:
    damage(three / "x0.tar", offset, data)
    dataset = WebDataset(three, io=io)
    with pytest.raises(FormatError, match=text) as raised:
        dataset[1]
    assert raised.value.path == str(three / "x0.tar")
    assert dataset[0]["txt"] == "text of s0"
    assert dataset[2]["txt"] == "text of s2"


def test_inconsistent_indexes_are_errors(three: Path) -> None:
    index = three / "x0.tar.idx"
    good = index.read_bytes()
    offsets = np.frombuffer(good, "<u8").copy()
    cases = (
        (1, 2560, "found a member that extends beyond it, expected the sample's end at 2560"),
        (1, 3072, "found the samples 's0', 's1', expected one"),
        (3, 1 << 40, "found the end of the file"),
    )
    for number, value, text in cases:
        wrong = offsets.copy()
        wrong[number] = value
        index.write_bytes(wrong.tobytes())
        with pytest.raises(FormatError, match=text):
            WebDataset(three)[0]
    index.write_bytes(good[:-8])
    with pytest.raises(FormatError, match=r"2 samples, expected 3 of them, as \.info\.json says"):
        WebDataset(three)[0]
    index.write_bytes(good)
    os.truncate(three / "x0.tar", 4000)
    with pytest.raises(FormatError, match="at byte 4000: found the end of the file, expected 6144 bytes"):
        WebDataset(three)[0]


def test_shard_that_shrinks_is_an_error_with_pread(three: Path) -> None:
    dataset = WebDataset(three, io="pread")
    dataset[0]
    os.truncate(three / "x0.tar", 3000)
    with pytest.raises(FormatError, match="at byte 3000: found the end of the file"):
        dataset[1]


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_shards_that_change_between_epochs_are_detected(three: Path, io: Any) -> None:
    dataset = WebDataset(three, io=io)
    dataset[0]
    dataset.check_unchanged()
    loader = fastpack.StatefulDataLoader(dataset, 2, range(len(dataset)), collate_fn=len)
    assert list(loader) == [2, 2, 2]
    os.truncate(three / "x0.tar", 3000)
    with pytest.raises(FormatError, match="a file whose size has changed") as raised:
        iter(loader)
    assert raised.value.path == str(three / "x0.tar")


def test_a_stale_index_is_an_error(three: Path) -> None:
    with sqlite3.connect(three / ".nv-meta" / "index.sqlite") as db:
        db.execute("UPDATE samples SET sample_index = 2 WHERE sample_key = 's1'")
    db.close()
    dataset = WebDataset(three)
    for use in (dataset.get, dataset.index, lambda key: dataset.get_file(f"{key}.txt")):
        with pytest.raises(FormatError, match=r"index\.sqlite.*the location of 's1' where 's2' is"):
            use("s1")
    with sqlite3.connect(three / ".nv-meta" / "index.sqlite") as db:
        db.execute("UPDATE samples SET sample_index = 20 WHERE sample_key = 's1'")
    db.close()
    with pytest.raises(FormatError, match="the location of 's1'"):
        WebDataset(three).get("s1")


def test_compressed_shards_are_rejected(three: Path) -> None:
    damage(three / "x1.tar", 0, b"\x1f\x8b\x08")
    with pytest.raises(FormatError, match="a gzip file"):
        WebDataset(three, "val")[0]
