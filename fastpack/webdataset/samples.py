"""Sample types with the names, fields and defaults of Megatron-Energon, but arrays instead of tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from fastpack.webdataset.base_sample import Sample

# An image as the dataset decodes it (by default a float32 [C, H, W] array), or the AVDecoder of a video.
Media: TypeAlias = Any
Array: TypeAlias = Any


@dataclass(slots=True, kw_only=True)
class TextSample(Sample):
    """A text.

    Parameters
    ----------
    text
        The text.

    Examples
    --------
    >>> from fastpack.webdataset import TextSample
    >>> sample = TextSample(__key__="a", __restore_key__=("Webdataset", 0), text="hello")
    >>> sample.text
    'hello'
    """

    text: str


@dataclass(slots=True, kw_only=True)
class ImageSample(Sample):
    """An image.

    Parameters
    ----------
    image
        The image as decoded; by default float32 [3, H, W] from 0 to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpack.webdataset import ImageSample
    >>> sample = ImageSample(__key__="a", __restore_key__=("Webdataset", 0), image=np.zeros((3, 8, 8), np.float32))
    >>> sample.image.shape
    (3, 8, 8)
    """

    image: Media


@dataclass(slots=True, kw_only=True)
class CaptioningSample(Sample):
    """An image and its caption.

    Parameters
    ----------
    image
        The image as decoded; by default float32 [3, H, W] from 0 to 1.
    caption
        The caption.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpack.webdataset import CaptioningSample
    >>> sample = CaptioningSample(
    ...     __key__="a", __restore_key__=("Webdataset", 0),
    ...     image=np.zeros((3, 8, 8), np.float32), caption="A cat.")
    >>> sample.caption
    'A cat.'
    """

    image: Media
    caption: str


@dataclass(slots=True, kw_only=True)
class ImageClassificationSample(Sample):
    """An image and its class: a number, a name, or both.

    Parameters
    ----------
    image
        The image as decoded; by default float32 [3, H, W] from 0 to 1.
    label
        Number of the class.
    label_name
        Name of the class.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpack.webdataset import ImageClassificationSample
    >>> sample = ImageClassificationSample(
    ...     __key__="a", __restore_key__=("Webdataset", 0),
    ...     image=np.zeros((3, 8, 8), np.float32), label=3)
    >>> sample.label, sample.label_name
    (3, None)
    """

    image: Media
    label: int | None = None
    label_name: str | None = None


@dataclass(slots=True, kw_only=True)
class InterleavedSample(Sample):
    """Texts and images in reading order.

    Parameters
    ----------
    sequence
        The texts, and the images as decoded.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpack.webdataset import InterleavedSample
    >>> sample = InterleavedSample(
    ...     __key__="a", __restore_key__=("Webdataset", 0),
    ...     sequence=["A cat:", np.zeros((3, 8, 8))])
    >>> sample.sequence[0]
    'A cat:'
    """

    sequence: list[Media | str]


@dataclass(slots=True, kw_only=True)
class SimilarityInterleavedSample(Sample):
    """Texts and images whose order is derived from their similarity.

    Parameters
    ----------
    images
        The images as decoded.
    texts
        The texts.
    audio
        The audio tracks, if any.
    video
        The videos, if any.
    similarity_matrix
        Similarity of each image (row) and text (column).
    matched_text_indices
        Number of the text that belongs to each image.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpack.webdataset import SimilarityInterleavedSample
    >>> sample = SimilarityInterleavedSample(
    ...     __key__="a", __restore_key__=("Webdataset", 0),
    ...     images=[np.zeros((3, 8, 8))], texts=["A cat.", "A dog."], matched_text_indices=[0])
    >>> sample.matched_text_indices
    [0]
    """

    images: list[Media]
    texts: list[str]
    audio: list[Media] | None = None
    video: list[Media] | None = None
    similarity_matrix: Array | None = None
    matched_text_indices: list[int] | None = None


@dataclass(slots=True, kw_only=True)
class MultiChoiceVQASample(Sample):
    """A question about an image, the choices, and the index of the correct one.

    Parameters
    ----------
    image
        The image as decoded; by default float32 [3, H, W] from 0 to 1.
    context
        The question.
    choices
        The possible answers.
    correct_choice_idx
        Index of the correct choice.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpack.webdataset import MultiChoiceVQASample
    >>> sample = MultiChoiceVQASample(
    ...     __key__="a", __restore_key__=("Webdataset", 0),
    ...     image=np.zeros((3, 8, 8), np.float32), context="What is it?", choices=["a cat", "a dog"])
    >>> sample.choices[sample.correct_choice_idx]
    'a cat'
    """

    image: Media
    context: str
    choices: list[str] | None = None
    correct_choice_idx: int = 0


@dataclass(slots=True, kw_only=True)
class OCRSample(Sample):
    """An image of text, its text, and boxes [N, 4 or 5] (x, y, w, h, confidence) from blocks to letters.

    Parameters
    ----------
    image
        The image as decoded; by default float32 [3, H, W] from 0 to 1.
    text
        The whole text.
    block_boxes, lines_boxes, words_boxes, chars_boxes
        Boxes [N, 4 or 5] of the blocks, lines, words and characters: x, y, w, h and optionally the confidence.
    block_classes
        Class of each block.
    block_text, lines_text, words_text, chars_text
        Text of each box.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpack.webdataset import OCRSample
    >>> sample = OCRSample(
    ...     __key__="a", __restore_key__=("Webdataset", 0),
    ...     image=np.zeros((3, 8, 8), np.float32), text="Exit")
    >>> sample.text
    'Exit'
    """

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
    """A question about an image, possible answers and their weights.

    Parameters
    ----------
    image
        The image as decoded; by default float32 [3, H, W] from 0 to 1.
    context
        The question.
    answers
        The possible answers.
    answer_weights
        Weight of each answer, float [N].

    Examples
    --------
    >>> import numpy as np
    >>> from fastpack.webdataset import VQASample
    >>> sample = VQASample(
    ...     __key__="a", __restore_key__=("Webdataset", 0),
    ...     image=np.zeros((3, 8, 8), np.float32), context="What is it?", answers=["a cat"])
    >>> sample.answers
    ['a cat']
    """

    image: Media
    context: str
    answers: list[str] | None = None
    answer_weights: Array | None = None


@dataclass(slots=True, kw_only=True)
class VidQASample(Sample):
    """A question about a video, possible answers and their weights.

    Parameters
    ----------
    video
        The video, an `AVDecoder` by default.
    context
        The question.
    answers
        The possible answers.
    answer_weights
        Weight of each answer, float [N].

    Examples
    --------
    >>> import numpy as np
    >>> from fastpack.webdataset import VidQASample
    >>> sample = VidQASample(
    ...     __key__="a", __restore_key__=("Webdataset", 0),
    ...     video=np.zeros((2, 3, 8, 8)), context="What is it?", answers=["a cat"])
    >>> sample.answers
    ['a cat']
    """

    video: Media
    context: str
    answers: list[str] | None = None
    answer_weights: Array | None = None


@dataclass(slots=True, kw_only=True)
class VQAOCRSample(Sample):
    """A question about an image of text, with the text.

    Parameters
    ----------
    image
        The image as decoded; by default float32 [3, H, W] from 0 to 1.
    context
        The question.
    text
        The text in the image.
    answers
        The possible answers.
    answer_weights
        Weight of each answer, float [N].
    words_boxes
        Boxes [N, 4 or 5] of the words: x, y, w, h and optionally the confidence.
    words_text
        Text of each word.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpack.webdataset import VQAOCRSample
    >>> sample = VQAOCRSample(
    ...     __key__="a", __restore_key__=("Webdataset", 0),
    ...     image=np.zeros((3, 8, 8), np.float32), context="What does it say?", text="Exit")
    >>> sample.text
    'Exit'
    """

    image: Media
    context: str
    text: str
    answers: list[str] | None = None
    answer_weights: Array | None = None
    words_boxes: Array | None = None
    words_text: list[str] | None = None


# All classes of this module by name, with their base class.
SAMPLE_TYPES: dict[str, type[Sample]] = {
    name: kind for name, kind in list(globals().items()) if isinstance(kind, type) and issubclass(kind, Sample)
}
