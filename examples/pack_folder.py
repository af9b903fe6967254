"""Train a tokenizer on a folder of text files, pack the files, and print a document and the shapes of a batch.

    python examples/pack_folder.py notes/ -o packed/
    python examples/pack_folder.py notes/ -o packed/ --pattern '*.md' --vocabulary 8192
    python examples/pack_folder.py notes/ -o packed/ --bytes        # no training: UTF-8 bytes are the tokens

The folder packed/ then contains corpus.jsonl (one line per file), corpus.idx (the offsets of the lines),
tokenizer.json, and corpus.pbin (the tokens). With corpus.jsonl and tokenizer.json, these commands do the same:

    fastpack index packed/corpus.jsonl
    fastpack pack packed/corpus.jsonl --tokenizer packed/tokenizer.json --eod-token '<|endoftext|>'
    fastpack verify packed/corpus.pbin
    fastpack info packed/corpus.pbin
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tokenizers

import fastpack

EOD = "<|endoftext|>"


def write_jsonl(folder: Path, pattern: str, target: Path) -> int:
    """Write one line {"path", "text"} per file; return the number of lines. Skip and name files that are not UTF-8."""
    n_files = 0
    with target.open("w", encoding="utf-8", newline="\n") as lines:
        for path in sorted(folder.rglob(pattern)):
            if not path.is_file():
                continue
            try:
                text = path.read_bytes().decode()
            except UnicodeDecodeError as error:
                print(f"skipped {path}: {error}", file=sys.stderr)
                continue
            lines.write(json.dumps({"path": str(path.relative_to(folder)), "text": text}) + "\n")
            n_files += 1
    return n_files


def texts(corpus: Path) -> Iterator[str]:
    """Yield the texts of an indexed JSONL file."""
    reader = fastpack.modalities.LargeFileLinesReader(corpus)
    for number in range(len(reader)):
        yield json.loads(reader[number])["text"]


def train_tokenizer(corpus: Path, vocabulary: int, target: Path) -> None:
    """Train a byte-level BPE tokenizer (as GPT-2), which encodes any text, with an end-of-document token."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[EOD], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts(corpus), trainer)
    tokenizer.save(str(target))


def pack(corpus: Path, tokenizer: Path | None) -> fastpack.PackResult:
    """Write corpus.pbin next to corpus.jsonl; without a tokenizer, the tokens are bytes."""
    component: dict[str, Any] = {"variant_key": "builtin_bytes"}
    if tokenizer is not None:
        component = {
            "variant_key": "pretrained_hf_tokenizer",
            "config": {"pretrained_model_name_or_path": str(tokenizer)},
        }
    settings = {"src_path": corpus, "dst_path": corpus.with_suffix(".pbin"), "jq_pattern": ".text", "eod_token": EOD}
    return fastpack.pack_encoded_data(
        {"settings": settings, "tokenizer": component}, if_exists="overwrite", on_faulty="error"
    )


def decode(ids: list[int], tokenizer: Path | None) -> str:
    """Convert tokens to text."""
    return (
        bytes(ids).decode()
        if tokenizer is None
        else fastpack.modalities.PreTrainedHFTokenizer(str(tokenizer)).decode(ids)
    )


def show(packed: Path, tokenizer: Path | None, seq_len: int) -> None:
    """Print the beginning of the first document as text, and the shapes of a training batch."""
    documents = fastpack.modalities.PackedMemMapDatasetBase(packed, sample_key="tokens")
    *ids, eod = documents[0]["tokens"].tolist()
    print(f"first document: {len(ids):,} tokens and the end token, {decode(ids, tokenizer)[:60]!r}")
    dataset = fastpack.PackedMemMapDatasetContinuous(
        packed, "tokens", seq_len + 1, reuse_last_target=True, eos_token_id=eod
    )
    sampler = fastpack.DistributedSampler(dataset, num_replicas=1, rank=0, seed=0)
    loader = fastpack.StatefulDataLoader(dataset, 4, sampler, outputs=("input_ids", "labels", "doc_ids"))
    for batch in loader:
        print("a batch:", ", ".join(f"{name} {list(array.shape)}" for name, array in batch.items()))
        break
    loader.close()


def main(words: Sequence[str] | None = None) -> int:
    """Run all steps; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the text files, searched recursively")
    parser.add_argument("-o", "--output", type=Path, default=Path("packed"), help="the output folder (packed)")
    parser.add_argument("--pattern", default="*.txt", help="the pattern of the file names (*.txt)")
    parser.add_argument("--vocabulary", type=int, default=4096, help="the maximum size of the vocabulary (4096)")
    parser.add_argument("--bytes", action="store_true", help="use UTF-8 bytes as tokens; train no tokenizer")
    parser.add_argument("--seq-len", type=int, default=256, help="the number of tokens of a sample (256)")
    args = parser.parse_args(words)

    args.output.mkdir(parents=True, exist_ok=True)
    corpus = args.output / "corpus.jsonl"
    n_files = write_jsonl(args.folder, args.pattern, corpus)
    if not n_files:
        print(f"no file {args.pattern} with text in {args.folder}", file=sys.stderr)
        return 1
    fastpack.create_raw_index(corpus, if_exists="overwrite")
    tokenizer = None if args.bytes else args.output / "tokenizer.json"
    if tokenizer is not None:
        train_tokenizer(corpus, args.vocabulary, tokenizer)
    result = pack(corpus, tokenizer)
    print(f"{result.path}: {result.documents:,} documents, {result.tokens:,} tokens")
    report = fastpack.verify(result.path)
    for finding in report.findings:
        print(finding, file=sys.stderr)
    show(Path(result.path), tokenizer, args.seq_len)
    return 0 if report.is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
