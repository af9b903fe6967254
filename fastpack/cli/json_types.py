"""Types of what commands print with `--json`.

`docs/make_json.py` generates the JSON schemas and the page of results from them, and the tests check every command
against its schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from fastpack.cli.packing_json import (
    ChatJson,
    ChatPackJson,
    DryRun,
    IsDryRun,
    Kept,
    NoDryRun,
    PackEachJson,
    PackJson,
    PlannedPacksJson,
    Seconds,
    Written,
)
from fastpack.inspection.compare_types import CompareJson
from fastpack.inspection.facts import FACTS, Count, DTypes, Minimum
from fastpack.inspection.plan_types import PlanJson
from fastpack.inspection.preview_types import (
    LinesPreviewJson,
    PackedPreviewJson,
    RowsPreviewJson,
    SamplesPreviewJson,
    ShardsPreviewJson,
)
from fastpack.inspection.report_types import KeptReportJson, ReportJson, SeveralPathsJson, ValidateJson, VerifyJson
from fastpack.inspection.trace_types import TraceDocumentJson, TraceStepJson


class TaskJson(TypedDict):
    """one rank (`--rank`)"""

    rank: Annotated[Count, "the rank"]
    world_size: Annotated[int, Minimum(1), "number of ranks"]
    tasks: Annotated[Count, "tasks of this rank, all of them done"]
    done_before: Annotated[Count, "of these, tasks that an earlier run had done"]
    left: Annotated[Count, "tasks of other ranks that are not done yet"]
    folder: Annotated[str, "folder of the tasks' results"]
    dry_run: NoDryRun


class Rates(TypedDict):
    """speed of batches"""

    tokens_per_second: Annotated[Count, "tokens per second of wall time"]
    tokens_per_cpu_second: Annotated[Count, "tokens per second of CPU time of all threads"]


class ColdRates(Rates):
    """speed of batches, with the files dropped from memory"""

    in_cache_before: Annotated[float, "share of the files that the system kept in memory"]


class BenchJson(TypedDict):
    """a benchmark"""

    path: Annotated[str, "the dataset"]
    samples: Annotated[Count, "samples in the dataset"]
    seq_len: Annotated[Count, "tokens per sample"]
    batch_size: Annotated[Count, "samples per batch"]
    outputs: Annotated[list[str], "arrays of a batch"]
    kernels: Annotated[Literal["numba", "cython", "numpy"], "backend of the kernels"]
    warm: Annotated[Rates, "with the files in memory"]
    cold: Annotated[ColdRates, "after the system was asked to drop the files"]
    memcpy: Annotated[Rates, "copying the same arrays"]
    memcpy_ratio: Annotated[float, "`warm` divided by `memcpy`, by CPU time"]
    torch: Annotated[Rates | None, "torch's DataLoader; null if torch is not installed"]


class EditJson(TypedDict):
    """the output file"""

    path: Annotated[str, "the output"]
    documents: Annotated[Count, "documents in the output (lines, of a JSONL file); 0 if it was kept"]
    tokens: Annotated[Count | None, "tokens in the output; null for a JSONL file"]
    bytes: Annotated[Count, "size of the output"]
    sources: Annotated[Count, "files read"]
    left_out: Annotated[Count, "documents that `filter` excluded"]
    n_empty_dropped: Annotated[Count, "documents without tokens that the format cannot store"]
    written: Written
    kept_existing: Kept
    dry_run: DryRun


class CompletionJson(TypedDict):
    """a completion script"""

    shell: Annotated[Literal["bash", "zsh", "fish"], "the shell"]
    script: Annotated[str, "the script"]


class DoctorJson(TypedDict):
    """the state of the installation"""

    versions: Annotated[str, "fastpack, Python, NumPy, Numba and processor features"]
    facts: Annotated[dict[str, str], "kernels, cache folder, memory, environment variables, access to the store"]
    extras: Annotated[dict[str, list[str]], "extra -> its packages, each with its version or `not installed`"]
    problems: Annotated[list[str], "what is wrong, and what to do"]


class FetchJson(TypedDict):
    """fetched objects"""

    path: Annotated[str, "the URL"]
    objects: Annotated[int, Minimum(1), "objects that are now in the cache"]
    bytes: Annotated[Count, "their size"]
    cache: Annotated[str, "folder of the cache"]


class FixDuplicatesJson(TypedDict):
    """a copy of a WebDataset"""

    source: Annotated[str, "the folder that was copied"]
    target: Annotated[str, "the folder of the copies"]
    samples: Annotated[Count, "samples in all shards"]
    shards: Annotated[dict[str, Count], "shard -> samples"]
    bytes: Annotated[Count, "size of the copies"]
    dry_run: DryRun


class IndexedFile(TypedDict):
    """the index of a file"""

    path: Annotated[str, "the index"]
    entries: Annotated[Count, "lines in the index; 0 if it was kept"]
    dropped: Annotated[Count, "faulty lines that were dropped"]
    source_bytes: Annotated[Count, "size of the raw file; 0 if the index was kept"]
    written: Written
    kept_existing: Kept


class IndexJson(IndexedFile):
    """one file"""

    dry_run: NoDryRun


class IndicesJson(TypedDict):
    """several files or a folder"""

    files: Annotated[list[IndexedFile], "the indexes"]
    dry_run: NoDryRun


class PlannedIndex(TypedDict):
    """the index that a file would get"""

    source: Annotated[str, "the raw file"]
    path: Annotated[str, "the index"]
    source_bytes: Annotated[Count, "size of the raw file"]
    kept_existing: Kept


class PlannedIndicesJson(TypedDict):
    """with `--dry-run`"""

    dry_run: IsDryRun
    files: Annotated[list[PlannedIndex], "the indexes"]


class RepairedIndexJson(TypedDict):
    """with `--repair-legacy`"""

    path: Annotated[str, "the index"]
    changed: Annotated[Count, "lengths that were corrected"]


class ManifestJson(TypedDict):
    """a manifest"""

    path: Annotated[str, "the manifest"]
    shards: Annotated[int, Minimum(1), "number of shards"]
    tokens: Annotated[Count, "tokens in all shards"]
    documents: Annotated[Count | None, "documents in all shards; null if not counted"]
    bytes: Annotated[Count, "size of all shards"]
    dtypes: DTypes
    checksums: Annotated[bool, "whether the manifest has a checksum of each shard"]
    manifest_bytes: Annotated[Count, "size of the manifest"]
    warnings: Annotated[list[str], "warnings about shards"]
    written: Written
    kept_existing: Kept


class ConvertJson(TypedDict):
    """a converted token file"""

    output: Annotated[str, "the output: a file, a folder, or the common prefix of several files"]
    outputs: Annotated[list[str], "all outputs: the shards in order, or only `output`"]
    format: Annotated[str, "its format"]
    dtype: Annotated[str, "dtype of its tokens; empty if an existing output was kept"]
    n_documents: Annotated[Count | None, "number of documents; null if their boundaries are unknown"]
    n_tokens: Annotated[Count, "number of tokens"]
    n_empty_dropped: Annotated[Count, "documents without tokens that were left out"]
    n_tokens_dropped: Annotated[Count, "tokens in no document that were left out"]
    digest: Annotated[str | None, "hash of tokens and document ends; null without `--digest`"]
    written: Annotated[bool, "false if the output existed and was kept"]


class MountJson(TypedDict):
    """a mounted dataset; printed before the folder is mounted"""

    path: Annotated[str, "the dataset"]
    target: Annotated[str, "the folder"]
    detached: Annotated[bool, "whether the mount runs in the background"]


class MediaJson(TypedDict):
    """media metadata"""

    path: Annotated[str, "the dataset"]
    media: Annotated[Count | None, "fields whose metadata were read; null in a dry run"]
    files: Annotated[list[str], "files written"]
    dry_run: DryRun


class PrepareJson(TypedDict):
    """a folder of tar shards"""

    path: Annotated[str, "the dataset"]
    written: Written
    samples: Annotated[Count, "samples in all shards"]
    shards: Annotated[dict[str, Count], "shard -> samples; 0 in a dry run if unknown"]
    splits: Annotated[dict[str, list[str]], "split -> shards"]
    part_types: Annotated[list[str], "names of the fields of samples"]
    reused: Annotated[Count, "shards that did not have to be read"]
    skipped: Annotated[dict[str, str], "damaged shard that was skipped -> reason"]
    warnings: Annotated[list[str], "warnings"]
    files: Annotated[list[str], "files written into `.nv-meta`"]
    media: Annotated[Count, "fields whose metadata were read"]
    dry_run: DryRun


class PreparedJsonlJson(TypedDict):
    """a JSONL file"""

    path: Annotated[str, "the index"]
    source_bytes: Annotated[Count, "size of the JSONL file"]
    samples: Annotated[Count | None, "number of lines; null in a dry run"]
    written: Annotated[bool, "whether the index was written: not in a dry run"]
    dry_run: DryRun


class MetadatasetJson(TypedDict):
    """a metadataset"""

    path: Annotated[str, "the metadataset"]
    joins: Annotated[dict[str, Count | None], "index of a join -> rows; null if it existed"]
    removed: Annotated[list[str], "indexes of joins that no longer exist"]
    warnings: Annotated[list[str], "warnings"]
    dry_run: DryRun


class Stage(TypedDict):
    """a stage of the quickstart"""

    stage: Annotated[Literal["gather", "index", "pack", "batches"], "the name"]
    amount: Annotated[str, "the amount of work, as text"]
    seconds: Seconds
    rate: Annotated[float, "`rate_unit` per second"]
    rate_unit: Annotated[str, "the unit, such as `MB/s` (10^6 bytes) or `Mtok/s`"]


class QuickstartFiles(TypedDict):
    """absolute paths of the files"""

    jsonl: Annotated[str, "the text"]
    idx: Annotated[str, "its index"]
    pbin: Annotated[str, "its tokens"]


class QuickstartJson(TypedDict):
    """the quickstart"""

    stages: Annotated[list[Stage], "the stages, in order"]
    memcpy_ratio: Annotated[float, "speed of batches divided by that of copying the same arrays"]
    bytes: Annotated[int, Minimum(1), "size of the files"]
    files: Annotated[QuickstartFiles | None, "the files; null if they were in a temporary folder, which is removed"]


class InitJson(TypedDict):
    """a starter script"""

    path: Annotated[str, "the script"]
    data: Annotated[str | None, "the data that it packs; null if the script was kept"]
    tokenizer: Annotated[str | None, "the tokenizer; null if the script was kept"]
    framework: Annotated[Literal["torch", "numpy"] | None, "the framework; null if the script was kept"]
    written: Written


class RepairJson(TypedDict):
    """a repaired file"""

    path: Annotated[str, "the output"]
    problem: Annotated[str, "the problem; empty if there was none"]
    documents: Annotated[Count, "documents in the output (lines, of an index)"]
    tokens: Annotated[Count | None, "tokens in the output; null for an index"]
    lost_bytes: Annotated[Count, "bytes of the source that belong to no whole document or line"]
    written: Annotated[bool, "whether the output was written: not in a dry run, without a problem, or if it was kept"]
    dry_run: DryRun


JSON_TYPES: dict[str, tuple[type[Any], ...]] = {  # command -> the types of its results
    "bench": (BenchJson,),
    "chat": (ChatJson, ChatPackJson, PlannedPacksJson, TaskJson),
    "chunk": (EditJson, TaskJson),
    "compare": (CompareJson,),
    "convert": (ConvertJson,),
    "completion": (CompletionJson,),
    "doctor": (DoctorJson,),
    "fetch": (FetchJson,),
    "filter": (EditJson,),
    "fix-duplicates": (FixDuplicatesJson,),
    "init": (InitJson,),
    "index": (IndexJson, IndicesJson, PlannedIndicesJson, RepairedIndexJson, TaskJson),
    "info": tuple(dict.fromkeys(FACTS.values())),
    "manifest": (ManifestJson,),
    "merge": (EditJson, TaskJson),
    "mount": (MountJson,),
    "pack": (PackJson, PackEachJson, PlannedPacksJson, TaskJson),
    "plan": (PlanJson,),
    "prepare": (PrepareJson, PreparedJsonlJson, MetadatasetJson, TaskJson),
    "prepare-media": (MediaJson,),
    "preview": (PackedPreviewJson, ShardsPreviewJson, LinesPreviewJson, RowsPreviewJson, SamplesPreviewJson),
    "quickstart": (QuickstartJson,),
    "repair": (RepairJson,),
    "report": (ReportJson, KeptReportJson),
    "shuffle": (EditJson, TaskJson),
    "trace": (TraceStepJson, TraceDocumentJson),
    "validate": (ValidateJson,),
    "verify": (VerifyJson, SeveralPathsJson, TaskJson),
}
