"""Preview the samples of a WebDataset: keys, fields, texts, and images drawn with characters."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Literal

from fastpack.errors import MissingExtra
from fastpack.escape import escape_text
from fastpack.io import PathLike
from fastpack.webdataset.dataset import WebDataset
from fastpack.webdataset.images import IMAGE_EXTENSIONS, open_image
from fastpack.webdataset.metadata import DATASET_CONFIG, SPLIT_CONFIG
from fastpack.webdataset.sample_definition import read_definition
from fastpack.webdataset.selection import splits_with_shards

MAX_CHARACTERS = 600  # per text
Colours = Literal["blocks", "letters"]
_LETTERS = " .:-=+*#%@"  # from dark to bright
_UPPER_HALF = "\N{UPPER HALF BLOCK}"
_RESET = "\x1b[0m"


def preview(
    path: PathLike,
    split_parts: Sequence[str] | None = None,
    start: int = 0,
    *,
    split_config: str = SPLIT_CONFIG,
    dataset_config: str = DATASET_CONFIG,
) -> Iterator[dict[str, Any]]:
    """Yield samples from number `start` on: {"index", "key", "parts": [{"name", "bytes", "kind", "data", ...}]}.

    parts: the stored fields. data: the bytes of a field. kind: "text", with `text`, shortened and without control
    characters; "image", with `width`, `height`, `mode` and `format`, or `error` if it cannot be opened; else "bytes".

    split_parts: the splits to show, numbered consecutively (None: all shards); splits without shards are skipped.
    split_config: as in `WebDataset`. dataset_config: with a name other than dataset.yaml, only the fields that this
    definition reads are shown. Raises what `WebDataset` raises, and ValueError if sample `start` does not exist.
    """
    wanted = None if dataset_config == DATASET_CONFIG else read_definition(path, dataset_config).wanted
    datasets = [
        WebDataset(path, name, raw=True, part_filter=wanted, split_config=split_config, io="pread")
        for name in splits_with_shards(path, split_parts, split_config)
    ]
    try:
        ends = list(accumulate(map(len, datasets)))
        total = ends[-1] if ends else 0
        if start and start >= total:
            raise ValueError(f"{path} has no sample {start}: it has {total}, counted from 0")
        for index in range(start, total):
            number = bisect_right(ends, index)
            sample = datasets[number][index - (ends[number - 1] if number else 0)]
            key = sample.pop("__key__")
            described = [{"name": name, "bytes": len(data), **_described(name, data)} for name, data in sample.items()]
            yield {"index": index, "key": key, "parts": described}
    finally:
        for dataset in datasets:
            dataset.close()


def _described(name: str, data: bytes) -> dict[str, Any]:
    kind = name.rpartition(".")[2].lower()
    if kind in IMAGE_EXTENSIONS:
        return {"kind": "image", **_image_facts(data), "data": data}
    text = _text(data)
    return {"kind": "bytes", "data": data} if text is None else {"kind": "text", "text": text, "data": data}


def _text(data: bytes) -> str | None:
    """Return displayable text; None if the bytes are not text."""
    start = data[: 4 * MAX_CHARACTERS]
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        if len(start) == len(data) or error.start < len(start) - 3:
            return None
        text = start[: error.start].decode()
    if "\0" in text:
        return None
    shown = escape_text(text[:MAX_CHARACTERS])
    return f"{shown}..." if len(start) < len(data) or len(text) > MAX_CHARACTERS else shown


def _image_facts(data: bytes) -> dict[str, Any]:
    try:
        with open_image(data, 3) as image:
            return {"width": image.width, "height": image.height, "mode": image.mode, "format": image.format}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}" if not isinstance(error, MissingExtra) else str(error)}


def draw(data: bytes, columns: int, rows: int, colours: Colours) -> list[str]:
    """Draw an image as at most `rows` lines of `columns` characters: coloured half blocks, or letters by brightness.

    Raises MissingExtra without Pillow, and Pillow's error for data that are not an image.
    """
    with open_image(data, 3) as image:
        image.draft("RGB", (2 * columns, 4 * rows))  # decodes a JPEG at a fraction of its size if that suffices
        picture = image.convert("RGB")
    # A character is twice as high as it is wide: half blocks give square pixels, letters do not.
    scale = min(columns / picture.width, 2 * rows / picture.height)
    width, height = max(1, round(picture.width * scale)), max(1, round(picture.height * scale / 2))
    if colours == "letters":
        grey = picture.convert("L").resize((width, height)).tobytes()
        letters = "".join(_LETTERS[value * len(_LETTERS) // 256] for value in grey)
        return [letters[start : start + width] for start in range(0, len(letters), width)]
    pixels = picture.resize((width, 2 * height)).tobytes()
    return [_line_of_blocks(pixels[6 * width * row :], width) for row in range(height)]


def _line_of_blocks(pixels: bytes, width: int) -> str:
    line = []
    for column in range(width):
        upper, lower = (pixels[start : start + 3] for start in (3 * column, 3 * (width + column)))
        front, back = (";".join(map(str, pixel)) for pixel in (upper, lower))
        line.append(f"\x1b[38;2;{front};48;2;{back}m{_UPPER_HALF}")
    return "".join(line) + _RESET
