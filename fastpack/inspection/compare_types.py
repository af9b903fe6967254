"""Types of the JSON result of `compare`; see `facts`."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from fastpack.inspection.facts import Bin, Count, Summary


class Version(TypedDict):
    """a version of the corpus"""

    path: Annotated[str, "the path"]
    documents: Annotated[Count, "documents; rows without a text are not counted"]
    total: Annotated[Count, "tokens, or bytes of all texts"]
    without_text: Annotated[Count, "rows without a text"]
    duplicates: Annotated[Count, "documents that are equal to an earlier one"]
    lengths: Annotated[Summary | None, "lengths of the documents; null if there are none"]
    bins: Annotated[list[Bin], "ranges of lengths"]


class ComparedExample(TypedDict):
    """a document that is only in one version, or that was changed"""

    change: Annotated[Literal["added", "removed", "changed"], "what happened to it"]
    first: Annotated[Count | None, "its number in the first version, from 0; null if it was added"]
    second: Annotated[Count | None, "its number in the second version, from 0; null if it was removed"]
    first_text: Annotated[
        str | None,
        "its start, or what differs, in the first version; null if added, or without a tokenizer",
    ]
    second_text: Annotated[str | None, "the same of the second version; null if it was removed, or as above"]


class ChangedId(TypedDict):
    """a token id whose share changed"""

    id: Annotated[int, "the token id"]
    text: Annotated[str | None, "the token as text; null without a tokenizer"]
    first_share: Annotated[float, "its share of the first version's tokens"]
    second_share: Annotated[float, "its share of the second version's tokens"]


class CompareJson(TypedDict):
    """two versions of a corpus"""

    unit: Annotated[Literal["tokens", "bytes"], "unit of the lengths: tokens of token files, bytes of texts"]
    matched_by: Annotated[str, "the field that says which documents belong together; `content` without `--id-field`"]
    same: Annotated[bool, "whether both versions have the same documents in the same order"]
    same_order: Annotated[bool, "whether the documents that are in both are in the same order"]
    unchanged: Annotated[Count, "documents that are in both versions"]
    added: Annotated[Count, "documents that are only in the second"]
    removed: Annotated[Count, "documents that are only in the first"]
    changed: Annotated[Count, "documents that were replaced by another; not counted as added or removed"]
    repeated_ids: Annotated[Count, "documents whose id an earlier one of their version has; 0 without `--id-field`"]
    without_id: Annotated[Count, "documents without an id, which are matched by content; 0 without `--id-field`"]
    first: Annotated[Version, "the first version"]
    second: Annotated[Version, "the second version"]
    ids: Annotated[list[ChangedId], "token ids whose share changed most; empty for texts"]
    examples: Annotated[list[ComparedExample], "some of the documents that differ"]
    warnings: Annotated[list[str], "warnings"]
    page: Annotated[str | None, "the HTML page; null without `--output`"]
