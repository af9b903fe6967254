"""Fuzz targets for flat token shards, offset indices, and the configuration files of tatm and KempnerForge."""

from __future__ import annotations

import io
import json
import tomllib
import zlib
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from fuzz_harness import GOLDEN, Target, refused, written

from fastpack import WebDataset, load_config
from fastpack.documents.offset_index import read_offset_index
from fastpack.errors import FormatError
from fastpack.loading import config
from fastpack.packing import interpolation, yaml_config
from fastpack.tokens import token_segment
from fastpack.tokens.flat import shards
from fastpack.tokens.flat import tatm_metadata as tatm

RAW_LINES = b'{"a": 1}\n{"a": 22}\n{"a": "three"}\n'


def check_npy(data: bytes, folder: Path) -> bool:
    path = written(folder / "x.npy", data)
    try:
        # mmap_mode as in KempnerForge: without it, the dtypes of arrays differ
        theirs = np.load(path, mmap_mode="r", allow_pickle=False)
        theirs = theirs if isinstance(theirs, np.ndarray) and theirs.ndim else None
    except Exception:
        theirs = None
    end = 10 + int.from_bytes(data[8:10], "little")
    if data[:8] == b"\x93NUMPY\1\0" and 10 < end <= 128 and data[end - 1 : end] != b"\n":
        theirs = None  # NumPy accepts such a header; no writer produces it, so it is rejected as damaged
    try:
        (shard,) = shards.scan_shards([path])
        array = shard.open()
    except (ValueError, EOFError) as error:
        assert theirs is None, (repr(error), theirs)
        return refused(error, path, len(data))
    assert theirs is not None, shard
    assert (array.dtype, array.shape, len(array)) == (theirs.dtype, theirs.shape, shard.length)
    assert array.tobytes() == theirs.tobytes()
    return True


def check_bin(data: bytes, folder: Path) -> bool:
    path = written(folder / "x.bin", data)
    dtype = (None, np.dtype("<u2"), np.dtype("<u4"))[zlib.crc32(data) % 3]
    try:
        (shard,) = shards.scan_shards([path], dtype)
        array = shard.open()
    except ValueError as error:
        assert not data
        return refused(error, path, 0)
    dtype = dtype or np.dtype("<u2" if len(data) % 4 else "<u4")
    theirs = np.frombuffer(data[: len(data) // dtype.itemsize * dtype.itemsize], dtype)
    assert (array.dtype, array.tolist()) == (dtype, theirs.tolist())
    used = np.flatnonzero(theirs)
    assert shard.trimmed(1).length == min(len(theirs), (int(used[-1]) + 1 if len(used) else 0) + 1)
    return True


def _offsets(data: bytes) -> list[int] | None:
    numbers = [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)]
    ascending = all(a < b for a, b in pairwise(numbers))
    return numbers if data and len(data) % 8 == 0 and ascending and numbers[-1] < 2**63 else None


def check_offsets(data: bytes, folder: Path) -> bool:
    """Read the bytes as `.tar.idx`, and as `.jsonl.idx` of a file whose lines are then read."""
    path, theirs = written(folder / "x.jsonl.idx", data), _offsets(data)
    try:
        offsets = read_offset_index(path)
    except FormatError as error:
        assert theirs is None
        return refused(error, path, len(data))
    assert offsets.tolist() == theirs
    source = written(folder / "x.jsonl", RAW_LINES)
    lines = [line for line in RAW_LINES.splitlines(keepends=True) if line.strip()]
    belongs = theirs == [0, *(RAW_LINES.index(line) for line in lines[1:]), len(RAW_LINES)]
    try:
        dataset = WebDataset(source, raw=True)
    except FormatError as error:
        assert not belongs
        refused(error, path, len(data))
        return True  # valid as a `.tar.idx`
    assert belongs
    assert theirs is not None
    found = [dataset[i]["json"] for i in range(len(dataset))]
    assert found == [RAW_LINES[a:b] for a, b in pairwise(theirs)]
    dataset.close()
    return True


def npy_seeds() -> list[bytes]:
    arrays: list[Any] = [np.arange(5, dtype=kind) for kind in ("<u2", "<u4", ">u4", "<i8", "u1", "<f4", "<c8")]
    arrays += [np.arange(6, dtype="<u2").reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.float32(3)]
    arrays += [np.empty(0, "<u2"), np.array([True, False]), np.array(["ab", "c"]), np.array([None, 1], object)]
    arrays += [np.array([(1, 2.0)], [("a", "<u2"), ("b", "<f4")]), np.array([1, 2], "M8[s]")]
    seeds = []
    for array in arrays:
        for version in ((1, 0), (2, 0), (3, 0))[: 3 if len(seeds) < 3 else 1]:
            file = io.BytesIO()
            np.lib.format.write_array(file, array, version, allow_pickle=True)
            seeds.append(file.getvalue())
    archive = io.BytesIO()
    np.savez(archive, a=np.arange(3))
    return [*seeds, archive.getvalue()]


def bin_seeds() -> list[bytes]:
    plain = [np.arange(9, dtype=kind).tobytes() for kind in ("<u2", "<u4")]
    return [*plain, b"\x01\0" + bytes(30), bytes(8), b"\0", b""]


def offset_seeds() -> list[bytes]:
    ends = [0, *np.cumsum([len(line) for line in RAW_LINES.splitlines(keepends=True)]).tolist()]
    found = (GOLDEN / "energon/jsonl/plain.jsonl.idx").read_bytes()[:200]
    return [np.array(ends, "<u8").tobytes(), np.array([0, len(RAW_LINES)], "<u8").tobytes(), found, bytes(8)]


def tree_of(load: Any, data: bytes) -> Any:
    """Return the result of an independent reader, or None if it fails."""
    try:
        return load(data)
    except Exception:
        return None


def check_metadata(data: bytes, folder: Path) -> bool:
    """tatm's metadata.yaml and .json: the fields equal those of the text, and unknown fields are rejected."""
    accepted = False
    for suffix, load in ((".yaml", yaml.safe_load), (".json", json.loads)):
        path = written(folder / f"metadata{suffix}", data)
        try:
            found = tatm.TatmDataMetadata.from_file(path)
        except ValueError as error:
            if not str(error).startswith("Invalid "):  # the message of tatm
                refused(error, path, len(data))
            continue
        except TypeError as error:
            assert "argument" in str(error) or "keywords" in str(error)
            continue
        tree = tree_of(load, data)
        plain = {name: value for name, value in asdict(found).items() if name in tree}
        if plain.get("tokenized_info"):
            plain["tokenized_info"] = {name: plain["tokenized_info"][name] for name in tree["tokenized_info"]}
        assert str(plain) == str({name: tree[name] for name in plain}) or plain == tree
        accepted = True
    return accepted


def check_toml(data: bytes, folder: Path) -> bool:
    path = written(folder / "x.toml", data)
    try:
        found = load_config(path)
    except ValueError as error:
        return bool(str(error)) and False
    tree = tomllib.loads(data.decode())
    ours = asdict(found)
    for name, value in tree.get("data", {}).items():
        if name in ("datasets", "phases"):
            assert len(ours[name]) == len(value)
            for one, given in zip(ours[name], value, strict=True):
                assert str({key: one[key] for key in given}) == str(
                    {k: _number_as(one[k], v) for k, v in given.items()}
                )
        else:
            assert str(ours[name]) == str(_number_as(ours[name], value))
    return True


def _number_as(like: Any, value: Any) -> Any:
    """Convert an integer to its decimal number."""
    if isinstance(like, dict):
        return {key: _number_as(like[key], one) for key, one in value.items()}
    return float(value) if isinstance(like, float) and type(value) is int else value


def check_pack_config(data: bytes, folder: Path) -> bool:
    """Modalities' YAML: the tree of the text, if it has no interpolation and no duplicate keys."""
    path = written(folder / "x.yaml", data)
    try:
        found = yaml_config.load_yaml(path)
    except ValueError as error:
        return refused(error, path, len(data))
    if not any(mark in data for mark in (b"${", b"<<", b"*")):
        theirs = yaml.load(data, Loader=yaml.BaseLoader)  # all scalars are strings: only the shape is compared
        assert _shape(found) == _shape(theirs), (found, theirs)
    return True


def _shape(node: Any) -> Any:
    if isinstance(node, dict):
        return [_shape(child) for child in node.values()]
    return [_shape(child) for child in node] if isinstance(node, list) else 0


def metadata_seeds() -> list[bytes]:
    info = tatm.TokenizedInfo(tokenizer="t5-base", file_prefix="/data/x", vocab_size=32100)
    plain = tatm.TatmDataMetadata(
        name="x", dataset_path="/data", description="some text", date_downloaded="2024-05-06", download_source="here",
        data_content="text", corpuses=["a", "b"], corpus_separation_strategy="configs", tokenized_info=info,
    )  # fmt: skip
    return [plain.as_yaml().encode(), plain.as_json().encode()]


TOML = b"""[data]
dataset_path = "/data"
num_workers = 2
pack_sequences = true
mix_temperature = 2
datasets = [{path = "a", weight = 1.5, name = "x"}, {hf_name = "h"}]
[[data.phases]]
start_step = 10
dataset_weights = {x = 0.5, h = 1}
[train]
seed = 1
"""


def pack_config_seeds() -> list[bytes]:
    texts = [path.read_bytes() for path in sorted((GOLDEN / "modalities/configs").glob("*.yaml"))[:4]]
    return [*texts, b"a: {b: 1, c: [x, ${a.b}, '${.0}']}\nd: ${a}\ne: ${oc.env:HOME,x}\nf: 1e5\ng: 2024-01-01\n"]


YAML_TOKENS = tuple(
    rb"""{ } [ ] , ' " | > &a *a <<: ? - = ~ null yes 1:30 0x_ .inf 2001-99-99 --- ... $ ${ ${. \ """.split()
)
YAML_TOKENS += tuple(b"!!int |!!bool |!!float |!!timestamp |!!binary |!!set |!!omap |!!python/none |: |# ".split(b"|"))
YAML_TOKENS += (
    b"\n",
    b"\n- ",
    b"\t",
    b"%YAML 9.9\n",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\xc3\xa9",
    b"\xc2\x85",
    b"[" * 40,
)
TOML_TOKENS = tuple(rb"""[ ] [[ = ' " { } . , 1979-05-27 inf nan 0x true data phases \u0041 \UFFFFFFFF #""".split())
TOML_TOKENS += (b"\n", b'"""', b"\xc3\xa9", b"\xff", b"[" * 300, b"9" * 5000)
RESOLVER = tuple((interpolation._Resolver, name) for name in ("_expand", "_evaluate", "_reference", "value"))
NPY = ((shards, "_scan_npy"), (shards, "_scan_unusual_npy"), (shards, "load_npy_array"))

BIN = ((shards, "_scan_bin"), (token_segment, "_start_of_final_hole"))
TARGETS = (
    Target("npy", npy_seeds, check_npy, trace=NPY, max_bytes=1024),
    Target("bin", bin_seeds, check_bin, trace=BIN, max_bytes=256),
    Target("offsets", offset_seeds, check_offsets, max_bytes=256),
    Target("metadata", metadata_seeds, check_metadata, (*YAML_TOKENS, b"null", b"-1"), max_bytes=2048),
    Target("toml", lambda: [TOML], check_toml, TOML_TOKENS, trace=((config, "_build"), (config, "_convert"))),
    Target("pack_config", pack_config_seeds, check_pack_config, YAML_TOKENS, trace=RESOLVER, max_bytes=2048),
)
