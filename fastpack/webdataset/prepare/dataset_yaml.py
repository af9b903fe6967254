"""`dataset.yaml`: what a sample of a WebDataset is, and the loader that a user may write for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fastpack.io import AnyPath, AtomicFile, PathLike
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.prepare.walk_shards import MAX_PARTS

MODULE = "megatron.energon"
CRUDE = "CrudeWebdataset"
LOADER = "sample_loader.py"


class Field(NamedTuple):
    """A field of a sample type: its name, its type as Energon shows it, and its default, None where it has none."""

    name: str
    type: str
    default: str | None = None


_TENSOR, _STR = "torch.Tensor", "str"
_OPTIONAL_TENSOR, _OPTIONAL_TEXTS = "typing.Optional[torch.Tensor]", "typing.Optional[typing.List[str]]"
_ANSWERS = (Field("answers", _OPTIONAL_TEXTS, "None"), Field("answer_weights", _OPTIONAL_TENSOR, "None"))

# In the order in which Energon numbers them; the crude type comes behind them.
SAMPLE_TYPES: dict[str, tuple[Field, ...]] = {
    "CaptioningSample": (Field("image", _TENSOR), Field("caption", _STR)),
    "ImageClassificationSample": (
        Field("image", _TENSOR),
        Field("label", "typing.Optional[int]", "None"),
        Field("label_name", "typing.Optional[str]", "None"),
    ),
    "ImageSample": (Field("image", _TENSOR),),
    "InterleavedSample": (Field("sequence", "typing.List[typing.Union[torch.Tensor, str]]"),),
    "MultiChoiceVQASample": (
        Field("image", _TENSOR),
        Field("context", _STR),
        Field("choices", _OPTIONAL_TEXTS, "None"),
        Field("correct_choice_idx", "int", "0"),
    ),
    "OCRSample": (
        Field("image", _TENSOR),
        Field("text", _STR),
        Field("block_boxes", _OPTIONAL_TENSOR, "None"),
        Field("block_classes", "typing.Union[torch.Tensor, typing.List[str], NoneType]", "None"),
        Field("block_text", _OPTIONAL_TEXTS, "None"),
        Field("lines_boxes", _OPTIONAL_TENSOR, "None"),
        Field("lines_text", _OPTIONAL_TEXTS, "None"),
        Field("words_boxes", _OPTIONAL_TENSOR, "None"),
        Field("words_text", _OPTIONAL_TEXTS, "None"),
        Field("chars_boxes", _OPTIONAL_TENSOR, "None"),
        Field("chars_text", _OPTIONAL_TEXTS, "None"),
    ),
    "Sample": (),
    "SimilarityInterleavedSample": (
        Field("images", "typing.List[torch.Tensor]"),
        Field("texts", "typing.List[str]"),
        Field("audio", "typing.Optional[typing.List[torch.Tensor]]", "None"),
        Field("video", "typing.Optional[typing.List[torch.Tensor]]", "None"),
        Field("similarity_matrix", _OPTIONAL_TENSOR, "None"),
        Field("matched_text_indices", "typing.Optional[typing.List[int]]", "None"),
    ),
    "TextSample": (Field("text", _STR),),
    "VQASample": (Field("image", _TENSOR), Field("context", _STR), *_ANSWERS),
    "VidQASample": (
        Field("video", "megatron.energon.av.av_decoder.AVDecoder"),
        Field("context", _STR),
        *_ANSWERS,
    ),
}
FEW_PARTS = 10  # a template of a sample loader, or a question for a field map, lists no more
_COMMON = ("__key__", "__restore_key__", "__subflavors__", "__sources__")  # fields of every type, which set themselves
NAMES = (*SAMPLE_TYPES, CRUDE)


class Definition(NamedTuple):
    """What `dataset.yaml` is to say; keep_loader: leave an existing `sample_loader.py` as it is."""

    sample_type: str
    field_map: Mapping[str, str] | None = None
    keep_loader: bool = True


def check_definition(sample_type: str | None, field_map: Mapping[str, str] | str | None) -> dict[str, str] | None:
    """The field map as a dict (it may be given as JSON); ValueError where type and map do not fit each other."""
    if isinstance(field_map, str):
        try:
            field_map = json.loads(field_map)
        except ValueError as error:
            raise ValueError(f"the field map is no JSON: {error}") from None
    if sample_type is not None and sample_type not in NAMES:
        raise ValueError(f"unknown sample type {sample_type!r}: choose one of {', '.join(NAMES)}")
    if field_map is None:
        return None
    if sample_type is None or sample_type == CRUDE:
        raise ValueError("a field map belongs to a sample type other than the crude one: name it as well")
    if not isinstance(field_map, dict) or not all(isinstance(value, str) for value in field_map.values()):
        raise ValueError('a field map is a mapping of fields to names of parts, such as {"image": "jpg"}')
    fields = {field.name: field for field in SAMPLE_TYPES[sample_type]}
    if unknown := [name for name in field_map if name not in fields and name not in _COMMON]:
        known = ", ".join(fields) or "none"
        raise ValueError(f"{sample_type} has no field {', '.join(unknown)}; its fields: {known}")
    if missing := [name for name, field in fields.items() if field.default is None and name not in field_map]:
        raise ValueError(f"the field map lacks {', '.join(missing)}, without which there is no {sample_type}")
    return dict(field_map)


def unknown_parts(field_map: Mapping[str, str] | None, parts: Sequence[str]) -> list[str]:
    """Warnings of fields whose part no sample has; `parts`: those there are (the first `MAX_PARTS`, where more)."""
    if len(parts) >= MAX_PARTS:
        return []
    known = {*parts, "__key__"}
    return [
        f"{field} is to come from {expression}, which is none of the parts there are: {', '.join(parts)}"
        for field, expression in (field_map or {}).items()
        if not known & {expression, *(text.partition("[")[0] for text in expression.split(","))}
    ]


def write_definition(
    folder: PathLike,
    sample_type: str,
    field_map: Mapping[str, str] | None = None,
    *,
    parts: Sequence[str] = (),
    name: str = "dataset.yaml",
    keep_loader: bool = True,
    mode: int | None = None,
) -> list[AnyPath]:
    """Write `dataset.yaml` for samples of this type; return the paths of what was written.

    Without a field map (and not for the crude type) the samples come from a function in `sample_loader.py`: a template
    of it is written too, which names the `parts` if they are few, unless there is one that is to be kept.
    """
    definition: dict[str, Any] = {"__module__": MODULE, "__class__": sample_type}
    written = [nvmeta.meta_path(folder, name)]
    if sample_type != CRUDE:
        definition = {"sample_type": definition}
        if field_map is not None:
            definition["field_map"] = dict(field_map)
        else:
            definition["sample_loader"] = f"{LOADER}:sample_loader"
            definition["part_filter"] = f"{LOADER}:part_filter"
            loader = nvmeta.meta_path(folder, LOADER)
            if not (keep_loader and loader.is_file()):
                _write_text(loader, loader_template(sample_type, parts if len(parts) <= FEW_PARTS else ()), mode)
                written.append(loader)
    nvmeta.write_dataset_yaml(folder, definition, name, mode)
    return written


def loader_template(sample_type: str, parts: Sequence[str]) -> str:
    """Python text of a `sample_loader` and a `part_filter` for a user to finish."""
    lines = [
        f'"""How to make a {sample_type} of the parts of a sample; to be finished where it says TODO."""',
        "",
        "",
        "def sample_loader(raw: dict) -> dict:",
        "    # raw: the decoded parts by their names, and the key as __key__",
        "    return {",
    ]
    for field in SAMPLE_TYPES[sample_type]:
        optional = "" if field.default is None else f", may be left out: {field.default}"
        lines.append(f'        "{field.name}": raw["TODO"],  # {field.type}{optional}')
    lines += [
        "    }",
        "",
        "",
        "def part_filter(part: str) -> bool:",
        "    # TODO: leave out the parts that sample_loader does not use; they are then neither read nor decoded",
        f"    return part in {tuple(parts) or ('TODO',)!r}",
        "",
    ]
    return "\n".join(lines)


def _write_text(path: AnyPath, text: str, mode: int | None) -> None:
    nvmeta.check_folder(path.parent)
    with AtomicFile(path, follow=False) as file:
        file.write(text.encode())
        if mode is not None:
            file.set_mode(mode)
