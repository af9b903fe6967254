"""Facts about a prepared WebDataset, from `.nv-meta` and the indexes next to its shards. No shard is read."""

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

MAX_LISTED_FIELDS = 100
CRUDE = "CrudeWebdataset"


def webdataset_facts(folder: AnyPath, options: InspectOptions) -> FileFacts:
    """Return {"path", "kind": "webdataset", "bytes", "shards", "samples", "type", "fields", "parts", "split", ...}.

    bytes: size of all shards. sample_bytes: sizes of the samples in their shards, from the `.tar.idx` files. type: the
    sample class, None without dataset.yaml. fields: {field: expression} of the field map, or None. parts: {stored
    field: {"count", "bytes"}}, at most `MAX_LISTED_FIELDS`; None if the index has no table of fields. split: {name:
    {"shards", "samples"}}; single excluded samples are counted. excluded: number of entries under exclude. Raises
    NotPrepared, FormatError.
    """
    counts = nvmeta.read_info(folder)
    warnings: list[str] = []
    paths = [folder / shard for shard in counts]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        warnings.append(f"{len(missing)} of {len(counts)} shards do not exist, such as {missing[0]}")
    found: dict[str, Any] = {"path": str(folder), "kind": "webdataset"}
    found["bytes"] = sum(map(_size, paths))
    found |= {"shards": len(counts), "samples": sum(counts.values())}
    found |= _sample_type(folder, options.dataset_config, warnings)
    found["energon_version"] = nvmeta.read_version(folder)
    found["parts"] = _stored_fields(folder, warnings)
    found |= _split(folder, counts, options, warnings)
    lengths = _sample_lengths(paths, warnings)
    facts = {**found, **length_facts("sample_bytes", lengths), "warnings": warnings}
    files = [File(shard, _size(path), None) for shard, path in zip(counts, paths, strict=True)]
    return FileFacts(facts, "bytes", lengths, files)


def _size(path: AnyPath) -> int:
    return size_of(path) if path.is_file() else 0


def _sample_lengths(paths: Sequence[AnyPath], warnings: list[str]) -> LengthTable | None:
    """Return the sample sizes of all shards; None if a shard has no index."""
    counter = LengthCounter()
    for path in paths:
        try:
            counter.add(np.diff(read_offset_index(shard_index_path(path))))
        except FileNotFoundError as error:
            warnings.append(f"{error.filename} does not exist: the sizes of the samples are unknown")
            return None
    return counter.table()


def _sample_type(folder: AnyPath, name: str, warnings: list[str]) -> dict[str, Any]:
    try:
        tree = nvmeta.read_dataset_yaml(folder, name)
    except FileNotFoundError:
        if name != DATASET_CONFIG:
            raise
        warnings.append("dataset.yaml does not exist: the type of the samples is unknown")
        return {"type": None, "fields": None}
    sample_type = tree.get("sample_type")
    kind = sample_type.get("__class__") if isinstance(sample_type, dict) else tree.get("__class__")
    fields = tree.get("field_map")
    return {"type": kind, "fields": fields if isinstance(fields, dict) else None}


def _stored_fields(folder: AnyPath, warnings: list[str]) -> dict[str, dict[str, int]] | None:
    index = SampleIndex(nvmeta.index_path(folder))
    try:
        totals = index.field_totals() if index.has_fields else None
    except FileNotFoundError:
        totals = None
    finally:
        index.close()
    if totals is None:
        warnings.append("index.sqlite has no table of fields. Prepare the dataset again.")
        return None
    if len(totals) > MAX_LISTED_FIELDS:
        warnings.append(f"{len(totals):,} field names; the {MAX_LISTED_FIELDS} most frequent are listed")
    return {name: {"count": count, "bytes": n_bytes} for name, count, n_bytes in totals[:MAX_LISTED_FIELDS]}


def _split(folder: AnyPath, counts: dict[str, int], options: InspectOptions, warnings: list[str]) -> dict[str, Any]:
    path = nvmeta.meta_path(folder, options.split_config)
    try:
        split = nvmeta.read_split(folder, options.split_config)
    except FileNotFoundError:
        if options.split_config != SPLIT_CONFIG:
            raise
        warnings.append("split.yaml does not exist; Energon needs it")
        return {"split": None, "excluded": 0}
    excluded = set(split.exclude)
    splits = {}
    for name, shards in select_splits(path, split.shards, options.split_parts).items():
        unknown = next((shard for shard in shards if shard not in counts), None)
        if unknown is not None:
            raise FormatError(path, 0, f"the shard {unknown!r}", "one of .info.json")
        left = [shard for shard in shards if shard not in excluded]
        splits[name] = {"shards": len(left), "samples": sum(counts[shard] for shard in left)}
    return {"split": splits, "excluded": len(split.exclude)}
