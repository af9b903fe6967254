"""Prepare the join indexes of metadatasets, YAML files that blend and join datasets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastpack.display import Result, facts
from fastpack.errors import FormatError
from fastpack.io import AnyPath, PathLike, as_path, remove
from fastpack.io.checksums import sidecar_path
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.preparation.joins import JoinedSet, hash_seed_is_fixed, join_name, open_set, write_join

_BLENDS = ("blend", "blend_epochized")


@dataclass(slots=True, repr=False)
class MetadatasetResult(Result):
    """Describe what `prepare_metadataset` did.

    Parameters
    ----------
    path
        The metadataset.
    joins
        The join indexes and the number of rows written; None if an index already existed.
    removed
        Outdated join indexes that were removed.
    warnings
        Warnings for the user.

    Examples
    --------
    >>> import pathlib, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "mix.yaml")
    >>> _ = path.write_text('''
    ... __module__: megatron.energon
    ... __class__: MetadatasetV2
    ... splits: {train: {path: ./web}}
    ... ''')
    >>> fastpack.prepare(path).joins
    {}
    >>> folder.cleanup()
    """

    _shown = facts("path", "joins", "removed", "warnings")

    path: AnyPath
    joins: dict[str, int | None] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def prepare_metadataset(path: PathLike, *, dry_run: bool = False) -> MetadatasetResult:
    """Write the index of each join of a metadataset to `<path>.cache/`, byte for byte as `energon prepare` does.

    Metadatasets that it refers to are prepared as well, each in its own cache. dry_run: nothing is written or removed.
    Raises FileNotFoundError, FormatError for a file that is no metadataset, ValueError for datasets that cannot be
    joined.
    """
    return _prepare(as_path(path), None, (), dry_run)


def _prepare(path: AnyPath, split: str | None, ancestors: tuple[AnyPath, ...], dry_run: bool) -> MetadatasetResult:
    if path.resolve() in ancestors:
        raise FormatError(path, 0, "a metadataset that refers to itself", "one that does not")
    splits = nvmeta.read_yaml(path).get("splits")
    if not isinstance(splits, dict):
        raise FormatError(path, 0, "no splits", "a mapping splits of names to datasets")
    result = MetadatasetResult(path)
    cache = path.parent / f"{path.name}.cache"
    nvmeta.check_folder(cache)
    for name, tree in splits.items():
        if split is not None and name != split:
            continue
        for leaf in _leaves(path, tree):
            if "join" in leaf:
                sets = _joined_sets(path, leaf, str(name))
                target = cache / join_name(sets)
                result.warnings += _name_warnings(target, sets)
                written = None if target.is_file() else write_join(target, sets, dry_run=dry_run)
                result.joins[str(target)] = written
            else:
                inner = path.parent / _text(path, leaf, "path")
                if inner.suffix == ".yaml":
                    inner_split = leaf.get("split_part") or str(name)
                    result.warnings += _prepare(inner, inner_split, (*ancestors, path.resolve()), dry_run).warnings
    if split is None:
        for old in cache.glob("join_index_*.bin"):
            if str(old) not in result.joins:
                if not dry_run:
                    remove(old)
                    remove(sidecar_path(old))
                result.removed.append(str(old))
    return result


def _name_warnings(target: AnyPath, sets: Sequence[JoinedSet]) -> list[str]:
    """Warn if Energon will look for the join index under a name that cannot be predicted."""
    unordered = [str(joined.folder) for joined in sets if len(joined.excludes) > 1]
    if not unordered or hash_seed_is_fixed():
        return []
    return [
        f"Energon will not find {target.name}: with two or more excluded samples ({', '.join(unordered)}) the name it "
        "looks for depends on PYTHONHASHSEED. Set PYTHONHASHSEED=0 for this command and for training"
    ]


def _leaves(path: AnyPath, tree: Any) -> Iterator[dict[str, Any]]:
    """Yield the joins and datasets of a split."""
    if not isinstance(tree, dict):
        raise FormatError(path, 0, repr(tree), "a mapping with path, blend, blend_epochized or join")
    for name in _BLENDS:
        if name in tree:
            if not isinstance(tree[name], list):
                raise FormatError(path, 0, repr(tree[name]), f"a list under {name}")
            for item in tree[name]:
                yield from _leaves(path, item)
            return
    yield tree


def _joined_sets(path: AnyPath, tree: dict[str, Any], split: str) -> list[JoinedSet]:
    references = tree["join"]
    references = list(references.values()) if isinstance(references, dict) else references
    if not isinstance(references, list) or not references or not all(isinstance(item, dict) for item in references):
        raise FormatError(path, 0, repr(references), "a list or mapping of datasets under join")
    return [
        open_set(
            path.parent / _text(path, reference, "path"),
            reference.get("split_part") or tree.get("split_part") or split,
            reference.get("split_config"),
            str(reference.get("nonmatch", "error")),
        )
        for reference in references
    ]


def _text(path: AnyPath, tree: dict[str, Any], name: str) -> str:
    value = tree.get(name)
    if not isinstance(value, str):
        raise FormatError(path, 0, repr(value), f"a text under {name}")
    return value
