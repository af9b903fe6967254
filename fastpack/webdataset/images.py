"""Decode images to arrays, in Energon's seventeen modes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import import_extra
from fastpack.webdataset.unpacking import MAX_DECODED_BYTES, TooLarge

_EXTENSIONS = """
apng blp bmp bufr bw cur dcx dds dib emf eps fit fits flc fli ftc ftu gbr gif grib h5 hdf icb icns ico iim im j2c j2k
jfif jp2 jpc jpe jpeg jpf jpg jpx mpeg mpg msp pbm pcd pcx pgm png pnm ppm ps psd pxr ras rgb rgba sgi tga tif tiff vda
vst webp wmf xbm xpm
"""
IMAGE_EXTENSIONS = frozenset(_EXTENSIONS.split())
_ARRAYS = {
    f"{front}{colours}{depth}": (colours.upper(), front == "torch", not depth)
    for front in ("", "torch")
    for colours in ("l", "rgb", "rgba")
    for depth in ("8", "")
} | {"torch": ("RGB", True, True)}
_PICTURES = {"pill": "L", "pil": "RGB", "pilrgb": "RGB", "pilrgba": "RGBA"}
IMAGE_MODES = (*_ARRAYS, *_PICTURES)


def open_image(data: bytes, bytes_per_pixel: int, max_bytes: int = MAX_DECODED_BYTES) -> Any:
    """Open an image with Pillow, without decoding its pixels. Raises TooLarge if they exceed `max_bytes`.

    Raises MissingExtra without Pillow, OSError, ValueError or SyntaxError for invalid images, Pillow's
    DecompressionBombError above 179 million pixels.
    """
    import_extra("PIL", "media", "decoding of images", package="pillow")
    from PIL import Image

    image = Image.open(io.BytesIO(data))
    if (n_bytes := image.width * image.height * bytes_per_pixel) > max_bytes:
        raise TooLarge(f"an image of {image.width} x {image.height} pixels, {n_bytes:,} bytes", max_bytes)
    return image


def decode_image(data: bytes, mode: str, max_bytes: int = MAX_DECODED_BYTES) -> Any:
    """Decode an image of any kind that Pillow reads to `mode`, one of IMAGE_MODES; see `decoding.Decoder`.

    Arrays are new and C-contiguous. Raises as `open_image`.
    """
    colours, planes_first, scaled = _ARRAYS[mode] if mode in _ARRAYS else (_PICTURES[mode], False, False)
    with open_image(data, len(colours) * (4 if scaled else 1), max_bytes) as image:
        picture = image.convert(colours)  # a decoded copy, even if the mode is the same
    if mode in _PICTURES:
        return picture
    pixels: npt.NDArray[np.uint8] = np.asarray(picture)
    if planes_first and pixels.ndim == 3:
        pixels = pixels.transpose(2, 0, 1)
    out = np.empty(pixels.shape, np.float32 if scaled else np.uint8)
    out[...] = pixels
    if scaled:
        out /= np.float32(255)  # separate from the conversion, which has another memory order: a third faster
    return out
