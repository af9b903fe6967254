"""Images -> arrays, in the seventeen ways Energon names."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import MissingExtra
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
    """A Pillow image whose pixels are not decoded yet; TooLarge for one that would take more than `max_bytes`.

    Raises MissingExtra without Pillow, OSError, ValueError or SyntaxError for what is no image, Pillow's
    DecompressionBombError above 179 million pixels.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        if error.name != "PIL":
            raise
        raise MissingExtra("pillow", "media", "decoding of images") from error
    image = Image.open(io.BytesIO(data))
    if (n_bytes := image.width * image.height * bytes_per_pixel) > max_bytes:
        raise TooLarge(f"an image of {image.width} x {image.height} pixels, {n_bytes:,} bytes", max_bytes)
    return image


def decode_image(data: bytes, mode: str, max_bytes: int = MAX_DECODED_BYTES) -> Any:
    """An image of any kind Pillow reads, as `mode` (one of IMAGE_MODES) says; see `decoding.Decoder`.

    Arrays are C-contiguous and the caller's own. Raises what `open_image` raises.
    """
    colours, planes_first, scaled = _ARRAYS[mode] if mode in _ARRAYS else (_PICTURES[mode], False, False)
    with open_image(data, len(colours) * (4 if scaled else 1), max_bytes) as image:
        picture = image.convert(colours)  # a copy that is decoded, also of an image of these colours
    if mode in _PICTURES:
        return picture
    pixels: npt.NDArray[np.uint8] = np.asarray(picture)
    if planes_first and pixels.ndim == 3:
        pixels = pixels.transpose(2, 0, 1)
    out = np.empty(pixels.shape, np.float32 if scaled else np.uint8)
    out[...] = pixels
    if scaled:
        out /= np.float32(255)  # apart from the widening, which is in another order: a third faster
    return out
