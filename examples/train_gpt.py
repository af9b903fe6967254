"""Train a two-layer GPT on a packed file, stop within an epoch, and resume with another number of ranks.

    fastpack quickstart corpus                                            # corpus/stdlib.pbin, real text
    python examples/train_gpt.py corpus/stdlib.pbin --ranks 4 --batch-size 4 --stop-at 100
    python examples/train_gpt.py corpus/stdlib.pbin --ranks 2 --batch-size 8 --resume

The second run continues at the sample where the first one stopped. With the same number of samples per step (4 x 4 =
2 x 8), its losses are those of an uninterrupted run. The ranks are simulated in one process with one loader each, and
their gradients are averaged; under torchrun, every process has its own loader, and DDP averages the gradients.

With --planned, rows consist of whole documents (longer ones are split), as `fastpack plan` packs them; otherwise the
file is cut every `--seq-len` tokens.

Attention is restricted to documents: the mask is made from doc_ids, positions start at 0 in each document, and the
first token of the next document is not a label. At the end, the script prints how much the outputs of a document change
when the previous document is replaced.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import fastpack
import fastpack.torch

EOD, VOCABULARY = 256, 257  # of the quickstart's byte tokenizer
OUTPUTS = ("input_ids", "labels", "doc_ids", "position_ids")


class Block(nn.Module):
    """Masked attention and a feed-forward layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows, length, width = x.shape
        projected = self.qkv(self.before_attention(x)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    """Compute logits [B, L, vocabulary] of input_ids [B, L], with attention within documents (doc_ids)."""

    def __init__(self, seq_len: int, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(seq_len, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, input_ids: Tensor, doc_ids: Tensor, position_ids: Tensor) -> Tensor:
        mask = (doc_ids[:, :, None] == doc_ids[:, None, :]).tril()[:, None]
        x = self.tokens(input_ids) + self.positions(position_ids)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def make_loaders(args: argparse.Namespace) -> list[Any]:
    """Return a loader for each simulated rank over the same file."""
    if args.megatron:
        return make_megatron_loaders(args)
    if args.planned:
        plan = args.path.with_name(f"{args.path.stem}-{args.seq_len}.plan")
        fastpack.plan(args.path, plan, seq_length=args.seq_len, if_exists="skip")
        dataset = fastpack.torch.PlannedDataset(plan)
    else:
        dataset = fastpack.torch.PackedMemMapDatasetContinuous(
            args.path, "tokens", args.seq_len + 1, reuse_last_target=True, eos_token_id=EOD
        )
    samplers = [fastpack.DistributedSampler(dataset, args.ranks, rank, seed=args.seed) for rank in range(args.ranks)]
    return [
        fastpack.torch.StatefulDataLoader(dataset, args.batch_size, sampler, outputs=OUTPUTS) for sampler in samplers
    ]


def make_megatron_loaders(args: argparse.Namespace) -> list[Any]:
    """Return the loaders for Megatron's samples in Megatron's order."""
    n_samples = args.steps * args.ranks * args.batch_size
    dataset, _, _ = fastpack.torch.GPTDataset.build(
        args.path, args.seq_len, args.seed, (n_samples, 0, 0), "1,0,0", inter_document_masking=True
    )
    samplers = [
        fastpack.MegatronPretrainingSampler(len(dataset), 0, args.batch_size, rank, args.ranks)
        for rank in range(args.ranks)
    ]
    return [fastpack.torch.StatefulDataLoader(dataset, args.batch_size, sampler) for sampler in samplers]


def endless(loader: Any) -> Iterator[dict[str, Tensor]]:
    """Yield the batches of all epochs."""
    while True:
        yield from map(with_doc_ids, loader)


def with_doc_ids(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give the outputs of Megatron's samples the names of the others; positions start at 0 in each document."""
    if "tokens" not in batch:
        return batch
    labels = torch.where(batch["loss_mask"] > 0, batch["labels"], -100)
    doc_ids = (batch["position_ids"] == 0).cumsum(1) - 1
    return {"input_ids": batch["tokens"], "labels": labels, "doc_ids": doc_ids, "position_ids": batch["position_ids"]}


def train_step(model: GPT, optimizer: torch.optim.Optimizer, batches: Sequence[dict[str, Tensor]]) -> float:
    """Train on one batch of every rank; return the mean loss over all labels that are not masked."""
    n_labels = sum(int((batch["labels"] != -100).sum()) for batch in batches)
    total = 0.0
    optimizer.zero_grad()
    for batch in batches:
        logits = model(batch["input_ids"], batch["doc_ids"], batch["position_ids"])
        loss = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum") / n_labels
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


def n_documents(batch: dict[str, Tensor]) -> int:
    """Return the largest number of documents in a row."""
    return int(batch["doc_ids"].max()) + 1


@torch.no_grad()
def leak(model: GPT, batch: dict[str, Tensor], masked: bool = True) -> float:
    """Return the largest change of the logits of later documents when the first document of each row is replaced."""
    doc_ids = batch["doc_ids"] if masked else torch.zeros_like(batch["doc_ids"])
    first = batch["doc_ids"] == 0
    changed = torch.where(first, (batch["input_ids"] + 1) % VOCABULARY, batch["input_ids"])
    before, after = (model(tokens, doc_ids, batch["position_ids"]) for tokens in (batch["input_ids"], changed))
    moved = (before - after).abs().amax(-1)[~first]
    return float(moved.max()) if len(moved) else 0.0


def train(args: argparse.Namespace) -> list[float]:
    """Train up to `--steps` (or `--stop-at`) and write a checkpoint; return the losses."""
    torch.manual_seed(args.seed)
    model = GPT(args.seq_len)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loaders, first, losses = make_loaders(args), 0, []
    if args.resume:
        saved = torch.load(args.checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
        for loader in loaders:
            loader.load_state_dict(saved["loader"])  # the state of rank 0 serves every rank
    streams, probe = [endless(loader) for loader in loaders], None
    for step in range(first, args.stop_at or args.steps):
        batches = [next(stream) for stream in streams]
        losses.append(train_step(model, optimizer, batches))
        probe = max([*batches, probe or batches[0]], key=n_documents)  # the loader never overwrites a referenced batch
        if step % args.log_every == 0:
            print(f"step {step:4d}  loss {losses[-1]:.4f}", flush=True)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loaders[0].state_dict()}
    torch.save(state | {"step": first + len(losses)}, args.checkpoint)
    for loader in loaders:
        loader.close()
    inside, across = leak(model, probe), leak(model, probe, masked=False)
    print(f"replacing a document changes the outputs of later ones by {inside:g}; without the mask by {across:.3g}")
    return losses


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="a packed file of the byte tokenizer (see fastpack quickstart)")
    parser.add_argument("--ranks", type=int, default=4, help="the number of simulated ranks (4)")
    parser.add_argument("--batch-size", type=int, default=4, help="the number of samples per batch and rank (4)")
    parser.add_argument("--seq-len", type=int, default=128, help="the number of tokens of a sample (128)")
    parser.add_argument("--megatron", action="store_true", help="samples in the order of Megatron's GPTDataset")
    parser.add_argument("--steps", type=int, default=300, help="train to this step (300)")
    parser.add_argument("--stop-at", type=int, help="save and stop before this step")
    parser.add_argument("--planned", action="store_true", help="rows of whole documents, by fastpack.plan")
    parser.add_argument("--resume", action="store_true", help="resume from the checkpoint")
    parser.add_argument("--checkpoint", type=Path, default=Path("train_gpt.pt"), help="the checkpoint (train_gpt.pt)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=20)
    return parser.parse_args(words)


if __name__ == "__main__":
    train(parse())
