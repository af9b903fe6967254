"""Read frames of video and samples of audio from media in memory with PyAV, by position or time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from fastpack.errors import MediaError, MissingExtra, import_extra

# Playlists name other files and addresses. No protocol is called "none", so nothing else is opened.
_OPTIONS = {"protocol_whitelist": "none"}
_BY_FRAMES, _BY_TIME = {"mov", "mp4"}, {"matroska", "webm"}  # the unit in which Energon seeks

Array = npt.NDArray[Any]
Clip = tuple[Array, tuple[float, float]]  # frames or samples, and their (start, end) in seconds


_OLDEST_AV = 18  # earlier versions crash when they open a file object, or lack the duration of a frame


def import_av(purpose: str = "decoding of audio and video") -> Any:
    """Return the package `av`. Raises MissingExtra if it is missing or older than version 18."""
    av = import_extra("av", "av", purpose)
    if _major_version(av) < _OLDEST_AV:
        raise MissingExtra(f"av>={_OLDEST_AV}", "av", purpose)
    return av


def _major_version(av: Any) -> int:
    return int(av.__version__.split(".")[0])


def _metadata_options(av: Any) -> dict[str, str]:
    """Return options of `av.open` for metadata that is not UTF-8; from 19 on it is kept as surrogates."""
    return {"metadata_errors": "replace"} if _major_version(av) < 19 else {}


def open_container(stream: BinaryIO, *, any_tags: bool = True) -> Any:
    """Open a PyAV container that decodes in the calling thread only. Raises MediaError for invalid files.

    any_tags: accept titles and other tags that are not UTF-8; False: UnicodeDecodeError for them before version 19.
    """
    av = import_av()
    with media_errors(av):
        stream.seek(0)
        container = av.open(stream, "r", options=dict(_OPTIONS), **(_metadata_options(av) if any_tags else {}))
        for one in container.streams:
            if one.codec_context is not None:  # threads deadlock after a fork
                one.codec_context.thread_type = "NONE"
        return container


def first_stream(container: Any, kind: str) -> Any:
    """Return the first "video" or "audio" stream, or None. Raises MediaError for an unknown codec."""
    stream = next(iter(getattr(container.streams, kind)), None)
    if stream is not None and stream.codec_context is None:
        raise MediaError(f"a {kind} stream that cannot be decoded: its codec is unknown")
    return stream


@contextmanager
def media_errors(av: Any) -> Iterator[None]:
    """Convert FFmpeg's errors to MediaError."""
    try:
        yield
    except av.error.FFmpegError as error:
        reason = f"{type(error).__name__}: {error.strerror or error}"
        raise MediaError(f"audio or video that cannot be decoded ({reason})") from error


@contextmanager
def opened_container(stream: BinaryIO, *, any_tags: bool = True) -> Iterator[Any]:
    """Open a container, convert all errors of FFmpeg to MediaError, and close it."""
    with media_errors(import_av()), open_container(stream, any_tags=any_tags) as container:
        yield container


class ByteBudget:
    """The number of bytes that may still be decoded. Raises MediaError beyond."""

    def __init__(self, max_bytes: int) -> None:
        self._left = self._max = max_bytes

    def take(self, n_bytes: int) -> None:
        """Count bytes that are about to be decoded."""
        self._left -= n_bytes
        if self._left < 0:
            raise MediaError(
                f"audio or video that decodes to more than {self._max:,} bytes: read shorter clips, or raise "
                "max_decoded_bytes"
            )


class VideoFrames:
    """The first video stream of an open container. Frames are numbered from 0 in presentation order.

    seek_unit: "frames", "seconds" or "either", see `clip`. is_even: whether frame i is presented at i / average rate.
    """

    def __init__(self, container: Any, budget: ByteBudget) -> None:
        self._container, self._stream, self._budget = container, first_stream(container, "video"), budget
        if self._stream is None:
            raise MediaError("video was requested, but the file has no video stream")
        if not self._stream.average_rate:
            raise MediaError("a video stream without a frame rate")
        names = set(container.format.name.split(","))
        self.seek_unit = "frames" if names & _BY_FRAMES else "seconds" if names & _BY_TIME else "either"
        self._list_frames()

    def _list_frames(self) -> None:
        """Read all packets without decoding: start and end of each frame, and the keyframes."""
        rows: list[tuple[int, int]] = []
        keys: list[int] = []
        for packet in self._container.demux(self._stream):
            if packet.size and not packet.is_discard:
                if packet.pts is None:  # such as B-frames in AVI: decode to find out
                    keys = []
                    self._container.seek(0)
                    rows = [(_ticks(frame), frame.duration or 0) for frame in self._container.decode(self._stream)]
                    break
                rows.append((packet.pts, packet.duration or 0))
                if packet.is_keyframe:
                    keys.append(packet.pts)
        rows.sort()
        self._starts = [start for start, _ in rows]
        step = float(1 / self._stream.average_rate / self._stream.time_base)
        self._ends = [start + (length or round(step) or 1) for start, length in rows]
        even = step * np.arange(len(rows))
        self.is_even = bool(np.all(np.abs(np.array(self._starts) - even) < max(1, step / 2)))
        self._keys = sorted(keys)

    def clip(self, start: float, end: float, unit: str, size: tuple[int, int] | None) -> Clip | None:
        """Decode frames uint8 [n, 3, height, width] from `start` to `end`, inclusive; None after the end of the video.

        unit: "frames" or "seconds". As in Energon, seconds are converted to frame numbers by the average rate for MP4
        and MOV, and frame numbers to seconds for Matroska and WebM. size: (width, height), None for the original.
        """
        bounds = self._bounds(start, end, unit)
        if bounds is None:
            return None
        frames, times = [], []
        for frame in self._decode(*bounds):
            width, height = size or (frame.width, frame.height)
            self._budget.take(3 * width * height)
            scaled = frame.reformat(
                width=width, height=height, format="rgb24", interpolation="BILINEAR" if size else None
            )
            frames.append(scaled.to_ndarray())
            times.append((frame.pts, frame.pts + (frame.duration or 0)))
        if not frames:
            raise MediaError(f"frames {bounds[0]} to {bounds[1]} of the video are missing")
        if len({frame.shape for frame in frames}) > 1:
            raise MediaError("the frames of the video differ in size: pass video_out_frame_size")
        base = self._stream.time_base
        return np.stack(frames).transpose(0, 3, 1, 2), (float(times[0][0] * base), float(times[-1][1] * base))

    def _bounds(self, start: float, end: float, unit: str) -> tuple[int, int] | None:
        """Return the first and the last frame of a range."""
        if not 0 <= start <= end:
            raise ValueError(f"the video clip from {start} to {end}: expected 0 <= start <= end")
        rate, base, last = self._stream.average_rate, self._stream.time_base, len(self._starts) - 1
        by_frames = unit == "frames" if self.seek_unit == "either" else self.seek_unit == "frames"
        if by_frames:
            scale = 1 if unit == "frames" else rate
            first, final = int(start * scale), last if math.isinf(end) else min(int(end * scale), last)
        else:
            scale = 1 / base if unit == "seconds" else 1 / rate / base
            first = bisect_right(self._ends, int(start * scale))
            final = last if math.isinf(end) else min(bisect_right(self._ends, int(end * scale)), last)
        return (first, max(first, final)) if first <= last else None

    def _decode(self, first: int, last: int) -> Iterator[Any]:
        """Yield the frames with these numbers."""
        begin, end = self._starts[first], self._starts[last]
        place = bisect_right(self._keys, begin) - 1
        # The container's index is in decoding order and may seek too far: then decode from the start.
        seeks = [*([(self._keys[place], self._stream)] if place >= 0 else []), (0, None)]
        for frame in _decode_from(self._container, self._stream, seeks, lambda frame: _ticks(frame) <= begin):
            if _ticks(frame) > end:
                break
            if frame.pts >= begin:
                yield frame


class AudioSamples:
    """The first audio stream of an open container."""

    def __init__(self, container: Any, budget: ByteBudget) -> None:
        stream = first_stream(container, "audio")
        if stream is None:
            raise MediaError("audio was requested, but the file has no audio stream")
        self._container, self._stream, self._budget = container, stream, budget
        self.rate: int = stream.sample_rate
        self._begin = float((stream.start_time or 0) * stream.time_base)
        self._is_at_begin = True
        if not self.rate:
            raise MediaError("an audio stream without a sample rate")

    def clip(self, start: float, end: float) -> Clip | None:
        """Decode samples [channels, n] from `start` to `end` seconds; None after the end of the audio."""
        if not 0 <= start <= end:
            raise ValueError(f"the audio clip from {start} to {end}: expected 0 <= start <= end")
        wanted = None if math.isinf(end) else int((end - start) * self.rate + 0.5)
        pieces: list[Array] = []
        begin, reached, n_samples = 0.0, 0.0, 0
        for frame in self._frames_from(start):
            time = _seconds(frame)
            reached = time + (float(frame.duration * frame.time_base) if frame.duration else frame.samples / self.rate)
            samples = _samples(frame)
            if not pieces:
                skipped = int((start - time) * self.rate + 0.5) if time < start else 0
                if skipped >= samples.shape[1]:
                    continue
                samples, begin = samples[:, skipped:], max(start, time)
                if wanted is not None:  # the audio starts after the clip
                    wanted = max(0, wanted - max(0, int((time - start) * self.rate + 0.5)))
            samples = samples if wanted is None else samples[:, : wanted - n_samples]
            self._budget.take(samples.nbytes)
            pieces.append(samples)
            n_samples += samples.shape[1]
            if wanted is not None and n_samples >= wanted:
                reached = end
                break
        return (np.concatenate(pieces, axis=1), (begin, reached)) if pieces else None

    def _frames_from(self, start: float) -> Iterator[Any]:
        """Yield frames from the one that contains the sample at `start`, or an earlier one."""
        if self._is_at_begin and start <= self._begin:  # FFmpeg 8.1 loses the first frame of AAC after a seek to 0
            self._is_at_begin = False
            return iter(self._container.decode(self._stream))
        self._is_at_begin = False
        wanted = int(start * 1_000_000)  # microseconds
        # The first seek may use a position of the video that is too late. A second seek to the start would make codecs
        # such as Opus emit the samples that they skip at the start.
        seeks = [(wanted, None), (0, None)] if start > self._begin else [(wanted, None)]
        return _decode_from(self._container, self._stream, seeks, lambda frame: _seconds(frame) <= start)


def _decode_from(
    container: Any, stream: Any, seeks: Sequence[tuple[int, Any]], is_early: Callable[[Any], bool]
) -> Iterator[Any]:
    """Decode from the first of the positions (offset, stream whose unit it has) with an early frame, or the last."""
    frames: Iterator[Any] = iter(())
    first: Any = None
    for offset, unit_of in seeks:
        container.seek(offset, stream=unit_of)
        frames = container.decode(stream)
        first = next(frames, None)
        if first is not None and is_early(first):
            break
    return frames if first is None else chain((first,), frames)


def _ticks(frame: Any) -> int:
    if frame.pts is None:
        raise MediaError("a frame of the audio or video has no timestamp")
    ticks: int = frame.pts
    return ticks


def _seconds(frame: Any) -> float:
    return float(_ticks(frame) * frame.time_base)


def _samples(frame: Any) -> Array:
    values: Array = frame.to_ndarray()
    return values if frame.format.is_planar else values.reshape(frame.samples, -1).T
