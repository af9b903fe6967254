"""Read from `dataset.yaml` how samples are made: type, field map or functions, subflavors and decoder options."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any

from fastpack.errors import FormatError, UntrustedCode
from fastpack.io import AnyPath, PathLike
from fastpack.webdataset.base_sample import BASE_FIELDS
from fastpack.webdataset.decoding import Decoder
from fastpack.webdataset.field_map import FieldMap
from fastpack.webdataset.metadata import meta_path, read_dataset_yaml
from fastpack.webdataset.samples import SAMPLE_TYPES

# Options of Energon's loading, which do not apply to random access.
_LOADING_OPTIONS = {
    *("max_samples_per_sequence", "parallel_shard_iters", "shuffle_over_epochs", "training", "worker_config")
}
_KNOWN = {
    *("__class__", "__module__", "decoder", "field_map", "part_filter"),
    *("sample_loader", "sample_type", "subflavors", *_LOADING_OPTIONS),
}

_DECODER_OPTIONS = ("image_decode", "av_decode", "video_decode_audio")

Fields = Callable[[dict[str, Any]], Mapping[str, Any]]


@dataclass
class Definition:
    """How samples are made.

    sample_type: the class of the samples, None for crude samples. make_fields: maps {stored field: decoded value},
    with the dunder fields, to the fields of the sample. wanted: selects the stored fields to read, None for all.
    decoder: options of the decoder, None for no decoding.
    """

    sample_type: type[Any] | None = None
    make_fields: Fields | None = None
    wanted: Callable[[str], bool] | None = None
    subflavors: dict[str, Any] = field(default_factory=dict)
    decoder: dict[str, Any] | None = field(default_factory=dict)


def read_definition(folder: PathLike, name: str = "dataset.yaml", trust_code: bool = False) -> Definition:
    """Read the definition in `.nv-meta/<name>`.

    Raises FileNotFoundError; FormatError for missing or unknown keys; UntrustedCode, without trust_code, for functions
    and for classes of other modules.
    """
    path = meta_path(folder, name)
    tree = read_dataset_yaml(folder, name)
    unknown = sorted(tree.keys() - _KNOWN)
    if unknown:
        raise FormatError(path, 0, f"the key {unknown[0]!r}", f"one of {', '.join(sorted(_KNOWN))}")
    subflavors = tree.get("subflavors") or {}
    if not isinstance(subflavors, dict):
        raise FormatError(path, 0, f"subflavors that are a {type(subflavors).__name__}", "a mapping")
    functions = _Functions(path, trust_code)
    definition = Definition(subflavors=subflavors, decoder=_decoder(path, tree))
    if tree.get("__class__") == "CrudeWebdataset":
        if "field_map" in tree or "sample_loader" in tree:
            raise FormatError(path, 0, "a field_map or sample_loader", "neither for a CrudeWebdataset")
        if tree.get("part_filter") is not None:
            definition.wanted = functions.part_filter(tree["part_filter"])
        return definition
    definition.sample_type = _sample_type(path, tree, trust_code)
    if (tree.get("field_map") is None) == (tree.get("sample_loader") is None):
        raise FormatError(path, 0, "both or neither of field_map and sample_loader", "one of them")
    if tree.get("field_map") is not None:
        field_map = _field_map(path, tree["field_map"], definition.sample_type)
        if tree.get("part_filter") is not None:
            raise FormatError(path, 0, "a part_filter and a field_map", "no part_filter: the map selects the fields")
        definition.make_fields, definition.wanted = field_map, field_map.stored.__contains__
    else:
        if tree.get("part_filter") is None:
            raise FormatError(path, 0, "a sample_loader without a part_filter", "both")
        definition.make_fields = functions.load(tree["sample_loader"], "sample_loader")
        definition.wanted = functions.part_filter(tree["part_filter"])
    return definition


def _decoder(path: AnyPath, tree: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the options of `decoder:`, Energon's SampleDecoder; None if it is null."""
    options = tree.get("decoder", {})
    if options is None:
        return None
    if not isinstance(options, dict) or options.get("__class__", "SampleDecoder") != "SampleDecoder":
        raise FormatError(path, 0, "a decoder of another kind", "a SampleDecoder with its options, or null")
    if options.get("guess_content"):
        raise FormatError(path, 0, "guess_content", "a decoder that uses the names of fields")
    if unknown := sorted(options.keys() - {*_DECODER_OPTIONS, "guess_content", "__class__", "__module__"}):
        raise FormatError(path, 0, f"the option {unknown[0]!r} of decoder", f"one of {', '.join(_DECODER_OPTIONS)}")
    found = {name: options[name] for name in _DECODER_OPTIONS if name in options}
    try:
        Decoder(**found)
    except ValueError as error:
        raise FormatError(path, 0, str(error), "a mode of Energon's SampleDecoder") from None
    return found


def _sample_type(path: AnyPath, tree: Mapping[str, Any], trust_code: bool) -> type[Any]:
    """Return the class named by `sample_type`, or by the dataset class of Energon's older files."""
    spec = tree.get("sample_type")
    if spec is None and str(tree.get("__class__", "")).endswith("Webdataset"):
        spec = {**tree, "__class__": f"{tree['__class__'].removesuffix('Webdataset')}Sample"}
    if not isinstance(spec, dict) or not isinstance(spec.get("__class__"), str):
        raise FormatError(path, 0, "no sample_type", "one with __module__ and __class__, or a CrudeWebdataset")
    module, name = str(spec.get("__module__")), spec["__class__"]
    if module == "fastpack" or module.split(".")[:2] == ["megatron", "energon"]:
        if name not in SAMPLE_TYPES:
            raise FormatError(path, 0, f"the sample type {name!r}", f"one of {', '.join(sorted(SAMPLE_TYPES))}")
        return SAMPLE_TYPES[name]
    if not trust_code:
        raise UntrustedCode(
            f"{path} names the sample type {name} of the module {module}, whose code would run. If you trust it, pass "
            "trust_code=True; raw=True returns the bytes"
        )
    kind = getattr(importlib.import_module(module), name)
    if not (
        isinstance(kind, type) and is_dataclass(kind) and {one.name for one in fields(kind)}.issuperset(BASE_FIELDS)
    ):
        raise FormatError(path, 0, f"{module}.{name}", "a dataclass derived from Sample")
    return kind


def _field_map(path: AnyPath, expressions: Any, sample_type: type[Any]) -> FieldMap:
    if not isinstance(expressions, dict):
        raise FormatError(path, 0, f"a field_map that is a {type(expressions).__name__}", "a mapping")
    known = {one.name: one for one in fields(sample_type)}
    required = {
        name for name, one in known.items() if one.default is MISSING and one.default_factory is MISSING
    }.difference(BASE_FIELDS)
    unknown, absent = sorted(expressions.keys() - known), sorted(required - expressions.keys())
    if unknown or absent:
        found = f"the field {unknown[0]!r}" if unknown else f"no field {absent[0]!r}"
        own = ", ".join(name for name in known if name not in BASE_FIELDS) or "none"
        raise FormatError(path, 0, f"{found} in field_map", f"the fields of {sample_type.__name__}: {own}")
    try:
        return FieldMap(expressions)
    except ValueError as error:
        raise FormatError(path, 0, str(error), "expressions such as 'json[caption],txt'") from None


class _Functions:
    """The functions that a definition names, loaded from files next to it if they are trusted."""

    def __init__(self, path: AnyPath, trust_code: bool) -> None:
        self._path, self._trust_code = path, trust_code
        self._modules: dict[str, dict[str, Any]] = {}

    def part_filter(self, spec: Any) -> Callable[[str], bool]:
        """Return a filter from a list of fields, or from a function."""
        if isinstance(spec, list):
            return frozenset(map(str, spec)).__contains__
        wanted: Callable[[str], bool] = self.load(spec, "part_filter")
        return wanted

    def load(self, spec: Any, default: str) -> Callable[..., Any]:
        """Return the function of `file.py:function`; the function name defaults to `default`."""
        if not isinstance(spec, str):
            raise FormatError(self._path, 0, f"a {default} that is a {type(spec).__name__}", "'file.py:function'")
        if not self._trust_code:
            raise UntrustedCode(
                f"{self._path} names {spec}, which would run for every sample. If you trust it, pass "
                "trust_code=True; raw=True returns the bytes"
            )
        file, colon, name = spec.rpartition(":")
        file, name = (file, name) if colon else (spec, default)
        function = self._module(file).get(name)
        if not callable(function):
            raise FormatError(os.path.join(self._path.parent, file), 0, f"no function {name}", "one")
        found: Callable[..., Any] = function
        return found

    def _module(self, file: str) -> dict[str, Any]:
        if file not in self._modules:
            path = self._path.parent / file
            module: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
            exec(compile(path.read_bytes(), str(path), "exec"), module)
            self._modules[file] = module
        return self._modules[file]


def fields_filter(names: Callable[[str], bool] | Iterable[str]) -> Callable[[str], bool]:
    """Return a filter by names, or the given function."""
    return names if callable(names) else frozenset(names).__contains__
