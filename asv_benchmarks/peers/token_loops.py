"""Loops over the same tokens with several systems, each as its documentation suggests, for loop_process.py.

A loop has a folder of its own, which `prepare` fills from tokens.bin (uint16), and `open` returns an iterator of
batches (input_ids, labels), and position_ids for packed rows: int64 [batch, length] of shuffled rows. `state` returns
what a checkpoint contains, and `open` continues from it. Rows are windows of length + 1 tokens
without overlap, except for those of Megatron, which shuffles documents and repeats one token of each row in the next.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

EOS, SEED = 0, 20_261_122


class Loop:
    """What all loops share; `job` has folder, length, batch, workers, packed."""

    distributions: tuple[str, ...] = ("torch",)
    counts_samples = True  # the state follows from the number of samples; otherwise the loop has to be run

    def __init__(self, job: SimpleNamespace) -> None:
        warnings.simplefilter("ignore")
        self.job, self.source = job, Path(job.folder)
        self.folder = self.source / type(self).__name__.lower()
        self.load()

    def load(self) -> None:
        """Import the packages."""
        import torch

        torch.set_num_threads(1)
        self.torch: Any = torch

    def prepare(self) -> None:
        """Write the files of this system, once."""

    def state(self) -> Any:
        """Return what a checkpoint contains after `job.at` samples."""
        return self.job.at

    def rows(self) -> Any:
        """Return the mapped tokens as [rows, length + 1]."""
        tokens = np.memmap(self.source / "tokens.bin", np.uint16, "r")
        return tokens[: tokens.size // (self.job.length + 1) * (self.job.length + 1)].reshape(-1, self.job.length + 1)

    def loader(self, dataset: Any, **options: Any) -> Any:
        """Return torch's DataLoader, shuffled in an order that depends on the seed only."""
        options = {"collate_fn": None, "num_workers": self.job.workers, **options}
        if "batch_sampler" not in options:
            generator = self.torch.Generator().manual_seed(SEED)
            options |= {"batch_size": self.job.batch, "shuffle": True, "drop_last": True, "generator": generator}
        return self.torch.utils.data.DataLoader(dataset, **options)


def split(blocks: Any) -> tuple[Any, Any]:
    return blocks[:, :-1], blocks[:, 1:]


def tokens_between(path: str, places: tuple[int, int]) -> Any:
    import torch

    return torch.from_numpy(np.memmap(path, np.uint16, "r")[slice(*places)].copy())


class Torch(Loop):
    """torch's DataLoader over a memmap: whole batches, input_ids and labels are views of one tensor."""

    def dataset(self) -> Any:
        rows, torch, packed = self.rows(), self.torch, self.job.packed

        class Rows(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
            def __len__(self) -> int:
                return len(rows)

            def __getitems__(self, numbers: list[int]) -> Any:
                x, y = split(torch.from_numpy(rows[numbers].astype(np.int64)))
                if not packed:
                    return x, y
                ends, places = x == EOS, torch.arange(x.shape[1])
                starts = torch.where(ends, places + 1, 0).cummax(1).values.roll(1, 1)
                starts[:, 0] = 0
                return x, y.masked_fill(ends, -100), places - starts

        return Rows()

    def open(self) -> Any:
        return iter(self.loader(self.dataset(), collate_fn=lambda batch: batch))


class TorchDiscard(Torch):
    """The batches before the first one are read and dropped: `for step, batch in enumerate(loader)`, and `continue`."""

    def open(self, state: Any = None) -> Any:
        return itertools.islice(super().open(), (state or 0) // self.job.batch, None)


class TorchSkip(Torch):
    """accelerate's skip_first_batches, as transformers' Trainer uses it."""

    distributions = ("torch", "accelerate")

    def load(self) -> None:
        super().load()
        from accelerate import skip_first_batches

        self.skip: Any = skip_first_batches

    def open(self, state: Any = None) -> Any:
        loader = self.loader(self.dataset(), collate_fn=lambda batch: batch)
        return iter(self.skip(loader, state // self.job.batch) if state else loader)


class Torchdata(Torch):
    """torchdata's StatefulDataLoader over the same dataset."""

    distributions = ("torchdata", "torch")
    counts_samples = False

    def load(self) -> None:
        super().load()
        from torchdata.stateful_dataloader import StatefulDataLoader

        self.stateful: Any = StatefulDataLoader

    def open(self, state: Any = None) -> Any:
        options = {"batch_size": self.job.batch, "shuffle": True, "drop_last": True, "num_workers": self.job.workers}
        self.opened = self.stateful(self.dataset(), collate_fn=lambda batch: batch, **options)
        if state:
            self.opened.load_state_dict(state)
        else:
            self.torch.manual_seed(SEED)
        return iter(self.opened)

    def state(self) -> Any:
        return self.opened.state_dict()


class Litdata(Loop):
    """litData's StreamingDataset with TokensLoader."""

    distributions = ("litdata", "torch")
    counts_samples = False

    def load(self) -> None:
        super().load()
        import litdata

        self.litdata: Any = litdata

    def prepare(self) -> None:
        rows = self.rows()
        per_chunk = min(len(rows), max(1, (1 << 25) // self.job.length))
        self.litdata.optimize(
            functools.partial(tokens_between, str(self.source / "tokens.bin")),
            [(first * rows.shape[1], (first + per_chunk) * rows.shape[1]) for first in range(0, len(rows), per_chunk)],
            str(self.folder),
            chunk_size=per_chunk * rows.shape[1],
            num_workers=1,
            item_loader=self.litdata.TokensLoader(),
        )

    def open(self, state: Any = None) -> Any:
        items = self.litdata.TokensLoader(block_size=self.job.length + 1)
        dataset = self.litdata.StreamingDataset(
            str(self.folder), item_loader=items, shuffle=True, drop_last=True, seed=SEED
        )
        self.opened = self.litdata.StreamingDataLoader(
            dataset, batch_size=self.job.batch, num_workers=self.job.workers, drop_last=True
        )
        if state:
            self.opened.load_state_dict(state)
        return (split(blocks.long()) for blocks in self.opened)

    def state(self) -> Any:
        return self.opened.state_dict()


class Mosaicml(Loop):
    """mosaicml-streaming's StreamingDataset of one array per sample."""

    distributions = ("mosaicml-streaming", "torch")

    def load(self) -> None:
        super().load()
        import streaming

        self.streaming: Any = streaming
        streaming.base.util.clean_stale_shared_memory()

    def prepare(self) -> None:
        rows = self.rows()
        columns = {"tokens": f"ndarray:uint16:{rows.shape[1]}"}
        with self.streaming.MDSWriter(out=str(self.folder), columns=columns) as writer:
            for row in rows:
                writer.write({"tokens": np.asarray(row)})

    def open(self, state: Any = None) -> Any:
        dataset = self.streaming.StreamingDataset(
            local=str(self.folder), batch_size=self.job.batch, shuffle=True, shuffle_seed=SEED
        )
        loader = self.streaming.StreamingDataLoader(
            dataset, batch_size=self.job.batch, num_workers=self.job.workers, drop_last=True
        )
        self.opened = dataset
        if state:
            loader.load_state_dict(state)
        return (split(batch["tokens"].long()) for batch in loader)

    def state(self) -> Any:
        return self.opened.state_dict(self.job.at, from_beginning=True)


class Megatron(Loop):
    """megatron-core's GPTDataset in torch's DataLoader, with a sampler like Megatron's, which starts at any sample."""

    distributions = ("megatron-core", "torch")

    def load(self) -> None:
        super().load()
        from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
        from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

        self.core: Any = SimpleNamespace(
            build=BlendedMegatronDatasetBuilder, dataset=GPTDataset, config=GPTDatasetConfig
        )

    def open(self, state: Any = None) -> Any:
        tokenizer = SimpleNamespace(vocab_size=1 << 16, eod=EOS, unique_identifiers={})
        config = self.core.config(
            random_seed=SEED,
            sequence_length=self.job.length,
            blend=([str(self.source / "corpus")], None),
            split="1,0,0",
            path_to_cache=str(self.folder),
            tokenizer=tokenizer,
            reset_position_ids=self.job.packed,
            reset_attention_mask=False,
            eod_mask_loss=self.job.packed,
            create_attention_mask=False,
        )
        dataset = self.core.build(self.core.dataset, [None, 0, 0], lambda: True, config).build()[0]
        numbers = range(state or 0, len(dataset))
        batches = (numbers[k : k + self.job.batch] for k in range(0, len(numbers), self.job.batch))
        full = [batch for batch in batches if len(batch) == self.job.batch]
        return map(self.arrays, self.loader(dataset, batch_sampler=full))

    def arrays(self, batch: Any) -> tuple[Any, ...]:
        if not self.job.packed:
            return batch["tokens"], batch["labels"]
        return batch["tokens"], batch["labels"], batch["position_ids"], batch["loss_mask"]


class Grain(Loop):
    """Grain's MapDataset over a memmap, with its threads; arrays of NumPy, as for JAX."""

    distributions = ("grain",)

    def load(self) -> None:
        import grain

        self.grain: Any = grain

    def open(self, state: Any = None) -> Any:
        rows, batch = self.rows(), self.job.batch
        dataset = self.grain.MapDataset.source(rows).shuffle(seed=SEED).batch(batch, drop_remainder=True)
        batches = iter(dataset.map(lambda blocks: split(blocks.astype(np.int64))).to_iter_dataset())
        if state:
            batches.set_state({"next_index": state // batch})
        return batches


class GrainPacked(Loop):
    """Grain's ConcatThenSplit of shuffled documents; input_ids and their positions."""

    distributions, load = Grain.distributions, Grain.load

    def prepare(self) -> None:
        ends = np.flatnonzero(np.memmap(self.source / "tokens.bin", np.uint16, "r") == EOS) + 1
        self.folder.mkdir()
        np.save(self.folder / "ends.npy", ends)

    def open(self) -> Any:
        tokens = np.memmap(self.source / "tokens.bin", np.uint16, "r")
        ends = np.load(self.folder / "ends.npy")

        class Documents:
            def __len__(self) -> int:
                return len(ends)

            def __getitem__(self, i: int) -> dict[str, Any]:
                return {"tokens": tokens[ends[i - 1] if i else 0 : ends[i]]}

        documents = self.grain.MapDataset.source(Documents()).shuffle(seed=SEED).to_iter_dataset()
        length = self.job.length
        packing = self.grain.experimental.ConcatThenSplitIterDataset(documents, length_struct={"tokens": length + 1})
        batches = packing.batch(self.job.batch, drop_remainder=True)
        return (
            (*split(batch["tokens"].astype(np.int64)), batch["tokens_positions"][:, :-1].astype(np.int64))
            for batch in batches
        )


class Datasets(Loop):
    """Hugging Face's Dataset with the format of torch in torch's DataLoader."""

    distributions = ("datasets", "torch")

    def load(self) -> None:
        super().load()
        import datasets

        self.datasets: Any = datasets

    def prepare(self) -> None:
        import pyarrow as pa

        rows = self.rows()
        column = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
        self.datasets.Dataset(pa.table({"tokens": column})).save_to_disk(str(self.folder))

    def open(self) -> Any:
        dataset = self.datasets.load_from_disk(str(self.folder)).with_format("torch")
        loader = self.loader(dataset)
        return (split(batch["tokens"].long()) for batch in loader)


class Fastpack(Loop):
    """fastpack's loader with tensors of torch."""

    distributions = ("fastpack-llm", "torch")
    counts_samples = False
    order = "torch"

    def load(self) -> None:
        super().load()
        import fastpack.torch

        self.fastpack: Any = fastpack

    def prepare(self) -> None:
        self.folder.mkdir()
        (self.folder / "tokens.bin").hardlink_to(self.source / "tokens.bin")

    def open(self, state: Any = None) -> Any:
        packed = {"pack_sequences": True, "eos_token_id": EOS} if self.job.packed else {}
        dataset = self.fastpack.torch.MemoryMappedDataset(
            str(self.folder), self.job.length + 1, "*.bin", dtype="uint16", **packed
        )
        sampler = self.fastpack.DistributedSampler(dataset, 1, 0, seed=SEED, order=self.order)
        names = ("input_ids", "labels", "position_ids") if self.job.packed else ("input_ids", "labels")
        self.opened = self.fastpack.torch.StatefulDataLoader(dataset, self.job.batch, sampler, outputs=names)
        if state:
            self.opened.load_state_dict(state)
        return (tuple(batch[name] for name in names) for batch in self.opened)

    def state(self) -> Any:
        return self.opened.state_dict()


class FastpackFeistel(Fastpack):
    """The same with an order that is computed when it is needed."""

    order = "feistel"


_STATEFUL = (TorchDiscard, TorchSkip, Torchdata, Litdata, Mosaicml, Megatron, Grain, Fastpack, FastpackFeistel)
LOOPS = {loop.__name__: loop for loop in (*_STATEFUL, Torch, GrainPacked, Datasets)}
