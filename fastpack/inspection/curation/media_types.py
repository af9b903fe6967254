"""Types of the samples of a WebDataset in the JSON result of `report`; see `facts`."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from fastpack.inspection.facts import Count, Split, Summary


class FieldOfSamples(TypedDict):
    """a field"""

    name: Annotated[str, "its name"]
    count: Annotated[Count, "samples that have it"]
    missing: Annotated[Count, "samples that do not"]
    bytes: Annotated[Count, "size of all its files"]


class NamedSplit(Split):
    """a split"""

    name: Annotated[str, "its name"]


class ShapeCount(TypedDict):
    """images of a shape"""

    shape: Annotated[
        Literal["tall", "square", "wide", "very wide"], "by width / height: up to 0.8, up to 1.25, up to 2, above"
    ]
    count: Annotated[Count, "how many"]


class FormatCount(TypedDict):
    """images of a format"""

    format: Annotated[str, "the format, as Pillow names it"]
    count: Annotated[Count, "how many"]


class Images(TypedDict):
    """the images looked at"""

    count: Annotated[Count, "how many"]
    width: Annotated[Summary | None, "widths in pixels"]
    height: Annotated[Summary | None, "heights in pixels"]
    shapes: Annotated[list[ShapeCount], "aspect ratios"]
    formats: Annotated[list[FormatCount], "formats"]


class Captions(TypedDict):
    """the texts looked at (fields txt, text, caption and cap)"""

    count: Annotated[Count, "how many"]
    empty: Annotated[Count, "of them, without a character other than white space"]
    characters: Annotated[Summary | None, "their lengths"]


class Durations(TypedDict):
    """durations of the audio or video looked at"""

    kind: Annotated[Literal["video", "audio"], "the kind of stream"]
    count: Annotated[Count, "how many"]
    total: Annotated[float, "the sum in seconds"]
    milliseconds: Annotated[Summary | None, "the durations in milliseconds"]


class Thumbnail(TypedDict):
    """a small picture of an image"""

    key: Annotated[str, "key of the sample"]
    field: Annotated[str, "the field"]
    width: Annotated[Count, "width of the image in pixels"]
    height: Annotated[Count, "its height"]
    caption: Annotated[str | None, "the caption; null if there is none"]
    image: Annotated[str, "the small picture, a JPEG as a data URI"]


class Media(TypedDict):
    """the samples of a WebDataset"""

    samples: Annotated[Count, "number of samples"]
    looked_at: Annotated[Count, "random samples that were read for what follows"]
    fields: Annotated[list[FieldOfSamples], "the fields of all samples"]
    splits: Annotated[list[NamedSplit], "the splits"]
    images: Annotated[Images | None, "null without images, or without Pillow"]
    captions: Annotated[Captions | None, "null without captions"]
    durations: Annotated[list[Durations], "durations of audio and video; empty without the package av"]
    unreadable: Annotated[Count, "images, audio and video that could not be read"]
    thumbnails: Annotated[list[Thumbnail], "some images; empty with `--samples 0`"]
