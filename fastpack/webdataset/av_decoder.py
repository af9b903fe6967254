"""`AVDecoder`: decode audio and video on request, with the interface of Megatron-Energon's class of this name."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal, TypeAlias

from fastpack.errors import import_extra
from fastpack.webdataset.av_container import (
    AudioSamples,
    ByteBudget,
    VideoFrames,
    first_stream,
    import_av,
    opened_container,
)
from fastpack.webdataset.av_metadata import AVMetadata, check_container, measure_audio, measure_video

MAX_DECODED_BYTES = 1 << 34  # per call: 16 GiB are 13 minutes of 640 x 360 at 30 frames per second
AV_EXTENSIONS = frozenset(("mp4", "avi", "mov", "webm", "mkv", "flac", "mp3", "wav", "flv"))
AV_MODES = ("AVDecoder", "torch", "pyav")

Range: TypeAlias = tuple[float, float]
Size: TypeAlias = tuple[int, int]  # width, height
_WHOLE: Range = (0, float("inf"))


@dataclass(slots=True, kw_only=True)
class AVData:
    """Decoded clips of video and audio.

    Parameters
    ----------
    video_clips
        Arrays uint8 [frames, 3, height, width].
    video_timestamps
        (start, end) of each video clip, in seconds.
    audio_clips
        Arrays [channels, samples].
    audio_timestamps
        (start, end) of each audio clip, in seconds.

    Examples
    --------
    >>> from fastpack.webdataset import AVData
    >>> AVData(video_timestamps=[(0.0, 1.5)]).video_timestamps
    [(0.0, 1.5)]
    """

    video_clips: list[Any] = field(default_factory=list)
    video_timestamps: list[Range] = field(default_factory=list)
    audio_clips: list[Any] = field(default_factory=list)
    audio_timestamps: list[Range] = field(default_factory=list)


class AVDecoder:
    """Decode clips of a media file in memory (extra ``av``).

    Parameters
    ----------
    stream
        The file: bytes, or a seekable binary stream.
    suppress_warnings
        Do not warn if the container seeks in another unit than the requested one.
    tensors
        Return torch tensors instead of NumPy arrays (extra ``torch``).
    max_decoded_bytes
        Maximum number of bytes that one call may decode.

    Raises
    ------
    ValueError
        If the stream is a text stream.
    MissingExtra
        If the package av is missing or too old.

    Notes
    -----
    All methods raise MediaError (a ValueError) for damaged media, and for clips that exceed `max_decoded_bytes`.
    Pickles with the bytes of the file.

    Examples
    --------
    >>> import io, wave
    >>> import fastpack
    >>> file = io.BytesIO()
    >>> with wave.open(file, "wb") as audio:
    ...     audio.setparams((1, 2, 8000, 0, "NONE", ""))
    ...     audio.writeframes(bytes(2 * 8000))
    >>> decoder = fastpack.webdataset.AVDecoder(file.getvalue())
    >>> decoder.get_audio_duration(), decoder.get_audio_samples_per_second()
    (1.0, 8000)
    >>> decoder.get_clips(audio_clip_ranges=[(0.25, 0.5)]).audio_clips[0].shape
    (1, 2000)
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
            raise ValueError("a text stream: open the media file in binary mode")
        import_av()
        self.stream: BinaryIO = io.BytesIO(stream) if isinstance(stream, bytes) else stream
        self.suppress_warnings = suppress_warnings
        self._tensors, self._max_decoded_bytes = tensors, max_decoded_bytes
        if tensors:
            import_torch()

    def __repr__(self) -> str:
        return f"AVDecoder(stream={self.stream!r})"

    def get_video(self) -> AVData:
        """Decode all frames of the video, without audio.

        Returns
        -------
        AVData
            The decoded clips.
        """
        return self.get_clips(video_clip_ranges=[_WHOLE])

    def get_audio(self) -> AVData:
        """Decode all samples of the audio.

        Returns
        -------
        AVData
            The decoded clips.
        """
        return self.get_clips(audio_clip_ranges=[_WHOLE])

    def get_video_with_audio(self) -> AVData:
        """Decode all frames and all audio samples.

        Returns
        -------
        AVData
            The decoded clips.
        """
        return self.get_clips([_WHOLE], [_WHOLE])

    def get_frames(self, video_decode_audio: bool = False) -> AVData | None:
        """Decode a whole file.

        Parameters
        ----------
        video_decode_audio
            Also decode the audio of a video.

        Returns
        -------
        AVData or None
            The decoded video or audio; None for an unsupported container (such as flv).
        """
        with opened_container(self.stream) as container:
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
        """Decode clips of the video and of the audio.

        Parameters
        ----------
        video_clip_ranges, video_unit, video_out_frame_size
            See `get_video_clips`. None: no video.
        audio_clip_ranges, audio_unit
            See `get_audio_clips`. None: no audio.

        Returns
        -------
        AVData
            The decoded clips.
        """
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
        """Decode ranges of the video.

        Parameters
        ----------
        video_clip_ranges
            (start, end) pairs, both inclusive.
        video_unit
            ``"seconds"`` or ``"frames"`` (from 0).
        video_out_frame_size
            (width, height) to scale the frames to.

        Returns
        -------
        tuple
            The clips, uint8 [frames, 3, height, width], and (start, end) of each in seconds. A range after the end of
            the video gives no clip.

        Raises
        ------
        ValueError
            If `video_unit` is unknown.
        MediaError
            If the video cannot be decoded.
        """
        if video_unit not in ("frames", "seconds"):
            raise ValueError(f"video_unit is {video_unit!r}: choose frames or seconds")
        with opened_container(self.stream) as container:
            video = VideoFrames(container, ByteBudget(self._max_decoded_bytes))
            is_exact = video.seek_unit in (video_unit, "either") or (video_unit == "seconds" and video.is_even)
            if not (is_exact or self.suppress_warnings):
                text = f"this container seeks by {video.seek_unit}: clips in {video_unit} may be off by one frame"
                warnings.warn(text, RuntimeWarning, stacklevel=2)
            clips = [video.clip(start, end, video_unit, video_out_frame_size) for start, end in video_clip_ranges]
        return self._split(clips)

    def get_audio_clips(
        self, audio_clip_ranges: Sequence[Range], audio_unit: Literal["samples", "seconds"] = "seconds"
    ) -> tuple[list[Any], list[Range]]:
        """Decode ranges of the audio.

        Parameters
        ----------
        audio_clip_ranges
            (start, end) pairs, end exclusive.
        audio_unit
            ``"seconds"`` or ``"samples"`` (from 0).

        Returns
        -------
        tuple
            The clips [channels, samples], in the dtype of the stream, and (start, end) of each in seconds. A range
            after the end of the audio gives no clip.

        Raises
        ------
        ValueError
            If `audio_unit` is unknown.
        MediaError
            If the audio cannot be decoded.
        """
        if audio_unit not in ("samples", "seconds"):
            raise ValueError(f"audio_unit is {audio_unit!r}: choose samples or seconds")
        with opened_container(self.stream) as container:
            audio = AudioSamples(container, ByteBudget(self._max_decoded_bytes))
            scale = audio.rate if audio_unit == "samples" else 1
            clips = [audio.clip(start / scale, end / scale) for start, end in audio_clip_ranges]
        return self._split(clips)

    def _split(self, clips: Sequence[Any]) -> tuple[list[Any], list[Range]]:
        found = [clip for clip in clips if clip is not None]
        values, times = [values for values, _ in found], [times for _, times in found]
        return list(map(import_torch().from_numpy, values)) if self._tensors else values, times

    def has_video_stream(self) -> bool:
        """Return whether the file contains video.

        Returns
        -------
        bool
            Whether there is a video stream.
        """
        with opened_container(self.stream) as container:
            return bool(container.streams.video)

    def has_audio_stream(self) -> bool:
        """Return whether the file contains audio.

        Returns
        -------
        bool
            Whether there is an audio stream.
        """
        with opened_container(self.stream) as container:
            return bool(container.streams.audio)

    def get_video_fps(self) -> float | None:
        """Return the frame rate of the video, in frames per second; None without video.

        Returns
        -------
        float or None
            Frames per second.
        """
        return self.get_metadata(get_video_duration=False, get_video_frame_count=False, get_audio=False).video_fps

    def get_video_duration(self, get_frame_count: bool = False) -> tuple[float | None, int | None]:
        """Return the duration of the video.

        Parameters
        ----------
        get_frame_count
            Also count the frames.

        Returns
        -------
        tuple
            (duration in seconds, number of frames), None where unknown or not requested.
        """
        found = self.get_metadata(get_video_frame_count=get_frame_count, get_audio=False)
        return found.video_duration, found.video_num_frames

    def get_audio_duration(self) -> float | None:
        """Return the duration of the audio in seconds; None without audio.

        Returns
        -------
        float or None
            Seconds.
        """
        return self.get_metadata(get_video=False).audio_duration

    def get_audio_samples_per_second(self) -> int | None:
        """Return the sample rate of the audio; None without audio.

        Returns
        -------
        int or None
            Samples per second and channel.
        """
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
        """Return properties of the media, from headers or, if those lack them, from packets.

        Parameters
        ----------
        get_video, get_video_duration, get_video_frame_count, get_video_frame_size
            Which properties of the video to return.
        get_audio, get_audio_duration, get_audio_num_samples
            Which properties of the audio to return. The number of samples is found by decoding.

        Returns
        -------
        AVMetadata
            The properties; None where unknown or not requested.
        """
        found = AVMetadata()
        with opened_container(self.stream) as container:
            video, audio = first_stream(container, "video"), first_stream(container, "audio")
            if get_video and video is not None:
                measure_video(container, video, found, get_video_duration, get_video_frame_count, get_video_frame_size)
            if get_audio and audio is not None:
                measure_audio(container, audio, found, get_audio_duration, get_audio_num_samples)
        return found

    def check(self) -> None:
        """Decode the first frame of the video and of the audio.

        Raises
        ------
        MediaError
            If a stream is damaged, or there is none.
        """
        with opened_container(self.stream) as container:
            check_container(container)


def import_torch() -> Any:
    """Return the package `torch`. Raises MissingExtra."""
    return import_extra("torch", "torch", "audio and video as tensors (av_decode: torch)")
