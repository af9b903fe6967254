"""Small audio and video files with distinguishable frames and samples, made by PyAV."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import av
import numpy as np

FPS, N_FRAMES, WIDTH, HEIGHT = 25, 50, 64, 48
RATE, N_SAMPLES = 16_000, 32_000
_BITS = 8

# name: container, video codec, audio codec; duration: two seconds
KINDS = {
    "mp4": ("mp4", "mpeg4", "aac"),
    "mov": ("mov", "mpeg4", "aac"),
    "mkv": ("matroska", "mpeg4", "flac"),
    "avi": ("avi", "mpeg4", "pcm_s16le"),
    "flv": ("flv", "flv1", None),
    "wav": ("wav", None, "pcm_s16le"),
    "flac": ("flac", None, "flac"),
    "mp3": ("mp3", None, "libmp3lame"),
}


def media(
    name: str, *, times: Sequence[int] = range(N_FRAMES), b_frames: int = 0, size: tuple[int, int] = (WIDTH, HEIGHT)
) -> bytes:
    """Return a file of one of KINDS. Frames encode their numbers in bars (`frame_numbers`); the audio is `sound()`.

    times: presentation times, in frames.
    """
    container, video, audio = KINDS[name]
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        pictures = _video_stream(file, video, b_frames, size) if video else None
        sounds: Any = file.add_stream(audio, rate=RATE, layout="stereo") if audio else None
        if pictures is not None:
            for i, time in enumerate(times):
                bars = np.repeat([255 * (i >> bit & 1) for bit in range(_BITS)], size[0] // _BITS).astype(np.uint8)
                picture = np.ascontiguousarray(np.broadcast_to(bars[None, :, None], (size[1], size[0], 3)))
                frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
                frame.pts, frame.time_base = time, Fraction(1, FPS)
                file.mux(pictures.encode(frame))
            file.mux(pictures.encode())
        if sounds is not None:
            _write_sound(file, sounds)
    return out.getvalue()


def _video_stream(file: Any, codec: str, b_frames: int, size: tuple[int, int]) -> Any:
    stream = file.add_stream(codec, rate=FPS)
    stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
    stream.codec_context.gop_size, stream.codec_context.max_b_frames = 12, b_frames
    return stream


def sound() -> np.ndarray[Any, np.dtype[np.int16]]:
    """Return int16 [2, N_SAMPLES]: a constant tone and a rising one."""
    times = np.arange(N_SAMPLES) / RATE
    waves = np.sin(2 * np.pi * np.stack([440 * times, 300 * times * times]))
    return (20_000 * waves).astype(np.int16)


def _write_sound(file: Any, stream: Any) -> None:
    samples = sound().T.reshape(1, -1)
    for start in range(0, N_SAMPLES, 1024):
        piece = np.ascontiguousarray(samples[:, 2 * start : 2 * (start + 1024)])
        frame = av.AudioFrame.from_ndarray(piece, format="s16", layout="stereo")
        frame.sample_rate, frame.pts, frame.time_base = RATE, start, Fraction(1, RATE)
        file.mux(stream.encode(frame))
    file.mux(stream.encode())


def frame_numbers(clip: Any) -> list[int]:
    """Return the numbers of frames of `media`, read from their bars."""
    bars = np.asarray(clip, np.float64).mean(axis=(1, 2)).reshape(len(clip), _BITS, -1).mean(axis=2)
    return (bars > 128).dot(1 << np.arange(_BITS)).tolist()
