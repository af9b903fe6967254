"""Texts that contain special tokens: keep, split, skip or error, with the same result for every engine."""

from __future__ import annotations

import gzip
import io
import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from pack_sources import BYTES, batch_bytes, config_of, disk_full_after, line, settings_of, tokenizer_of, write_source
from packed_files import documents_of

import fastpack
from fastpack.distributed.pack_tasks import collect_pack, plan_pack
from fastpack.distributed.ranks import run_rank
from fastpack.errors import DataWarning, JobError
from fastpack.packing.pack import pack_encoded_data
from fastpack.packing.pack_result import PackResult

GOLDEN = Path(__file__).parents[1] / "golden/modalities/tokenizers/tok_bpe2000"
HF = {"variant_key": "pretrained_hf_tokenizer", "config": {"pretrained_model_name_or_path": str(GOLDEN)}}
EOD = "<|endoftext|>"
ENGINES = ("tokenizers", "gigatoken", "tiktoken")
TEXTS = ["plain text", f"one{EOD}two", f"ends{EOD}", EOD, f"{EOD}{EOD} x", "caf\u00e9 \u0378 " + EOD + " y", "<|endof"]
CONTAINING = [2, 3, 4, 5, 6]  # line numbers
SENTENCE = "4 EOS tokens inside documents: 3 documents would be read as more"


def source_of(folder: Path, texts: list[str] = TEXTS) -> Path:
    return write_source(folder, [line(text) for text in texts])


def pack_quietly(config: dict[str, Any], **options: Any) -> PackResult:
    return pack_encoded_data(config, if_exists="overwrite", **options)


def reference(text: str, *, split: bool) -> list[int]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(GOLDEN / "tokenizer.json"))
    tokenizer.encode_special_tokens = split
    ids = tokenizer.encode(text).ids
    return ids if ids[-1:] == [0] else [*ids, 0]


@pytest.mark.parametrize("engine", ENGINES)
def test_keep_gives_the_same_bytes_and_counts(engine: Any, tmp_path: Path) -> None:
    pytest.importorskip(engine)
    with pytest.warns(DataWarning, match=SENTENCE) as warned:
        result = pack_quietly(config_of(source_of(tmp_path), HF, eod_token=EOD), engine=engine)
    assert "special_tokens_in_text split" in str(warned[0].message)
    assert (result.eos_inside, result.documents_with_eos_inside) == (4, 3)
    assert documents_of(result.path) == [reference(text, split=False) for text in TEXTS]
    assert result.skipped == []


@pytest.mark.parametrize("num_cpus", [1, 2])
@pytest.mark.parametrize("engine", ENGINES)
def test_split_encodes_ordinary_text(engine: Any, num_cpus: int, tmp_path: Path, small_batches: None) -> None:
    pytest.importorskip(engine)
    texts = TEXTS * (1 if num_cpus == 1 else 100)
    config = config_of(source_of(tmp_path, texts), HF, eod_token=EOD, num_cpus=num_cpus)
    result = pack_quietly(config, engine=engine, special_tokens_in_text="split", audit=1.0)
    documents = documents_of(result.path)
    assert documents[: len(TEXTS)] == [reference(text, split=True) for text in TEXTS]
    assert len(documents) == len(texts)
    assert all(document.count(0) == 1 for document in documents)
    assert (result.eos_inside, result.documents_with_eos_inside, result.skipped) == (0, 0, [])


@pytest.mark.parametrize("engine", ENGINES)
def test_skip_lists_documents_by_line(engine: Any, tmp_path: Path) -> None:
    pytest.importorskip(engine)
    config = config_of(source_of(tmp_path), HF, eod_token=EOD)
    result = pack_quietly(config, engine=engine, special_tokens_in_text="skip")
    reason = f"the text contains the special token {EOD!r}"
    assert result.skipped == [{"line": number, "reason": reason} for number in CONTAINING]
    assert documents_of(result.path) == [reference(TEXTS[0], split=False), reference(TEXTS[6], split=False)]


@pytest.mark.parametrize("num_cpus", [1, 2])
@pytest.mark.parametrize("engine", ENGINES)
def test_raise_names_the_line_and_writes_nothing(
    engine: Any, num_cpus: int, tmp_path: Path, small_batches: None
) -> None:
    pytest.importorskip(engine)
    texts = ["plain " * 400] * 20 + TEXTS
    config = config_of(source_of(tmp_path, texts), HF, eod_token=EOD, num_cpus=num_cpus)
    with pytest.raises(ValueError, match=r"src\.jsonl: line 22 at byte \d+: the text contains the special token"):
        pack_encoded_data(config, engine=engine, special_tokens_in_text="error")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["src.idx", "src.jsonl"]


@pytest.mark.parametrize("rule", ["keep", "split", "skip", "error"])
def test_byte_tokenizer_treats_special_tokens_as_text(rule: Any, tmp_path: Path) -> None:
    result = pack_quietly(config_of(source_of(tmp_path), BYTES), special_tokens_in_text=rule)
    assert documents_of(result.path) == [[*text.encode(), 256] for text in TEXTS]


@pytest.mark.parametrize("rule", ["split", "skip"])
def test_all_special_tokens_are_split(rule: Any, tmp_path: Path) -> None:
    """Split all special tokens, but not other added tokens (as `split_special_tokens` of transformers)."""
    from tokenizers import AddedToken, Tokenizer

    tokenizer = Tokenizer.from_file(str(GOLDEN / "tokenizer.json"))
    tokenizer.add_special_tokens(["<|user|>"])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    spec = {**HF, "config": {"pretrained_model_name_or_path": str(tmp_path / "tokenizer.json")}}
    texts = ["a<|user|>b", "a<tool>b", "c"]
    result = pack_quietly(config_of(source_of(tmp_path, texts), spec, eod_token=EOD), special_tokens_in_text=rule)
    tokenizer.encode_special_tokens = True
    expected = [[*tokenizer.encode(text).ids, 0] for text in texts]
    assert documents_of(result.path) == (expected if rule == "split" else expected[1:])
    assert tokenizer.token_to_id("<tool>") in expected[1]


def test_vocabulary_word_cannot_be_split(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, ["<unk>", "a", "<eod>"])
    config = config_of(source_of(tmp_path, ["a", "a <eod> a"]), tokenizer, eod_token="<eod>")
    result = pack_quietly(config, special_tokens_in_text="split")
    assert result.skipped == [{"line": 2, "reason": "'<eod>' cannot be encoded as ordinary text"}]
    assert documents_of(result.path) == [[1, 2]]
    with pytest.raises(ValueError, match="line 2 at byte"):
        pack_quietly(config, special_tokens_in_text="error")


def test_tokens_added_by_the_tokenizer_are_not_counted_as_text(tmp_path: Path) -> None:
    """Padding with the end-of-document token: no text contains it, so every rule keeps the documents."""
    tokenizer = tokenizer_of(tmp_path, ["<unk>", "a"], ["<eod>"], padding="max_length", max_length=4)
    config = config_of(source_of(tmp_path, ["a", "a a"]), tokenizer, eod_token="<eod>")
    with pytest.warns(DataWarning, match="inside documents"):
        result = pack_quietly(config, special_tokens_in_text="skip")
    assert (result.documents, result.skipped) == (2, [])


@pytest.fixture(scope="module")
def sentencepiece_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    spm = pytest.importorskip("sentencepiece")
    texts = [text for path in Path(json.__file__).parent.glob("*.py") for text in path.read_text().split("\n")]
    paths = {}
    for kind, options in (("user", {"user_defined_symbols": ["<eod>"]}), ("control", {"control_symbols": ["<eod>"]})):
        model = io.BytesIO()
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=model, vocab_size=300, minloglevel=2, **options
        )
        path = tmp_path_factory.mktemp("sp") / f"{kind}.model"
        path.write_bytes(model.getvalue())
        paths[kind] = str(path)
    return paths


@pytest.mark.parametrize("kind", ["user", "control"])
@pytest.mark.parametrize("rule", ["split", "skip"])
def test_sentencepiece(kind: str, rule: Any, sentencepiece_models: dict[str, str], tmp_path: Path) -> None:
    """Control symbols in a text are plain text; user-defined symbols are split in the same way."""
    model = sentencepiece_models[kind]
    spec = {"variant_key": "pretrained_sp_tokenizer", "config": {"tokenizer_model_file": model}}
    texts = ["one <eod> two", "plain", "three<eod>"]
    config = config_of(source_of(tmp_path, texts), spec, eod_token="<eod>")
    result = pack_quietly(config, special_tokens_in_text=rule)
    eod = fastpack.PreTrainedSPTokenizer(model).get_token_id("<eod>")
    found = documents_of(result.path)
    assert all(document.count(eod) == 1 for document in found)
    if rule == "skip" and kind == "user":
        assert [one["line"] for one in result.skipped] == [1, 3]
        return
    assert len(found) == 3
    decoded = [fastpack.PreTrainedSPTokenizer(model).decode(document[:-1]) for document in found]
    assert decoded == texts


def test_compressed_sources_and_ranks_give_the_local_counts(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"".join(line(text) + b"\n" for text in TEXTS)))
    (tmp_path / "b.jsonl").write_bytes(b"".join(line(text) + b"\n" for text in TEXTS))
    sources = [str(tmp_path / "a.jsonl.gz"), str(tmp_path / "b.jsonl")]
    for rule in ("keep", "split", "skip"):
        config = config_of(
            tmp_path / "b.jsonl", HF, eod_token=EOD, src_path=sources, dst_path=tmp_path / f"{rule}.pbin"
        )
        plan = plan_pack(settings_of(config, special_tokens_in_text=rule), bytes_per_task=60)
        run_rank(plan, 0, 1)
        config["settings"]["dst_path"] = tmp_path / "local.pbin"
        text = "8 EOS tokens inside documents: 6 documents"
        warns = partial(pytest.warns, DataWarning, match=text) if rule == "keep" else nullcontext
        with warns():
            (distributed,) = collect_pack(plan)
        with warns():
            local = pack_quietly(config, special_tokens_in_text=rule)
        assert Path(distributed.path).read_bytes() == Path(local.path).read_bytes()
        assert (distributed.eos_inside, distributed.documents_with_eos_inside, distributed.skipped) == (
            local.eos_inside,
            local.documents_with_eos_inside,
            local.skipped,
        )
        assert [one["line"] for one in distributed.skipped] == (CONTAINING * 2 if rule == "skip" else [])
    config["settings"]["dst_path"] = tmp_path / "error.pbin"
    plan = plan_pack(settings_of(config, special_tokens_in_text="error"), bytes_per_task=60)
    with pytest.raises(JobError, match="line 2 at byte"):
        run_rank(plan, 0, 1)


def test_resume_keeps_counts_and_a_changed_rule_starts_again(
    tmp_path: Path, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_bytes(monkeypatch, 60)
    config = config_of(source_of(tmp_path, TEXTS * 3), HF, eod_token=EOD)
    for rule, stale in (("keep", False), ("split", True)):
        with pytest.raises(OSError, match="No space"):
            pack_encoded_data(config, resume=True, progress=disk_full_after(0.5), special_tokens_in_text="keep")
        with pytest.warns(
            DataWarning, match="started again" if stale else "12 EOS tokens inside documents: 9 documents"
        ):
            result = pack_encoded_data(config, resume=True, special_tokens_in_text=rule)  # type: ignore[arg-type]
        assert (result.resumed_documents > 0) is not stale
        assert result.eos_inside == (0 if stale else 12)
        Path(result.path).unlink()


def test_unknown_rule_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="special_tokens_in_text: found 'drop', expected one of keep, split, skip"):
        pack_encoded_data(config_of(source_of(tmp_path), HF), special_tokens_in_text="drop")  # type: ignore[arg-type]


def test_info_verify_and_report_show_special_tokens(tmp_path: Path, cli: Cli) -> None:
    source = source_of(tmp_path)
    words = ["pack", str(source), "--tokenizer", str(GOLDEN), "--eod-token", EOD]
    err = cli(*words).err
    packed = str(source.with_suffix(".pbin"))
    assert f"{packed}: {SENTENCE}. --special-tokens-in-text split encodes" in err
    facts = cli.json("info", packed)
    assert (facts["eos_inside"], facts["documents_with_eos_inside"]) == (4, 3)
    assert SENTENCE in facts["warnings"]
    (finding,) = cli.json("verify", packed)["findings"]
    assert (finding["severity"], finding["found"]) == ("warning", SENTENCE)
    warnings = cli.json("report", packed, "-o", tmp_path / "r.html")["warnings"]
    assert [one["text"] for one in warnings] == [SENTENCE]
    for rule, documents, inside in (("split", 7, 0), ("skip", 2, 0)):
        report = cli.json(*words, "--force", "--special-tokens-in-text", rule)
        assert (report["documents"], report["eos_inside"]) == (documents, inside)
    assert fastpack.verify(packed).findings == []
    assert "line 2 at byte" in cli(*words, "--force", "--special_tokens_in_text", "error", code=1).err
