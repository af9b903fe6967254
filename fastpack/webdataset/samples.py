"""Sample types with the names, fields and defaults of Megatron-Energon, but arrays instead of tensors."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self, TypeAlias

from fastpack.io import AnyPath

# An image as the dataset decodes it (by default a float32 [C, H, W] array), or the AVDecoder of a video.
Media: TypeAlias = Any
Array: TypeAlias = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceInfo:
    """Origin of a sample.

    Parameters
    ----------
    dataset_path
        The folder of the dataset.
    index
        Number of the sample in its split, or a name if it was read by name.
    shard_name
        The shard, relative to the folder.
    file_names
        Names of the files in the tar.
    """

    dataset_path: AnyPath
    index: int | str
    shard_name: str
    file_names: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Sample:
    """Base class of samples.

    Parameters
    ----------
    __key__
        The key of the sample.
    __restore_key__
        Identifies the sample in its dataset.
    __subflavors__
        Labels of the dataset.
    __sources__
        Where the sample comes from.
    """

    __key__: str
    __restore_key__: tuple[str | int | tuple[Any, ...], ...]
    __subflavors__: dict[str, Any] | None = None
    __sources__: tuple[SourceInfo, ...] | None = None

    @classmethod
    def derive_from(cls, base_sample: Sample, **kwargs: Any) -> Self:
        """Make a sample of this type with the dunder fields of another sample.

        Parameters
        ----------
        base_sample
            The other sample.
        **kwargs
            The remaining fields; they override those of `base_sample`.

        Returns
        -------
        Sample
            The new sample.

        Examples
        --------
        >>> from fastpack.webdataset import Sample, TextSample
        >>> base = Sample(__key__="a", __restore_key__=("Webdataset", 0))
        >>> sample = TextSample.derive_from(base, text="hello")
        >>> sample.__key__, sample.text
        ('a', 'hello')
        """
        return cls(**{name: getattr(base_sample, name) for name in BASE_FIELDS} | kwargs)


BASE_FIELDS = tuple(field.name for field in fields(Sample))


class CrudeSample(dict[str, Any]):
    """The decoded fields of a sample by name, with its dunder keys; the input of a cooker."""


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
    """An image and its caption."""

    image: Media
    caption: str


@dataclass(slots=True, kw_only=True)
class ImageClassificationSample(Sample):
    """An image and its class: a number, a name, or both."""

    image: Media
    label: int | None = None
    label_name: str | None = None


@dataclass(slots=True, kw_only=True)
class InterleavedSample(Sample):
    """Texts and images in reading order."""

    sequence: list[Media | str]


@dataclass(slots=True, kw_only=True)
class SimilarityInterleavedSample(Sample):
    """Texts and images whose order is derived from their similarity."""

    images: list[Media]
    texts: list[str]
    audio: list[Media] | None = None
    video: list[Media] | None = None
    similarity_matrix: Array | None = None
    matched_text_indices: list[int] | None = None


@dataclass(slots=True, kw_only=True)
class MultiChoiceVQASample(Sample):
    """A question about an image, the choices, and the index of the correct one."""

    image: Media
    context: str
    choices: list[str] | None = None
    correct_choice_idx: int = 0


@dataclass(slots=True, kw_only=True)
class OCRSample(Sample):
    """An image of text, its text, and boxes [N, 4 or 5] (x, y, w, h, confidence) from blocks to letters."""

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
    """A question about an image, possible answers and their weights."""

    image: Media
    context: str
    answers: list[str] | None = None
    answer_weights: Array | None = None


@dataclass(slots=True, kw_only=True)
class VidQASample(Sample):
    """A question about a video, possible answers and their weights."""

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
