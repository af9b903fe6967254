"""Types of the JSON results of `preview`; see `facts`."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from fastpack.inspection.facts import Count

FirstIds = Annotated[list[int], "the first `--max-tokens` token ids"]
EndsWithEos = Annotated[bool | None, "whether the last token is `eos_token_id`; null if unknown"]
Pieces = Annotated[
    list[str] | None, "text of each token, `\\xe6` for a byte that is not a whole character; null without a tokenizer"
]
NTokens = Annotated[Count | None, "number of tokens; null if the end is too far away to be searched for"]


class PackedDocument(TypedDict):
    """a document of a packed file"""

    document: Annotated[Count, "its number, from 0"]
    start: Annotated[Count, "position of its first token in the file"]
    tokens: NTokens
    ids: FirstIds
    pieces: Pieces
    ends_with_eos: EndsWithEos
    text: Annotated[str | None, "text of `ids`; null without a tokenizer"]
    loss_mask: NotRequired[Annotated[list[bool], "whether each of `ids` counts in the loss; only with a loss mask"]]


class ShardDocument(TypedDict):
    """a document of a shard"""

    file: Annotated[str, "the shard"]
    document: Annotated[Count | None, "its number in the shard, from 0; null if unknown"]
    start: Annotated[Count, "position of its first token in the shard"]
    tokens: NTokens
    ids: FirstIds
    pieces: Pieces
    ends_with_eos: EndsWithEos
    text: Annotated[str | None, "text of `ids`; null without a tokenizer"]


class PreviewLine(TypedDict):
    """a line of a JSONL file"""

    line: Annotated[Count, "its number, from 0"]
    start: Annotated[Count | None, "position of its first byte; null in a compressed file"]
    bytes: Annotated[Count | None, "its length; null if the end is too far away to be searched for"]
    text: Annotated[str, "the first `--max-characters` of the text that is packed, escaped; of the line if `error`"]
    error: Annotated[str | None, "why packing would skip it"]
    tokens: NotRequired[NTokens]
    ids: NotRequired[FirstIds]
    pieces: NotRequired[Pieces]
    ends_with_eos: NotRequired[EndsWithEos]


class PreviewRow(TypedDict):
    """a row of a Parquet, Arrow, CSV or TSV file, or a document of a plain text file"""

    file: Annotated[str, "the file"]
    row: Annotated[Count, "its number in the file, from 0"]
    bytes: Annotated[Count | None, "length of the text; null if there is none"]
    text: Annotated[str | None, "the first `--max-characters` of the text, escaped; null if there is none"]
    error: Annotated[str | None, "why packing would skip it"]
    tokens: NotRequired[NTokens]
    ids: NotRequired[FirstIds]
    pieces: NotRequired[Pieces]
    ends_with_eos: NotRequired[EndsWithEos]


class PreviewField(TypedDict):
    """a field of a sample"""

    name: Annotated[str, "the name"]
    bytes: Annotated[Count, "the size"]
    kind: Annotated[Literal["text", "image", "bytes"], "the kind of content"]
    text: NotRequired[Annotated[str, "start of a text"]]
    width: NotRequired[Annotated[Count, "width of an image in pixels"]]
    height: NotRequired[Annotated[Count, "height of an image in pixels"]]
    mode: NotRequired[Annotated[str, "Pillow's mode of an image"]]
    format: NotRequired[Annotated[str | None, "Pillow's format of an image"]]
    error: NotRequired[Annotated[str, "why an image cannot be shown"]]


class PreviewSample(TypedDict):
    """a sample of a WebDataset"""

    index: Annotated[Count, "its number, from 0"]
    key: Annotated[str, "its key"]
    parts: Annotated[list[PreviewField], "its fields"]


class Preview(TypedDict):
    """a preview"""

    path: Annotated[str, "the file or folder"]


class TokenPreview(Preview):
    """a preview of tokens"""

    tokenizer: Annotated[str | None, "path or name of the tokenizer, if any"]
    eos_token_id: Annotated[int | None, "the token that ends a document; null if unknown"]


class PackedPreviewJson(TokenPreview):
    """a packed file"""

    kind: Annotated[Literal["pbin"], "a packed file"]
    documents: Annotated[list[PackedDocument], "documents from `--start` on"]


class ShardsPreviewJson(TokenPreview):
    """token shards"""

    kind: Annotated[Literal["shards"], "token shards"]
    files: Annotated[Count, "number of shards"]
    dtype: Annotated[str, "dtype of the first shard"]
    dtype_from: Annotated[
        Literal["header", "metadata", "size", "option", "manifest"], "where the dtype was determined from"
    ]
    documents: Annotated[list[ShardDocument], "documents; spans of `--max-tokens` if `eos_token_id` is unknown"]


class LinesPreviewJson(TokenPreview):
    """JSON lines"""

    kind: Annotated[Literal["jsonl"], "JSON lines"]
    lines: Annotated[list[PreviewLine], "lines from `--start` on; with tokens if `--tokenizer` is given"]


class RowsPreviewJson(TokenPreview):
    """a Parquet, Arrow, CSV, TSV or plain text source"""

    kind: Annotated[Literal["parquet", "arrow", "csv", "tsv", "text"], "the format of the source"]
    files: Annotated[Count, "number of files"]
    rows: Annotated[list[PreviewRow], "rows from `--start` on; with tokens if `--tokenizer` is given"]


class SamplesPreviewJson(Preview):
    """a prepared WebDataset"""

    kind: Annotated[Literal["webdataset"], "a prepared WebDataset"]
    samples: Annotated[list[PreviewSample], "samples from `--start` on"]
