"""`prepare` of whatever it is given: a folder of tar shards, a JSON lines file, or a metadataset."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from fastpack.errors import DataWarning
from fastpack.io import PathLike, is_folder
from fastpack.webdataset.prepare.crude_jsonl_index import JsonlIndexResult, index_webdataset_jsonl
from fastpack.webdataset.prepare.metadataset import MetadatasetResult, prepare_metadataset
from fastpack.webdataset.prepare.path_kinds import UNKNOWN, kind_of
from fastpack.webdataset.prepare.prepare_webdataset import PrepareResult, prepare_webdataset


def prepare(path: PathLike, **options: Any) -> PrepareResult | JsonlIndexResult | MetadatasetResult:
    """Make a dataset ready for Megatron-Energon and `fastpack.WebDataset`.

    path: a folder of tar shards, which gets a `.nv-meta` (see `prepare_webdataset`, whose options these are;
    split_parts and split_globs may also be mappings of parts to patterns); a `.jsonl` file, which gets a `.jsonl.idx`;
    or the `.yaml` file of a metadataset, whose joins are indexed. What the user should know is warned of (DataWarning).
    Raises ValueError for anything else.
    """
    if is_folder(path):
        for name in ("split_parts", "split_globs"):
            if isinstance(options.get(name), Mapping):
                options[name] = pairs(options[name])
        result = prepare_webdataset(path, **options)
        for warning in result.warnings:
            warnings.warn(f"{os.fspath(path)}: {warning}", DataWarning, stacklevel=2)
        return result
    kind = kind_of(path)
    if not kind:
        raise ValueError(f"{os.fspath(path)} {UNKNOWN}")
    unknown = options.keys() - {"progress"}
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))}: options of folders of shards, not of a {kind}")
    if kind == "jsonl":
        return index_webdataset_jsonl(path, **options)
    joined = prepare_metadataset(path)
    for warning in joined.warnings:
        warnings.warn(f"{os.fspath(path)}: {warning}", DataWarning, stacklevel=2)
    return joined


def pairs(patterns: Mapping[str, str | Iterable[str]]) -> list[tuple[str, str]]:
    """(part, pattern) pairs from a mapping of parts to a pattern or several."""
    return [
        (part, pattern)
        for part, of_part in patterns.items()
        for pattern in ([of_part] if isinstance(of_part, str) else of_part)
    ]
