"""Compare a faster engine with the reference library during the whole run."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli
from pack_sources import batch_bytes, config_of, disk_full_after, line, settings_of, write_source

from fastpack.distributed.pack_tasks import collect_pack, plan_pack
from fastpack.distributed.ranks import run_rank
from fastpack.errors import JobError
from fastpack.packing import packing_pipeline
from fastpack.packing.audit import TIME_SHARE, Audit
from fastpack.packing.pack import pack_encoded_data
from fastpack.tokenizers.bytes_tokenizer import BytesTokenizer
from fastpack.tokenizers.gigatoken_engine import GigatokenTokenizer
from fastpack.tokenizers.hf_tokenizer import HFTokenizer
from fastpack.tokenizers.tiktoken_engine import TiktokenTokenizer

GOLDEN = Path(__file__).parents[1] / "golden/modalities/tokenizers/tok_bpe2000"
HF = {"variant_key": "pretrained_hf_tokenizer", "config": {"pretrained_model_name_or_path": str(GOLDEN)}}
EOD = "<|endoftext|>"
KINDS = {"gigatoken": GigatokenTokenizer, "tiktoken": TiktokenTokenizer}
WRONG = "once in a blue moon"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Write 8,000 documents, three of which contain a text that the wrong engine encodes incorrectly."""
    rng = np.random.default_rng(4)
    texts = [" ".join(rng.choice(["some", "words", "of", "text", "1234", "!"], 30)) for _ in range(8000)]
    for number in (2500, 5200, 7901):
        texts[number] += WRONG
    return write_source(tmp_path, [line(text) for text in texts])


def make_wrong(monkeypatch: pytest.MonkeyPatch, kind: type[Any]) -> None:
    """Change one id of documents with a given text, which are not in the initial sample."""
    right = kind.encode_many

    def wrong(self: Any, texts: Sequence[str], eod: int | None = None) -> Any:
        tokens, lengths = right(self, texts, eod)
        tokens = tokens.copy()
        ends = np.cumsum(lengths)
        for number, text in enumerate(texts):
            if WRONG in text:
                tokens[ends[number] - 3] += 1
        return tokens, lengths

    monkeypatch.setattr(kind, "encode_many", wrong)
    monkeypatch.setattr("fastpack.tokenizers.engines.first_difference", lambda *_: None)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("engine", ["gigatoken", "tiktoken"])
def test_wrong_engine_is_detected_and_nothing_is_written(
    engine: Any, resume: bool, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(engine)
    monkeypatch.setattr(packing_pipeline, "CHECKPOINT_SECONDS", -1)
    config = config_of(source, HF, eod_token=EOD)
    make_wrong(monkeypatch, KINDS[engine])
    message = (
        rf"src\.jsonl: line 2501 at byte \d+: the engine {engine} gives other ids than tokenizers on '.*'\.\.\. of"
    )
    with pytest.raises(JobError, match=message):
        pack_encoded_data(config, engine=engine, audit=1.0, resume=resume)
    assert sorted(path.name for path in source.parent.iterdir()) == ["src.idx", "src.jsonl"]
    result = pack_encoded_data(config, engine="tokenizers", audit=1.0, resume=resume)
    assert (result.documents, result.audited_documents) == (8000, 0)


def test_wrong_engine_is_detected_by_a_rank(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gigatoken")
    make_wrong(monkeypatch, GigatokenTokenizer)
    config = config_of(source, HF, eod_token=EOD)
    plan = plan_pack(settings_of(config, engine="gigatoken", audit=1.0), bytes_per_task=1 << 18)
    with pytest.raises(JobError, match=r"line 2501 at byte \d+: the engine gigatoken gives other ids"):
        run_rank(plan, 0, 1)
    with pytest.raises(JobError, match="are not done"):
        collect_pack(plan)
    assert not source.with_suffix(".pbin").exists()


@pytest.mark.parametrize(("share", "least", "most"), [(1.0, 8000, 8000), (0.1, 650, 950), (0.0, 0, 0)])
def test_requested_share_is_compared(share: float, least: int, most: int, source: Path) -> None:
    pytest.importorskip("gigatoken")
    result = pack_encoded_data(config_of(source, HF, eod_token=EOD), engine="gigatoken", audit=share)
    assert least <= result.audited_documents <= most


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_invalid_share(share: float, source: Path) -> None:
    with pytest.raises(ValueError, match="audit: found"):
        pack_encoded_data(config_of(source), audit=share)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which the reference library appends the compared texts."""
    seen: list[str] = []
    right = HFTokenizer.encode_many

    def note(self: Any, texts: Sequence[str], eod: int | None = None) -> Any:
        if eod is not None:
            seen.extend(texts)
        return right(self, texts, eod)

    monkeypatch.setattr(HFTokenizer, "encode_many", note)
    return seen


def test_default_compares_documents_of_the_whole_run(source: Path, compared: list[str]) -> None:
    pytest.importorskip("gigatoken")
    texts = [json.loads(row)["text"] for row in source.read_bytes().splitlines()]
    texts = [f"{number} {text}" for number, text in enumerate(texts * 5)]
    many = write_source(source.parent, [line(text) for text in texts])
    result = pack_encoded_data(config_of(many, HF, eod_token=EOD), engine="gigatoken")
    assert result.audited_documents == len(compared)
    assert 10 <= len(compared) < len(texts) // 2
    numbers = [int(text.split()[0]) for text in compared]
    assert {number * 2 // len(texts) for number in numbers} == {0, 1}


def test_workers_resume_and_ranks_count_compared_documents(
    source: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    pytest.importorskip("gigatoken")
    batch_bytes(monkeypatch, 100_000)
    config = config_of(source, HF, eod_token=EOD)
    local = pack_encoded_data(config, engine="gigatoken", audit=0.25)
    assert 1700 < local.audited_documents < 2300
    expected = Path(local.path).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(GigatokenTokenizer, "worker_bytes", 100_000)
        workers = pack_encoded_data(
            {**config, "settings": {**config["settings"], "num_cpus": 2}},
            engine="gigatoken",
            audit=0.25,
            if_exists="overwrite",
        )
    assert workers.audited_documents == local.audited_documents
    assert Path(workers.path).read_bytes() == expected
    Path(local.path).unlink()
    with pytest.raises(OSError, match="No space"):
        pack_encoded_data(config, engine="gigatoken", audit=0.25, resume=True, progress=disk_full_after(0.5))
    resumed = pack_encoded_data(config, engine="gigatoken", audit=0.25, resume=True)
    assert resumed.resumed_documents > 0
    assert resumed.audited_documents == pytest.approx(local.audited_documents, abs=300)
    assert resumed.audited_documents > 0.2 * resumed.documents
    Path(local.path).unlink()
    words = ["pack", str(source), "--tokenizer", str(GOLDEN), "--eod-token", EOD, "--engine", "gigatoken"]
    words += ["--audit", "0.25", "--task-bytes", "300000"]
    cli(*words, "--rank", "0", "--world-size", "1", "-q")
    out, err = cli(*words, "--collect", "--json")
    audited = json.loads(out)["audited_documents"]
    assert 1700 < audited < 2300
    assert f"{audited:,} documents compared with tokenizers during the run: the same ids" in err


class SlowReference:
    """A library that takes a microsecond per character."""

    def encode_many(self, texts: Sequence[str], eod: int | None = None) -> Any:
        time.sleep(1e-6 * sum(map(len, texts)))
        return BytesTokenizer().encode_many(texts, eod)


def test_default_comparison_takes_its_share_of_the_time() -> None:
    audit = Audit(BytesTokenizer(), 256, None)
    audit._reference = SlowReference()  # type: ignore[assignment]
    texts = ["x" * 1000] * 500
    tokens, lengths = BytesTokenizer().encode_many(texts, 256)
    engine_seconds, batches, spent = 0.02, [], 0.0
    for key in range(60):
        started = time.perf_counter()
        n_documents, wrong = audit.compare(texts, tokens, lengths, key, engine_seconds)
        spent += time.perf_counter() - started
        assert wrong is None
        batches.append(n_documents)
    assert spent < 2 * TIME_SHARE * (spent + 60 * engine_seconds)
    assert sum(batches[:30]) > 0
    assert sum(batches[30:]) > 0
