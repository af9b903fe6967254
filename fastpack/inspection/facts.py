"""Types of the results of `inspect`.

The JSON schemas and the page of results are generated from these annotations (`docs/make_json.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict


@dataclass(frozen=True, slots=True)
class Minimum:
    """The smallest value that a number may have; metadata of an annotation."""

    value: int


Count = Annotated[int, Minimum(0)]
DTypes = Annotated[list[str], "NumPy dtypes of the tokens"]
LargestId = Annotated[int | None, "the largest token id; null if the tokens were not read"]


class Summary(TypedDict):
    """minimum, percentiles, mean and maximum"""

    min: Count
    p1: Count
    p10: Count
    p25: Count
    median: Count
    mean: float
    p75: Count
    p90: Count
    p99: Count
    max: Count


Bin = TypedDict(
    "Bin",
    {
        "from": Annotated[Count, "lower limit of the lengths, inclusive"],
        "to": Annotated[Count, "upper limit, exclusive"],
        "documents": Annotated[Count, "documents of these lengths"],
        "total": Annotated[Count, "sum of their lengths"],
    },
)


class LengthHistogram(TypedDict):
    """distribution of the lengths of documents (lines, samples)"""

    of: Annotated[str, "the name of the summary of the same lengths"]
    bins: Annotated[list[Bin], "ranges of lengths"]


EosFacts = TypedDict(
    "EosFacts",
    {
        "id": Annotated[int, "the token id"],
        "from": Annotated[str, "how it was determined"],
        "tokens": Annotated[Count | None, "number of such tokens; null if the tokens were not read (`--quick`)"],
        "share": Annotated[float | None, "their share of all tokens; null if the tokens were not read"],
    },
)
Eos = Annotated[EosFacts | None, "the token that ends documents; null if unknown"]
Histogram = Annotated[LengthHistogram | None, "distribution of lengths; null if there are none or they are unknown"]
DocumentTokens = Annotated[Summary | None, "lengths of the documents in tokens"]
FileTokens = Annotated[Summary | None, "lengths of the files in tokens"]


class SamplesAt(TypedDict):
    """samples at one sequence length"""

    seq_len: Annotated[Count, "input tokens of a sample"]
    modalities: Annotated[Count, "samples in Modalities; the last label of a sample is the first input of the next"]
    kempnerforge: Annotated[Count, "samples in KempnerForge, which uses no token twice"]


class PackedSamplesAt(SamplesAt):
    """samples at one sequence length, of a packed file"""

    modalities_megatron: Annotated[
        Count | None, "samples of Modalities' Megatron dataset; null if documents overlap or leave gaps"
    ]


class PackingAt(TypedDict):
    """what a plan would give at one sequence length"""

    seq_len: Annotated[int, Minimum(1), "tokens of a row"]
    algorithm: Annotated[Literal["best_fit", "first_fit", "none"], "the algorithm of `fastpack plan`"]
    long: Annotated[Literal["split", "truncate", "drop"], "what happens to documents longer than a row"]
    rows: Annotated[Count, "rows; of first_fit, for documents in random order"]
    padding_share: Annotated[float, "share of the tokens of all rows that is padding"]
    documents_cut: Annotated[Count | None, "documents that are divided between rows, or truncated; null if unknown"]
    left_out: Annotated[Count, "tokens in no row"]


Packing = Annotated[
    list[PackingAt] | None, "what `fastpack plan` would give at each `--seq-len`; null if document lengths are unknown"
]


class Split(TypedDict):
    """a split"""

    shards: Annotated[Count, "number of shards"]
    samples: Annotated[Count | None, "number of samples"]


class FieldTotals(TypedDict):
    """a field of the samples"""

    count: Annotated[Count, "number of files"]
    bytes: Annotated[Count, "their size"]


Digest = Annotated[str | None, "hash of tokens and document ends, equal in every format; null without `--digest`"]


class InspectResult(dict[str, Any]):
    r"""Hold what `inspect` finds: a dict whose items are also attributes.

    `kind` is the format: "jsonl", "parquet", "idx", "pbin", "shards", "webdataset" and others. Each has a subclass
    whose annotations are its keys. The table of `fastpack info --json` in the documentation describes every key.

    Examples
    --------
    >>> import fastpack, tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "corpus.jsonl")
    >>> _ = path.write_text('{"text": "Hello"}\n')
    >>> found = fastpack.inspect(path)
    >>> found.lines, found["lines"], found.kind
    (1, 1, 'jsonl')
    >>> folder.cleanup()
    """

    path: Annotated[str, "the inspected file or folder"]
    bytes: Annotated[Count, "size of the data"]
    warnings: Annotated[list[str], "warnings, one sentence each"]

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}") from None

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as a plain dict.

        Returns
        -------
        dict
            A shallow copy, as JSON values.
        """
        return dict(self)


class FingerprintFacts(TypedDict):
    """the tokenizer that is recorded in the side files"""

    tokenizer: Annotated[str, "its name"]
    sha256: Annotated[str, "SHA-256 of its vocabulary files; empty for a tokenizer without files"]
    vocab_size: Annotated[Count, "number of token ids, added tokens included"]
    eos_token_id: Annotated[Count, "the token that ends documents"]


LossTokens = Annotated[Count | None, "tokens that count in the loss; null without a loss mask, or for a damaged one"]
LossPerDocument = Annotated[
    Summary | None, "tokens of a document that count in the loss; null without a loss mask, and with `--quick`"
]
TurnsPerDocument = Annotated[
    Summary | None, "runs of such tokens in a document: the turns of the assistant; null as `loss_per_document`"
]
Fingerprint = Annotated[FingerprintFacts | None, "the recorded tokenizer; null if it is not recorded for all files"]


class JsonlFacts(InspectResult):
    """JSON lines"""

    kind: Annotated[Literal["jsonl"], "JSON lines"]
    lines: Annotated[Count, "number of lines"]
    index: Annotated[str | None, "path of Modalities' index, if it exists"]
    energon_index: Annotated[str | None, "path of Energon's index, if it exists"]
    energon_samples: Annotated[Count | None, "samples in Energon's index"]
    line_bytes: Annotated[Summary | None, "lengths of the lines in bytes"]
    histogram: Histogram


class TableFacts(InspectResult):
    """a Parquet, Arrow, CSV, TSV or plain text source"""

    kind: Annotated[Literal["parquet", "arrow", "csv", "tsv", "text"], "the format of the source"]
    files: Annotated[Count, "number of files"]
    rows: Annotated[Count | None, "number of rows, or of documents of plain text; null if they were not read"]
    row_groups: Annotated[Count | None, "row groups (Parquet) or record batches (Arrow); null if unknown"]
    columns: Annotated[dict[str, str] | None, "column -> its Arrow type, in the first file; null for plain text"]
    compression: Annotated[list[str] | None, "codecs of the columns, or of the files; null if unknown (Arrow)"]
    text_field: Annotated[str | None, "the column of the texts; null for plain text, or if there is no such column"]
    nulls: Annotated[
        Count | None, "rows without a text: null, or with a wrong number of columns; null if texts were not read"
    ]
    text_bytes: Annotated[Summary | None, "lengths of the texts in bytes; null if they were not read"]
    histogram: Histogram


class IndexFacts(InspectResult):
    """an index"""

    kind: Annotated[Literal["idx"], "an index without its source"]
    entries: Annotated[Count, "number of entries"]
    line_bytes: Annotated[Summary | None, "lengths of the indexed lines in bytes"]
    histogram: Histogram


class PackedFacts(InspectResult):
    """a packed file"""

    kind: Annotated[Literal["pbin"], "a packed file"]
    generation: Annotated[int, Minimum(1), "generation of the format; the current one is 5"]
    token_size_in_bytes: Annotated[Literal[1, 2, 4], "bytes per token"]
    documents: Annotated[Count, "number of documents in the index"]
    tokens: Annotated[Count, "number of tokens"]
    document_tokens: DocumentTokens
    histogram: Histogram
    eos: Eos
    largest_id: LargestId
    eos_inside: Annotated[
        Count | None,
        "EOS tokens that are not the last token of their document; null if the tokens were not read or EOS is unknown",
    ]
    documents_with_eos_inside: Annotated[
        Count | None, "documents with such tokens, which a reader would split; null as `eos_inside`"
    ]
    samples_at: Annotated[list[PackedSamplesAt], "number of samples at each `--seq-len`"]
    packing: Packing
    fingerprint: Fingerprint
    loss_tokens: LossTokens
    loss_per_document: LossPerDocument
    turns_per_document: TurnsPerDocument
    digest: Digest


class ShardFacts(InspectResult):
    """token shards"""

    kind: Annotated[Literal["shards"], "token shards"]
    format: Annotated[Literal["bin", "npy"], "format of the files"]
    files: Annotated[Count, "number of files"]
    dtypes: DTypes
    tokens: Annotated[Count, "number of tokens"]
    zero_tail: Annotated[Count, "tokens that are unused space after the last document"]
    tokenizer: Annotated[str | None, "tokenizer in tatm's metadata"]
    vocab_size: Annotated[Count | None, "vocabulary size in tatm's metadata"]
    file_tokens: FileTokens
    documents: Annotated[
        Count | None, "documents, which end in the EOS token or with their file; null if EOS is unknown"
    ]
    document_tokens: DocumentTokens
    histogram: Histogram
    eos: Eos
    largest_id: LargestId
    samples_at: Annotated[list[SamplesAt], "number of samples at each `--seq-len`"]
    packing: Packing
    fingerprint: Fingerprint
    loss_tokens: LossTokens
    loss_per_document: LossPerDocument
    turns_per_document: TurnsPerDocument
    digest: Digest


class TokenFileFacts(InspectResult):
    """a token file of another system"""

    kind: Annotated[
        Literal["megatron", "datatrove", "olmo", "llmc", "nanogpt", "litdata", "mds"], "the format of the token file"
    ]
    files: Annotated[Count, "number of files of tokens"]
    dtypes: DTypes
    documents: Annotated[Count | None, "number of documents; null if the document boundaries are unknown"]
    tokens: Annotated[Count, "number of tokens"]
    document_tokens: DocumentTokens
    histogram: Histogram
    eos: Eos
    largest_id: LargestId
    samples_at: Annotated[list[SamplesAt], "number of samples at each `--seq-len`"]
    packing: Packing
    fingerprint: Fingerprint
    loss_tokens: LossTokens
    loss_per_document: LossPerDocument
    turns_per_document: TurnsPerDocument
    digest: Digest


class ManifestFacts(InspectResult):
    """a manifest"""

    kind: Annotated[Literal["manifest"], "a manifest of shards"]
    manifest_bytes: Annotated[Count, "size of the manifest"]
    files: Annotated[Count, "number of shards"]
    dtypes: DTypes
    tokens: Annotated[Count, "tokens in all shards"]
    documents: Annotated[Count | None, "documents in all shards; null if not counted"]
    checksums: Annotated[bool, "whether the manifest has a checksum of each shard"]
    times_count: Annotated[bool, "whether the modification times of the shards must match; not in a copy without times"]
    file_tokens: FileTokens
    samples_at: Annotated[list[SamplesAt], "number of samples at each `--seq-len`"]
    packing: Packing
    fingerprint: Fingerprint
    loss_tokens: LossTokens
    loss_per_document: LossPerDocument
    turns_per_document: TurnsPerDocument
    digest: Digest


class PlanFacts(InspectResult):
    """a packing plan"""

    kind: Annotated[Literal["plan"], "a packing plan"]
    algorithm: Annotated[Literal["best_fit", "first_fit", "none"], "the algorithm"]
    long: Annotated[Literal["split", "truncate", "drop"], "what happened to documents longer than a row"]
    seq_length: Annotated[int, Minimum(1), "tokens of a row"]
    max_documents: Annotated[Count | None, "documents in a row at most; null without a limit"]
    pad_to_multiple: Annotated[int, Minimum(1), "documents are padded to a multiple of this number of tokens"]
    seed: Annotated[Count | None, "seed of the order of rows; null for the order of packing"]
    data_parallel: Annotated[Count | None, "number of ranks of a balanced plan; null for other plans"]
    rows: Annotated[Count, "rows"]
    documents: Annotated[Count, "documents of which a segment is in some row"]
    tokens: Annotated[Count, "tokens in rows"]
    padding: Annotated[Count, "tokens that are missing in the rows"]
    padding_share: Annotated[float, "share of the tokens of all rows that is padding"]
    cuts: Annotated[Count, "places where a document is divided between two rows"]
    left_out: Annotated[Count, "tokens of long documents that are in no row"]
    sources: Annotated[list[str], "the token files, relative to the folder of the plan or absolute"]


class WebDatasetFacts(InspectResult):
    """a prepared WebDataset"""

    kind: Annotated[Literal["webdataset"], "a prepared WebDataset"]
    shards: Annotated[Count, "number of shards"]
    samples: Annotated[Count, "number of samples"]
    type: Annotated[str | None, "class of the samples; null without dataset.yaml"]
    fields: Annotated[dict[str, Any] | None, "expression of each field of a sample; null if there are none"]
    energon_version: Annotated[str | None, "version of Energon that prepared the dataset"]
    parts: Annotated[dict[str, FieldTotals] | None, "field -> its files and their size; null without a table of them"]
    split: Annotated[dict[str, Split] | None, "split -> its shards and samples; null without a split"]
    excluded: Annotated[Count, "entries that the split excludes"]
    sample_bytes: Annotated[Summary | None, "lengths of the samples in their shards in bytes"]
    histogram: Histogram


FACTS: dict[str, type[InspectResult]] = {
    "jsonl": JsonlFacts,
    **dict.fromkeys(("parquet", "arrow", "csv", "tsv", "text"), TableFacts),
    "idx": IndexFacts,
    "pbin": PackedFacts,
    "shards": ShardFacts,
    "manifest": ManifestFacts,
    "plan": PlanFacts,
    "webdataset": WebDatasetFacts,
    **dict.fromkeys(("megatron", "datatrove", "olmo", "llmc", "nanogpt", "litdata", "mds"), TokenFileFacts),
}
