"""The first samples of a WebDataset for a person: keys, parts, texts, and pictures made of characters."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Literal

from fastpack.datasets.webdataset.dataset import WebDataset
from fastpack.datasets.webdataset.images import IMAGE_EXTENSIONS
from fastpack.errors import MissingExtra
from fastpack.files import PathLike
from fastpack.views.shown import shown_text

MAX_CHARACTERS = 600  # of a text
Colours = Literal["blocks", "letters"]
_LETTERS = " .:-=+*#%@"  # from dark to bright
_UPPER_HALF = "\N{UPPER HALF BLOCK}"
_RESET = "\x1b[0m"


def preview(path: PathLike, split_part: str | None = None, start: int = 0) -> Iterator[dict[str, Any]]:
    """Samples from number `start` on: {"index", "key", "parts": [{"name", "bytes", "kind", "data", ...}]}.

    data: the bytes of a part. kind "text": `text`, shortened, nothing in it that moves a terminal's cursor; "image":
    `width`, `height`, `mode` and `format`, or `error` where it cannot be opened; "bytes" otherwise. path, split_part:
    as `WebDataset` has them.
    Raises what that raises, and ValueError where there is no sample `start`.
    """
    dataset = WebDataset(path, split_part, raw=True, io="pread")
    try:
        if start and start >= len(dataset):
            raise ValueError(f"{path}: there is no sample {start}: there are {len(dataset)}, counted from 0")
        for index in range(start, len(dataset)):
            parts = dataset[index]
            key = parts.pop("__key__")
            described = [{"name": name, "bytes": len(data), **_described(name, data)} for name, data in parts.items()]
            yield {"index": index, "key": key, "parts": described}
    finally:
        dataset.close()


def _described(name: str, data: bytes) -> dict[str, Any]:
    kind = name.rpartition(".")[2].lower()
    if kind in IMAGE_EXTENSIONS:
        return {"kind": "image", **_about_image(data), "data": data}
    text = _text(data)
    return {"kind": "bytes", "data": data} if text is None else {"kind": "text", "text": text, "data": data}


def _text(data: bytes) -> str | None:
    """Text that can be shown, None where the bytes are none."""
    start = data[: 4 * MAX_CHARACTERS]
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        if len(start) == len(data) or error.start < len(start) - 3:
            return None
        text = start[: error.start].decode()
    if "\0" in text:
        return None
    shown = shown_text(text[:MAX_CHARACTERS])
    return f"{shown}..." if len(start) < len(data) or len(text) > MAX_CHARACTERS else shown


def _about_image(data: bytes) -> dict[str, Any]:
    try:
        with _opened(data) as image:
            return {"width": image.width, "height": image.height, "mode": image.mode, "format": image.format}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}" if not isinstance(error, MissingExtra) else str(error)}


def draw(data: bytes, columns: int, rows: int, how: Colours) -> list[str]:
    """An image as at most `rows` lines of `columns` characters: coloured half blocks, or letters by brightness.

    Raises MissingExtra without Pillow, and what Pillow raises for what is no image.
    """
    with _opened(data) as image:
        image.draft("RGB", (2 * columns, 4 * rows))  # a JPEG is decoded in an eighth of its size, where that will do
        picture = image.convert("RGB")
    # A character is twice as high as it is wide: half blocks make square pixels of it, letters do not.
    scale = min(columns / picture.width, 2 * rows / picture.height)
    width, height = max(1, round(picture.width * scale)), max(1, round(picture.height * scale / 2))
    if how == "letters":
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


def _opened(data: bytes) -> Any:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        if error.name != "PIL":
            raise
        raise MissingExtra("pillow", "media", "showing images") from error
    return Image.open(io.BytesIO(data))
