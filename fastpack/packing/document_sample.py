"""Sample documents from all sources, to compare engines and to name keys in messages."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from fastpack import io as files
from fastpack.documents.compressed import is_compressed
from fastpack.documents.json_fields import FaultyDocument, compile_pattern
from fastpack.packing.settings import PackSettings, Source
from fastpack.packing.source_batches import read_batches

SAMPLE_BYTES = 4 << 20
PLACES = 32  # positions of a sample, in all sources together
SOURCES = 8  # maximum number of opened files


def sample_texts(settings: PackSettings) -> list[str]:
    """Return at most 4 MiB of documents from positions in all sources, without faulty ones."""
    text_of = compile_pattern(settings.text_pattern)
    texts: list[str] = []
    for line in sample_lines(settings):
        try:
            texts.append(text_of(line))
        except FaultyDocument:
            continue
    return texts


def sample_lines(settings: PackSettings) -> Iterator[bytes]:
    """Yield the lines of `sample_texts`."""
    every = -(-len(settings.sources) // SOURCES)
    sources = settings.sources[::every]
    for source in sources:
        yield from _sample_lines(source, SAMPLE_BYTES // len(sources))


def first_keys(source: Source) -> list[str]:
    """Return at most ten keys of a source's first document; none if it is not an object."""
    line = next(_sample_lines(source, SAMPLE_BYTES), b"")
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        return []
    return list(document)[:10] if isinstance(document, dict) else []


def _sample_lines(source: Source, n_bytes: int) -> Iterator[bytes]:
    if is_compressed(source.path):  # only the beginning: the rest would have to be decompressed first
        piece = next(read_batches(source, 0, n_bytes), None)
        if piece is not None and isinstance(piece.batch.data, bytes):
            yield from piece.batch.data[:n_bytes].split(b"\n")[:-1]
        return
    data = files.open_bytes(source.path)
    n_places = max(1, min(PLACES, len(data) // n_bytes))
    share = n_bytes // n_places
    for start in range(0, len(data), max(1, -(-len(data) // n_places))):
        block = files.peek(data, start, start + share).tobytes()
        lines = block.split(b"\n")
        # The first and last line of a position are incomplete, except at the start and end of the file.
        yield from lines[bool(start) : len(lines) - (start + len(block) < len(data))]
