"""Choice of the engine: a verified one, or the reference library."""

from __future__ import annotations

import builtins
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizer_specs import EOD, FASTER, HF, choose, spec_of

from fastpack.documents.create_index import create_raw_index
from fastpack.errors import MissingExtra
from fastpack.packing.pack import pack_encoded_data
from fastpack.tokenizers import engines
from fastpack.tokenizers.bytes_tokenizer import BytesTokenizer
from fastpack.tokenizers.engines import ENGINES, choose_engine
from fastpack.tokenizers.gigatoken_engine import GigatokenTokenizer
from fastpack.tokenizers.interface import EngineDeclines
from fastpack.tokenizers.probe_texts import probe_texts
from fastpack.tokenizers.tiktoken_engine import TiktokenTokenizer
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

GOLDEN = Path(__file__).parents[1] / "golden/modalities/tokenizers/tok_bpe2000"


@pytest.fixture(autouse=True)
def proofs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FASTPACK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def documents(n: int = 50) -> list[str]:
    return [Path(json.__file__).parent.joinpath("decoder.py").read_text(encoding="utf-8") * 4] * n


def test_auto_selects_the_first_verified_engine(tokenizer_files: dict[str, Path]) -> None:
    spec = spec_of(tokenizer_files["gpt2"])
    chosen, _, sentence = choose(spec, "auto", documents)
    assert (spec.engine, chosen.engine) == ("tokenizers", "gigatoken")
    assert sentence is not None
    assert "gigatoken tokenises: it gave the same ids as tokenizers" in sentence
    assert isinstance(chosen.build(), GigatokenTokenizer)


def test_auto_uses_the_reference_library_for_short_texts(tokenizer_files: dict[str, Path]) -> None:
    spec = spec_of(tokenizer_files["gpt2"])
    assert choose(spec, "auto", lambda: ["a little text"])[::2] == (spec, None)


def plant(monkeypatch: pytest.MonkeyPatch, kind: type[Any], word: str) -> None:
    """Make an engine return one wrong id for texts that contain `word`."""
    right = kind.encode_many

    def wrong(self: Any, texts: Sequence[str], eod: int | None = None) -> Any:
        tokens, lengths = right(self, texts, eod)
        if any(word in text for text in texts):
            tokens = tokens.copy()
            tokens[len(tokens) // 2] += 1
        return tokens, lengths

    monkeypatch.setattr(kind, "encode_many", wrong)


@pytest.mark.parametrize("word", ["JSONDecoder", "\u3053\u3093\u306b\u3061\u306f"])
def test_planted_difference_is_detected(
    word: str, tokenizer_files: dict[str, Path], proofs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tokenizer_files["gpt2"])
    plant(monkeypatch, GigatokenTokenizer, word)
    chosen, _, sentence = choose(spec, "auto", documents)
    assert chosen.engine == "tiktoken"
    shutil.rmtree(proofs)
    plant(monkeypatch, TiktokenTokenizer, word)
    chosen, _, sentence = choose(spec, "auto", documents)
    assert chosen == spec
    assert sentence is not None
    assert sentence.startswith("tokenizers tokenises: gigatoken gives other ids on the text '")
    assert "; tiktoken gives other ids" in sentence
    with pytest.raises(ValueError, match="gigatoken gives other ids than tokenizers, on the text"):
        choose(spec, "gigatoken", documents)


@pytest.mark.parametrize("engine", ["auto", "gigatoken"])
def test_a_proof_is_kept_for_later_runs(
    engine: str, tokenizer_files: dict[str, Path], proofs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tokenizer_files["gpt2"])
    assert choose(spec, engine, documents)[0].engine == "gigatoken"
    assert len(list(proofs.glob("engines/*"))) == 1
    monkeypatch.setattr(engines, "probe_texts", refused_sample)
    chosen, _, sentence = choose(spec, engine, documents)
    assert chosen.engine == "gigatoken"
    assert engine != "auto" or "and in an earlier run on probe texts" in str(sentence)


def test_a_proof_is_of_one_tokenizer_and_one_version(
    tokenizer_files: dict[str, Path], proofs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(spec_of(tokenizer_files["gpt2"]), "gigatoken", documents)
    choose(spec_of(tokenizer_files["llama3"]), "gigatoken", documents)
    assert len(list(proofs.glob("engines/*"))) == 2
    monkeypatch.setattr("fastpack.tokenizers.engine_proof.__version__", "0.0.0")
    choose(spec_of(tokenizer_files["gpt2"]), "gigatoken", documents)
    assert len(list(proofs.glob("engines/*"))) == 3


def test_documents_are_compared_in_spite_of_a_proof(
    tokenizer_files: dict[str, Path], proofs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tokenizer_files["gpt2"])
    choose(spec, "gigatoken", documents)
    plant(monkeypatch, GigatokenTokenizer, "JSONDecoder")
    assert choose(spec, "auto", documents)[0].engine == "tiktoken"
    with pytest.raises(ValueError, match="gigatoken gives other ids"):
        choose(spec, "gigatoken", documents)


def test_a_failed_comparison_is_not_kept(
    tokenizer_files: dict[str, Path], proofs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, GigatokenTokenizer, "\u3053\u3093\u306b\u3061\u306f")
    for _ in range(2):
        with pytest.raises(ValueError, match="gigatoken gives other ids"):
            choose(spec_of(tokenizer_files["gpt2"]), "gigatoken", documents)
    assert not list(proofs.glob("engines/*"))


def test_a_cache_that_others_can_write_to_is_not_trusted(
    tokenizer_files: dict[str, Path], proofs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tokenizer_files["gpt2"])
    choose(spec, "gigatoken", documents)
    proofs.chmod(0o777)
    monkeypatch.setattr(engines, "probe_texts", refused_sample)
    with pytest.raises(AssertionError, match="no sample"):
        choose(spec, "gigatoken", documents)


@pytest.fixture
def without_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] in FASTER:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)


@pytest.mark.usefixtures("without_engines")
def test_engines_not_installed(tokenizer_files: dict[str, Path]) -> None:
    spec = spec_of(tokenizer_files["gpt2"])
    chosen, _, sentence = choose(spec, "auto", documents)
    assert chosen == spec
    assert sentence is not None
    assert "not installed (pip install 'fastpack-llm[gigatoken]')" in sentence
    for engine in FASTER:
        with pytest.raises(MissingExtra, match=rf"fastpack-llm\[{engine}\]"):
            choose(spec, engine, documents)


OWN = BytesTokenizer()  # any tokenizer


def refused_sample(*_: object) -> list[str]:
    raise AssertionError("no sample is needed")


@pytest.mark.parametrize(
    ("variant_key", "engine", "message"),
    [
        (HF, "sentencepiece", "sentencepiece does not fit: pretrained_hf_tokenizer runs on tokenizers"),
        ("pretrained_sp_tokenizer", "tokenizers", "does not fit: pretrained_sp_tokenizer runs on sentencepiece alone"),
        ("pretrained_sp_tokenizer", "gigatoken", "does not fit: pretrained_sp_tokenizer runs on sentencepiece alone"),
        ("builtin_bytes", "tiktoken", "does not fit: builtin_bytes needs none"),
        (HF, "fastest", "unknown engine 'fastest': choose one of auto, tokenizers"),
    ],
)
def test_engines_that_do_not_support_the_tokenizer(variant_key: str, engine: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_engine(TokenizerSpec(variant_key), OWN, engine, refused_sample)


@pytest.mark.parametrize(
    ("variant_key", "engine"),
    [
        (HF, "tokenizers"),
        ("llm_gym_tokenizer", "tokenizers"),
        ("pretrained_sp_tokenizer", "sentencepiece"),
        ("pretrained_sp_tokenizer", "auto"),
        ("builtin_bytes", "auto"),
    ],
)
def test_reference_library_is_not_verified(variant_key: str, engine: str) -> None:
    spec = TokenizerSpec(variant_key, {"x": 1})
    assert engine in ENGINES
    assert choose_engine(spec, OWN, engine, refused_sample) == (spec, OWN, None)


def test_spec_with_an_unsupported_engine(tokenizer_files: dict[str, Path]) -> None:
    path = str(tokenizer_files["gpt2"])
    with pytest.raises(EngineDeclines, match="does not run this kind"):
        TokenizerSpec(HF, {"pretrained_model_name_or_path": path}, "sentencepiece").build()
    with pytest.raises(EngineDeclines, match="does not run this kind"):
        TokenizerSpec("builtin_bytes", {}, "gigatoken").build()


@pytest.mark.parametrize("engine", FASTER)
def test_packing_gives_the_same_bytes(engine: Any, tmp_path: Path) -> None:
    texts = [*probe_texts([EOD])[:400], *documents(3), "\u088f young", ""]
    lines = [json.dumps({"text": text}) for text in texts] + ['{"text": null}', "no JSON", '{"text": "\\ud800"}']
    (tmp_path / "x.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    create_raw_index(tmp_path / "x.jsonl", validate=False)
    packed = {}
    for name in ("tokenizers", engine):
        packing = {
            "src_path": str(tmp_path / "x.jsonl"),
            "dst_path": str(tmp_path / f"{name}.pbin"),
            "jq_pattern": ".text",
            "num_cpus": 1,
            "eod_token": EOD,
        }
        tokenizer = {"variant_key": HF, "config": {"pretrained_model_name_or_path": str(GOLDEN)}}
        result = pack_encoded_data({"settings": packing, "tokenizer": tokenizer}, engine=name)
        packed[name] = (tmp_path / f"{name}.pbin").read_bytes(), result.skipped, result.documents
        assert result.engine == name
    assert packed["tokenizers"] == packed[engine]
    assert len(packed[engine][1]) == 5


def test_sample_is_thinned_evenly() -> None:
    texts = [str(i) * 1000 for i in range(10)] * 1000
    thinned = engines._evenly(texts, engines.COMPARED_BYTES)
    assert sum(map(len, thinned)) <= 2 * engines.COMPARED_BYTES
    assert set(thinned) == set(texts[:10])
