"""`AVDecoder`: audio and video of a sample, decoded on request, as Megatron-Energon's class of the same name."""

from __future__ import annotations

import importlib
import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal, TypeAlias

import numpy as np

from fastpack.errors import MediaError, MissingExtra
from fastpack.webdataset.av_container import (
    AudioSamples,
    ByteBudget,
    VideoFrames,
    first_stream,
    import_av,
    media_errors,
    open_container,
)

MAX_DECODED_BYTES = 1 << 34  # of one call: 16 GiB are 13 minutes of 640 x 360 at 30 frames a second
AV_EXTENSIONS = frozenset(("mp4", "avi", "mov", "webm", "mkv", "flac", "mp3", "wav", "flv"))
AV_MODES = ("AVDecoder", "torch", "pyav")

Range: TypeAlias = tuple[float, float]
Size: TypeAlias = tuple[int, int]  # width, height
_WHOLE: Range = (0, float("inf"))


@dataclass(slots=True, kw_only=True)
class AVData:
    """Clips of video, uint8 [frames, 3, height, width], and of audio, [channels, samples]; their times in seconds."""

    video_clips: list[Any] = field(default_factory=list)
    video_timestamps: list[Range] = field(default_factory=list)
    audio_clips: list[Any] = field(default_factory=list)
    audio_timestamps: list[Range] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class AVMetadata:
    """Facts about audio and video, None where they are not there or were not asked for; durations in seconds."""

    video_duration: float | None = None
    video_num_frames: int | None = None
    video_fps: float | None = None
    video_width: int | None = None
    video_height: int | None = None
    audio_duration: float | None = None
    audio_channels: int | None = None
    audio_sample_rate: int | None = None
    audio_num_samples: int | None = None


class AVDecoder:
    """Decode clips of a media file in memory.

    Parameters
    ----------
    stream
        The file: bytes, or a seekable binary stream.
    suppress_warnings
        Do not warn where the container can only be sought in another unit than the one asked for.
    tensors
        Return torch tensors instead of NumPy arrays (extra `torch`).
    max_decoded_bytes
        How many bytes one call may decode; MediaError beyond.

    Notes
    -----
    Errors in the media are MediaError (a ValueError). Pickles with the bytes of the file.
    """

    def __init__(
        self,
        stream: BinaryIO | bytes,
        suppress_warnings: bool = False,
        *,
        tensors: bool = False,
        max_decoded_bytes: int = MAX_DECODED_BYTES,
    ) -> None:
        if isinstance(stream, io.TextIOBase):
            raise ValueError("a stream of text: open the media file in binary mode")
        import_av()
        self.stream: BinaryIO = io.BytesIO(stream) if isinstance(stream, bytes) else stream
        self.suppress_warnings = suppress_warnings
        self._tensors, self._max_decoded_bytes = tensors, max_decoded_bytes
        self._array: Callable[[Any], Any] = _torch().from_numpy if tensors else _same

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_array"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._array = _torch().from_numpy if self._tensors else _same

    def __repr__(self) -> str:
        return f"AVDecoder(stream={self.stream!r})"

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        with media_errors(import_av()), open_container(self.stream) as container:
            yield container

    def get_video(self) -> AVData:
        """All frames of the video, without audio."""
        return self.get_clips(video_clip_ranges=[_WHOLE])

    def get_audio(self) -> AVData:
        """All samples of the audio."""
        return self.get_clips(audio_clip_ranges=[_WHOLE])

    def get_video_with_audio(self) -> AVData:
        """All frames and all samples."""
        return self.get_clips([_WHOLE], [_WHOLE])

    def get_frames(self, video_decode_audio: bool = False) -> AVData | None:
        """All of a video (with its audio if `video_decode_audio`), or of an audio file; None for other containers."""
        with self._opened() as container:
            names = set(container.format.name.split(","))
        if names & {"mov", "mp4", "matroska", "webm", "avi"}:
            return self.get_video_with_audio() if video_decode_audio else self.get_video()
        return self.get_audio() if names & {"flac", "mp3", "wav"} else None

    def get_clips(
        self,
        video_clip_ranges: Sequence[Range] | None = None,
        audio_clip_ranges: Sequence[Range] | None = None,
        video_unit: Literal["frames", "seconds"] = "seconds",
        audio_unit: Literal["samples", "seconds"] = "seconds",
        video_out_frame_size: Size | None = None,
    ) -> AVData:
        """Clips of the video and of the audio; see `get_video_clips` and `get_audio_clips`."""
        found = AVData()
        if video_clip_ranges is not None:
            found.video_clips, found.video_timestamps = self.get_video_clips(
                video_clip_ranges, video_unit, video_out_frame_size
            )
        if audio_clip_ranges is not None:
            found.audio_clips, found.audio_timestamps = self.get_audio_clips(audio_clip_ranges, audio_unit)
        return found

    def get_video_clips(
        self,
        video_clip_ranges: Sequence[Range],
        video_unit: Literal["frames", "seconds"] = "seconds",
        video_out_frame_size: Size | None = None,
    ) -> tuple[list[Any], list[Range]]:
        """Decode ranges (start, end) of the video, both ends included.

        Returns the clips, uint8 [frames, 3, height, width], and (start, end) of each in seconds. Ranges after the end
        of the video give no clip. video_out_frame_size: (width, height) to scale frames to.
        """
        if video_unit not in ("frames", "seconds"):
            raise ValueError(f"video_unit is {video_unit!r}: choose frames or seconds")
        with self._opened() as container:
            video = VideoFrames(container, ByteBudget(self._max_decoded_bytes))
            is_exact = video.is_sought_by in (video_unit, "either") or (video_unit == "seconds" and video.is_even)
            if not (is_exact or self.suppress_warnings):
                text = f"this container is sought by {video.is_sought_by}: clips in {video_unit} may be a frame off"
                warnings.warn(text, RuntimeWarning, stacklevel=2)
            clips = [video.clip(start, end, video_unit, video_out_frame_size) for start, end in video_clip_ranges]
        return self._split(clips)

    def get_audio_clips(
        self, audio_clip_ranges: Sequence[Range], audio_unit: Literal["samples", "seconds"] = "seconds"
    ) -> tuple[list[Any], list[Range]]:
        """Decode ranges (start, end) of the audio, the end excluded.

        Returns the clips, [channels, samples] in the stored dtype, and (start, end) of each in seconds. Ranges after
        the end of the audio give no clip.
        """
        if audio_unit not in ("samples", "seconds"):
            raise ValueError(f"audio_unit is {audio_unit!r}: choose samples or seconds")
        with self._opened() as container:
            audio = AudioSamples(container, ByteBudget(self._max_decoded_bytes))
            scale = audio.rate if audio_unit == "samples" else 1
            clips = [audio.clip(start / scale, end / scale) for start, end in audio_clip_ranges]
        return self._split(clips)

    def _split(self, clips: Sequence[Any]) -> tuple[list[Any], list[Range]]:
        there = [clip for clip in clips if clip is not None]
        return [self._array(values) for values, _ in there], [times for _, times in there]

    def has_video_stream(self) -> bool:
        """Whether there is video."""
        with self._opened() as container:
            return bool(container.streams.video)

    def has_audio_stream(self) -> bool:
        """Whether there is audio."""
        with self._opened() as container:
            return bool(container.streams.audio)

    def get_video_fps(self) -> float | None:
        """Frames per second."""
        return self.get_metadata(get_video_duration=False, get_video_frame_count=False, get_audio=False).video_fps

    def get_video_duration(self, get_frame_count: bool = False) -> tuple[float | None, int | None]:
        """Seconds, and the number of frames if `get_frame_count`."""
        found = self.get_metadata(get_video_frame_count=get_frame_count, get_audio=False)
        return found.video_duration, found.video_num_frames

    def get_audio_duration(self) -> float | None:
        """Seconds."""
        return self.get_metadata(get_video=False).audio_duration

    def get_audio_samples_per_second(self) -> int | None:
        """The sample rate."""
        return self.get_metadata(get_video=False, get_audio_duration=False).audio_sample_rate

    def get_metadata(
        self,
        get_video: bool = True,
        get_video_duration: bool = True,
        get_video_frame_count: bool = True,
        get_video_frame_size: bool = True,
        get_audio: bool = True,
        get_audio_duration: bool = True,
        get_audio_num_samples: bool = False,
    ) -> AVMetadata:
        """Facts about the media: from headers, else from packets; the number of audio samples by decoding."""
        found = AVMetadata()
        with self._opened() as container:
            video, audio = first_stream(container, "video"), first_stream(container, "audio")
            if get_video and video is not None:
                _measure_video(container, video, found, get_video_duration, get_video_frame_count, get_video_frame_size)
            if get_audio and audio is not None:
                _measure_audio(container, audio, found, get_audio_duration, get_audio_num_samples)
        return found

    def check(self) -> None:
        """Decode the first frame of each stream of audio and video; MediaError for damage, or where there is none."""
        with self._opened() as container:
            check_container(container)


def check_container(container: Any) -> None:
    """See `AVDecoder.check`."""
    found = [first_stream(container, "video"), first_stream(container, "audio")]
    streams = [stream for stream in found if stream is not None]
    if not streams:
        raise MediaError("media without audio and video")
    for stream in streams:
        container.seek(0)
        if next(container.decode(stream), None) is None:
            raise MediaError(f"a {stream.type} stream without a frame")


def _measure_video(container: Any, stream: Any, found: AVMetadata, duration: bool, count: bool, size: bool) -> None:
    ticks = stream.duration
    if count or (ticks is None and duration):
        packets = [packet for packet in container.demux(stream) if packet.pts is not None]
        found.video_num_frames = len(packets)
        if ticks is None and packets and packets[-1].duration is not None:
            ticks = packets[-1].pts + packets[-1].duration
    found.video_duration = _seconds(stream, ticks)
    if stream.average_rate is not None:
        found.video_fps = float(stream.average_rate)
    elif found.video_num_frames and found.video_duration:
        found.video_fps = found.video_num_frames / found.video_duration
    if size:
        container.seek(0)
        first = next(container.decode(stream), stream)
        found.video_width, found.video_height = first.width, first.height


def _measure_audio(container: Any, stream: Any, found: AVMetadata, duration: bool, count: bool) -> None:
    found.audio_sample_rate, found.audio_channels = stream.sample_rate, stream.channels
    ticks = stream.duration
    if count:
        container.seek(0)
        found.audio_num_samples = 0
        for frame in container.decode(stream):
            found.audio_num_samples += frame.samples
            if frame.pts is not None:
                ticks = frame.pts + frame.duration
    elif ticks is None and duration:
        container.seek(0)
        packets = [packet for packet in container.demux(stream) if packet.pts is not None]
        if packets and packets[-1].duration is not None:
            ticks = packets[-1].pts + packets[-1].duration
    found.audio_duration = _seconds(stream, ticks)


def _seconds(stream: Any, ticks: int | None) -> float | None:
    return None if ticks is None else (ticks - (stream.start_time or 0)) * float(stream.time_base or 1)


def _same(values: Any) -> Any:
    return values


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra("torch", "torch", "audio and video as tensors (av_decode: torch)") from error


def get_clips_uniform(
    av_decoder: AVDecoder,
    clip_duration_seconds: float,
    num_clips: int,
    request_video: bool = False,
    request_audio: bool = False,
    video_out_frame_size: Size | None = None,
) -> AVData:
    """Clips of equal length at equal distances, from the start to the end; a length of 0 gives single frames."""
    if not (request_video or request_audio):
        raise ValueError("request_video or request_audio has to be true")
    durations = [av_decoder.get_video_duration()[0]] if request_video else []
    durations += [av_decoder.get_audio_duration()] if request_audio else []
    known = [duration for duration in durations if duration is not None]
    if len(known) < len(durations):
        raise ValueError("media without a known duration, or without the stream that was requested")
    first, last = 0.0, min(known) - clip_duration_seconds
    if clip_duration_seconds == 0:
        fps = av_decoder.get_video_fps()
        if not fps:
            raise ValueError("single frames need video with a frame rate")
        first, last = 0.5 / fps, min(known) - 0.5 / fps
    starts = [float(start) for start in np.linspace(first, last, num_clips)]
    clips = [(start, start + clip_duration_seconds) for start in starts]
    return av_decoder.get_clips(
        video_clip_ranges=clips if request_video else None,
        audio_clip_ranges=clips if request_audio else None,
        video_out_frame_size=video_out_frame_size,
    )


def get_single_frames_uniform(
    av_decoder: AVDecoder,
    num_frames: int,
    *,
    video_out_frame_size: Size | None = None,
    return_timestamps: bool = False,
) -> Any:
    """Frames [n, 3, height, width] at equal distances; with `return_timestamps` also when each begins, in seconds."""
    found = get_clips_uniform(av_decoder, 0, num_frames, request_video=True, video_out_frame_size=video_out_frame_size)
    if not found.video_clips:
        raise ValueError("no video frames were found")
    is_array = isinstance(found.video_clips[0], np.ndarray)
    frames = np.concatenate(found.video_clips) if is_array else _torch().cat(found.video_clips)
    return (frames, [start for start, _ in found.video_timestamps]) if return_timestamps else frames
