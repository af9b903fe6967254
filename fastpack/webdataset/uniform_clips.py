"""Decode clips or single frames at equal distances."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastpack.webdataset.av_decoder import AVData, AVDecoder, Size, import_torch


def get_clips_uniform(
    av_decoder: AVDecoder,
    clip_duration_seconds: float,
    num_clips: int,
    request_video: bool = False,
    request_audio: bool = False,
    video_out_frame_size: Size | None = None,
) -> AVData:
    """Decode clips of equal duration at equal distances, from the start to the end.

    Parameters
    ----------
    av_decoder
        The media file.
    clip_duration_seconds
        Duration of each clip; 0: single frames.
    num_clips
        Number of clips.
    request_video, request_audio
        Which streams to decode; at least one is required.
    video_out_frame_size
        (width, height) to scale the frames to.

    Returns
    -------
    AVData
        The clips.

    Raises
    ------
    ValueError
        If no stream is requested, or its duration or frame rate is unknown.

    Examples
    --------
    >>> import io, wave
    >>> from fastpack.webdataset import AVDecoder, get_clips_uniform
    >>> file = io.BytesIO()
    >>> with wave.open(file, "wb") as audio:
    ...     audio.setparams((1, 2, 8000, 0, "NONE", ""))
    ...     audio.writeframes(bytes(2 * 8000))
    >>> data = get_clips_uniform(AVDecoder(file.getvalue()), 0.25, 2, request_audio=True)
    >>> data.audio_timestamps
    [(0.0, 0.25), (0.75, 1.0)]
    >>> [clip.shape for clip in data.audio_clips]
    [(1, 2000), (1, 2000)]
    """
    if not (request_video or request_audio):
        raise ValueError("request_video or request_audio must be true")
    durations = [av_decoder.get_video_duration()[0]] if request_video else []
    durations += [av_decoder.get_audio_duration()] if request_audio else []
    known = [duration for duration in durations if duration is not None]
    if len(known) < len(durations):
        raise ValueError("the duration is unknown, or the requested stream does not exist")
    first, last = 0.0, min(known) - clip_duration_seconds
    if clip_duration_seconds == 0:
        fps = av_decoder.get_video_fps()
        if not fps:
            raise ValueError("single frames need a video with a frame rate")
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
    """Decode single frames at equal distances.

    Parameters
    ----------
    av_decoder
        The media file.
    num_frames
        Number of frames.
    video_out_frame_size
        (width, height) to scale the frames to.
    return_timestamps
        Also return the start of each frame.

    Returns
    -------
    array or tuple
        Frames uint8 [n, 3, height, width]; with `return_timestamps` also a list of seconds.

    Raises
    ------
    ValueError
        If there are no frames, or the duration or frame rate is unknown.

    Examples
    --------
    >>> import io, av
    >>> from fastpack.webdataset import AVDecoder, get_single_frames_uniform
    >>> file = io.BytesIO()
    >>> with av.open(file, "w", format="mp4") as container:  # two seconds, 10 frames per second
    ...     stream = container.add_stream("mpeg4", rate=10)
    ...     stream.width, stream.height = 64, 32
    ...     for _ in range(20):
    ...         container.mux(stream.encode(av.VideoFrame(64, 32, "yuv420p")))
    ...     container.mux(stream.encode())
    >>> frames, starts = get_single_frames_uniform(AVDecoder(file.getvalue()), 2, return_timestamps=True)
    >>> frames.shape, starts
    ((2, 3, 32, 64), [0.0, 1.9])
    """
    found = get_clips_uniform(av_decoder, 0, num_frames, request_video=True, video_out_frame_size=video_out_frame_size)
    if not found.video_clips:
        raise ValueError("no video frames were found")
    is_array = isinstance(found.video_clips[0], np.ndarray)
    frames = np.concatenate(found.video_clips) if is_array else import_torch().cat(found.video_clips)
    return (frames, [start for start, _ in found.video_timestamps]) if return_timestamps else frames
