"""`dataset.yaml`: the sample type of a WebDataset, and a template of the loader that a user may write for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, NamedTuple

from fastpack.io import AnyPath, PathLike
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset import samples
from fastpack.webdataset.base_sample import BASE_FIELDS, Sample
from fastpack.webdataset.sample_index.staging import MAX_FIELD_NAMES

MODULE = "megatron.energon"
CRUDE = "CrudeWebdataset"
LOADER = "sample_loader.py"


class Field(NamedTuple):
    """A field of a sample type: its name, its type as Energon prints it, and its default (None: required)."""

    name: str
    type: str
    default: str | None = None


# A type of a sample's field in fastpack -> as Energon prints it.
_PRINTED_TYPES = {
    "str": "str",
    "int": "int",
    "Media": "torch.Tensor",
    "int | None": "typing.Optional[int]",
    "str | None": "typing.Optional[str]",
    "list[str]": "typing.List[str]",
    "list[Media]": "typing.List[torch.Tensor]",
    "list[Media | str]": "typing.List[typing.Union[torch.Tensor, str]]",
    "Array | None": "typing.Optional[torch.Tensor]",
    "Array | list[str] | None": "typing.Union[torch.Tensor, typing.List[str], NoneType]",
    "list[int] | None": "typing.Optional[typing.List[int]]",
    "list[str] | None": "typing.Optional[typing.List[str]]",
    "list[Media] | None": "typing.Optional[typing.List[torch.Tensor]]",
}


def _fields(name: str, sample_type: type[Sample]) -> Iterator[Field]:
    for field in fields(sample_type):
        if field.name not in BASE_FIELDS:
            printed = _PRINTED_TYPES[str(field.type)]
            if (name, field.name) == ("VidQASample", "video"):
                printed = "megatron.energon.av.av_decoder.AVDecoder"
            yield Field(field.name, printed, None if field.default is MISSING else repr(field.default))


# By name, as Energon numbers them, which leaves one out; the crude type comes last.
SAMPLE_TYPES: dict[str, tuple[Field, ...]] = {
    name: tuple(_fields(name, sample_type))
    for name, sample_type in sorted(samples.SAMPLE_TYPES.items())
    if name != "VQAOCRSample"
}
MAX_LISTED_FIELDS = 10  # a loader template, or the question for a field map, lists no more stored fields
SAMPLE_TYPE_NAMES = (*SAMPLE_TYPES, CRUDE)


@dataclass(frozen=True, slots=True)
class SampleTypeSpec:
    """Contents of ``dataset.yaml``.

    Parameters
    ----------
    sample_type
        The name of a sample class, such as ``CaptioningSample``, or ``CrudeWebdataset``.
    field_map
        Maps each field of the sample class to a stored field, such as ``{"image": "jpg", "caption": "json[text]"}``.
        None: samples are made by a function in ``sample_loader.py``, of which a template is written.
    dataset_yaml_name
        The name of the file in ``.nv-meta``.
    keep_loader
        Keep an existing ``sample_loader.py``.

    Raises
    ------
    ValueError
        If the class is unknown, or the field map does not fit it.

    Examples
    --------
    >>> from fastpack.webdataset import SampleTypeSpec
    >>> SampleTypeSpec("CaptioningSample", {"image": "jpg", "caption": "txt"}).dataset_yaml_name
    'dataset.yaml'
    """

    sample_type: str
    field_map: Mapping[str, str] | None = None
    dataset_yaml_name: str = nvmeta.DATASET_CONFIG
    keep_loader: bool = True

    def __post_init__(self) -> None:
        if self.sample_type not in SAMPLE_TYPE_NAMES:
            raise ValueError(f"unknown sample type {self.sample_type!r}: choose one of {', '.join(SAMPLE_TYPE_NAMES)}")
        if self.field_map is not None:
            _check_field_map(self.sample_type, self.field_map)


def sample_type_spec(
    sample_type: str | None,
    field_map: Mapping[str, str] | str | None = None,
    *,
    dataset_yaml_name: str = nvmeta.DATASET_CONFIG,
) -> SampleTypeSpec | None:
    """Return the spec of these options, None without a sample type. The field map may be JSON. Raises ValueError."""
    if isinstance(field_map, str):
        try:
            field_map = json.loads(field_map)
        except ValueError as error:
            raise ValueError(f"the field map is not valid JSON: {error}") from None
    if sample_type is not None:
        return SampleTypeSpec(sample_type, field_map, dataset_yaml_name)  # type: ignore[arg-type]
    if field_map is not None:
        raise ValueError("a field map needs a sample type (other than the crude one): pass sample_type as well")
    return None


def _check_field_map(sample_type: str, field_map: Any) -> None:
    if sample_type == CRUDE:
        raise ValueError("a field map needs a sample type (other than the crude one): pass sample_type as well")
    if not isinstance(field_map, Mapping) or not all(isinstance(value, str) for value in field_map.values()):
        raise ValueError('a field map maps sample fields to stored fields, such as {"image": "jpg"}')
    known = {field.name: field for field in SAMPLE_TYPES[sample_type]}
    if unknown := [name for name in field_map if name not in known and name not in BASE_FIELDS]:
        own = ", ".join(known) or "none"
        raise ValueError(f"{sample_type} has no field {', '.join(unknown)}; its fields: {own}")
    if missing := [name for name, field in known.items() if field.default is None and name not in field_map]:
        raise ValueError(f"the field map lacks {', '.join(missing)}, which {sample_type} requires")


def missing_field_warnings(field_map: Mapping[str, str] | None, stored: Sequence[str]) -> list[str]:
    """Return a warning for each mapped field whose stored field no sample has.

    stored: the names of the stored fields. The list may be cut at `MAX_FIELD_NAMES`; then there are no warnings.
    """
    if len(stored) >= MAX_FIELD_NAMES:
        return []
    known = {*stored, "__key__"}
    return [
        f"the field {field} is mapped to {expression}, which no sample has; the stored fields are: {', '.join(stored)}"
        for field, expression in (field_map or {}).items()
        if not known & {expression, *(text.partition("[")[0] for text in expression.split(","))}
    ]


def write_sample_type(
    folder: PathLike, spec: SampleTypeSpec, stored: Sequence[str] = (), *, mode: int | None = None
) -> list[AnyPath]:
    """Write `dataset.yaml`; return the paths of the files written.

    Without a field map (and not for the crude type), samples come from a function in `sample_loader.py`. A template of
    it is written as well, unless there is one and the spec keeps it. The template lists the `stored` fields if there
    are at most `MAX_LISTED_FIELDS`.
    """
    content: dict[str, Any] = {"__module__": MODULE, "__class__": spec.sample_type}
    written = [nvmeta.meta_path(folder, spec.dataset_yaml_name)]
    if spec.sample_type != CRUDE:
        content = {"sample_type": content}
        if spec.field_map is not None:
            content["field_map"] = dict(spec.field_map)
        else:
            content["sample_loader"] = f"{LOADER}:sample_loader"
            content["part_filter"] = f"{LOADER}:part_filter"
            loader = nvmeta.meta_path(folder, LOADER)
            if not (spec.keep_loader and loader.is_file()):
                listed = stored if len(stored) <= MAX_LISTED_FIELDS else ()
                nvmeta.write_text(loader, loader_template(spec.sample_type, listed), mode)
                written.append(loader)
    nvmeta.write_dataset_yaml(folder, content, spec.dataset_yaml_name, mode)
    return written


def loader_template(sample_type: str, stored: Sequence[str]) -> str:
    """Return Python code of a `sample_loader` and a `part_filter` for the user to complete."""
    lines = [
        f'"""Make a {sample_type} from the stored fields of a sample. Complete the lines marked TODO."""',
        "",
        "",
        "def sample_loader(raw: dict) -> dict:",
        "    # raw: the decoded fields by name, and the key as __key__",
        "    return {",
    ]
    for field in SAMPLE_TYPES[sample_type]:
        optional = "" if field.default is None else f", optional: {field.default}"
        lines.append(f'        "{field.name}": raw["TODO"],  # {field.type}{optional}')
    lines += [
        "    }",
        "",
        "",
        "def part_filter(part: str) -> bool:",
        "    # TODO: leave out the fields that sample_loader does not use; they are then neither read nor decoded",
        f"    return part in {tuple(stored) or ('TODO',)!r}",
        "",
    ]
    return "\n".join(lines)
