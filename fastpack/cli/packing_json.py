"""Types of what `pack` and `chat` print with `--json`, and the values that results of several commands share."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from fastpack.inspection.facts import Count, Minimum

Written = Annotated[bool, "whether the output was written: not in a dry run, and not if it existed and was kept"]
Kept = Annotated[bool, "whether the output existed and was kept (`--if-exists skip`)"]
DryRun = Annotated[bool, "whether this was a dry run"]
IsDryRun = Annotated[Literal[True], "this was a dry run"]
NoDryRun = Annotated[Literal[False], "this was no dry run"]
Seconds = Annotated[float, "duration"]
Skipped = Annotated["list[SkippedDocument]", "documents that were skipped"]


class SkippedDocument(TypedDict):
    """a skipped document"""

    line: Annotated[int, Minimum(1), "line or row in the file, from 1"]
    reason: Annotated[str, "the reason"]
    source: NotRequired[Annotated[str, "the file, if there are several"]]


class ChatPartition(TypedDict):
    """a split of conversations"""

    name: Annotated[str, "name, such as `train`"]
    rows: Annotated[Count, "conversations"]
    jsonl_path: Annotated[str, "the texts"]
    index_path: Annotated[str | None, "index of the texts; null if there are no rows, as below"]
    pbin_path: Annotated[str | None, "the packed file"]
    pbin_config_path: Annotated[str | None, "configuration of the packed file"]
    documents: Annotated[Count, "documents packed; 0 in a dry run"]
    tokens: Annotated[Count, "tokens packed; 0 in a dry run"]
    skipped: Skipped


class ChatJson(TypedDict):
    """conversations"""

    folder: Annotated[str, "folder of the outputs"]
    config_path: Annotated[str, "copy of the configuration"]
    partitions: Annotated[list[ChatPartition], "the splits; empty if the folder was kept"]
    seconds: Seconds
    dry_run: DryRun
    kept_existing: Kept


class PackedJson(TypedDict):
    """a packed file"""

    path: Annotated[str, "the packed file"]
    documents: Annotated[Count, "documents in the file; 0 if it was kept"]
    tokens: Annotated[Count, "tokens in the file; 0 if it was kept"]
    skipped: Skipped
    written: Written
    kept_existing: Kept
    resumed_documents: Annotated[Count, "of these, documents that an earlier run had packed (`--resume`)"]
    engine: Annotated[str, "tokenizer library; empty for built-in bytes"]
    eos_inside: Annotated[Count, "EOS tokens that are not the last token of their document"]
    documents_with_eos_inside: Annotated[Count, "documents with such tokens, which a reader would split"]
    audited_documents: Annotated[Count, "documents on which the engine was compared with the reference tokenizer"]


class PackJson(PackedJson):
    """one packed file"""

    seconds: Seconds
    dry_run: NoDryRun


class RecognisedJson(TypedDict):
    """number of conversations of each form"""

    messages: NotRequired[Annotated[Count, "messages with role and content (OpenAI)"]]
    sharegpt: NotRequired[Annotated[Count, "messages with from and value (ShareGPT)"]]
    pairs: NotRequired[Annotated[Count, "a prompt and a completion"]]


class PackedChatJson(PackedJson):
    """a packed file of conversations"""

    loss_tokens: Annotated[Count, "tokens that count in the loss"]
    turns: Annotated[Count, "messages"]
    recognised: Annotated[RecognisedJson, "the recognised forms of conversations"]


class ChatPackJson(PackedChatJson):
    """packed conversations"""

    rejected: Annotated[PackedChatJson | None, "of preference pairs, the file of the rejected ones; else null"]
    seconds: Seconds
    dry_run: NoDryRun


class PackEachJson(TypedDict):
    """with `--per-source`"""

    files: Annotated[list[PackedJson], "the packed files"]
    seconds: Seconds
    dry_run: NoDryRun


class PlannedPackJson(TypedDict):
    """a packed file that would be written"""

    path: Annotated[str, "the packed file"]
    sources: Annotated[list[str], "its sources"]
    source_bytes: Annotated[Count, "their size"]
    lines: Annotated[Count | None, "their lines; null if they would have to be decompressed"]
    token_size_in_bytes: Annotated[Literal[1, 2, 4], "bytes per token"]
    engine: Annotated[str, "tokenizer library"]
    estimated_tokens: Annotated[Count | None, "estimate from a sample of the documents; null for compressed sources"]
    kept_existing: Kept
    estimated_documents: Annotated[Count | None, "estimate of the documents that can be packed; null as above"]
    estimated_loss_tokens: Annotated[Count | None, "estimate of the tokens that count in the loss; null for texts"]
    estimated_seconds: Annotated[
        float | None, "estimate of the time to encode them with `--num-workers`; null as above"
    ]


class PlannedPacksJson(TypedDict):
    """with `--dry-run`"""

    dry_run: IsDryRun
    files: Annotated[list[PlannedPackJson], "the packed files"]
