"""Distributed jobs record the tokenizer as local ones do, and refuse different tokenizers when they are planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from distributed_sources import write_texts
from pack_sources import config_to, settings_of

import fastpack
from fastpack.distributed.edit_tasks import collect_edit, plan_merge, plan_shuffling
from fastpack.distributed.pack_tasks import collect_pack, plan_pack
from fastpack.distributed.ranks import run_rank
from fastpack.errors import DataWarning
from fastpack.packing.modalities_config import load_pack_settings
from fastpack.tokens.formats import FORMATS
from fastpack.tokens.interop_formats import FOLDER_FORMATS

ONE = fastpack.TokenizerFingerprint("one", "", 300, 0)
TWO = fastpack.TokenizerFingerprint("two", "", 400, 0)


def test_pack(tmp_path: Path) -> None:
    corpus = write_texts(tmp_path)
    local = fastpack.pack_encoded_data(config_to(corpus, tmp_path / "local.pbin"))
    plan = plan_pack(settings_of(config_to(corpus, tmp_path / "distributed.pbin")), bytes_per_task=15_000)
    run_rank(plan, 0, 1)
    (distributed,) = collect_pack(plan)
    assert fastpack.read_fingerprint(distributed.path) == fastpack.read_fingerprint(local.path) is not None
    sides = [Path(f"{result.path}.fptok").read_bytes() for result in (local, distributed)]
    assert sides[0] == sides[1]


WRITTEN = [row.name for row in FORMATS if row.create is not None]


def recorded_with(path: Any, name: str) -> fastpack.TokenizerFingerprint | None:
    return fastpack.read_fingerprint(Path(path, "index.json") if name in FOLDER_FORMATS else path)


@pytest.mark.parametrize("name", WRITTEN)
def test_pack_into_every_format(tmp_path: Path, name: Any) -> None:
    corpus, output = write_texts(tmp_path), tmp_path / ("out.npy" if name == "npy" else "out")
    settings = load_pack_settings(config_to(corpus, output), output=output, format=name)
    plan = plan_pack(settings, bytes_per_task=15_000)
    run_rank(plan, 0, 1)
    (packed,) = collect_pack(plan)
    found = recorded_with(packed.path, name)
    assert found == fastpack.read_fingerprint(fastpack.pack_encoded_data(config_to(corpus, tmp_path / "l.pbin")).path)
    assert found is not None


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a.pbin", tmp_path / "b.pbin"]
    for path in paths:
        with fastpack.PackedWriter(path, 2) as writer:
            writer.append_many([1, 0, 2, 0], [2, 2])
            writer.fingerprint = ONE
    return paths


def plan_edit(kind: str, paths: list[Path], mix: bool = False, format: str = "pbin") -> Any:
    target = paths[0].parent / "out"
    if kind == "merge":
        return plan_merge(paths, target, mix_tokenizers=mix, format=format)
    if kind == "shuffle":
        return plan_shuffling("shuffle pbin", paths[:1], target, {"seed": 1}, format=format)
    options = {"chunk_id": 0, "num_chunks": 1, "global_seed": 1, "mix_tokenizers": mix}
    return plan_shuffling("chunk pbin", paths, target, options, format=format)


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("kind", ["merge", "chunk", "shuffle"])
def test_edits(kind: str, name: str, sources: list[Path]) -> None:
    plan = plan_edit(kind, sources, format=name)
    run_rank(plan, 0, 1)
    assert recorded_with(collect_edit(plan).path, name) == ONE


@pytest.mark.parametrize("kind", ["merge", "chunk"])
def test_different_tokenizers(kind: str, sources: list[Path]) -> None:
    with fastpack.PackedWriter(sources[1], 2, if_exists="overwrite") as writer:
        writer.append_many([1, 0, 2, 0], [2, 2])
        writer.fingerprint = TWO
    with pytest.raises(ValueError, match="have different tokenizers, one and two"):
        plan_edit(kind, sources)
    with pytest.warns(DataWarning, match="have different tokenizers, one and two"):
        plan = plan_edit(kind, sources, mix=True)
    run_rank(plan, 0, 1)
    with pytest.warns(DataWarning, match="have different tokenizers, one and two"):
        done = collect_edit(plan)
    assert fastpack.read_fingerprint(done.path) is None
