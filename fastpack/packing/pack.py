"""`pack_encoded_data`: JSONL files, tokenised and packed into one `.pbin`, byte for byte as Modalities, or `.npy`.

Where Modalities loses data, this does not: a document that cannot be packed is left out, named, and costs no other.
Such are: an empty text (Modalities calls it faulty too; only a tokenizer that adds tokens to an empty text makes it a
document), a result that is no string (null, a missing key, a number, an array), no result, invalid UTF-8 or JSON, a
lone high surrogate escape, and a token beyond the file's token size.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from fastpack import io as files
from fastpack.display import Result, facts
from fastpack.documents.json_fields import compile_pattern
from fastpack.errors import DataWarning, spoken
from fastpack.io import ExistencePolicy, PathLike, Progress
from fastpack.packing.audit import check_share
from fastpack.packing.document_sample import sample_texts
from fastpack.packing.encoder import Counts, EncoderSpec
from fastpack.packing.modalities_config import PackConfig, check_indexes, load_pack_config
from fastpack.packing.packing_pipeline import Options, Output, Run, Skipped
from fastpack.packing.special_tokens import RULES, SpecialRule
from fastpack.packing.targets import Target, one_target, target_each
from fastpack.tokenizers.engines import ENGINES, choose_engine
from fastpack.tokenizers.interface import Tokenizer, token_size
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec
from fastpack.tokens.flat.npy_writer import SMALLEST_TOKEN, is_npy
from fastpack.tokens.journal import remove_finished_journal
from fastpack.tokens.token_facts import inner_eos_text

Engine: TypeAlias = Literal["auto", "tokenizers", "gigatoken", "tiktoken", "sentencepiece"]
OnFaulty: TypeAlias = Literal["skip", "error"]
Config: TypeAlias = PathLike | Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class PackResult(Result):
    """What was packed.

    Attributes
    ----------
    skipped
        The lines that were left out. Documents and skipped lines together are all lines of the sources.
    kept_existing
        The target existed and was kept; nothing was done.
    resumed_documents
        Documents that an earlier run had packed.
    engine, engine_note
        The library that tokenised, and a sentence on why.
    eos_inside, documents_with_eos_inside
        EOS tokens that are not the last token of their document, and how many documents have such: whoever finds
        documents by their EOS reads more documents than there are.
    audited_documents
        Documents whose tokens were compared with those of the tokenizer's own library during the run.
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


def pack_encoded_data(
    config: Config,
    *,
    file_existence_policy: ExistencePolicy = "error",
    on_faulty: OnFaulty = "skip",
    engine: Engine = "auto",
    resume: bool = False,
    progress: Progress | None = None,
    special_tokens_in_text: SpecialRule = "keep",
    audit: float | None = None,
) -> PackResult:
    """Tokenise and pack what a Modalities configuration says (a YAML file, or a mapping of the same shape).

    `settings.src_path` may also be a list, a directory or a pattern, and .gz or .zst files: all go into one packed
    file, in order. A `settings.dst_path` that ends in .npy becomes a flat shard of the same tokens, uint16 or uint32,
    as `MemoryMappedDataset` takes them. The bytes written depend on neither `num_cpus` nor batch sizes nor `engine`.
    The target appears complete or not at all.

    on_faulty: "error" ends the run at the first document that cannot be packed. engine: what tokenises; "auto" takes
    the fastest that is installed and gives the very ids of the slowest on a sample of the documents and on hard texts.
    resume: go on where a killed or failed run of the same work was at its last checkpoint; a target that is there
    counts as finished; when this run fails, its own checkpoints stay. progress(done, total): bytes of the sources.
    special_tokens_in_text: what becomes of a text that contains a special token of the tokenizer, such as a literal
    "<|endoftext|>": "keep" encodes it as that token, as Modalities does, and warns where documents then have EOS tokens
    inside; "split" encodes it as ordinary text (the ids of transformers' `split_special_tokens=True`, the same for
    every engine); "skip" leaves the document out; "error" stops. SentencePiece: the EOS token alone, where it is a
    user-defined symbol. audit: the share of the documents, from 0 to 1, that are tokenised again by the tokenizer's own
    library where a faster engine runs it, chosen at random; None: as many as take 8 % of the time. The first
    document that differs ends the run with a JobError, and nothing is kept.

    Raises ValueError and FileNotFoundError for the configuration (`load_pack_config`) and the tokenizer; TargetExists
    (a ValueError) when the target is there; ValueError naming file, line, byte offset and reason for a faulty document
    under "error"; StaleIndex (a FormatError) for the index of a single source that does not belong to it as it is now;
    FormatError for damaged compressed files; JobError when a worker process dies, or another run is writing the target.
    """
    options = _options(file_existence_policy, on_faulty, resume, progress, special_tokens_in_text, audit)
    checked = check_indexes(load_pack_config(config))
    return _pack(checked, one_target(checked.settings), options, engine)[0]


def pack_each(
    config: Config,
    *,
    file_existence_policy: ExistencePolicy = "error",
    on_faulty: OnFaulty = "skip",
    engine: Engine = "auto",
    resume: bool = False,
    progress: Progress | None = None,
    special_tokens_in_text: SpecialRule = "keep",
    audit: float | None = None,
) -> list[PackResult]:
    """As `pack_encoded_data`, but each source into a packed file of its own, beside it or in the folder `dst_path`.

    There, folders between the sources' common folder and each source come again. The processes share the work by
    bytes, not by files. Policy and `resume` hold for each file on its own: those that are finished are not done again.
    Raises ValueError as well where two sources would have the same packed file, before anything is written.
    """
    options = _options(file_existence_policy, on_faulty, resume, progress, special_tokens_in_text, audit)
    checked = check_indexes(load_pack_config(config, one_output=False))
    return _pack(checked, target_each(checked.settings), options, engine)


def _options(
    policy: ExistencePolicy,
    on_faulty: OnFaulty,
    resume: bool,
    progress: Progress | None,
    special: SpecialRule,
    audit: float | None,
) -> Options:
    if on_faulty not in ("skip", "error"):
        raise ValueError(f"unknown rule for faulty documents {on_faulty!r}: choose skip or error")
    check_rules(special, audit)
    return Options(policy, on_faulty == "error", resume, progress, special, audit)


def check_rules(special: SpecialRule, audit: float | None) -> None:
    """ValueError for an unknown rule for special tokens, or a share of documents that is none."""
    if special not in RULES:
        name = spoken("special_tokens_in_text")
        raise ValueError(f"{name}: found {special!r}, expected one of {', '.join(RULES)}")
    check_share(audit)


def _pack(config: PackConfig, targets: Sequence[Target], options: Options, engine: Engine) -> list[PackResult]:
    spec, tokenizer, note = prepare(config, engine, options.special, options.audit)
    for target in targets:
        remove_finished_journal(target.dst_path)
    missing = [target for target in targets if is_to_write(target, options.policy, options.resume)]
    packed = {output.target.dst_path: output for output in Run(config, spec, tokenizer, options).pack(missing)}
    results: list[PackResult] = []
    for target in targets:
        output = packed.get(target.dst_path)
        if output is None and options.resume:
            _warn_of_newer_sources(target)
        kept = PackResult(target.dst_path, 0, 0, kept_existing=True)
        results.append(kept if output is None else _result(output, spec.tokenizer.engine, note))
    return results


def _result(output: Output, engine: str, note: str | None) -> PackResult:
    if output.writer.stale:
        warnings.warn(
            f"{output.target.dst_path}: the unfinished work found was of another configuration or other files; "
            "it was started anew",
            DataWarning,
            stacklevel=4,
        )
    warn_of_eos(output.target.dst_path, output.counts)
    return PackResult(
        output.target.dst_path,
        output.writer.n_documents,
        output.writer.n_tokens,
        output.skipped,
        resumed_documents=output.resumed_documents,
        engine=engine,
        engine_note=note,
        **output.counts._asdict(),
    )


def warn_of_eos(path: str, counts: Counts) -> None:
    """DataWarning for EOS tokens inside documents."""
    if counts.eos_inside:
        text = inner_eos_text(counts.eos_inside, counts.documents_with_eos_inside)
        option = spoken("special_tokens_in_text")
        warnings.warn(
            f"{path}: {text}. {option} split encodes the EOS text of documents as ordinary text, skip leaves such "
            "documents out",
            DataWarning,
            stacklevel=5,
        )


def _warn_of_newer_sources(target: Target) -> None:
    """Say that a finished file that stays may lack what its sources hold now."""
    packed = files.stat_of(target.dst_path).st_mtime_ns
    newer = next((source for source in target.sources if files.stat_of(source.path).st_mtime_ns > packed), None)
    if newer is not None:
        text = f"{target.dst_path} is finished and was kept, but {newer.path} was changed after it: override (--force)"
        warnings.warn(f"{text} packs it again", DataWarning, stacklevel=4)


def is_to_write(target: Target, policy: ExistencePolicy, resume: bool) -> bool:
    """Whether the target is to be packed; False: it is there and stays. Raises as `files.may_write`."""
    return files.may_write(target.dst_path, "skip" if resume and policy == "error" else policy)


def prepare(
    config: PackConfig, engine: Engine, special: SpecialRule = "keep", audit: float | None = None
) -> tuple[EncoderSpec, Tokenizer, str | None]:
    """What workers build their encoder from, the tokenizer, and a sentence on the engine; raises what is wrong."""
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}: choose one of {', '.join(ENGINES)}")
    settings = config.settings
    compile_pattern(settings.jq_pattern)
    spec = TokenizerSpec(config.tokenizer.variant_key, config.tokenizer.config)
    tokenizer = spec.build()
    size = token_size(tokenizer.vocab_size)
    if settings.dst_path is not None and is_npy(settings.dst_path):
        size = max(size, SMALLEST_TOKEN)
    eod = tokenizer.eod_id(settings.eod_token)
    if eod >= 1 << (8 * size):
        raise ValueError(
            f"{spoken('settings.eod_token')}: {settings.eod_token!r} has the id {eod}, which does not fit into the "
            f"{size} byte(s) a token takes with a vocabulary of {tokenizer.vocab_size}"
        )
    spec, tokenizer, note = choose_engine(spec, tokenizer, engine, lambda: sample_texts(settings))
    chosen = EncoderSpec(settings.jq_pattern, spec, eod, size, settings.eod_token, special, audit)
    return chosen, tokenizer, note
