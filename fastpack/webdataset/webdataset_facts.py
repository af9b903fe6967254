"""What a prepared WebDataset holds, from its `.nv-meta` and the indexes beside its shards: no shard is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastpack.analysis.document_lengths import LengthCounter, LengthTable
from fastpack.analysis.file_facts import File, FileFacts, length_facts
from fastpack.analysis.options import InspectOptions
from fastpack.documents.offset_index import read_offset_index
from fastpack.errors import FormatError
from fastpack.io import AnyPath, size_of
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.metadata import DATASET_CONFIG, SPLIT_CONFIG, select_splits
from fastpack.webdataset.sample_index import SampleIndex
from fastpack.webdataset.shard_index import shard_index_path

MAX_PARTS = 100  # kinds of parts that are listed
CRUDE = "CrudeWebdataset"


def webdataset_facts(folder: AnyPath, wanted: InspectOptions) -> FileFacts:
    """{"path", "kind": "webdataset", "bytes", "shards", "samples", "type", "fields", "energon_version", "parts", ...}.

    bytes: of all shards; sample_bytes: how long samples are in their shards, by the indexes beside them. type: the
    class of samples, None where dataset.yaml is not there; fields: the expression of each, or None. parts: {name:
    {"count", "bytes"}}, None without a table of them, at most `MAX_PARTS`. split: {part: {"shards", "samples"}},
    samples that are excluded one by one among them; excluded: how many entries. Raises NotPrepared, FormatError.
    """
    counts = nvmeta.read_info(folder)
    warnings: list[str] = []
    paths = [folder / shard for shard in counts]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        warnings.append(f"{len(missing)} of {len(counts)} shards are not there: {missing[0]}")
    found: dict[str, Any] = {"path": str(folder), "kind": "webdataset"}
    found["bytes"] = sum(map(_size, paths))
    found |= {"shards": len(counts), "samples": sum(counts.values())}
    found |= _sample_type(folder, wanted.dataset_config, warnings)
    found["energon_version"] = nvmeta.read_version(folder)
    found["parts"] = _parts(folder, warnings)
    found |= _split(folder, counts, wanted, warnings)
    lengths = _sample_lengths(paths, warnings)
    facts = {**found, **length_facts("sample_bytes", lengths), "warnings": warnings}
    files = [File(shard, _size(path), None) for shard, path in zip(counts, paths, strict=True)]
    return FileFacts(facts, "bytes", lengths, files)


def _size(path: AnyPath) -> int:
    return size_of(path) if path.is_file() else 0


def _sample_lengths(paths: Sequence[AnyPath], warnings: list[str]) -> LengthTable | None:
    """Of all shards together; None where one of them has no index."""
    counter = LengthCounter()
    for path in paths:
        try:
            counter.add(np.diff(read_offset_index(shard_index_path(path))))
        except FileNotFoundError as error:
            warnings.append(f"{error.filename} is not there: the lengths of samples are not known")
            return None
    return counter.table()


def _sample_type(folder: AnyPath, name: str, warnings: list[str]) -> dict[str, Any]:
    try:
        tree = nvmeta.read_dataset_yaml(folder, name)
    except FileNotFoundError:
        if name != DATASET_CONFIG:
            raise
        warnings.append("there is no dataset.yaml: it says what a sample is")
        return {"type": None, "fields": None}
    sample_type = tree.get("sample_type")
    kind = sample_type.get("__class__") if isinstance(sample_type, dict) else tree.get("__class__")
    fields = tree.get("field_map")
    return {"type": kind, "fields": fields if isinstance(fields, dict) else None}


def _parts(folder: AnyPath, warnings: list[str]) -> dict[str, dict[str, int]] | None:
    index = SampleIndex(nvmeta.index_path(folder))
    try:
        totals = index.field_totals() if index.has_fields else None
    except FileNotFoundError:
        totals = None
    finally:
        index.close()
    if totals is None:
        warnings.append("index.sqlite has no table of parts: prepare the dataset again")
        return None
    if len(totals) > MAX_PARTS:
        warnings.append(f"{len(totals):,} kinds of parts, of which the {MAX_PARTS} most frequent are listed")
    return {name: {"count": count, "bytes": n_bytes} for name, count, n_bytes in totals[:MAX_PARTS]}


def _split(folder: AnyPath, counts: dict[str, int], wanted: InspectOptions, warnings: list[str]) -> dict[str, Any]:
    path = nvmeta.meta_path(folder, wanted.split_config)
    try:
        split = nvmeta.read_split(folder, wanted.split_config)
    except FileNotFoundError:
        if wanted.split_config != SPLIT_CONFIG:
            raise
        warnings.append("there is no split.yaml: Energon needs one")
        return {"split": None, "excluded": 0}
    excluded = set(split.exclude)
    parts = {}
    for part, shards in select_splits(path, split.shards, wanted.split_parts).items():
        unknown = next((shard for shard in shards if shard not in counts), None)
        if unknown is not None:
            raise FormatError(path, 0, f"the shard {unknown!r}", "one of .info.json")
        left = [shard for shard in shards if shard not in excluded]
        parts[part] = {"shards": len(left), "samples": sum(counts[shard] for shard in left)}
    return {"split": parts, "excluded": len(split.exclude)}
