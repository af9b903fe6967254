"""The public function that packs conversations into token files with loss masks."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from fastpack.argument_aliases import accept_aliases
from fastpack.documents.source_paths import Sources
from fastpack.errors import JobError, vocabulary
from fastpack.io import ExistencePolicy, PathLike, Progress, as_path
from fastpack.packing.conversations.chat_settings import ChatSettings, Loss
from fastpack.packing.conversations.template_files import choose_templates
from fastpack.packing.document_sample import is_preference
from fastpack.packing.output_formats import PackFormat
from fastpack.packing.pack_job import pack_files
from fastpack.packing.pack_result import ChatResult
from fastpack.packing.settings import Engine, OnError, PackSettings, settings_of
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

ARGUMENTS = {
    "settings.src_path": "sources",
    "settings.dst_path": "output",
    "settings.index_path": "index_path",
    "settings.num_cpus": "num_workers",
    "tokenizer.config.pretrained_model_name_or_path": "tokenizer",
}


@accept_aliases(dst_path="output", num_cpus="num_workers", file_existence_policy="if_exists", on_faulty="on_error")
def pack_conversations(
    sources: Sources,
    output: PathLike | None = None,
    *,
    tokenizer: PathLike,
    chat_template: PathLike | None = None,
    loss: Loss = "assistant",
    messages_field: str | None = None,
    tools_field: str = "tools",
    format: PackFormat | None = None,
    num_workers: int | None = None,
    if_exists: ExistencePolicy = "error",
    on_error: OnError = "skip",
    engine: Engine = "auto",
    resume: bool = False,
    audit: float | None = None,
    progress: Progress | None = None,
) -> ChatResult:
    r"""Render conversations by the chat template of a tokenizer, and pack their tokens with a loss mask.

    This is the command ``fastpack chat``. The tokens of a conversation are those of transformers'
    ``apply_chat_template(messages, tools=tools)``, with no EOS token after them. The mask, in ``<output>.mask``, says
    which tokens count in the loss; datasets set the other labels to -100.

    Parameters
    ----------
    sources
        JSON Lines (also .gz and .zst), Parquet or Arrow files, directories, glob patterns, or a list of these. A row
        has one conversation, in a form that is recognised: messages with ``role`` and ``content`` (OpenAI), ShareGPT
        (``from`` and ``value``), a prompt and a completion, or a preference pair (``chosen`` and ``rejected``).
    output
        As for `pack`. Of preference pairs, two files with the same number of documents are written, whose names end in
        ``.chosen`` and ``.rejected`` before the suffix.
    tokenizer
        The directory of a Hugging Face tokenizer, its ``tokenizer.json``, ``"ORG/NAME"`` on the Hugging Face Hub, or
        ``"bytes"``.
    chat_template
        The path of a Jinja2 template, or the name of one of the tokenizer's templates. Default: the tokenizer's own.
    loss
        Which tokens count: those of all turns of the assistant, of its last turn, or all tokens. Of templates with
        ``{% generation %}`` blocks, the assistant's tokens are those that transformers marks
        (``return_assistant_tokens_mask``). Of others, they are what a turn adds to the text of the messages before it
        with the generation prompt; a conversation whose text does not begin with these is left out.
    messages_field, tools_field
        Keys of the messages and of the tools. By default the messages are those of ``messages``, ``conversations`` or
        ``conversation``, else a prompt and a completion.
    format, num_workers, if_exists, on_error, engine, resume, audit, progress
        As for `pack`.

    Returns
    -------
    ChatResult
        The result of `pack`, the number of tokens that count, and the recognised forms of conversations. Rows that are
        left out are in `skipped`, with the reason: the template refuses the conversation, a role is unknown, the row is
        truncated (the last message is not of the assistant), or there is no conversation in it.

    Raises
    ------
    ValueError
        As `pack`, and if the tokenizer has no template, or it cannot be compiled.
    FileExistsError, FileNotFoundError, StaleIndex, FormatError, JobError
        As `pack`.
    MissingExtra
        Without the package jinja2 (extra ``chat``).

    Examples
    --------
    >>> import json, tempfile
    >>> from pathlib import Path
    >>> import fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> source, template = Path(folder.name, "chats.jsonl"), Path(folder.name, "chat.jinja")
    >>> messages = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    >>> _ = source.write_text(json.dumps({"messages": messages}) + "\n")
    >>> _ = template.write_text("{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
    ...                         "{% if add_generation_prompt %}a:{% endif %}")
    >>> result = fastpack.pack_conversations(source, tokenizer="bytes", chat_template=template, num_workers=1)
    >>> result.documents, result.tokens, result.loss_tokens, result.recognised
    (1, 11, 2, {'messages': 1})
    >>> with fastpack.PackedFile(result.path) as file:
    ...     bytes(file[0].tolist()), bytes(file.data[file.loss_mask].tolist())
    (b'u:1+1?;a:2;', b'2;')
    >>> folder.cleanup()
    """
    with vocabulary(ARGUMENTS):
        settings = chat_settings(
            sources,
            output,
            tokenizer=tokenizer,
            chat_template=chat_template,
            loss=loss,
            messages_field=messages_field,
            tools_field=tools_field,
            format=format,
            num_workers=(os.cpu_count() or 1) if num_workers is None else num_workers,
            if_exists=if_exists,
            on_error=on_error,
            engine=engine,
            resume=resume,
            audit=audit,
        )
        return pack_chats(settings, progress)


def chat_settings(
    sources: Sources,
    output: PathLike | None,
    *,
    tokenizer: PathLike,
    chat_template: PathLike | None = None,
    loss: Loss = "assistant",
    messages_field: str | None = None,
    tools_field: str = "tools",
    **fields: Any,
) -> PackSettings:
    """Return the settings of a job; fields: other arguments of `settings_of`. Raises as `pack_conversations`."""
    name = os.fspath(tokenizer)
    described = TokenizerSpec.from_name(name)
    path = described.config.get("pretrained_model_name_or_path")
    folder = None if path is None else path if os.path.isdir(path) else os.path.dirname(path)
    given = None if chat_template is None else os.fspath(chat_template)
    template, tool_template = choose_templates(folder, given)
    chat = ChatSettings(
        template=template,
        tool_template=tool_template,
        messages_field=messages_field,
        tools_field=tools_field,
        loss=loss,
    )
    settings = settings_of(sources, output, tokenizer=described, chat=chat, **fields)
    is_pair = is_preference(settings, messages_field)
    return replace(settings, chat=replace(chat, preference="chosen")) if is_pair else settings


def pack_chats(settings: PackSettings, progress: Progress | None = None, **options: Any) -> ChatResult:
    """Pack conversations; of preference pairs, first the chosen, then the rejected ones."""
    results = [_packed(one, progress, options) for one in preference_settings(settings)]
    chosen, rejected = results[0], results[-1]
    if len(results) == 1:
        return chosen
    if chosen.documents != rejected.documents:
        raise JobError(f"{chosen.path} has {chosen.documents} documents and {rejected.path} {rejected.documents}")
    return replace(chosen, rejected=rejected)


def _packed(settings: PackSettings, progress: Progress | None, options: dict[str, Any]) -> ChatResult:
    (result,) = pack_files(settings, progress=progress, **options)
    assert isinstance(result, ChatResult)
    return result


def preference_settings(settings: PackSettings) -> list[PackSettings]:
    """Return the settings of each output: of preference pairs, one for the chosen and one for the rejected ones."""
    assert settings.chat is not None
    assert settings.output is not None
    if settings.chat.preference is None:
        return [settings]
    path = as_path(settings.output)
    return [
        replace(settings, chat=chat, output=os.fspath(path.with_name(f"{path.stem}.{name}{path.suffix}")))
        for name, chat in settings.chat.both_sides().items()
    ]
