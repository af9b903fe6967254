"""Packing conversations compared with a loop of Jinja2 and `tokenizers`: the least that apply_chat_template does."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from fastpack import create_raw_index
from fastpack.packing.pack_conversations import chat_settings
from fastpack.packing.pack_job import prepare_encoder
from fastpack.packing.packing_pipeline import Packer
from fastpack.packing.targets import targets_of

from .common import CORPUS_SEED, ratio, row
from .pack import standard_library_texts

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATES = {
    "prefixes": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "generation": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}"
    "{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m['content'] + '<|im_end|>' }}"
    "{% endif %}{{ '\n' }}{% endfor %}",
}
N_CHATS = 3_000


class Chat:
    params = ["prefixes", "generation"]
    param_names = ["mask"]
    timeout = 300

    def setup(self, mask: str) -> None:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        self.folder = Path(tempfile.mkdtemp())
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=16_000,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(standard_library_texts(2_000_000), trainer)
        tokenizer.save(str(self.folder / "tokenizer.json"))
        (self.folder / "chat.jinja").write_text(TEMPLATES[mask])
        (self.folder / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in conversations(N_CHATS)))
        create_raw_index(self.folder / "chats.jsonl")

    def teardown(self, _mask: str) -> None:
        shutil.rmtree(self.folder)

    @row("`chat`, one process, loaded tokenizer", "x Jinja2 and tokenizers in a loop, without a mask")
    def track_chat(self, mask: str) -> float:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
        from tokenizers import Tokenizer

        settings = chat_settings(
            str(self.folder / "chats.jsonl"),
            str(self.folder / "chats.pbin"),
            tokenizer=str(self.folder / "tokenizer.json"),
            chat_template=str(self.folder / "chat.jinja"),
            num_workers=1,
            if_exists="overwrite",
        )
        spec, choice = prepare_encoder(settings)
        targets = targets_of(settings)
        source = TEMPLATES[mask].replace("{% generation %}", "").replace("{% endgeneration %}", "")
        render = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(source).render
        own = Tokenizer.from_file(str(self.folder / "tokenizer.json"))

        def loop() -> list[list[int]]:
            with (self.folder / "chats.jsonl").open("rb") as file:
                texts = (render(messages=json.loads(line)["messages"], add_generation_prompt=False) for line in file)
                return [own.encode(text, add_special_tokens=False).ids for text in texts]

        return ratio(
            lambda: Packer(settings, spec, choice.tokenizer).pack(targets), loop, rounds=3, clock=time.process_time
        )


def conversations(n: int) -> list[dict[str, object]]:
    """Return conversations of one to four questions and answers, half of them with a system prompt."""
    rng = np.random.default_rng(CORPUS_SEED)
    text = "".join(standard_library_texts(3_000_000))
    chats: list[dict[str, object]] = []
    for _ in range(n):
        messages = [{"role": "system", "content": "You are a helpful assistant."}][: int(rng.integers(2))]
        for _ in range(int(rng.integers(1, 5))):
            for role, length in zip(("user", "assistant"), rng.lognormal(4.5, 0.8, 2) * (1, 3), strict=True):
                start = int(rng.integers(len(text) - 10_000))
                messages.append({"role": role, "content": text[start : start + 8 + int(length)]})
        chats.append({"messages": messages})
    return chats
