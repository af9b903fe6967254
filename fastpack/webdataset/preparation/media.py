"""Media metadata: sizes and durations of images, audio and video, read from headers without decoding."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias

from fastpack.errors import import_extra
from fastpack.io import Reader, open_reader
from fastpack.io.file_reader import RangeStream
from fastpack.webdataset.av_container import first_stream, import_av, opened_container
from fastpack.webdataset.av_metadata import AVMetadata, measure_audio, measure_video
from fastpack.webdataset.shard_index import ShardScan

Strategy: TypeAlias = Literal["EXTENSION", "HEADER", "GLOB"]
Row: TypeAlias = tuple[str, str, str]  # entry key, "image" or "av", JSON

_IMAGES = frozenset(["bmp", "gif", "ico", "j2k", "jp2", "jpx", "jpeg", "jpg", "png", "tif", "tiff", "webp"])
_AUDIO_AND_VIDEO = frozenset(["aac", "avi", "flac", "m4a", "m4v", "mkv", "mov", "mp3", "mp4", "ogg", "wav", "webm"])
_HEAD_BYTES = 16  # enough to identify a format
_MAGIC = (b"\x1aE\xdf\xa3", b"OggS", b"fLaC", b"ID3", b"\xff\xfb", b"\xff\xf1", b"\xff\xf9")
_PICTURES_IN_MP4 = (b"heic", b"heix", b"avif", b"mif1", b"jp2 ", b"crx ")
_BUFFER = 4096  # bytes per read; holds the header of most formats


class MediaFilter(NamedTuple):
    """Select the files whose media metadata is read; see `media_filter`.

    Parameters
    ----------
    strategy
        ``"EXTENSION"``: files with a known extension. ``"HEADER"``: files that start like a known format.
        ``"GLOB"``: files whose names match a pattern.
    patterns
        The patterns of ``"GLOB"``.

    Examples
    --------
    >>> import fastpack
    >>> fastpack.MediaFilter("GLOB", ("*.jpg", "*.png")).accepts("cat.JPG")
    True
    """

    strategy: Strategy
    patterns: tuple[str, ...] = ()

    def accepts(self, name: str) -> bool:
        """Return whether a file of this name is inspected.

        Parameters
        ----------
        name
            Name of the file, with its extension.

        Returns
        -------
        bool
            Whether the filter selects it.
        """
        if self.strategy == "EXTENSION":
            return _kind_by_name(name) is not None
        if self.strategy == "HEADER":
            return True
        return any(fnmatchcase(text, pattern) for pattern in self.patterns for text in (name, name.lower()))

    def index_entry(self) -> tuple[str, str]:
        """Return strategy and patterns as stored in the index.

        Returns
        -------
        tuple
            The strategy, and the patterns separated by commas.
        """
        return self.strategy, ",".join(self.patterns)

    def describe(self, name: str, stream: BinaryIO) -> tuple[str, str] | None:
        """Return the metadata of a media file.

        Parameters
        ----------
        name
            Name of the file, with its extension.
        stream
            The file, seekable, at its start.

        Returns
        -------
        tuple or None
            The type ("image" or "av") and the metadata as JSON; None for other or unreadable files.

        Raises
        ------
        MissingExtra
            Without Pillow (images) or av (audio and video).
        """
        by_header = None if self.strategy == "EXTENSION" else _kind_by_header(stream)
        kind = by_header or _kind_by_name(name) or "image"
        found = _image(stream) if kind == "image" else _audio_or_video(stream)
        return None if found is None else (kind, json.dumps(found, separators=(",", ":")))


def media_filter(glob: str | None = None, *, header: bool = False, extension: bool = False) -> MediaFilter:
    """Make a filter of files whose media metadata is read. Exactly one option is required.

    Parameters
    ----------
    glob
        Patterns of file names, separated by commas, such as ``"*.jpg,*.png"``.
    header
        Select the files that start like a known format.
    extension
        Select the files with a known extension.

    Returns
    -------
    MediaFilter
        The filter.

    Raises
    ------
    ValueError
        If not exactly one option is given.

    Examples
    --------
    >>> from fastpack.webdataset.preparation.media import media_filter
    >>> media_filter("*.jpg,*.png").accepts("cat.JPG")
    True
    """
    if (glob is not None) + header + extension != 1 or glob == "":
        raise ValueError("choose exactly one way to find media: by glob, by header or by extension")
    if glob is not None:
        return MediaFilter("GLOB", tuple(glob.split(",")))
    return MediaFilter("HEADER" if header else "EXTENSION")


def media_of_shard(scan: ShardScan, media: MediaFilter) -> list[Row]:
    """Return the metadata of a shard's media; entry keys are `key.field`. Raises MissingExtra."""
    file = open_reader(scan.path)
    rows: list[Row] = []
    fields = zip(scan.field_samples.tolist(), scan.field_names, scan.field_offsets.tolist(), strict=True)
    for (sample, field, offset), n_bytes in zip(fields, scan.field_sizes.tolist(), strict=True):
        name = b"%b.%b" % (scan.sample_keys[sample], field)
        if media.accepts(entry_key := name.decode()):
            found = media.describe(entry_key, _stream(file, offset, n_bytes))
            if found is not None:
                rows.append((entry_key, *found))
    return rows


def media_files(folder: str, media: MediaFilter) -> list[str]:
    """Return the relative paths of the selected files in a folder, recursively, sorted; including hidden files."""
    found = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ".nv-meta"]
        found += [Path(root, name).relative_to(folder).as_posix() for name in names if media.accepts(name)]
    return sorted(found, key=lambda path: path.split("/"))


def media_of_files(folder: str, paths: Sequence[str], media: MediaFilter) -> Iterator[Row]:
    """Yield the metadata of files in a folder; entry keys are the relative paths. Raises MissingExtra."""
    for path in paths:
        with open(os.path.join(folder, path), "rb", buffering=_BUFFER) as file:
            found = media.describe(os.path.basename(path), file)
        if found is not None:
            yield (path, *found)


def _kind_by_name(name: str) -> str | None:
    suffix = Path(name).suffix[1:].lower()
    return "image" if suffix in _IMAGES else "av" if suffix in _AUDIO_AND_VIDEO else None


def _kind_by_header(stream: BinaryIO) -> str | None:
    head = stream.read(_HEAD_BYTES)
    stream.seek(0)
    if head[4:8] == b"ftyp":
        return "image" if head[8:12] in _PICTURES_IN_MP4 else "av"
    if head.startswith(_MAGIC) or (head[:4] == b"RIFF" and head[8:12] in (b"AVI ", b"WAVE")):
        return "av"
    return None


def _image(stream: BinaryIO) -> dict[str, Any] | None:
    import_extra("PIL", "media", "metadata of images", package="pillow")
    from PIL import Image

    try:
        with Image.open(stream) as image:
            return {
                "width": image.width,
                "height": image.height,
                "format": image.format or "UNKNOWN",
                "mode": image.mode or "UNKNOWN",
            }
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None


def _audio_or_video(stream: BinaryIO) -> dict[str, Any] | None:
    import_av("metadata of audio and video")
    found = AVMetadata()
    try:
        with opened_container(stream, any_tags=False) as container:
            video, audio = first_stream(container, "video"), first_stream(container, "audio")
            if video is not None:
                measure_video(container, video, found, duration=True, count=True, size=False)
                found.video_width, found.video_height = video.width, video.height
            if audio is not None:
                measure_audio(container, audio, found, duration=True, count=True)
    except (OSError, ValueError):
        return None
    return {name: value for name, value in asdict(found).items() if value is not None}


def _stream(file: Reader, offset: int, n_bytes: int) -> BinaryIO:
    """Return a byte range of a file as a stream; only the requested bytes are read."""
    return io.BufferedReader(RangeStream(file.read_into, offset, n_bytes), _BUFFER)
