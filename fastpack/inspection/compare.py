"""Compare two versions of a corpus: documents added, removed and changed, and distributions."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastpack.analysis.document_lengths import shares
from fastpack.analysis.token_ids import IdCounter
from fastpack.argument_aliases import accept_aliases
from fastpack.display import Result, facts
from fastpack.errors import JobError, spoken
from fastpack.escape import escape_text, shorten
from fastpack.inspection.curation.documents import Documents
from fastpack.inspection.curation.known_tokenizer import find_decoder, piece_text
from fastpack.inspection.curation.open_corpus import open_corpus
from fastpack.inspection.curation.versions import Changes, Version, changes_of, read_version
from fastpack.io import PathLike, Progress, may_write
from fastpack.io.if_exists import ExistencePolicy
from fastpack.tokenizers.decode import TokenDecoder

SHOWN = 3  # examples of each kind of change
_MAX_CHARACTERS, _BEFORE = 200, 40  # shown of an example, and of them before the difference
_MAX_TOKENS, _MAX_BYTES = 1 << 14, 1 << 16  # of an example, in which a difference is looked for
_MAX_IDS = 8  # ids whose share changed most
_LEAST_CHANGE = 1e-4  # of a share
_PER_OCTAVE = 4  # bins of lengths


@dataclass(frozen=True, slots=True, repr=False)
class CompareResult(Result):
    """Hold the result of `compare`.

    Attributes
    ----------
    same
        Whether both versions have the same documents in the same order.
    unchanged, added, removed, changed
        Numbers of documents.
    numbers
        All results, with the keys of `fastpack compare --json`.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> for name, documents in (("old", [[5, 0], [6, 0]]), ("new", [[5, 0], [7, 0], [8, 0]])):
    ...     with fastpack.PackedWriter(f"{folder.name}/{name}.pbin", 2) as writer:
    ...         for tokens in documents:
    ...             writer.append(tokens)
    >>> result = fastpack.compare(f"{folder.name}/old.pbin", f"{folder.name}/new.pbin")
    >>> result
    CompareResult(same=False, unchanged=1, added=1, removed=0, changed=1)
    >>> result.numbers["second"]["lengths"]["median"]
    2
    >>> folder.cleanup()
    """

    _shown = facts("same", "unchanged", "added", "removed", "changed")

    same: bool
    unchanged: int
    added: int
    removed: int
    changed: int
    numbers: dict[str, Any] = field(repr=False)


@accept_aliases(file_existence_policy="if_exists")
def compare(
    first: PathLike,
    second: PathLike,
    *,
    id_field: str | None = None,
    text_field: str | None = None,
    split_on: str | None = None,
    eos_token_id: int | None = None,
    dtype: str | None = None,
    tokenizer: str | None = None,
    examples: int = SHOWN,
    output: PathLike | None = None,
    if_exists: ExistencePolicy = "error",
    progress: Progress | None = None,
) -> CompareResult:
    r"""Compare two versions of a corpus, which may be in different formats.

    Documents are compared by 64-bit hashes of their tokens, or of the bytes of their texts. Without `id_field`, a
    document whose content is in both versions is unchanged, wherever it is; copies are counted one by one. Of the
    others, a document is changed if the other version has another one at the same place: after the same unchanged
    document, and after as many others. All others are added or removed. With `id_field`, documents with the same id
    belong together, and are changed if their contents differ.

    Parameters
    ----------
    first, second
        Two token files, folders or patterns of token files, of any formats; or two text sources: JSON Lines (also
        compressed), Parquet, Arrow, CSV, TSV or plain text files, folders or patterns.
    id_field
        The field or column with the id of a text (JSON Lines, Parquet, Arrow); `a.b` is b in the object a. Documents
        without an id are matched by content, and documents with the same id in order.
    text_field
        The field or column of the text. Default: "text".
    split_on
        The text between two documents of a plain text file. Default: each such file is one document.
    eos_token_id
        The token that ends documents in formats without document boundaries.
    dtype
        The dtype of the tokens in files that do not state it.
    tokenizer
        The tokenizer that decodes examples, as in `pack`; "none" for none. By default, the one that is recorded for
        the second version, if it is found next to it.
    examples
        The number of examples of each kind of change.
    output
        An HTML page to write.
    if_exists
        What to do if `output` exists: "error", "skip" or "overwrite". A page that is kept is still compared.
    progress
        Called with (work done, total work).

    Returns
    -------
    CompareResult
        The numbers of documents, and distributions of lengths and tokens.

    Raises
    ------
    FileNotFoundError
        If a path does not exist.
    FormatError
        If a file is damaged.
    JobError
        If one is of tokens and the other of texts, or one is a WebDataset.
    TargetExists
        If `output` exists and the policy is "error".
    ValueError
        If the document boundaries of a file are unknown, or a field does not exist.

    Notes
    -----
    Memory: 8 bytes a document of both versions, 8 more with `id_field`, and about 25 more while they are matched. Two
    different documents have the same hash with a probability of 2^-64.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> old, new = Path(folder.name, "old.jsonl"), Path(folder.name, "new.jsonl")
    >>> _ = old.write_text('{"id": 1, "text": "one"}\n{"id": 2, "text": "two"}\n')
    >>> _ = new.write_text('{"id": 2, "text": "two!"}\n{"id": 3, "text": "one"}\n')
    >>> fastpack.compare(old, new, id_field="id")
    CompareResult(same=False, unchanged=0, added=1, removed=1, changed=1)
    >>> fastpack.compare(old, new)
    CompareResult(same=False, unchanged=1, added=1, removed=1, changed=0)
    >>> folder.cleanup()
    """
    writes = output is not None and may_write(output, if_exists)
    with (
        open_corpus(
            first, eos_token_id=eos_token_id, dtype=dtype, text_field=text_field, split_on=split_on, key=id_field
        ) as mine,
        open_corpus(
            second, eos_token_id=eos_token_id, dtype=dtype, text_field=text_field, split_on=split_on, key=id_field
        ) as others,
    ):
        if mine.unit != others.unit:
            names = [f"{os.fspath(path)} of {_contents(one)}" for path, one in ((first, mine), (second, others))]
            raise JobError(f"{names[0]} cannot be compared with {names[1]}: {spoken('compare')} two of one kind")
        parts = [None if progress is None else partial(_half, progress, number) for number in (0, 1)]
        versions = [
            read_version(one, id_field is not None, part) for one, part in zip((mine, others), parts, strict=True)
        ]
        changes = changes_of(*versions)
        decoder = find_decoder(second, tokenizer) if mine.unit == "tokens" else None
        shown = list(_examples((mine, others), versions, changes, decoder, examples))
    numbers = _numbers((first, second), versions, changes, id_field, mine.unit)
    numbers |= {"ids": _ids(versions, decoder), "examples": shown, "warnings": _warnings(versions, id_field)}
    numbers["page"] = None if output is None else os.fspath(output)
    if output is not None and writes:
        from fastpack.inspection.curation.compare_page import write_page

        write_page(numbers, output, if_exists)
    counts = {name: numbers[name] for name in ("same", "unchanged", "added", "removed", "changed")}
    return CompareResult(**counts, numbers=numbers)


def _contents(documents: Documents) -> str:
    return "tokens" if documents.unit == "tokens" else "texts"


def _half(progress: Progress, number: int, done: int, total: int) -> None:
    progress(number * total + done, 2 * total)


def _numbers(
    paths: tuple[PathLike, PathLike], versions: list[Version], changes: Changes, id_field: str | None, unit: str
) -> dict[str, Any]:
    n_changes = [len(some) for some in (changes.added, changes.removed, changes.changed)]
    return {
        "unit": unit,
        "matched_by": id_field or "content",
        "same": changes.same_order and not any(n_changes),
        "same_order": changes.same_order,
        "unchanged": changes.unchanged,
        **dict(zip(("added", "removed", "changed"), n_changes, strict=True)),
        "repeated_ids": sum(one.repeated_keys for one in versions),
        "without_id": sum(one.without_key for one in versions),
        "first": _version(paths[0], versions[0]),
        "second": _version(paths[1], versions[1]),
    }


def _version(path: PathLike, version: Version) -> dict[str, Any]:
    table = version.lengths
    return {
        "path": os.fspath(path),
        "documents": table.documents,
        "total": table.total,
        "without_text": version.without_text,
        "duplicates": version.duplicates(),
        "lengths": table.summary(),
        "bins": shares(table.bins(_PER_OCTAVE)),
    }


def _ids(versions: list[Version], decoder: TokenDecoder | None) -> list[dict[str, Any]]:
    """Return the ids whose share of the tokens changed most."""
    counters = [version.ids or IdCounter() for version in versions]
    totals = [int(counter.counts.sum()) for counter in counters]
    if not all(totals):
        return []
    n_ids = max(len(counter.counts) for counter in counters)
    portions = []
    for counter, total in zip(counters, totals, strict=True):
        padded = counter.counts.copy()
        padded.resize(n_ids, refcheck=False)
        portions.append(padded / total)
    change = abs(portions[1] - portions[0])
    return [
        {
            "id": number,
            "text": piece_text(decoder, number),
            "first_share": float(portions[0][number]),
            "second_share": float(portions[1][number]),
        }
        for number in (-change).argsort(kind="stable")[:_MAX_IDS].tolist()
        if change[number] >= _LEAST_CHANGE
    ]


def _examples(
    corpora: tuple[Documents, Documents],
    versions: list[Version],
    changes: Changes,
    decoder: TokenDecoder | None,
    n_shown: int,
) -> Iterable[dict[str, Any]]:
    chosen: list[tuple[str, int | None, int | None]] = []
    chosen += [("changed", versions[0].number(one), versions[1].number(two)) for one, two in changes.changed[:n_shown]]
    chosen += [("removed", versions[0].number(one), None) for one in changes.removed[:n_shown].tolist()]
    chosen += [("added", None, versions[1].number(one)) for one in changes.added[:n_shown].tolist()]
    first_texts = _texts(corpora[0], (one for _, one, _ in chosen if one is not None), decoder)
    second_texts = _texts(corpora[1], (two for _, _, two in chosen if two is not None), decoder)
    for change, one, two in chosen:
        texts = None if one is None else first_texts.get(one), None if two is None else second_texts.get(two)
        first_text, second_text = _excerpts(*texts)
        yield {
            "change": change,
            "first": one,
            "second": two,
            "first_text": first_text,
            "second_text": second_text,
        }


def _excerpts(*texts: str | None) -> list[str | None]:
    """Return what is shown of two texts: from shortly before the first difference on; their starts if none is found."""
    known = [text for text in texts if text is not None]
    n_equal = 0
    if len(set(known)) == 2:
        same = (one == two for one, two in zip(*known, strict=False))
        n_equal = next((at for at, is_same in enumerate(same) if not is_same), min(map(len, known)))
    start = max(0, n_equal - _BEFORE)
    mark = "..." if start else ""
    return [None if text is None else shorten(escape_text(mark + text[start:]), _MAX_CHARACTERS) for text in texts]


def _texts(corpus: Documents, numbers: Iterable[int], decoder: TokenDecoder | None) -> dict[int, str | None]:
    """Return the starts of some documents; none of tokens without a tokenizer."""
    if corpus.unit == "tokens" and decoder is None:
        return {}
    found = corpus.read(numbers, _MAX_TOKENS if corpus.unit == "tokens" else _MAX_BYTES)
    return {number: _text(values, decoder) for number, values in found.items()}


def _text(values: Any, decoder: TokenDecoder | None) -> str | None:
    if decoder is None:
        text: str = values.tobytes().decode(errors="ignore")  # a character may be cut at the end
    else:
        ids = values.tolist()
        if any(decoder.piece(token) is None for token in ids):
            return None  # another tokenizer
        text = decoder.text(ids)
    return text


def _warnings(versions: list[Version], id_field: str | None) -> list[str]:
    warnings = []
    for name, version in zip(("first", "second"), versions, strict=True):
        if version.repeated_keys:
            warnings.append(
                f"the {name} version has {version.repeated_keys:,} documents with an id ({id_field}) that an earlier "
                "one has: they are paired in order"
            )
        if version.without_key:
            text = f"the {name} version has {version.without_key:,} documents without an id ({id_field})"
            warnings.append(f"{text}: they are matched by content")
        if version.without_text:
            warnings.append(f"the {name} version has {version.without_text:,} rows without a text: they are left out")
    return warnings
