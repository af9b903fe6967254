"""Sample types of media data: the names, fields and defaults of Megatron-Energon's, with arrays instead of tensors."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self, TypeAlias

from fastpack.io import AnyPath

Media: TypeAlias = (
    Any  # an image as the dataset decodes it, a float32 [C, H, W] array by default; an AVDecoder of a video
)
Array: TypeAlias = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceInfo:
    """Where a sample came from; `index` is its number in the split part, or a name where it was read by name."""

    dataset_path: AnyPath
    index: int | str
    shard_name: str
    file_names: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Sample:
    """What every sample has: its key, its number in the split part, and where it came from."""

    __key__: str
    __restore_key__: tuple[str | int | tuple[Any, ...], ...]
    __subflavors__: dict[str, Any] | None = None
    __sources__: tuple[SourceInfo, ...] | None = None

    @classmethod
    def derive_from(cls, base_sample: Sample, **kwargs: Any) -> Self:
        """A sample of this type with the dunder fields of another; `kwargs` are the rest and go first."""
        return cls(**{name: getattr(base_sample, name) for name in BASE_FIELDS} | kwargs)


BASE_FIELDS = tuple(field.name for field in fields(Sample))


class CrudeSample(dict[str, Any]):
    """The decoded parts of a sample by their names, and its dunder keys: what a cooker makes a sample of."""


@dataclass(slots=True, kw_only=True)
class TextSample(Sample):
    """A text."""

    text: str


@dataclass(slots=True, kw_only=True)
class ImageSample(Sample):
    """An image."""

    image: Media


@dataclass(slots=True, kw_only=True)
class CaptioningSample(Sample):
    """An image and what it shows."""

    image: Media
    caption: str


@dataclass(slots=True, kw_only=True)
class ImageClassificationSample(Sample):
    """An image and its class, by number, name or both."""

    image: Media
    label: int | None = None
    label_name: str | None = None


@dataclass(slots=True, kw_only=True)
class InterleavedSample(Sample):
    """Texts and images in the order they are read."""

    sequence: list[Media | str]


@dataclass(slots=True, kw_only=True)
class SimilarityInterleavedSample(Sample):
    """Texts and images whose order is to be found from how similar they are."""

    images: list[Media]
    texts: list[str]
    audio: list[Media] | None = None
    video: list[Media] | None = None
    similarity_matrix: Array | None = None
    matched_text_indices: list[int] | None = None


@dataclass(slots=True, kw_only=True)
class MultiChoiceVQASample(Sample):
    """A question about an image, the answers to choose from, and which is right."""

    image: Media
    context: str
    choices: list[str] | None = None
    correct_choice_idx: int = 0


@dataclass(slots=True, kw_only=True)
class OCRSample(Sample):
    """An image of text: the text, and boxes [N, 4 or 5] (x, y, w, h, confidence) with theirs, coarse to fine."""

    image: Media
    text: str
    block_boxes: Array | None = None
    block_classes: Array | list[str] | None = None
    block_text: list[str] | None = None
    lines_boxes: Array | None = None
    lines_text: list[str] | None = None
    words_boxes: Array | None = None
    words_text: list[str] | None = None
    chars_boxes: Array | None = None
    chars_text: list[str] | None = None


@dataclass(slots=True, kw_only=True)
class VQASample(Sample):
    """A question about an image, its possible answers and their weights."""

    image: Media
    context: str
    answers: list[str] | None = None
    answer_weights: Array | None = None


@dataclass(slots=True, kw_only=True)
class VidQASample(Sample):
    """A question about a video, its possible answers and their weights."""

    video: Media
    context: str
    answers: list[str] | None = None
    answer_weights: Array | None = None


@dataclass(slots=True, kw_only=True)
class VQAOCRSample(Sample):
    """A question about an image of text, with the text."""

    image: Media
    context: str
    text: str
    answers: list[str] | None = None
    answer_weights: Array | None = None
    words_boxes: Array | None = None
    words_text: list[str] | None = None


SAMPLE_TYPES: dict[str, type[Sample]] = {
    kind.__name__: kind
    for kind in (
        CaptioningSample,
        ImageClassificationSample,
        ImageSample,
        InterleavedSample,
        MultiChoiceVQASample,
        OCRSample,
        Sample,
        SimilarityInterleavedSample,
        TextSample,
        VQAOCRSample,
        VQASample,
        VidQASample,
    )
}
