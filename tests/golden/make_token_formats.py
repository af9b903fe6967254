"""Writes tests/golden/interop with the real writers of the formats. Run by hand, where they are installed, in an
empty tests/golden/interop (one environment per format: they exclude each other):

python tests/golden/make_token_formats.py [FORMAT ...]

Made with megatron-core 0.16.1, datatrove 0.9.0, dolma 1.2.1, litdata 0.2.76 and mosaicml-streaming 0.13.0. llm.c and
nanoGPT are no packages: their files are written here as their documentation describes them. Every file contains the
same documents, so that `documents.json` is the expected content of each.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent / "interop"
EOS = 0
DOCUMENTS = [[5, 6, 7, EOS], [EOS], [65_499, 9, 9, EOS], [*range(1, 300), EOS], [12, EOS]]
WIDE = [[document[0] + 70_000 * (len(document) > 1), *document[1:]] for document in DOCUMENTS]


def contents() -> Iterator[tuple[str, list[list[int]]]]:
    yield "narrow", DOCUMENTS
    yield "wide", WIDE


def megatron() -> None:
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    for name, documents in contents():
        builder = IndexedDatasetBuilder(
            str(ROOT / f"{name}_text_document.bin"), np.uint16 if name == "narrow" else np.int32
        )
        for document in documents:
            builder.add_document(torch.tensor(document), [len(document)])
        builder.finalize(str(ROOT / f"{name}_text_document.idx"))
    builder = IndexedDatasetBuilder(str(ROOT / "sentences.bin"), np.int32)  # several sequences per document
    for document in DOCUMENTS:
        halves = [len(document) // 2, len(document) - len(document) // 2]
        builder.add_document(torch.tensor(document), halves)
    builder.finalize(str(ROOT / "sentences.idx"))
    builder = IndexedDatasetBuilder(str(ROOT / "modes.bin"), np.uint16, multimodal=True)
    for document in DOCUMENTS:
        builder.add_document(torch.tensor(document), [len(document)], [0])
    builder.finalize(str(ROOT / "modes.idx"))


def datatrove() -> None:
    from datatrove.pipeline.tokens.tokenizer import TokenizedFile

    for name, documents in contents():
        size = 2 if name == "narrow" else 4
        file = TokenizedFile(str(ROOT), f"{name}.ds", save_final_metadata=True, token_size=size)
        for document in documents:
            file.write(document, None)
        file.close()


def olmo() -> None:
    from unittest.mock import MagicMock

    sys.modules["transformers"] = MagicMock()  # dolma imports it, and the writer does not use it
    from dolma.tokenizer.data_types import TokenizerOutput
    from dolma.tokenizer.memmap_writer import MemmapWriter

    for name, documents in contents():
        dtype = np.dtype(np.uint16 if name == "narrow" else np.uint32)
        n_tokens = sum(map(len, documents))
        with MemmapWriter(str(ROOT / f"{name}_olmo.npy"), dtype, max_tokens=n_tokens + 1) as file:
            for number, document in enumerate(documents):
                output = TokenizerOutput(
                    id=str(number), src="made.json", loc=number, tokens=document, start=0, end=len(document)
                )
                assert file.write(output)


def llmc() -> None:
    for name, documents in contents():
        flat = np.array([token for document in documents for token in document])
        header = np.zeros(256, "<i4")
        header[:3] = (20240520, 1, len(flat)) if name == "narrow" else (20240801, 7, len(flat))
        with (ROOT / f"{name}_llmc.bin").open("wb") as file:
            file.write(header.tobytes() + flat.astype("<u2" if name == "narrow" else "<u4").tobytes())


def nanogpt() -> None:
    flat = np.array([token for document in DOCUMENTS for token in document], "<u2")
    flat.tofile(ROOT / "nanogpt_train.bin")


def litdata() -> None:
    import torch
    from litdata.streaming.item_loader import TokensLoader
    from litdata.streaming.writer import BinaryWriter

    for name, documents in contents():
        folder = ROOT / f"{name}_litdata"
        writer = BinaryWriter(str(folder), chunk_bytes=200, item_loader=TokensLoader())
        make = (
            (lambda d: np.array(d, np.uint16)) if name == "narrow" else (lambda d: torch.tensor(d, dtype=torch.int32))
        )
        for number, document in enumerate(documents):
            writer.add_item(number, make(document))
        writer.done()
        writer.merge()


def mds() -> None:
    from streaming import MDSWriter

    for name, documents in contents():
        dtype = "uint16" if name == "narrow" else "int32"
        for encoding in (f"ndarray:{dtype}", "ndarray", "bytes"):
            folder = ROOT / f"{name}_mds_{encoding.replace(':', '_')}"
            with MDSWriter(out=str(folder), columns={"tokens": encoding}, size_limit=700) as writer:
                for document in documents:
                    array = np.array(document, dtype)
                    writer.write({"tokens": array.tobytes() if encoding == "bytes" else array})
    with MDSWriter(
        out=str(ROOT / "fixed_mds"), columns={"id": "int", "tokens": "ndarray:uint32:4", "url": "str"}
    ) as writer:
        for number in range(5):
            writer.write({"id": number, "tokens": np.arange(4, dtype=np.uint32) + number, "url": "x" * number})


if __name__ == "__main__":
    writers = {write.__name__: write for write in (megatron, datatrove, olmo, llmc, nanogpt, litdata, mds)}
    ROOT.mkdir(exist_ok=True)
    for name in sys.argv[1:] or writers:
        writers[name]()
    (ROOT / "documents.json").write_text(json.dumps({"narrow": DOCUMENTS, "wide": WIDE}) + "\n")
