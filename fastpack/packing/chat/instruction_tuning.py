"""`prepare_instruction_tuning_data`: conversations -> chat texts, split, indexed and packed, as Modalities does it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from fastpack.display import Result, facts
from fastpack.documents.create_index import create_raw_index
from fastpack.documents.json_fields import compile_pattern
from fastpack.documents.source_paths import InputNotFound
from fastpack.io import POLICIES, AtomicFile, ExistencePolicy, PathLike, Progress, may_write
from fastpack.packing.chat.chat_config import PARTITIONS, ChatConfig, load_chat_config
from fastpack.packing.chat.conversations import chat_rows
from fastpack.packing.chat.file_names import OutputNames, PartitionNames
from fastpack.packing.modalities_config import load_pack_config
from fastpack.packing.pack import Engine, OnFaulty, pack_each
from fastpack.packing.packing_pipeline import Skipped
from fastpack.packing.yaml_config import load_yaml
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

_BUFFER = 1 << 20  # bytes of rows collected for one write


@dataclass(frozen=True, repr=False)
class PreparedPartition(Result):
    """What became of one partition; a partition without rows has its empty `jsonl_path` and nothing else.

    rows: its conversations. documents, tokens, skipped: as `pack_encoded_data` counts them (0 and empty in a dry run).
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
    """What `prepare_instruction_tuning_data` wrote into `folder`, or would have written (`dry_run`).

    config_path: the copy of the configuration. kept_existing: it was there already and the policy was "skip"; nothing
    was done.
    """

    _shown = facts("folder", "partitions", "dry_run", "kept_existing")

    folder: str
    config_path: str
    partitions: list[PreparedPartition] = field(default_factory=list)
    dry_run: bool = False
    kept_existing: bool = False


def prepare_instruction_tuning_data(
    config_path: PathLike,
    *,
    file_existence_policy: ExistencePolicy = "override",
    on_faulty: OnFaulty = "skip",
    engine: Engine = "auto",
    dry_run: bool = False,
    progress: Progress | None = None,
) -> PreparedChat:
    """Apply a chat template to conversations, split them, and index and pack each partition, as Modalities does.

    All files and their bytes are Modalities'. Where it leaves half a job behind, this does not: rows are written when
    every one of them has its chat, each file appears complete or not at all, and the copy of the configuration, which
    says that the job is done, is the last. A `dst_path` with several dots keeps them (Modalities then gives every
    partition the same name).

    file_existence_policy: "override" as Modalities; "error" when one of the files is there; "skip" does nothing when
    the copy of this very configuration is there. on_faulty, engine: as `pack_encoded_data` takes them. dry_run: do all
    the work up to the files, and write none. progress(done, total): bytes of the source, and as many for packing.

    Raises ValueError and FileNotFoundError for the configurations; FaultyRow (a ValueError naming file, line, byte and
    reason) for a row that is no object, lacks its messages, has an unknown role, or on which the template fails;
    TargetExists; MissingExtra without Jinja2.
    """
    if file_existence_policy not in POLICIES:
        may_write(config_path, file_existence_policy)  # raises
    config = load_chat_config(config_path)
    names = OutputNames(config.src_path, config.dst_path, config.digest)
    partitions = [name for name, weight in zip(PARTITIONS, config.weights, strict=True) if weight]
    if file_existence_policy == "skip" and names.config.exists():
        return PreparedChat(str(names.folder), str(names.config), kept_existing=True)
    if not dry_run and file_existence_policy == "error":
        for path in (names.config, *(path for name in partitions for path in names.of(name))):
            may_write(path, "error")
    _check_packing(config)
    job = _Job(config, names, partitions, progress)
    if dry_run:
        return job.rehearse()
    with _no_empty_folder(names.folder):
        job.write_rows()
        return job.finish(on_faulty, engine)


class _Job:
    def __init__(
        self, config: ChatConfig, names: OutputNames, partitions: list[str], progress: Progress | None
    ) -> None:
        self.config, self.names, self.progress = config, names, progress
        self.rows = dict.fromkeys(partitions, 0)
        self.n_source = config.src_path.stat().st_size

    def rehearse(self) -> PreparedChat:
        for name, _ in self._chats(1):
            self.rows[name] += 1
        self._check_rows()
        done = [_planned(name, rows, self.names.of(name)) for name, rows in self.rows.items()]
        return PreparedChat(str(self.names.folder), str(self.names.config), done, dry_run=True)

    def write_rows(self) -> None:
        """Write the JSON lines of all partitions; on any error none of them."""
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
            self.names.config.unlink(missing_ok=True)  # an earlier run's: from here on its files are replaced

    def finish(self, on_faulty: OnFaulty, engine: Engine) -> PreparedChat:
        """Index and pack the partitions that have rows; the configuration's copy comes last."""
        prepared = {name: _planned(name, rows, self.names.of(name)) for name, rows in self.rows.items()}
        for name, rows in self.rows.items():
            if rows:
                _write_index(self.config, self.names.of(name))
            else:
                _remove_stale(self.names.of(name))
        filled = [name for name, rows in self.rows.items() if rows]
        packed = pack_each(
            _common_config(self.config, [self.names.of(name) for name in filled]),
            file_existence_policy="override",
            on_faulty=on_faulty,
            engine=engine,
            progress=self._packing_progress(),
        )
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
            raise ValueError(f"{self.config.src_path} has no rows: there is nothing to prepare")

    def _packing_progress(self) -> Progress | None:
        """Packing counts as many bytes as the source has, behind those of the source."""
        report, n_source = self.progress, self.n_source
        if report is None:
            return None
        return lambda done, total: report(n_source + n_source * done // max(total, 1), 2 * n_source)


def _write_index(config: ChatConfig, paths: PartitionNames) -> None:
    """The index of a partition, and the configuration that packs it."""
    create_raw_index(paths.jsonl, paths.idx, validate=False, file_existence_policy="override")
    _write(paths.pbin_config, yaml.dump(_pbin_config(config, paths), allow_unicode=True).encode())


def _remove_stale(paths: PartitionNames) -> None:
    """Remove what an earlier run wrote that had rows for this partition."""
    for path in (paths.idx, paths.pbin, paths.pbin_config):
        path.unlink(missing_ok=True)


def _common_config(config: ChatConfig, partitions: list[PartitionNames]) -> dict[str, Any]:
    """One configuration that packs each partition beside its rows, so that the tokenizer is built once for all."""
    trees = [_pbin_config(config, paths) for paths in partitions]
    settings, different = trees[0]["settings"], set()
    for tree in trees:
        checked = load_pack_config(tree)
        different.add(repr((checked.tokenizer, replace(checked.settings, sources=(), dst_path=None))))
    if len(different) > 1:
        raise ValueError(f"{config.pbin_config_path}: modalities_env: makes it another configuration in each partition")
    settings |= {"src_path": [str(paths.jsonl) for paths in partitions], "index_path": None, "dst_path": None}
    return {"settings": settings, "tokenizer": trees[0]["tokenizer"]}


def _pbin_config(config: ChatConfig, paths: PartitionNames) -> dict[str, Any]:
    """The configuration of packing, with this partition's paths filled in."""
    tree = load_yaml(config.pbin_config_path, known_as=paths.pbin_config)
    settings = tree.get("settings")
    if not isinstance(settings, dict):
        raise ValueError(f"{config.pbin_config_path}: settings: found {settings!r}, expected a mapping")
    settings["src_path"], settings["index_path"] = str(paths.jsonl), str(paths.idx)
    settings["dst_path"] = str(paths.pbin)
    return tree


def _check_packing(config: ChatConfig) -> None:
    """Raise what packing would raise, before the work that comes first."""
    there = config.pbin_config_path  # stands for the files to come, which the check wants to find
    tree = _pbin_config(config, PartitionNames(there, there, there, there))
    try:
        checked = load_pack_config(tree)
        TokenizerSpec(checked.tokenizer.variant_key, checked.tokenizer.config).build().eod_id(
            checked.settings.eod_token
        )
        compile_pattern(checked.settings.jq_pattern)
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
