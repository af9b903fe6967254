"""Packing with each tokenizer engine compared with the engine alone on the same texts and with `tokenizers`."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fastpack.packing.encoder import EncoderSpec
from fastpack.packing.modalities_config import load_pack_settings
from fastpack.packing.pack import pack_encoded_data
from fastpack.packing.packing_pipeline import Packer
from fastpack.packing.targets import targets_of
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

from .common import ratio, row
from .pack import EOD, standard_library_texts, write_jsonl

VARIANT = "pretrained_hf_tokenizer"
TEXTS_PER_CALL = 512


class _Engines:
    timeout = 600
    param_names = ["engine"]

    def setup(self, engine: str) -> None:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        if importlib.util.find_spec(engine) is None:
            raise NotImplementedError(f"{engine} is not installed")  # asv skips the benchmark
        self.parallelism = os.environ.get("TOKENIZERS_PARALLELISM")
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        self.folder = Path(tempfile.mkdtemp())
        self.tokenizer_file = str(self.folder / "tokenizer.json")
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=32_000, special_tokens=[EOD], initial_alphabet=alphabet, show_progress=False
        )
        tokenizer.train_from_iterator(standard_library_texts(4_000_000), trainer)
        tokenizer.save(self.tokenizer_file)

    def teardown(self, _engine: str) -> None:
        shutil.rmtree(self.folder)
        del os.environ["TOKENIZERS_PARALLELISM"]
        if self.parallelism is not None:
            os.environ["TOKENIZERS_PARALLELISM"] = self.parallelism

    def write(self, n_characters: int) -> list[str]:
        texts = standard_library_texts(n_characters)
        write_jsonl(self.folder / "text.jsonl", texts)
        return texts

    def config(self) -> dict[str, object]:
        settings = {
            "src_path": self.folder / "text.jsonl",
            "dst_path": self.folder / "text.pbin",
            "jq_pattern": ".text",
            "num_cpus": 1,
            "eod_token": EOD,
        }
        options = {"pretrained_model_name_or_path": self.tokenizer_file}
        return {"settings": settings, "tokenizer": {"variant_key": VARIANT, "config": options}}

    def packing(self, engine: str) -> Callable[[], object]:
        """Return a call that packs with a loaded and validated tokenizer: the cost of each further byte."""
        settings = replace(load_pack_settings(self.config()), if_exists="override", on_error="raise")
        spec = TokenizerSpec(VARIANT, settings.tokenizer.config, engine)
        tokenizer = spec.build()
        encoder = EncoderSpec(".text", spec, tokenizer.eod_id(EOD), 2)
        targets = targets_of(settings)
        return lambda: Packer(settings, encoder, tokenizer).pack(targets)

    def alone(self, engine: str, texts: list[str]) -> Callable[[], object]:
        """Return a call of the fastest function of the library itself, on texts in memory."""
        chunks = [texts[i : i + TEXTS_PER_CALL] for i in range(0, len(texts), TEXTS_PER_CALL)]
        description = Path(self.tokenizer_file).read_text(encoding="utf-8")
        if engine == "gigatoken":
            from gigatoken.gigatoken_rs import load_hf_json

            fast = load_hf_json(description)
            return lambda: [fast.encode_batch(chunk, parallel=False) for chunk in chunks]
        if engine == "tiktoken":
            built = TokenizerSpec(VARIANT, {"pretrained_model_name_or_path": self.tokenizer_file}, engine).build()
            encode = built._engine.encode_to_numpy
            return lambda: [encode(text, allowed_special={EOD}, disallowed_special=()) for text in texts]
        from tokenizers import Tokenizer

        own = Tokenizer.from_str(description)
        return lambda: [encoding.ids for chunk in chunks for encoding in own.encode_batch_fast(chunk)]


class Alone(_Engines):
    params = ["tokenizers", "tiktoken", "gigatoken"]

    @row("`pack`, one process, by engine", "x the engine without fastpack")
    def track_alone(self, engine: str) -> float:
        n_characters = {"tokenizers": 2_000_000, "tiktoken": 4_000_000, "gigatoken": 20_000_000}[engine]
        alone = self.alone(engine, self.write(n_characters))
        return ratio(self.packing(engine), alone, rounds=7, clock=time.process_time)


class AgainstTokenizers(_Engines):
    params = ["tiktoken", "gigatoken"]

    @row("`pack`, one process, by engine, loaded tokenizer", "x the same with tokenizers")
    def track_against_tokenizers(self, engine: str) -> float:
        self.write(4_000_000)
        return ratio(self.packing(engine), self.packing("tokenizers"), rounds=2, clock=time.process_time)

    @row("`pack_encoded_data`, 40 MB, one process, with loading and validation", "x the same with tokenizers")
    def track_whole_command(self, engine: str) -> float:
        self.write(40_000_000)

        def seconds(engine: str) -> float:
            started = time.process_time()
            pack_encoded_data(self.config(), engine=engine, if_exists="overwrite")  # type: ignore[arg-type]
            return time.process_time() - started

        return seconds("tokenizers") / seconds(engine)
