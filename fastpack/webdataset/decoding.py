"""Decode the bytes of a stored field by the last extension of its name; the kinds that Energon supports."""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Callable
from typing import Any

import orjson

from fastpack.errors import UntrustedCode, import_extra
from fastpack.webdataset.av_container import open_container
from fastpack.webdataset.av_decoder import AV_EXTENSIONS, AV_MODES, AVDecoder
from fastpack.webdataset.av_decoder import MAX_DECODED_BYTES as MAX_AV_BYTES
from fastpack.webdataset.images import IMAGE_EXTENSIONS, IMAGE_MODES, decode_image
from fastpack.webdataset.tenbin import decode_tenbin
from fastpack.webdataset.unpacking import MAX_DECODED_BYTES, decode_npy, decode_npz, gunzip

# orjson turns integers beyond 64 bits into floats; Python's json, which Energon uses, keeps them.
_LONG_NUMBER = re.compile(rb"[0-9]{19}")


class Decoder:
    """Decode stored fields as Energon's default decoder does; picklable.

    Parameters
    ----------
    image_decode
        What images become, one of `IMAGE_MODES`: ``torchrgb`` (default) is float32 [3, H, W] from 0 to 1, ``torchrgb8``
        uint8; ``rgb`` and ``rgb8`` are [H, W, 3]; with ``l`` or ``rgba`` instead of ``rgb`` likewise ([H, W] for
        ``l``); ``pil``, ``pill`` and ``pilrgba`` are Pillow images. Arrays are NumPy arrays, also for names with
        ``torch``.
    av_decode
        What audio and video become: ``"AVDecoder"`` (default), which decodes on request; ``"torch"``, an `AVData` with
        all frames or samples as tensors (extra ``torch``), None for flv; ``"pyav"``, an open container of the package
        av.
    video_decode_audio
        With ``"torch"``: also decode the audio of videos.
    trust_code
        Decode fields that run code (pkl, pickle, pyd, pth).
    max_decoded_bytes
        Maximum size of a decoded field. The default is 1 GiB, for one call on audio and video 16 GiB.

    Raises
    ------
    ValueError
        If a mode is unknown.

    Examples
    --------
    >>> from fastpack.webdataset.decoding import Decoder
    >>> decode = Decoder()
    >>> decode("txt", b"hello"), decode("meta.json", b'{"n": 1}'), decode("bin", b"as it is")
    ('hello', {'n': 1}, b'as it is')
    """

    tensors = False  # whether an AVDecoder returns tensors

    def __init__(
        self,
        image_decode: str = "torchrgb",
        *,
        av_decode: str = "AVDecoder",
        video_decode_audio: bool = False,
        trust_code: bool = False,
        max_decoded_bytes: int | None = None,
    ) -> None:
        if image_decode not in IMAGE_MODES:
            raise ValueError(f"unknown image_decode {image_decode!r}: choose one of {', '.join(IMAGE_MODES)}")
        if av_decode not in AV_MODES:
            raise ValueError(f"unknown av_decode {av_decode!r}: choose one of {', '.join(AV_MODES)}")
        self.image_decode, self.trust_code = image_decode, trust_code
        self.av_decode, self.video_decode_audio = av_decode, bool(video_decode_audio)
        self.max_bytes = MAX_DECODED_BYTES if max_decoded_bytes is None else max_decoded_bytes
        self.max_av_bytes = MAX_AV_BYTES if max_decoded_bytes is None else max_decoded_bytes

    def __call__(self, field: str, data: bytes) -> Any:
        """Decode a field named such as ``seg.png`` or ``json.gz``; bytes of unknown kinds are returned unchanged.

        Kinds: txt text transcript -> str; cls cls2 index inx id -> int; json jsn; npy -> array, npz -> {name: array},
        neither with Python objects; mp msg (extra msgpack); cbor (extra cbor); ten tb -> arrays; images (extra media)
        and mp4 avi mov webm mkv flac mp3 wav flv (extra av), whose extensions are case-insensitive. ``.gz`` is unpacked
        first.

        Parameters
        ----------
        field
            The name of the field.
        data
            Its bytes.

        Returns
        -------
        object
            The value.

        Raises
        ------
        UntrustedCode
            For pkl, pickle, pyd and pth without `trust_code`.
        MissingExtra
            If a package is missing.
        TooLarge
            If the value exceeds `max_decoded_bytes`. It is a ValueError.
        ValueError
            If the data are invalid; for images also OSError.
        """
        if field == "gz" or field.endswith(".gz"):
            field, data = field[:-3], gunzip(data, self.max_bytes)
        kind = field.rpartition(".")[2]
        decode = _DECODERS.get(kind)
        if decode is not None:
            return decode(data)
        if kind in _ARRAYS:
            return _ARRAYS[kind](data, self.max_bytes)
        if kind.lower() in IMAGE_EXTENSIONS:
            return self.image(data)
        if kind.lower() in AV_EXTENSIONS:
            return self.audio_or_video(data)
        if kind not in _RUNNING:
            return data
        if not self.trust_code:
            raise UntrustedCode(
                f"decoding a field of kind {kind!r} runs the code that it contains. If you trust its author, "
                "pass trust_code=True; raw=True returns the bytes"
            )
        return _RUNNING[kind](data)

    def image(self, data: bytes) -> Any:
        """Decode an image."""
        return decode_image(data, self.image_decode, self.max_bytes)

    def audio_or_video(self, data: bytes) -> Any:
        """Decode audio or video."""
        if self.av_decode == "pyav":
            return open_container(io.BytesIO(data))
        is_eager = self.av_decode == "torch"
        decoder = AVDecoder(data, tensors=self.tensors or is_eager, max_decoded_bytes=self.max_av_bytes)
        return decoder.get_frames(self.video_decode_audio) if is_eager else decoder


def _json(data: bytes) -> Any:
    """Return what json.loads returns, five times as fast."""
    if not _LONG_NUMBER.search(data):
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            pass  # NaN, other encodings, lone surrogates: Python's json accepts them
    return json.loads(data)


def _msgpack(data: bytes) -> Any:
    return import_extra("msgpack", "msgpack", "decoding of .mp and .msg fields").unpackb(data)


def _cbor(data: bytes) -> Any:
    cbor2 = import_extra("cbor2", "cbor", "decoding of .cbor fields")
    try:
        return cbor2.loads(data)
    except ArithmeticError as error:  # raised by decimal, if cbor2 5.4 builds a number beyond its range
        raise ValueError(f"a CBOR number out of range ({type(error).__name__})") from error


def _torch_load(data: bytes) -> Any:
    torch = import_extra("torch", "torch", "decoding of .pth fields")
    return torch.load(io.BytesIO(data), weights_only=False, map_location="cpu")


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("txt", "text", "transcript"), bytes.decode),
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id"), int),
    **dict.fromkeys(("json", "jsn"), _json),
    **dict.fromkeys(("ten", "tb"), decode_tenbin),
    **dict.fromkeys(("mp", "msg"), _msgpack),
    "cbor": _cbor,
}
_ARRAYS: dict[str, Callable[[bytes, int], Any]] = {"npy": decode_npy, "npz": decode_npz}
_RUNNING: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("pkl", "pickle", "pyd"), pickle.loads),
    "pth": _torch_load,
}
