"""The results of pack jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

from fastpack.display import Result, facts


class Skipped(TypedDict):
    """A line that was skipped: its number in the file, from 1, the reason, and, of several sources, its source."""

    line: int
    reason: str
    source: NotRequired[str]


@dataclass(frozen=True, repr=False)
class PackResult(Result):
    """The result of packing into one file.

    Documents and skipped lines together are all lines of the sources.

    Attributes
    ----------
    path
        The file that was written.
    documents, tokens
        Number of documents and tokens in the file; every document ends with the EOS token, which counts.
    skipped
        The lines that were skipped, in order: ``{"line": number from 1, "reason": text}``, and ``"source"`` with
        several sources.
    kept_existing
        Whether the file existed and was kept. Nothing was done then, and all counts are 0.
    resumed_documents
        Number of documents that an earlier, interrupted run had packed.
    engine, engine_note
        The library that tokenised, and one sentence about the choice.
    eos_inside, documents_with_eos_inside
        Number of EOS tokens before the last token of their document, and number of documents that contain such tokens.
        A reader that finds documents by their EOS tokens finds more documents than there are.
    audited_documents
        Number of documents whose tokens were compared with those of the reference library.

    Examples
    --------
    >>> from fastpack import PackResult
    >>> PackResult("corpus.pbin", documents=2, tokens=9)
    PackResult(path='corpus.pbin', documents=2, tokens=9, skipped=0)
    """

    _shown = facts("path", "documents", "tokens", "skipped", "kept_existing")

    path: str
    documents: int
    tokens: int
    skipped: list[Skipped] = field(default_factory=list)
    kept_existing: bool = False
    resumed_documents: int = 0
    engine: str = ""
    engine_note: str | None = None
    eos_inside: int = 0
    documents_with_eos_inside: int = 0
    audited_documents: int = 0


@dataclass(frozen=True, repr=False)
class ChatResult(PackResult):
    """The result of packing conversations: a `PackResult` in which a document is a conversation.

    Attributes
    ----------
    loss_tokens
        Number of tokens that count in the loss.
    turns
        Number of messages.
    recognised
        Number of conversations of each form that was recognised: "messages" (OpenAI), "sharegpt" and "pairs" (a prompt
        and a completion); forms that did not occur are left out.
    rejected
        The result for the rejected conversations of preference pairs, of which this is then the result for the chosen
        ones; else None.

    Examples
    --------
    >>> from fastpack.packing.pack_result import ChatResult
    >>> ChatResult("sft.pbin", documents=2, tokens=90, loss_tokens=40, turns=4)
    ChatResult(path='sft.pbin', documents=2, tokens=90, loss_tokens=40, turns=4, skipped=0)
    """

    _shown = facts("path", "documents", "tokens", "loss_tokens", "turns", "skipped", "kept_existing")

    loss_tokens: int = 0
    turns: int = 0
    recognised: dict[str, int] = field(default_factory=dict)
    rejected: ChatResult | None = None
