"""Types of the JSON results of `report`, `verify` and `validate`; see `facts`."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from fastpack.inspection.curation.contents_types import Contents
from fastpack.inspection.curation.media_types import Media
from fastpack.inspection.facts import (
    Bin,
    Count,
    DTypes,
    Eos,
    LossPerDocument,
    LossTokens,
    Summary,
    TurnsPerDocument,
)

Unit = Literal["tokens", "bytes"]
Severity = Annotated[Literal["error", "warning"], "the severity"]
Offset = Annotated[Count | None, "bytes from the start of the file; null if there is no such place"]


class Source(TypedDict):
    """a dataset"""

    name: Annotated[str, "the name"]
    path: Annotated[str, "the path"]
    kind: Annotated[str, "the format, as in `info`"]
    unit: Annotated[Unit, "unit of its lengths"]
    bytes: Annotated[Count, "the size"]
    files: Annotated[Count, "number of files"]
    documents: Annotated[Count | None, "documents (lines, samples); null if unknown"]
    tokens: Annotated[Count | None, "tokens; null if there are none or their number is unknown"]
    lengths: Annotated[Summary | None, "lengths of its documents"]
    eos: Eos
    loss_tokens: LossTokens
    loss_per_document: LossPerDocument
    turns_per_document: TurnsPerDocument
    contents: Annotated[
        Contents | None, "its documents; null with `--quick`, and if their boundaries or texts are unknown"
    ]
    media: Annotated[Media | None, "images, audio, video and other fields; null if it is no WebDataset"]


class DocumentLengths(TypedDict):
    """lengths of documents"""

    unit: Annotated[Unit, "unit of the lengths"]
    of: Annotated[Count, "number of sources with these lengths"]
    documents: Annotated[Count, "number of documents"]
    total: Annotated[Count, "sum of the lengths"]
    summary: Summary | None
    bins: Annotated[list[Bin], "ranges of lengths"]


class Packing(TypedDict):
    """blocks of one sequence length"""

    seq_len: Annotated[Count, "tokens of a block"]
    blocks: Annotated[Count, "whole blocks"]
    tokens_in_blocks: Annotated[float, "share of the tokens in whole blocks"]
    documents_cut: Annotated[float | None, "share of the documents that end in another block"]
    padding: Annotated[float | None, "share of padding if every document had its own block"]
    cut_off: Annotated[float | None, "share of the tokens that would then be truncated"]
    best_fit_rows: Annotated[Count | None, "rows of `fastpack plan`"]
    best_fit_padding: Annotated[float | None, "share of padding in these rows"]
    best_fit_cut: Annotated[float | None, "share of the documents that are divided, by best_fit or first_fit"]
    first_fit_rows: Annotated[Count | None, "rows with `--algorithm first_fit`, for documents in random order"]
    first_fit_padding: Annotated[float | None, "share of padding in these rows"]


class IdRank(TypedDict):
    """a point of the curve of token frequencies"""

    rank: Annotated[Count, "rank of an id by frequency, from 1"]
    tokens: Annotated[Count, "number of tokens with this id"]
    share_so_far: Annotated[float, "share of all tokens up to this rank"]


class FrequentId(TypedDict):
    """a frequent token id"""

    id: Annotated[int, "the token id"]
    text: Annotated[str | None, "the token as text; null without a tokenizer"]
    tokens: Annotated[Count, "number of tokens with this id"]
    share: Annotated[float, "their share of all tokens"]


class Ids(TypedDict):
    """frequencies of token ids"""

    vocab_size: Annotated[Count | None, "the vocabulary size, if known"]
    distinct: Annotated[Count, "ids that occur"]
    distinct_in_vocabulary: Annotated[Count, "of these, ids in the vocabulary"]
    largest: Annotated[int, "the largest id that occurs"]
    counted_below: Annotated[Count, "upper limit of the counted ids, exclusive"]
    tokens: Annotated[Count, "tokens that were counted"]
    outside: Annotated[Count, "tokens that were not counted: their ids are negative or too large"]
    ranks: Annotated[list[IdRank], "points of the curve of frequencies"]
    top: Annotated[list[FrequentId], "the most frequent ids"]


class FileBar(TypedDict):
    """a bar of the chart of file sizes"""

    source: Annotated[Count, "number of the source, from 0"]
    name: Annotated[str, "name of the file, or of the first and the last"]
    size: Annotated[Count, "size of the file, or the mean"]


class FileSizes(TypedDict):
    """sizes of files"""

    unit: Annotated[Unit, "unit of the sizes"]
    count: Annotated[Count, "number of files"]
    files_per_bar: Annotated[Count, "files that one bar represents"]
    summary: Annotated[Summary | None, "the sizes"]
    bars: Annotated[list[FileBar], "the bars of the chart"]


class MixtureShare(TypedDict):
    """a source in the mixture"""

    name: Annotated[str, "the source"]
    size: Annotated[Count, "its size"]
    share: Annotated[float, "its share of the data"]
    weight: Annotated[float | None, "its share of the training data; null if not given"]
    repeat: Annotated[float | None, "how often it is repeated in one epoch's amount of data; null if not given"]


class Mixture(TypedDict):
    """the mixture of sources"""

    unit: Annotated[Unit, "unit of the sizes"]
    parts: Annotated[list[MixtureShare], "the sources"]


class Across(TypedDict):
    """documents of several sources that are equal to one of an earlier source"""

    documents: Annotated[Count, "how many"]
    share: Annotated[float, "their share of the documents of all sources"]


class ReportWarning(TypedDict):
    """a warning of a report"""

    source: Annotated[str, "the source"]
    severity: Severity
    text: Annotated[str, "the warning"]


class ReportJson(TypedDict):
    """a page that was written"""

    path: Annotated[str, "the page"]
    written: Annotated[Literal[True], "the page was written"]
    kept_existing: Annotated[Literal[False], "no page was kept"]
    sources: Annotated[list[Source], "the datasets"]
    bytes: Annotated[Count, "size of all sources"]
    tokens: Annotated[Count | None, "tokens of all sources; null if one has none"]
    documents: Annotated[Count | None, "documents of all sources; null if one of them is unknown"]
    loss_tokens: Annotated[Count | None, "tokens that count in the loss; null if no source has a loss mask"]
    lengths: Annotated[DocumentLengths | None, "documents whose lengths are known; null if there are none"]
    packing: Annotated[list[Packing] | None, "blocks at sequence lengths from 2,048 to 131,072; null without tokens"]
    ids: Annotated[Ids | None, "frequencies of token ids; null without tokens"]
    across: Annotated[Across | None, "null for fewer than two sources whose documents can be compared"]
    files: FileSizes
    mixture: Annotated[Mixture | None, "null for one source"]
    warnings: Annotated[list[ReportWarning], "the warnings"]
    warnings_left_out: Annotated[Count, "further warnings"]


class KeptReportJson(TypedDict):
    """a page that was kept"""

    path: Annotated[str, "the page"]
    written: Annotated[Literal[False], "the page was not written"]
    kept_existing: Annotated[Literal[True], "a page existed and was kept (`--file-existence-policy skip`)"]


class DeepFinding(TypedDict):
    """a finding of `validate --deep`"""

    file: Annotated[str, "the file or folder"]
    offset: Offset
    what: Annotated[str, "the problem, one sentence"]


class DeepValidation(TypedDict):
    """with `--deep`: the contents of the shards"""

    dtypes: DTypes
    tokens: Annotated[Count, "tokens in all shards"]
    zero_tail_tokens: Annotated[Count, "of these, zeros at the ends of shards"]
    smallest_id: Annotated[int, "the smallest token id"]
    largest_id: Annotated[int, "the largest token id"]
    vocab_size: Annotated[Count | None, "the vocabulary size that ids were compared with, if known"]
    eos_tokens: NotRequired[Annotated[Count, "tokens that are `--eos-token-id`"]]
    samples: NotRequired[Annotated[Count, "samples of `--seq-len` tokens"]]
    samples_without_zero_tails: NotRequired[Annotated[Count, "samples if the zeros at the ends are left out"]]
    findings: Annotated[list[DeepFinding], "the problems"]


class ValidateJson(TypedDict):
    """a folder of token shards"""

    code: Annotated[Literal[0, 1], "the exit code; 1 if `--deep` found a problem"]
    path: Annotated[str, "the folder"]
    format: Annotated[Literal["bin", "npy"], "format of the shards"]
    shards: Annotated[Count, "number of shards"]
    bytes: Annotated[Count, "their size"]
    tokens: Annotated[Count, "their tokens"]
    dtype: Annotated[str, "NumPy dtype of the tokens"]
    tokenizer: Annotated[str | None, "tokenizer in tatm's metadata"]
    vocab_size: Annotated[Count | None, "vocabulary size in tatm's metadata"]
    compatible: Annotated[bool, "whether KempnerForge can train on it"]
    deep: NotRequired[DeepValidation]


class VerifyFinding(TypedDict):
    """a finding of `verify`"""

    severity: Severity
    file: Annotated[str, "the file"]
    offset: Offset
    found: Annotated[str, "the value found"]
    expected: Annotated[str, "the value expected"]


class VerifyJson(TypedDict):
    """one path"""

    path: Annotated[str, "the verified file or folder"]
    kind: Annotated[str, "the format"]
    sound: Annotated[bool, "whether there is no error; there may be warnings"]
    checked: Annotated[dict[str, Count], "what was checked -> how much of it"]
    findings: Annotated[list[VerifyFinding], "errors and warnings, at most 1,000"]
    more: Annotated[Count, "further findings"]


class FailedPath(TypedDict):
    """a path that could not be verified"""

    path: Annotated[str, "the path"]
    error: Annotated[str, "the reason"]


class SeveralPathsJson(TypedDict):
    """several paths"""

    sound: Annotated[bool, "whether there is no error in any of them, and all could be read"]
    reports: Annotated[list[VerifyJson], "the paths that could be verified"]
    failed: Annotated[list[FailedPath], "the others"]
