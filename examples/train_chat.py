"""Pack conversations, and train a small model on the tokens of the assistant only.

    python examples/train_chat.py chat

The conversations ask for the sum of two digits, after a random number. The answer follows from the question, the random
number does not: a model that trains on all tokens wastes its loss on it. At the end, the script prints the loss of the
tokens of the assistant and of all others: only the first one has fallen.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import fastpack
import fastpack.torch

VOCABULARY = 257  # of the byte tokenizer
TEMPLATE = """\
{% for message in messages %}
{{ message.role[0] }}:{% if message.role == 'assistant' %}{% generation %}{{ message.content }};{% endgeneration %}
{% else %}{{ message.content }};{% endif %}
{% endfor %}"""


def write_conversations(folder: Path, n_chats: int = 4000) -> tuple[Path, Path]:
    """Write conversations and a chat template; return their paths."""
    rng = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    source, template = folder / "chats.jsonl", folder / "chat.jinja"
    with open(source, "w", encoding="utf-8") as file:
        for _ in range(n_chats):
            a, b = rng.randrange(10), rng.randrange(10)
            question = {"role": "user", "content": f"{rng.randrange(10**6):06d} {a}+{b}?"}
            answer = {"role": "assistant", "content": f"{a}+{b}={a + b:02d}"}
            file.write(json.dumps({"messages": [question, answer]}) + "\n")
    template.write_text(TEMPLATE, encoding="utf-8")
    return source, template


class Model(nn.Module):
    """A recurrent model: logits [B, L, vocabulary] of input_ids [B, L]."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.tokens, self.cells = nn.Embedding(VOCABULARY, width), nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.head(self.cells(self.tokens(input_ids))[0])


def losses(logits: Tensor, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the mean loss of the tokens that count, and of the others."""
    targets = batch["input_ids"][:, 1:]
    each = functional.cross_entropy(logits[:, :-1].transpose(1, 2), targets, reduction="none")
    counts = batch["labels"][:, :-1] != -100
    return each[counts].mean(), each[~counts].mean()


def train(args: argparse.Namespace) -> tuple[float, float]:
    """Pack, train, and return the last losses of the tokens that count and of the others."""
    source, template = write_conversations(args.folder)
    packed = fastpack.pack_conversations(
        source, args.folder / "sft.pbin", tokenizer="bytes", chat_template=template, if_exists="overwrite"
    )
    print(f"{packed.documents} conversations, {packed.loss_tokens} of {packed.tokens} tokens count in the loss")
    dataset = fastpack.torch.PackedMemMapDatasetContinuous(packed.path, "tokens", 65, reuse_last_target=True)
    sampler = fastpack.DistributedSampler(dataset, 1, 0, seed=0)
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    counted, others = [], []
    while len(counted) < args.steps:
        for batch in fastpack.torch.StatefulDataLoader(dataset, 16, sampler, outputs=("input_ids", "labels")):
            logits = model(batch["input_ids"])
            loss = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())  # ignores labels of -100
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for kept, value in zip((counted, others), losses(logits.detach(), batch), strict=True):
                kept.append(value.item())
            if len(counted) == args.steps:
                break
    last = sum(counted[-10:]) / 10, sum(others[-10:]) / 10
    print(f"loss of the assistant's tokens: {counted[0]:.2f} -> {last[0]:.2f}; of the others: {last[1]:.2f}")
    return last


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the files")
    parser.add_argument("--steps", type=int, default=200)
    return parser.parse_args(words)


if __name__ == "__main__":
    train(parse())
