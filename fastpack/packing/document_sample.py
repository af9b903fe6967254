"""Some of the user's own documents, spread over the sources: what engines are compared on, what a message names."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from fastpack import io as files
from fastpack.documents.compressed import is_compressed
from fastpack.documents.json_fields import FaultyDocument, compile_pattern
from fastpack.packing.settings import PackSettings, Source
from fastpack.packing.source_batches import read_pieces

SAMPLE_BYTES = 4 << 20
PLACES = 32  # of a sample, in all sources together
SOURCES = 8  # more are not opened


def sample_texts(settings: PackSettings) -> list[str]:
    """At most 4 MiB of documents from places spread over the sources; the faulty ones are left out."""
    text_of = compile_pattern(settings.text_pattern)
    texts: list[str] = []
    for line in sample_lines(settings):
        try:
            texts.append(text_of(line))
        except FaultyDocument:
            continue
    return texts


def sample_lines(settings: PackSettings) -> Iterator[bytes]:
    """The lines of `sample_texts`."""
    every = -(-len(settings.sources) // SOURCES)
    sources = settings.sources[::every]
    for source in sources:
        yield from _sample_lines(source, SAMPLE_BYTES // len(sources))


def first_keys(source: Source) -> list[str]:
    """The keys of a source's first document, at most ten; none where it is no object."""
    line = next(_sample_lines(source, SAMPLE_BYTES), b"")
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        return []
    return list(document)[:10] if isinstance(document, dict) else []


def _sample_lines(source: Source, n_bytes: int) -> Iterator[bytes]:
    if is_compressed(source.path):  # the beginning: what lies behind it would have to be unpacked first
        piece = next(read_pieces(source, 0, n_bytes), None)
        if piece is not None and piece.batch.data is not None:
            yield from piece.batch.data[:n_bytes].split(b"\n")[:-1]
        return
    data = files.open_bytes(source.path)
    n_places = max(1, min(PLACES, len(data) // n_bytes))
    share = n_bytes // n_places
    for start in range(0, len(data), max(1, -(-len(data) // n_places))):
        block = files.peek(data, start, start + share).tobytes()
        lines = block.split(b"\n")
        # The first line of a place is cut, unless the place is the file's beginning; so is the last one.
        yield from lines[bool(start) : len(lines) - (start + len(block) < len(data))]
