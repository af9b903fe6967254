"""`prepare_instruction_tuning_data`: apply a chat template to conversations, split, index and pack them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from fastpack.argument_aliases import accept_aliases
from fastpack.display import Result, facts
from fastpack.documents.create_index import create_raw_index
from fastpack.documents.json_fields import compile_pattern
from fastpack.documents.source_paths import InputNotFound
from fastpack.io import POLICIES, SIDES, AtomicFile, ExistencePolicy, PathLike, Progress, may_write
from fastpack.packing.chat.chat_config import PARTITIONS, ChatConfig, load_chat_config
from fastpack.packing.chat.conversations import chat_rows
from fastpack.packing.chat.file_names import OutputNames, PartitionNames
from fastpack.packing.modalities_config import load_pack_settings
from fastpack.packing.pack_job import pack_files
from fastpack.packing.pack_result import Skipped
from fastpack.packing.settings import (
    Engine,
    OnError,
    PackSettings,
    Source,
)
from fastpack.packing.yaml_config import load_yaml

_BUFFER = 1 << 20  # bytes of rows collected for one write


@dataclass(frozen=True, repr=False)
class PreparedPartition(Result):
    """One partition (train, val or test) of an instruction-tuning data set.

    Attributes
    ----------
    name
        "train", "val" or "test".
    rows
        Number of conversations.
    jsonl_path
        The conversations with their chat text. Without rows, the file is empty and the other paths are None.
    index_path, pbin_path, pbin_config_path
        The byte-offset index, the packed file, and the configuration that packed it.
    documents, tokens, skipped
        As in `PackResult`; 0 and empty in a dry run.

    Examples
    --------
    >>> from fastpack.packing.chat.instruction_tuning import PreparedPartition
    >>> PreparedPartition("val", rows=0, jsonl_path="out/rows_val.jsonl")
    PreparedPartition(name='val', rows=0, documents=0, tokens=0, skipped=0)
    """

    _shown = facts("name", "rows", "documents", "tokens", "skipped")

    name: str
    rows: int
    jsonl_path: str
    index_path: str | None = None
    pbin_path: str | None = None
    pbin_config_path: str | None = None
    documents: int = 0
    tokens: int = 0
    skipped: list[Skipped] = field(default_factory=list)


@dataclass(frozen=True, repr=False)
class PreparedChat(Result):
    r"""The result of `prepare_instruction_tuning_data`.

    Attributes
    ----------
    folder
        The folder of all files.
    config_path
        The copy of the configuration.
    partitions
        The partitions that the configuration gives a share.
    dry_run
        Whether nothing was written.
    kept_existing
        Whether the copy of the configuration existed and nothing was done.

    Examples
    --------
    >>> import contextlib, tempfile
    >>> from pathlib import Path
    >>> import fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with contextlib.chdir(folder.name):
    ...     _ = Path("rows.jsonl").write_text('{"messages": [{"role": "user", "content": "hi"}]}\n' * 20)
    ...     _ = Path("pack.yaml").write_text('''
    ... settings:
    ...   {src_path: x, dst_path: x, jq_pattern: .chat, num_cpus: 1, eod_token: "<|endoftext|>",
    ...    processing_batch_size: 1, raw_samples_queue_size: 1, processed_samples_queue_size: 1}
    ... tokenizer: {component_key: tokenizer, variant_key: builtin_bytes}
    ... ''')
    ...     _ = Path("chat.yaml").write_text('''
    ... settings:
    ...   src_path: rows.jsonl
    ...   dst_path: out/rows.jsonl
    ...   messages_key: messages
    ...   pbin_creation_config_file_path: pack.yaml
    ...   split_config: {splitting: {train: 100, val: 0, test: 0}, seed: 1}
    ... instruction_data_transformation: {role_mapping: {user: User}}
    ... jinja2_chat_template: "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
    ... chat_template_data: {}
    ... ''')
    ...     result = fastpack.prepare_instruction_tuning_data("chat.yaml", dry_run=True)
    ...     Path("out").exists()
    False
    >>> result.dry_run, [(partition.name, partition.rows) for partition in result.partitions]
    (True, [('train', 20)])
    >>> folder.cleanup()
    """

    _shown = facts("folder", "partitions", "dry_run", "kept_existing")

    folder: str
    config_path: str
    partitions: list[PreparedPartition] = field(default_factory=list)
    dry_run: bool = False
    kept_existing: bool = False


@accept_aliases(file_existence_policy="if_exists", on_faulty="on_error")
def prepare_instruction_tuning_data(
    config_path: PathLike,
    *,
    if_exists: ExistencePolicy = "overwrite",
    on_error: OnError = "skip",
    engine: Engine = "auto",
    dry_run: bool = False,
    progress: Progress | None = None,
) -> PreparedChat:
    r"""Apply a chat template to conversations, split them, and index and pack each partition, as Modalities does.

    The files and their bytes are Modalities'. Rows are written only when the template worked for all of them, every
    file appears complete or not at all, and the copy of the configuration, which marks the job as done, comes last. A
    `dst_path` with several dots keeps them (Modalities then gives every partition the same name).

    Parameters
    ----------
    config_path
        Path of a Modalities configuration of instruction tuning (YAML).
    if_exists
        What to do when files exist: overwrite them, as Modalities; raise an error; or do nothing if the copy of this
        configuration exists ("skip").
    on_error
        What to do with a chat that cannot be packed, such as an empty one: skip it and list it, or raise.
    engine
        The library that tokenises, as for `pack`.
    dry_run
        Do all the work up to the files, and write none.
    progress
        Called with (bytes done, bytes in all): the bytes of the source, and as many for packing.

    Returns
    -------
    PreparedChat
        The folder and its partitions.

    Raises
    ------
    FileNotFoundError, ValueError
        For a configuration that is missing or wrong; ValueError with file, line, byte and reason for a row that is not
        an object, lacks its messages, has an unknown role, or on which the template fails.
    FileExistsError
        If an output exists and `if_exists` is "error".
    MissingExtra
        Without the package jinja2 (extra ``chat``).

    Examples
    --------
    >>> import contextlib, tempfile
    >>> from pathlib import Path
    >>> import fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with contextlib.chdir(folder.name):
    ...     _ = Path("rows.jsonl").write_text('{"messages": [{"role": "user", "content": "hi"}]}\n' * 20)
    ...     _ = Path("pack.yaml").write_text('''
    ... settings:
    ...   {src_path: x, dst_path: x, jq_pattern: .chat, num_cpus: 1, eod_token: "<|endoftext|>",
    ...    processing_batch_size: 1, raw_samples_queue_size: 1, processed_samples_queue_size: 1}
    ... tokenizer: {component_key: tokenizer, variant_key: builtin_bytes}
    ... ''')
    ...     _ = Path("chat.yaml").write_text('''
    ... settings:
    ...   src_path: rows.jsonl
    ...   dst_path: out/rows.jsonl
    ...   messages_key: messages
    ...   pbin_creation_config_file_path: pack.yaml
    ...   split_config: {splitting: {train: 100, val: 0, test: 0}, seed: 1}
    ... instruction_data_transformation: {role_mapping: {user: User}}
    ... jinja2_chat_template: "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
    ... chat_template_data: {}
    ... ''')
    ...     result = fastpack.prepare_instruction_tuning_data("chat.yaml")
    >>> [(partition.name, partition.documents, partition.tokens) for partition in result.partitions]
    [('train', 20, 180)]
    >>> folder.cleanup()
    """
    if if_exists not in POLICIES:
        may_write(config_path, if_exists)  # raises
    config = load_chat_config(config_path)
    names = OutputNames(config.src_path, config.dst_path, config.digest)
    partitions = [name for name, weight in zip(PARTITIONS, config.weights, strict=True) if weight]
    if if_exists == "skip" and names.config.exists():
        return PreparedChat(str(names.folder), str(names.config), kept_existing=True)
    if not dry_run and if_exists == "error":
        for path in (names.config, *(path for name in partitions for path in names.of(name))):
            may_write(path, "error")
    _check_packing(config)
    job = _Job(config, names, partitions, progress)
    if dry_run:
        return job.dry_run()
    with _no_empty_folder(names.folder):
        job.write_rows()
        return job.finish(on_error, engine)


class _Job:
    def __init__(
        self, config: ChatConfig, names: OutputNames, partitions: list[str], progress: Progress | None
    ) -> None:
        self.config, self.names, self.progress = config, names, progress
        self.rows = dict.fromkeys(partitions, 0)
        self.n_source = config.src_path.stat().st_size

    def dry_run(self) -> PreparedChat:
        for name, _ in self._chats(1):
            self.rows[name] += 1
        self._check_rows()
        done = [_planned(name, rows, self.names.of(name)) for name, rows in self.rows.items()]
        return PreparedChat(str(self.names.folder), str(self.names.config), done, dry_run=True)

    def write_rows(self) -> None:
        """Write the JSON Lines files of all partitions; on any error, none of them."""
        chats = self._chats(2)
        with contextlib.ExitStack() as stack:
            files = {name: stack.enter_context(AtomicFile(self.names.of(name).jsonl)) for name in self.rows}
            waiting = {name: bytearray() for name in files}
            for name, line in chats:
                self.rows[name] += 1
                waiting[name] += line
                if len(waiting[name]) >= _BUFFER:
                    files[name].write(waiting[name])
                    waiting[name].clear()
            self._check_rows()
            for name, rest in waiting.items():
                files[name].write(rest)
            self.names.config.unlink(missing_ok=True)  # an earlier run, whose files are replaced from here on

    def finish(self, on_error: OnError, engine: Engine) -> PreparedChat:
        """Index and pack the partitions that have rows, then write the copy of the configuration."""
        prepared = {name: _planned(name, rows, self.names.of(name)) for name, rows in self.rows.items()}
        for name, rows in self.rows.items():
            if rows:
                _write_index(self.config, self.names.of(name))
            else:
                _remove_stale(self.names.of(name))
        filled = [name for name, rows in self.rows.items() if rows]
        settings = _pack_settings(self.config, [self.names.of(name) for name in filled])
        settings = replace(settings, if_exists="override", on_error=on_error, engine=engine)
        packed = pack_files(settings, progress=self._packing_progress())
        for name, result in zip(filled, packed, strict=True):
            assert result.path == prepared[name].pbin_path
            prepared[name] = replace(
                prepared[name], documents=result.documents, tokens=result.tokens, skipped=result.skipped
            )
        _write(self.names.config, self.config.content)
        return PreparedChat(str(self.names.folder), str(self.names.config), list(prepared.values()))

    def _chats(self, n_phases: int) -> Iterator[tuple[str, bytes]]:
        progress = self.progress
        scaled = None if progress is None else lambda done, total: progress(done, n_phases * total)
        return chat_rows(self.config, scaled)

    def _check_rows(self) -> None:
        if not any(self.rows.values()):
            raise ValueError(f"{self.config.src_path} has no rows, so there is nothing to prepare")

    def _packing_progress(self) -> Progress | None:
        """Return the progress of packing, which counts the bytes of the source a second time."""
        report, n_source = self.progress, self.n_source
        if report is None:
            return None
        return lambda done, total: report(n_source + n_source * done // max(total, 1), 2 * n_source)


def _write_index(config: ChatConfig, paths: PartitionNames) -> None:
    """Write the index of a partition and the configuration that packs it."""
    create_raw_index(paths.jsonl, paths.idx, validate=False, if_exists="overwrite")
    _write(paths.pbin_config, yaml.dump(_pbin_config(config, paths), allow_unicode=True).encode())


def _remove_stale(paths: PartitionNames) -> None:
    """Remove the files of an earlier run that had rows for this partition."""
    sides = (paths.pbin.with_name(paths.pbin.name + suffix) for suffix in SIDES)
    for path in (paths.idx, paths.pbin, *sides, paths.pbin_config):
        path.unlink(missing_ok=True)


def _pack_settings(config: ChatConfig, partitions: list[PartitionNames]) -> PackSettings:
    """Return the settings that pack every partition next to its rows, so that the tokenizer is built only once."""
    each = [load_pack_settings(_pbin_config(config, paths)) for paths in partitions]
    shared = [replace(settings, sources=(), output=None, per_source=True) for settings in each]
    if any(repr(settings) != repr(shared[0]) for settings in shared):
        raise ValueError(f"{config.pbin_config_path}: modalities_env: makes it another configuration in each partition")
    sources = tuple(Source(source.path, source.index_path) for settings in each for source in settings.sources)
    return replace(shared[0], sources=sources)


def _pbin_config(config: ChatConfig, paths: PartitionNames) -> dict[str, Any]:
    """Return the configuration of packing with the paths of this partition."""
    tree = load_yaml(config.pbin_config_path, known_as=paths.pbin_config)
    settings = tree.get("settings")
    if not isinstance(settings, dict):
        raise ValueError(f"{config.pbin_config_path}: settings: found {settings!r}, expected a mapping")
    settings["src_path"], settings["index_path"] = str(paths.jsonl), str(paths.idx)
    settings["dst_path"] = str(paths.pbin)
    return tree


def _check_packing(config: ChatConfig) -> None:
    """Raise errors of the packing configuration before any work."""
    existing = config.pbin_config_path  # stands for the files that do not exist yet
    tree = _pbin_config(config, PartitionNames(existing, existing, existing, existing))
    try:
        settings = load_pack_settings(tree)
        assert settings.eos_token is not None  # a configuration has no `eos_token_id`
        settings.tokenizer.build().eod_id(settings.eos_token)
        compile_pattern(settings.text_pattern)
    except (ValueError, FileNotFoundError) as error:
        kind = InputNotFound if isinstance(error, FileNotFoundError) else ValueError
        raise kind(f"{config.pbin_config_path}: {error}") from error


def _planned(name: str, rows: int, paths: PartitionNames) -> PreparedPartition:
    if not rows:
        return PreparedPartition(name, rows, str(paths.jsonl))
    return PreparedPartition(name, rows, str(paths.jsonl), str(paths.idx), str(paths.pbin), str(paths.pbin_config))


def _write(path: Path, data: bytes) -> None:
    with AtomicFile(path) as file:
        file.write(data)


@contextlib.contextmanager
def _no_empty_folder(folder: Path) -> Iterator[None]:
    """Remove `folder` after an error that left it empty."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            os.rmdir(folder)
        raise
