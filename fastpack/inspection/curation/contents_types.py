"""Types of the contents of a corpus in the JSON result of `report`; see `facts`."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from fastpack.inspection.facts import Count

Share = Annotated[float, "a share, 0 to 1"]


class CopyGroup(TypedDict):
    """equal documents"""

    first: Annotated[Count, "number of the first one, from 0"]
    count: Annotated[Count, "how many there are"]
    length: Annotated[Count, "the length of each"]
    text: Annotated[str | None, "its start; null without a tokenizer, and with `--samples 0`"]


class DuplicateFacts(TypedDict):
    """documents that are equal to an earlier one, by 64-bit hashes; empty documents are not counted"""

    documents: Annotated[Count, "how many"]
    share: Annotated[float, "their share of the documents"]
    amount: Annotated[Count, "the sum of their lengths"]
    amount_share: Annotated[float, "its share of all tokens or bytes"]
    sampled: Annotated[float, "share of the documents that were kept for this; below 1, the figures are estimates"]
    groups: Annotated[list[CopyGroup], "the largest groups"]


class VeryLong(TypedDict):
    """very long documents"""

    limit: Annotated[Count, "their least length"]
    documents: Annotated[Count, "how many"]


class EosInDocuments(TypedDict):
    """EOS tokens and documents"""

    inside: Annotated[Count, "EOS tokens before the end of their document"]
    documents: Annotated[Count, "documents that contain them"]
    documents_without: Annotated[Count, "documents that do not end in EOS"]


class Controls(TypedDict):
    """control characters, other than tabs and line ends (tokens with them, of tokens)"""

    count: Annotated[Count, "how many"]
    documents: Annotated[Count, "documents that contain them"]
    first: Annotated[Count | None, "number of the first of these; null if there is none"]


class Place(TypedDict):
    """consecutive documents"""

    documents: Annotated[Count, "documents"]
    amount: Annotated[Count, "the sum of their lengths"]
    duplicates: Annotated[Count, "of them, documents that are equal to an earlier one"]
    groups: NotRequired[Annotated[list[Count], "tokens or bytes by value of the field (`--by`)"]]


class PlaceTable(TypedDict):
    """the corpus from its start to its end"""

    width: Annotated[Count, "rows of a part; the last one may have fewer"]
    groups: Annotated[list[str], "the values of the field that `parts` count; the last stands for all others"]
    parts: Annotated[list[Place], "the parts"]


class GroupShare(TypedDict):
    """a value of the field"""

    value: Annotated[str, "the value; `(no value)` and `(others)` for the rest"]
    documents: Annotated[Count, "documents"]
    amount: Annotated[Count, "the sum of their lengths"]
    share: Annotated[float, "its share"]


class GroupTable(TypedDict):
    """shares by a field"""

    field: Annotated[str, "the field"]
    distinct: Annotated[Count, "distinct values, at most 10,001"]
    values: Annotated[list[GroupShare], "the largest"]


class FileRow(TypedDict):
    """a file"""

    name: Annotated[str, "its name"]
    documents: Annotated[Count, "documents that begin in it"]
    amount: Annotated[Count, "the sum of their lengths"]


class FileTable(TypedDict):
    """files"""

    count: Annotated[Count, "number of files"]
    rows: Annotated[list[FileRow], "the first 40"]


class ScriptShare(TypedDict):
    """a script"""

    script: Annotated[str, "the script, or digits, white space and others"]
    share: Annotated[float, "its share of the characters"]


class TextFacts(TypedDict):
    """the beginnings of at most 1,000 random documents"""

    documents: Annotated[Count, "documents looked at"]
    bytes: Annotated[Count, "bytes of their text"]
    bytes_per_token: Annotated[float | None, "bytes of text per token; null without a tokenizer"]
    scripts: Annotated[list[ScriptShare], "shares of the scripts"]


class SampleDocument(TypedDict):
    """a document"""

    why: Annotated[Literal["first", "random", "shortest", "longest", "most repetitive"], "why it is shown"]
    number: Annotated[Count, "its number, from 0"]
    compressed: Annotated[float | None, "size that zlib compresses its beginning to, as a share; null if not tried"]
    text: Annotated[str | None, "its beginning; null if there are ids"]
    ids: Annotated[list[int] | None, "its first tokens; null for a text without `--tokenizer`"]
    pieces: Annotated[list[str] | None, "the texts of these tokens; null without a tokenizer"]
    is_whole: Annotated[bool, "whether this is all of it"]


class Contents(TypedDict):
    """the contents of a corpus"""

    unit: Annotated[Literal["tokens", "bytes"], "unit of the lengths; bytes of texts"]
    documents: Annotated[Count, "documents"]
    amount: Annotated[Count, "the sum of their lengths"]
    without_text: Annotated[Count, "rows without a text"]
    empty: Annotated[Count, "documents that are empty, or only an EOS token"]
    very_long: VeryLong
    duplicates: DuplicateFacts
    eos: Annotated[EosInDocuments | None, "null for texts, and if the EOS token is unknown"]
    controls: Annotated[Controls | None, "null for tokens without a tokenizer"]
    places: PlaceTable
    groups: Annotated[GroupTable | None, "null without `--by`"]
    files: FileTable
    text: Annotated[TextFacts | None, "null for tokens without a tokenizer"]
    samples: Annotated[list[SampleDocument], "samples; empty with `--samples 0`"]
