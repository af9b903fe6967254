"""A pack job from settings to results: indexes, targets, tokenizer and engine, then the packing itself.

Where Modalities loses data, this does not: a document that cannot be packed is skipped and listed, and affects no other
document. Such documents are: an empty text (unless the tokenizer adds tokens to it; Modalities skips it, too), a result
that is not a string (null, a missing key, a number, an array), no result, invalid UTF-8 or JSON, a lone high surrogate
escape, and a token that does not fit into the token size of the file.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

from fastpack import io as files
from fastpack.documents.json_fields import compile_pattern
from fastpack.errors import DataWarning, spoken
from fastpack.io import Progress
from fastpack.io.atomic import OVERWRITE
from fastpack.packing.chat_encoder import ChatRenderer
from fastpack.packing.conversations.chat_settings import ChatSettings
from fastpack.packing.conversations.conversation import KINDS
from fastpack.packing.document_sample import sample_chats, sample_texts
from fastpack.packing.encoder import ChatCounts, Counts, EncoderSpec
from fastpack.packing.output_formats import stored_token_size
from fastpack.packing.pack_result import ChatResult, PackResult
from fastpack.packing.packing_pipeline import OutputFile, Packer
from fastpack.packing.settings import PackSettings
from fastpack.packing.source_indexes import NoteIndex, create_missing_indexes
from fastpack.packing.targets import Target, targets_of
from fastpack.packing.tokenizer_files import fingerprint_tokenizer
from fastpack.tokenizers.bytes_tokenizer import BytesTokenizer
from fastpack.tokenizers.engines import Choice, choose_engine
from fastpack.tokenizers.hf_tokenizer import HFTokenizer
from fastpack.tokenizers.interface import END_OF_TEXT, Tokenizer
from fastpack.tokens.journal import remove_finished_journal
from fastpack.tokens.token_facts import inner_eos_text
from fastpack.tokens.tokenizer_fingerprint import read_fingerprint


def pack_files(
    settings: PackSettings,
    *,
    progress: Progress | None = None,
    index_progress: Progress | None = None,
    note_index: NoteIndex | None = None,
) -> list[PackResult]:
    """Run a pack job: create missing indexes, tokenise and write every output file.

    progress, index_progress: called with (bytes done, bytes in all) of the sources. note_index(reason, stale): called
    before an index is created.
    """
    settings = create_missing_indexes(settings, progress=index_progress or progress, note=note_index)
    targets = targets_of(settings)
    spec, choice = prepare_encoder(settings)
    for target in targets:
        remove_finished_journal(target.output)
    to_write: list[Target] = []
    for target in targets:
        if is_to_write(target, settings):
            to_write.append(target)
        elif settings.resume:
            _check_tokenizer(target, spec)
    outputs = Packer(settings, spec, choice.tokenizer, progress).pack(to_write)
    by_path = {output.target.output: output for output in outputs}
    results: list[PackResult] = []
    for target in targets:
        output = by_path.get(target.output)
        if output is None:
            if settings.resume:
                _warn_of_newer_sources(target)
            kind = PackResult if settings.chat is None else ChatResult
            results.append(kind(target.output, 0, 0, kept_existing=True))
        else:
            results.append(_result(output, choice))
    return results


def _check_tokenizer(target: Target, spec: EncoderSpec) -> None:
    """Raise ValueError if a finished target was packed with another tokenizer than the one to resume with."""
    recorded = read_fingerprint(target.output)
    differences = recorded.differences(spec.fingerprint) if recorded and spec.fingerprint else []
    if differences:
        raise ValueError(
            f"{target.output}: complete, but packed with another tokenizer: {'; '.join(differences)}; overwrite it, or "
            "choose another output"
        )


def is_to_write(target: Target, settings: PackSettings) -> bool:
    """Return whether the target is to be packed; False: it exists and is kept. Raises TargetExists, ValueError."""
    finished_is_kept = settings.resume and settings.if_exists == "error"
    return files.may_write(target.output, "skip" if finished_is_kept else settings.if_exists)


def prepare_encoder(settings: PackSettings) -> tuple[EncoderSpec, Choice]:
    """Build the tokenizer and choose its engine; raise for everything in the settings that cannot work."""
    if settings.chat is not None:
        return _prepare_chat(settings, settings.chat)
    compile_pattern(settings.text_pattern)
    tokenizer = settings.tokenizer.build()
    n_bytes = stored_token_size(settings.format, tokenizer)
    eos_token, eos_token_id = _eos(settings, tokenizer)
    if eos_token_id >= 1 << (8 * n_bytes):
        raise ValueError(
            f"{spoken('settings.eod_token')}: {eos_token!r} has the id {eos_token_id}, which does not fit into the "
            f"{n_bytes} byte(s) of a token with a vocabulary of {tokenizer.vocab_size}"
        )
    choice = choose_engine(settings.tokenizer, tokenizer, settings.engine, lambda: sample_texts(settings))
    spec = EncoderSpec(
        settings.text_pattern,
        choice.spec,
        eos_token_id,
        n_bytes,
        eos_token,
        settings.special_tokens_in_text,
        settings.audit,
        fingerprint_tokenizer(settings.tokenizer, tokenizer, eos_token_id),
    )
    return spec, choice


def _prepare_chat(settings: PackSettings, chat: ChatSettings) -> tuple[EncoderSpec, Choice]:
    """As `prepare_encoder`, for conversations: their tokenizer adds no special tokens, the template does."""
    described = replace(settings.tokenizer, adds_special_tokens=False)
    tokenizer = described.build()
    if not isinstance(tokenizer, (HFTokenizer, BytesTokenizer)):
        raise ValueError(f"{spoken('tokenizer')}: conversations need a Hugging Face tokenizer (or `bytes`)")
    n_bytes = stored_token_size(settings.format, tokenizer, counts_added=True)
    renderer = ChatRenderer(chat, tokenizer)
    choice = choose_engine(described, tokenizer, settings.engine, lambda: sample_chats(settings, renderer))
    eos = tokenizer.tokens.get("eos_token") if isinstance(tokenizer, HFTokenizer) else END_OF_TEXT
    eos_token_id = None if eos is None else tokenizer.eod_id(str(eos))
    fingerprint = None if eos_token_id is None else fingerprint_tokenizer(described, tokenizer, eos_token_id)
    spec = EncoderSpec(
        settings.text_pattern,
        choice.spec,
        -1 if eos_token_id is None else eos_token_id,
        n_bytes,
        audit=settings.audit,
        fingerprint=fingerprint,
        chat=chat,
    )
    return spec, choice


def _eos(settings: PackSettings, tokenizer: Tokenizer) -> tuple[str, int]:
    """Return the EOS token and its id."""
    if settings.eos_token is not None:
        return settings.eos_token, tokenizer.eod_id(settings.eos_token)
    token_id = settings.eos_token_id
    assert token_id is not None
    token = tokenizer.token_of_id(token_id)
    if token is None:
        raise ValueError(f"{spoken('eos_token_id')}: the tokenizer has no token with the id {token_id}")
    return token, token_id


def _result(output: OutputFile, choice: Choice) -> PackResult:
    path = output.target.output
    if output.checkpoints is not None and output.checkpoints.stale:
        warnings.warn(
            f"{path}: the unfinished run has other settings or sources, so packing started again",
            DataWarning,
            stacklevel=4,
        )
    warn_of_inner_eos(path, output.counts)
    result = PackResult(
        path,
        output.writer.n_documents,
        output.writer.n_tokens,
        output.skipped,
        resumed_documents=output.resumed_documents,
        engine=choice.spec.engine,
        engine_note=choice.sentence,
        **output.counts._asdict(),
    )
    mask = output.writer.mask
    return result if mask is None else chat_result(result, mask.n_counted, output.chats)


def chat_result(result: PackResult, loss_tokens: int, chats: ChatCounts) -> ChatResult:
    """Return the result of packing conversations; DataWarning if no token counts."""
    if result.tokens and not loss_tokens:
        text = f"{result.path}: no token counts in the loss: the template renders nothing for the assistant"
        warnings.warn(text, DataWarning, stacklevel=5)
    kinds = {kind: getattr(chats, kind) for kind in KINDS if getattr(chats, kind)}
    return ChatResult(**vars(result), loss_tokens=loss_tokens, turns=chats.turns, recognised=kinds)


def warn_of_inner_eos(path: str, counts: Counts) -> None:
    """Issue a DataWarning for EOS tokens inside documents."""
    if counts.eos_inside:
        text = inner_eos_text(counts.eos_inside, counts.documents_with_eos_inside)
        option = spoken("special_tokens_in_text")
        warnings.warn(
            f"{path}: {text}. {option} split encodes the EOS text of documents as ordinary text, {option} skip skips "
            "such documents",
            DataWarning,
            stacklevel=5,
        )


def _warn_of_newer_sources(target: Target) -> None:
    """Warn that a finished file which is kept may lack changes of its sources."""
    packed = files.stat_of(target.output).st_mtime_ns
    newer = next((source for source in target.sources if files.stat_of(source.path).st_mtime_ns > packed), None)
    if newer is not None:
        text = f"{target.output} is complete and was kept, but {newer.path} has changed since"
        warnings.warn(f"{text}. {spoken(OVERWRITE)} to pack it again.", DataWarning, stacklevel=4)
