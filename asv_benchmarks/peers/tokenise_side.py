"""Tokenise the texts of a JSONL file with one system and write its format; a whole process, which another measures.

    python tokenise_side.py SYSTEM tokenizers|gigatoken TOKENIZER OUT SOURCE [LARGE]

With `tokenizers`, SYSTEM does the work as its own documentation or script does. With `gigatoken`, it gets ids in
batches of lines: the best code around its writer. One process, or one worker where the system insists on workers.

With LARGE, the CPU seconds that LARGE takes more than SOURCE go to the file OUT/seconds: imports, loading of the
tokenizer and other fixed costs are not in them.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
    del sys.path[0]  # the megatron.py there is not the package of that name

EOS = "<|endoftext|>"
LINES = 1000  # per call of gigatoken


def load(path: str) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(path)


def texts(source: str) -> Iterator[str]:
    with open(source, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)["text"]


def documents(engine: str, tokenizer: str, source: str) -> Iterator[Any]:
    """Yield the ids of each document with the EOS token at its end."""
    backend = load(tokenizer)
    eos_id = backend.token_to_id(EOS)
    if engine == "gigatoken":
        for ids, ends in batches(source, tokenizer, eos_id):
            yield from np.split(ids, ends[:-1])
    else:
        for text in texts(source):
            yield [*backend.encode(text).ids, eos_id]


def batches(source: str, tokenizer: str, eos_id: int) -> Iterator[tuple[Any, Any]]:
    """Yield ids of gigatoken, uint16, with EOS tokens, and the end of each document."""
    import orjson
    from gigatoken import gigatoken_rs

    engine = gigatoken_rs.load_hf_json(Path(tokenizer).read_bytes())
    with open(source, "rb") as file:
        while lines := list(islice(file, LINES)):
            layout = engine.encode_batch([orjson.loads(line)["text"] for line in lines], parallel=False).layout
            ends = np.asarray(layout.offsets.data, np.int64)[1:]
            ids = np.asarray(layout.content.data).astype(np.uint16)
            yield np.insert(ids, ends, eos_id), ends + np.arange(1, len(ends) + 1)


def datatrove(engine: str, tokenizer: str, out: str, source: str) -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer
    from datatrove.pipeline.tokens.tokenizer import TokenizedFile

    if engine == "gigatoken":
        file = TokenizedFile(out, "a.ds", tokenizer_name_or_path=tokenizer, save_final_metadata=True, token_size=2)
        for ids, ends in batches(source, tokenizer, load(tokenizer).token_to_id(EOS)):
            file.write_bytes(ids.tobytes(), ends.tolist())
        file.close()
        return
    folder, name = Path(source).parent, Path(source).name
    steps = [
        JsonlReader(str(folder), glob_pattern=name),
        DocumentTokenizer(
            out, tokenizer_name_or_path=tokenizer, eos_token=EOS, shuffle_documents=False, batch_size=LINES
        ),
    ]
    LocalPipelineExecutor(steps, tasks=1, workers=1, logging_dir=f"{out}/logs").run()


def megatron(engine: str, tokenizer: str, out: str, source: str) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    builder = IndexedDatasetBuilder(f"{out}/a.bin", dtype=np.uint16)
    for ids in documents(engine, tokenizer, source):
        builder.add_document(ids, [len(ids)])
    builder.finalize(f"{out}/a.idx")


def nanogpt(engine: str, tokenizer: str, out: str, source: str) -> None:
    """Do what its data/openwebtext/prepare.py does; with gigatoken, write each batch."""
    if engine == "gigatoken":
        with open(f"{out}/a.bin", "wb") as file:
            for ids, _ in batches(source, tokenizer, load(tokenizer).token_to_id(EOS)):
                ids.tofile(file)
        return
    from datasets import load_dataset

    backend = load(tokenizer)
    eos_id = backend.token_to_id(EOS)

    def process(example: dict[str, Any]) -> dict[str, Any]:
        ids = [*backend.encode(example["text"]).ids, eos_id]
        return {"ids": ids, "len": len(ids)}

    read = load_dataset("json", data_files=source, split="train", cache_dir=f"{out}/cache")
    found = read.map(process, remove_columns=["text", "id"], num_proc=1)
    array = np.memmap(f"{out}/a.bin", dtype=np.uint16, mode="w+", shape=(int(np.sum(found["len"])),))
    at, n_shards = 0, min(1024, len(found))
    for number in range(n_shards):
        shard = found.shard(num_shards=n_shards, index=number, contiguous=True).with_format("numpy")
        ids = np.concatenate(shard["ids"])
        array[at : at + len(ids)] = ids
        at += len(ids)
    array.flush()


def litdata(engine: str, tokenizer: str, out: str, source: str) -> None:
    import litdata

    tensors = partial(_tensors, engine, tokenizer)
    litdata.optimize(
        tensors, [source], f"{out}/a", chunk_bytes="64MB", num_workers=1, item_loader=litdata.TokensLoader()
    )


def _tensors(engine: str, tokenizer: str, source: str) -> Iterator[Any]:
    import torch

    for ids in documents(engine, tokenizer, source):
        yield torch.from_numpy(np.asarray(ids, np.uint16))


def mds(engine: str, tokenizer: str, out: str, source: str) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=f"{out}/a", columns={"tokens": "ndarray:uint16"}) as writer:
        for ids in documents(engine, tokenizer, source):
            writer.write({"tokens": np.asarray(ids, np.uint16)})


def dolma(engine: str, tokenizer: str, out: str, source: str) -> None:
    """Run `dolma tokens`; it has its own writer only."""
    from dolma.cli.__main__ import main

    assert engine == "tokenizers"
    eos_id = str(load(tokenizer).token_to_id(EOS))
    words = ["tokens", "--documents", source, "--destination", f"{out}/a", "--dtype", "uint16", "--processes", "1"]
    words += ["--tokenizer.name_or_path", tokenizer, "--tokenizer.eos_token_id", eos_id]
    words += ["--tokenizer.pad_token_id", eos_id, "--ring_size", "1", "--fields.id_field_type", "int"]
    main([*words, "--work_dir.input", f"{out}/in", "--work_dir.output", f"{out}/work"])


def fastpack(engine: str, tokenizer: str, out: str, source: str) -> None:
    from fastpack import pack

    pack(source, f"{out}/a.pbin", tokenizer=tokenizer, eos_token=EOS, engine=engine, num_workers=1)


SYSTEMS: dict[str, Callable[[str, str, str, str], None]] = {
    "datatrove": datatrove,
    "megatron": megatron,
    "nanogpt": nanogpt,
    "litdata": litdata,
    "mds": mds,
    "dolma": dolma,
    "fastpack": fastpack,
}


def cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure(run: Callable[[str, str], None], out: str, sources: list[str]) -> float:
    """Return the CPU seconds that the last source takes more than the first, after a first run of both."""
    seconds = []
    for number, source in enumerate([*sources, *sources]):
        folder = Path(out, str(number))
        folder.mkdir()
        before = cpu_seconds()
        run(str(folder), source)
        seconds.append(cpu_seconds() - before)
    return seconds[-1] - seconds[-2]


def main(system: str, engine: str, tokenizer: str, out: str, *sources: str) -> None:
    run = partial(SYSTEMS[system], engine, tokenizer)
    if len(sources) == 1:
        run(out, sources[0])
    else:
        Path(out, "seconds").write_text(str(measure(run, out, list(sources))))


if __name__ == "__main__":
    main(*sys.argv[1:])
