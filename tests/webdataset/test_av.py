"""Decoding of audio and video by frames, samples and seconds; errors for damaged media."""

from __future__ import annotations

import contextlib
import io
import pickle
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from media_files import FPS, HEIGHT, KINDS, N_FRAMES, N_SAMPLES, RATE, WIDTH, frame_numbers, media, sound

import fastpack
from fastpack import AVDecoder, FormatError, MediaError, MissingExtra, WebDataset
from fastpack.inspection.verify import verify
from fastpack.webdataset.decoding import Decoder

VIDEOS = ["mp4", "mov", "mkv", "avi", "flv"]
LOSSLESS = ["wav", "flac", "mkv", "avi"]
CRUDE = {"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}
PLAYLIST = b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile://%s\n#EXT-X-ENDLIST\n"


def decoder(name: str, **options: Any) -> AVDecoder:
    return AVDecoder(media(name, **options), suppress_warnings=True)


@pytest.mark.parametrize("name", VIDEOS)
def test_all_frames(name: str) -> None:
    found = decoder(name).get_video()
    (clip,), (times,) = found.video_clips, found.video_timestamps
    assert clip.shape == (N_FRAMES, 3, HEIGHT, WIDTH)
    assert clip.dtype == np.uint8
    assert frame_numbers(clip) == list(range(N_FRAMES))
    assert times == pytest.approx((0, 2), abs=0.05)
    assert (found.audio_clips, found.audio_timestamps) == ([], [])


@pytest.mark.parametrize("name", VIDEOS)
def test_clips_of_frames(name: str) -> None:
    ranges = [(30, 32), (2, 2), (0, 0), (24, 26), (48, 90), (49, 49), (50, 60), (2.9, 3.1)]
    clips, times = decoder(name).get_video_clips(ranges, "frames")
    expected = [[30, 31, 32], [2], [0], [24, 25, 26], [48, 49], [49], [2, 3]]
    if name == "mkv":  # seeks by time: a range that ends exactly at the end of a frame includes the next one
        assert [frame_numbers(clip)[0] for clip in clips] == [numbers[0] for numbers in expected]
    else:
        assert [frame_numbers(clip) for clip in clips] == expected
        assert times[0] == pytest.approx((30 / FPS, 33 / FPS), abs=0.002)


@pytest.mark.parametrize("name", VIDEOS)
def test_clips_of_seconds(name: str) -> None:
    ranges = [(1.22, 1.3), (0.1, 0.1), (0, 0), (1.99, 7), (2.5, 3)]
    clips, _ = decoder(name).get_video_clips(ranges)
    assert [frame_numbers(clip) for clip in clips] == [[30, 31, 32], [2], [0], [49]]


@pytest.mark.parametrize("name", ["mp4", "avi", "mkv"])
def test_frames_are_returned_in_presentation_order(name: str) -> None:
    video = decoder(name, b_frames=2)
    assert frame_numbers(video.get_video().video_clips[0]) == list(range(N_FRAMES))
    if name == "avi":  # its timestamps are in decoding order
        clips, _ = video.get_video_clips([(25, 25), (1, 1), (48, 48)], "frames")
    else:
        clips, _ = video.get_video_clips([(1.01, 1.01), (0.05, 0.05), (1.93, 1.95)])
    assert [frame_numbers(clip) for clip in clips] == [[25], [1], [48]]


def test_scaled_frames() -> None:
    (clip,), _ = decoder("mp4").get_video_clips([(0, 1)], "frames", (32, 20))
    assert clip.shape == (2, 3, 20, 32)


@pytest.mark.parametrize("name", LOSSLESS)
def test_samples(name: str) -> None:
    audio, wanted = decoder(name), sound()
    (whole,) = audio.get_audio().audio_clips
    assert whole.dtype == np.int16
    np.testing.assert_array_equal(whole, wanted)
    clips, times = audio.get_audio_clips([(0.5, 1), (0.7, 0.71), (1.9, 9), (1.9999, 1.99995), (0, 0.1), (3, 4)])
    bounds = [(8000, 16_000), (11_200, 11_360), (30_400, N_SAMPLES), (31_998, 31_999), (0, 1600)]
    for clip, (start, end) in zip(clips, bounds, strict=True):
        np.testing.assert_array_equal(clip, wanted[:, start:end])
    np.testing.assert_allclose(times[:3], [(0.5, 1), (0.7, 0.71), (1.9, 2)], atol=0.002)
    clips, _ = audio.get_audio_clips([(100, 5001)], "samples")
    np.testing.assert_array_equal(clips[0], wanted[:, 100:5001])


@pytest.mark.parametrize("name", ["mp4", "mp3"])
def test_samples_of_lossy_audio(name: str) -> None:
    (clip,), (times,) = decoder(name).get_audio_clips([(0.5, 1.5)])
    assert clip.shape == (2, RATE)
    assert times == (0.5, 1.5)


def test_metadata() -> None:
    for name in ("mp4", "mkv", "avi"):
        video = decoder(name)
        found = video.get_metadata(get_audio_num_samples=True)
        assert (found.video_num_frames, found.video_fps) == (N_FRAMES, FPS)
        assert (found.video_width, found.video_height) == (WIDTH, HEIGHT)
        assert (found.audio_channels, found.audio_sample_rate) == (2, RATE)
        assert found.video_duration == pytest.approx(2, abs=0.05)
        assert found.audio_duration == pytest.approx(2, abs=0.07)
        assert (video.has_video_stream(), video.has_audio_stream()) == (True, True)
        assert video.get_video_fps() == FPS
        assert video.get_video_duration(get_frame_count=True) == (found.video_duration, N_FRAMES)
        assert video.get_audio_samples_per_second() == RATE
    silent = decoder("flv")
    assert not silent.has_audio_stream()
    assert silent.get_audio_duration() is None
    assert silent.get_metadata(get_video=False) == fastpack.AVMetadata()


def test_get_frames_returns_the_whole_file() -> None:
    video = decoder("mp4")
    found = video.get_frames(video_decode_audio=True)
    assert found is not None
    assert (len(found.video_clips), len(found.audio_clips)) == (1, 1)
    without = video.get_frames()
    assert without is not None
    assert (len(without.video_clips), len(without.audio_clips)) == (1, 0)
    heard = decoder("wav").get_frames()
    assert heard is not None
    assert (len(heard.video_clips), len(heard.audio_clips)) == (0, 1)
    assert decoder("flv").get_frames() is None  # as in Energon


def test_uniform_clips() -> None:
    video = decoder("mp4")
    frames, times = fastpack.get_single_frames_uniform(video, 5, return_timestamps=True)
    assert frame_numbers(frames) == [0, 12, 25, 37, 49]
    assert times == pytest.approx([number / FPS for number in (0, 12, 25, 37, 49)])
    found = fastpack.get_clips_uniform(video, 0.5, 3, request_video=True, request_audio=True)
    assert [clip.shape[1] for clip in found.audio_clips] == [RATE // 2] * 3
    assert frame_numbers(found.video_clips[0]) == list(range(13))
    with pytest.raises(ValueError, match="request_video or request_audio"):
        fastpack.get_clips_uniform(video, 1, 1)
    with pytest.raises(ValueError, match="the requested stream does not exist"):
        fastpack.get_clips_uniform(decoder("wav"), 0, 3, request_video=True)


def test_clips_in_the_unit_that_the_container_does_not_seek_in() -> None:
    with pytest.warns(RuntimeWarning, match="may be off by one frame"):
        AVDecoder(media("mkv")).get_video_clips([(0, 1)], "frames")
    uneven = media("mp4", times=[0, 1, 2, 30, 31, 60])
    with pytest.warns(RuntimeWarning, match="may be off by one frame"):
        AVDecoder(uneven).get_video_clips([(0, 1)])
    assert frame_numbers(AVDecoder(uneven).get_video_clips([(3, 5)], "frames")[0][0]) == [3, 4, 5]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AVDecoder(media("mp4")).get_video_clips([(0, 1)], "frames")
        AVDecoder(media("mp4")).get_video_clips([(0, 1)], "seconds")
        AVDecoder(media("avi")).get_video_clips([(0, 1)], "seconds")


def test_decoders_of_pickles_and_streams() -> None:
    again = pickle.loads(pickle.dumps(decoder("mp4")))
    assert frame_numbers(again.get_video_clips([(7, 7)], "frames")[0][0]) == [7]
    stream = io.BytesIO(media("wav"))
    stream.seek(100)
    assert AVDecoder(stream).get_audio_duration() == 2
    with pytest.raises(ValueError, match="binary mode"):
        AVDecoder(io.StringIO())  # type: ignore[arg-type]


def test_invalid_arguments_are_rejected() -> None:
    video = decoder("mp4")
    for ask, message in (
        (lambda: video.get_video_clips([(0, 1)], "samples"), "choose frames or seconds"),
        (lambda: video.get_audio_clips([(0, 1)], "frames"), "choose samples or seconds"),
        (lambda: video.get_video_clips([(2, 1)]), "expected 0 <= start <= end"),
        (lambda: video.get_audio_clips([(-1, 1)]), "expected 0 <= start <= end"),
        (lambda: decoder("wav").get_video(), "has no video stream"),
        (lambda: decoder("flv").get_audio(), "has no audio stream"),
    ):
        with pytest.raises(ValueError, match=message):
            ask()


def test_limits() -> None:
    clip = 3 * WIDTH * HEIGHT
    limited = AVDecoder(media("avi"), max_decoded_bytes=10 * clip)
    assert len(limited.get_video_clips([(0, 9)], "frames")[0][0]) == 10
    with pytest.raises(MediaError, match="read shorter clips, or raise"):
        limited.get_video_clips([(0, 10)], "frames")
    with pytest.raises(MediaError, match="read shorter clips"):
        AVDecoder(media("wav"), max_decoded_bytes=100_000).get_audio()


@pytest.mark.parametrize("name", ["mp4", "mkv", "wav"])
@pytest.mark.parametrize("share", [0, 0.01, 0.5])
def test_truncated_files(name: str, share: float) -> None:
    data = media(name)
    cut = AVDecoder(data[: int(share * len(data))], suppress_warnings=True)
    if share and (name == "wav" or (name == "mkv" and share == 0.5)):  # the rest of these streams can be decoded
        assert cut.get_frames() is not None
    else:
        with pytest.raises(MediaError, match=r"cannot be decoded|without|not there"):
            cut.get_frames()


@pytest.mark.parametrize("data", [b"", b"\0" * 1000, b"not a video" * 50, b"RIFF\xff\xff\xff\xffWAVEfmt "])
def test_other_data_are_media_errors(data: bytes) -> None:
    nothing = AVDecoder(data)
    for ask in (nothing.get_frames, nothing.get_audio, nothing.get_video, nothing.get_metadata, nothing.check):
        with pytest.raises(MediaError, match="cannot be decoded"):
            ask()
    with pytest.raises(MediaError, match="cannot be decoded"):
        Decoder(av_decode="pyav")("mp4", data)


def test_playlists_open_no_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret.mp4"
    secret.write_bytes(media("mp4"))
    script = b"ffconcat version 1.0\nfile '%s'\n" % str(secret).encode()
    for data in (PLAYLIST % str(secret).encode(), script):
        with pytest.raises(MediaError):
            AVDecoder(data).get_video()


@pytest.fixture
def samples(tmp_path: Path, prepare: Any) -> Path:
    members = [("a.mp4", media("mp4")), ("a.WAV", media("wav")), ("a.txt", b"one"), ("b.mp4", media("mp4"))]
    return prepare(tmp_path / "set", {"a.tar": members}, {"train": ["a.tar"]}, definition=CRUDE)


def test_samples_contain_decoders(samples: Path) -> None:
    sample = WebDataset(samples, "train")[0]
    assert isinstance(sample["mp4"], AVDecoder)
    assert sample["WAV"].get_audio_duration() == 2
    assert sample["txt"] == "one"
    assert WebDataset(samples, raw=True)[0]["mp4"] == media("mp4")


def test_modes_from_dataset_yaml_and_arguments(samples: Path) -> None:
    torch = pytest.importorskip("torch")
    definition = samples / ".nv-meta/dataset.yaml"

    def define(options: str) -> None:
        text = "__module__: megatron.energon\n__class__: CrudeWebdataset\n"
        definition.write_text(f"{text}decoder: {{__module__: megatron.energon, __class__: SampleDecoder, {options}}}\n")

    define("av_decode: torch, video_decode_audio: true")
    found = WebDataset(samples)[0]
    assert isinstance(found["mp4"], fastpack.AVData)
    assert isinstance(found["mp4"].video_clips[0], torch.Tensor)
    assert len(found["mp4"].audio_clips) == 1
    assert found["WAV"].audio_clips[0].shape == (2, N_SAMPLES)
    assert WebDataset(samples, video_decode_audio=False)[0]["mp4"].audio_clips == []
    define("av_decode: pyav")
    with WebDataset(samples)[0]["mp4"] as container:
        assert container.streams.video[0].width == WIDTH
    assert isinstance(WebDataset(samples, av_decode="AVDecoder")[0]["mp4"], AVDecoder)
    define("av_decode: decord")
    with pytest.raises(FormatError, match="unknown av_decode 'decord': choose one of AVDecoder, torch, pyav"):
        WebDataset(samples)
    define("frames: 8")
    with pytest.raises(FormatError, match="the option 'frames' of decoder"):
        WebDataset(samples)


def test_tensors(samples: Path) -> None:
    torch = pytest.importorskip("torch")
    from fastpack.torch import WebDataset as Tensors

    found = Tensors(samples)[0]["mp4"]
    (clip,), _ = pickle.loads(pickle.dumps(found)).get_video_clips([(3, 3)], "frames")
    assert isinstance(clip, torch.Tensor)
    assert frame_numbers(clip) == [3]
    assert frame_numbers(fastpack.get_single_frames_uniform(found, 2)) == [0, 49]


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = media("wav")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert isinstance(Decoder()("wav", data), AVDecoder)  # NumPy arrays need no torch
    with pytest.raises(MissingExtra, match=r"fastpack-llm\[torch\]"):
        Decoder(av_decode="torch")("wav", data)
    monkeypatch.setitem(sys.modules, "av", None)
    for mode in ("AVDecoder", "pyav"):
        with pytest.raises(MissingExtra, match=r"fastpack-llm\[av\]"):
            Decoder(av_decode=mode)("wav", data)


def test_verify_decodes_the_first_frames(tmp_path: Path, prepare: Any) -> None:
    good, empty = media("mp4"), media("wav")[:60]
    members = [("a.mp4", good), ("b.mp4", b"no video" * 100), ("c.wav", empty), ("d.mp4", good)]
    folder = prepare(tmp_path / "set", {"a.tar": members}, {"train": ["a.tar"]}, definition=CRUDE)
    (folder / ".nv-meta/index.uuid").write_text("00000000-0000-4000-8000-000000000000")
    errors = [finding for finding in verify(folder, deep=True).findings if finding.severity == "error"]
    assert len(errors) == 2
    assert "MediaError: audio or video that cannot be decoded" in errors[0].found
    assert "in sample 'b'" in errors[0].found
    assert "in sample 'c'" in errors[1].found


@pytest.mark.parametrize("name", KINDS)
def test_damaged_media(name: str) -> None:
    """All errors of damaged media are MediaError or ValueError."""
    rng, whole = random.Random(name), media(name)
    for _ in range(6):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 5, 50])):
            data[rng.randrange(rng.choice([64, 2000, len(data)]))] = rng.randrange(256)
        damaged = AVDecoder(bytes(data), suppress_warnings=True, max_decoded_bytes=1 << 26)
        for ask in (
            damaged.get_frames,
            damaged.check,
            lambda damaged=damaged: damaged.get_metadata(get_audio_num_samples=True),
            lambda damaged=damaged: damaged.get_video_clips([(0.5, 0.6)]),
            lambda damaged=damaged: damaged.get_audio_clips([(0.5, 0.6)]),
        ):
            with contextlib.suppress(MediaError):
                ask()


def test_tags_that_are_not_utf8_are_replaced() -> None:
    data = media("flac")
    assert b"vendor" not in data
    at = data.index(b"encoder=")
    damaged = AVDecoder(data[: at + 8] + b"\xff\xfe" + data[at + 10 :])
    np.testing.assert_array_equal(damaged.get_audio().audio_clips[0], sound())


def test_an_unknown_codec_is_an_error() -> None:
    data = media("wav")
    at = data.index(b"fmt ") + 8
    unknown = AVDecoder(data[:at] + b"\x99\x88" + data[at + 2 :])
    for ask in (unknown.get_audio, unknown.get_metadata, unknown.check):
        with pytest.raises(MediaError, match="codec is unknown"):
            ask()
