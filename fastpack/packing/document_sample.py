"""Sample documents from all sources, to compare engines and to name keys in messages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import orjson

from fastpack import io as files
from fastpack.documents.arrow_sources import open_table
from fastpack.documents.compressed import is_compressed
from fastpack.documents.json_fields import FaultyDocument, compile_pattern
from fastpack.documents.text_columns import missing_column
from fastpack.errors import spoken
from fastpack.packing.chat_encoder import ChatRenderer
from fastpack.packing.conversations.conversation import MESSAGES, PAIRS, PREFERENCES, Fault
from fastpack.packing.conversations.sandbox import TemplateFault
from fastpack.packing.settings import PackSettings, Source
from fastpack.packing.source_batches import open_source_table, read_batches
from fastpack.packing.utf8_texts import read_texts
from fastpack.tokenizers.engines import COMPARED_BYTES, EvenSample

SAMPLE_BYTES = 4 << 20
PLACES = 32  # positions of a sample, in all sources together
SOURCES = 8  # maximum number of opened files


def sample_texts(settings: PackSettings) -> list[str]:
    """Return at most 4 MiB of documents from positions in all sources, without faulty ones."""
    text_of = compile_pattern(settings.text_pattern)
    texts: list[str] = []
    for source, n_bytes in _shares(settings):
        if source.format != "jsonl":
            texts += sample_of_table(source, n_bytes)
            continue
        for line in _sample_lines(source, n_bytes):
            try:
                texts.append(text_of(line))
            except FaultyDocument:
                continue
    return texts


def sample_chats(settings: PackSettings, renderer: ChatRenderer) -> EvenSample:
    """Return the texts of some of at most 4 MiB of conversations from positions in all sources, without faulty ones."""
    lines: list[bytes] = []
    for source, n_bytes in _shares(settings):
        table = source.format != "jsonl"
        lines += (row.encode() for row in sample_of_table(source, n_bytes)) if table else _sample_lines(source, n_bytes)
    n_bytes = sum(map(len, lines))
    texts: list[str] = []
    for line in lines[:: max(1, n_bytes // COMPARED_BYTES)]:
        with contextlib.suppress(Fault, TemplateFault):
            texts.append(renderer.sample(line))
    return EvenSample(texts, n_bytes)


def is_preference(settings: PackSettings, messages_field: str | None) -> bool:
    """Return whether the first row of the sources is a preference pair: it has the keys `chosen` and `rejected`.

    Raises ValueError if the first source is a table without a column of conversations.
    """
    source = settings.sources[0]
    if source.format == "jsonl":
        return messages_field is None and all(name in first_keys(source, None) for name in PREFERENCES)
    columns = open_table(source.path, source.format, None).schema.names
    if messages_field is not None:
        if messages_field not in columns:
            raise missing_column(source.path, messages_field, columns)
        return False
    if not any(name in columns for name in (*MESSAGES, *PREFERENCES, *(pair[0] for pair in PAIRS))):
        raise ValueError(
            f"{source.path}: no conversations in its columns {', '.join(columns)}: expected messages, conversations, "
            f"or a prompt and a completion; {spoken('messages_field')} names another column"
        )
    return all(name in columns for name in PREFERENCES)


def sample_lines(settings: PackSettings) -> Iterator[bytes]:
    """Yield lines of the sources that are JSON Lines, as `sample_texts` reads them."""
    for source, n_bytes in _shares(settings):
        if source.format == "jsonl":
            yield from _sample_lines(source, n_bytes)


def _shares(settings: PackSettings) -> Iterator[tuple[Source, int]]:
    """Yield the sources to sample, and how many bytes of each."""
    sources = settings.sources[:: -(-len(settings.sources) // SOURCES)]
    for source in sources:
        yield source, SAMPLE_BYTES // len(sources)


def sample_of_table(source: Source, n_bytes: int) -> list[str]:
    """Return at most about `n_bytes` of texts from positions in a source that is not JSON Lines."""
    group_rows = open_source_table(source).group_rows() if source.is_splittable else None
    starts = [0] if group_rows is None else (np.cumsum(group_rows) - group_rows).tolist()
    starts = starts[:: -(-len(starts) // PLACES)]
    texts: list[str] = []
    for start in starts:
        batch = next(read_batches(source, start, n_bytes // len(starts)), None)
        if batch is not None and not isinstance(batch.batch.data, (bytes, type(None))):
            texts += read_texts(batch.batch.data.data, batch.batch.rows)[0]
    return texts


def first_keys(source: Source, limit: int | None = 10) -> list[str]:
    """Return at most `limit` keys of a JSON Lines source's first document; none if it is not an object."""
    if source.format != "jsonl":
        return []
    line = next(_sample_lines(source, SAMPLE_BYTES), b"")
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        return []
    return list(document)[:limit] if isinstance(document, dict) else []


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
