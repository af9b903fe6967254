"""Measure audio and video: durations, sizes and rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastpack.errors import MediaError
from fastpack.webdataset.av_container import first_stream


@dataclass(slots=True, kw_only=True)
class AVMetadata:
    """Properties of audio and video; None if unknown or not requested.

    Parameters
    ----------
    video_duration, audio_duration
        Duration of the stream, in seconds.
    video_num_frames
        Number of frames.
    video_fps
        Average number of frames per second.
    video_width, video_height
        Size of a frame, in pixels.
    audio_channels
        Number of channels.
    audio_sample_rate
        Samples per second and channel.
    audio_num_samples
        Samples per channel.

    Examples
    --------
    >>> from fastpack.webdataset import AVMetadata
    >>> AVMetadata(audio_sample_rate=48000).audio_sample_rate
    48000
    """

    video_duration: float | None = None
    video_num_frames: int | None = None
    video_fps: float | None = None
    video_width: int | None = None
    video_height: int | None = None
    audio_duration: float | None = None
    audio_channels: int | None = None
    audio_sample_rate: int | None = None
    audio_num_samples: int | None = None


def check_container(container: Any) -> None:
    """See `AVDecoder.check`."""
    found = [first_stream(container, "video"), first_stream(container, "audio")]
    streams = [stream for stream in found if stream is not None]
    if not streams:
        raise MediaError("the file has neither audio nor video")
    for stream in streams:
        container.seek(0)
        if next(container.decode(stream), None) is None:
            raise MediaError(f"a {stream.type} stream without frames")


def measure_video(container: Any, stream: Any, found: AVMetadata, duration: bool, count: bool, size: bool) -> None:
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


def measure_audio(container: Any, stream: Any, found: AVMetadata, duration: bool, count: bool) -> None:
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
