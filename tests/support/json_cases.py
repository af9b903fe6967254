"""Small inputs for every command, and command lines that together give every shape of JSON result."""

from __future__ import annotations

import gzip
import json
import shutil
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fastpack
from fastpack.datasets.packed_blocks import PackedMemMapDatasetContinuous
from fastpack.documents.raw_index import write_raw_index
from fastpack.loading.loader import StatefulDataLoader
from fastpack.loading.sampler import DistributedSampler
from fastpack.tokens.manifest.manifest_writer import write_manifest
from fastpack.tokens.pbin.packed_writer import PackedWriter
from fastpack.webdataset.browsing.preview_samples import MAX_CHARACTERS


class Case(NamedTuple):
    """A command line, run in the folder of `make_inputs`; code: the exit code; clean: stdout must be empty."""

    words: str
    code: int = 0
    clean: bool = False


def make_inputs(folder: Path, golden: Path) -> None:
    """Write the inputs of the cases into `folder`, and tokenizers next to it."""
    folder.mkdir()
    texts = ["Hello world", "Grün\x1b[2J", "", "x" * (MAX_CHARACTERS + 1)]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "target").mkdir()
    for name in ("a.jsonl", "i.jsonl", "parts/one.jsonl", "parts/two.jsonl"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(lines)
    ends = list(accumulate(len(line.encode()) for line in lines.splitlines(keepends=True)))
    write_raw_index(folder / "i.idx", [(end - n, n - 1) for end, n in zip(ends, np.diff([0, *ends]), strict=True)])
    (folder / "a2.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (folder / "bad.jsonl").write_text(lines + "{oops\n")
    chat, side = [{"role": "assistant", "content": "x"}], {"chosen": "yes", "rejected": "no"}
    (folder / "chats.jsonl").write_text(json.dumps({"messages": chat}) + "\n{}\n")
    (folder / "pairs.jsonl").write_text(json.dumps({"prompt": "?", **side}) + "\n")
    (folder / "chat.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    _write_tables(folder, texts)
    shutil.copy(golden / "modalities" / "jsonl" / "docs.jsonl", folder / "docs.jsonl")
    for name in ("a.pbin", "b.pbin"):
        with PackedWriter(folder / name, 2) as writer:
            for ids in ([5, 6, 256], [7, 256], [8, 9, 10, 256]):
                writer.append(ids)
    dataset = PackedMemMapDatasetContinuous(folder / "a.pbin", "tokens", 3, False, eos_token_id=256)
    loader = StatefulDataLoader(dataset, 1, DistributedSampler(dataset, 1, 0, shuffle=False), prefetch=0)
    next(iter(loader))
    (folder / "run.json").write_text(json.dumps(loader.describe()))
    (folder / "damaged.pbin").write_bytes((folder / "a.pbin").read_bytes()[:-3])
    (folder / "hurt.pbin").write_bytes((folder / "a.pbin").read_bytes()[:30] + b"\xff" * 40)
    for name in ("shards", "zeros"):
        (folder / name).mkdir()
        np.save(folder / name / "0.npy", np.arange(300, dtype=np.uint16) % 7 * (name == "shards"))
    write_manifest(folder / "shards", folder / "shards.fpm")
    (folder / "tatm").mkdir()
    np.arange(64, dtype=np.uint16).tofile(folder / "tatm" / "tokenized_0.bin")
    facts = dict.fromkeys(("name", "dataset_path", "description", "date_downloaded", "download_source"), "x")
    info = {"tokenizer": "t5-base", "file_prefix": "/x/tokenized"}
    (folder / "tatm" / "metadata.json").write_text(
        json.dumps({**facts, "data_content": "text", "tokenized_info": info})
    )
    shutil.copytree(golden / "energon" / "split", folder / "web")
    shutil.copytree(golden / "energon" / "split", folder / "raw", ignore=shutil.ignore_patterns(".nv-meta", "*.idx"))
    fastpack.plan(folder / "a.pbin", folder / "rows.plan", seq_length=8)
    shutil.copytree(golden / "energon" / "jsonl", folder / "lines")
    shutil.copytree(golden / "energon" / "joins", folder / "joins")
    shutil.copytree(golden / "interop" / "narrow_litdata", folder / "tokens_litdata")
    shutil.copytree(golden / "energon" / "reading", folder / "kinds")
    for name in ("configs", "data"):
        shutil.copytree(golden / "modalities" / "chat" / name, folder / name)
    shutil.copytree(golden / "modalities" / "tokenizers", folder.parent / "tokenizers")


def _write_tables(folder: Path, texts: list[str | None]) -> None:
    table = pa.table({"id": range(len(texts) + 1), "text": [*texts, None]})
    pq.write_table(table, folder / "a.parquet")
    with pa.ipc.new_file(folder / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
        lines = [delimiter.join(("id", "text")), *(f"{number}{delimiter}x{number}" for number in range(3)), "too few"]
        (folder / f"a{suffix}").write_text("\n".join(lines) + "\n")
    (folder / "texts.txt").write_text("\n".join(filter(None, texts)))


TABLES = ("a.parquet", "a.arrow", "a.csv", "a.tsv", "texts.txt --split-on \\n")
CASES = [
    Case("quickstart q --seconds 0"),
    Case("index a.jsonl"),
    Case("index a.jsonl --dry-run --force"),
    Case("index a.jsonl --if-exists skip"),
    Case("index a.jsonl --repair-legacy"),
    Case("index parts"),
    Case("index parts --dry-run --force"),
    Case("index parts --force --rank 0 --world-size 1"),
    Case("index parts --force --collect"),
    Case("index bad.jsonl", 1, clean=True),
    Case("index bad.jsonl --drop-faulty"),
    Case("pack a.jsonl --tokenizer bytes -o p.pbin --dry-run"),
    Case("pack a.jsonl --tokenizer bytes -o p.pbin"),
    Case("pack a.jsonl --tokenizer bytes -o p.pbin --if-exists skip"),
    Case("pack parts --per-source --tokenizer bytes -o packed"),
    Case("pack parts a2.jsonl.gz --tokenizer bytes -o p.pbin --force --dry-run"),
    Case("pack parts --tokenizer ../tokenizers/absent --eod-token x -o p2.pbin", 1, clean=True),
    Case("pack parts --tokenizer bytes -o ranks.pbin --rank 0 --world-size 1"),
    Case("pack parts --tokenizer bytes -o ranks.pbin --collect"),
    Case("pack a.jsonl --tokenizer bytes -o p.pbin", 1, clean=True),
    Case("pack a.jsonl", 2, clean=True),
    Case("merge a.pbin b.pbin m.pbin"),
    Case("merge a.pbin b.pbin n.pbin --dry-run"),
    Case("merge a.pbin b.pbin m.pbin", 1, clean=True),
    Case("merge a.pbin b.pbin n.pbin --rank 0 --world-size 1"),
    Case("merge a.pbin b.pbin n.pbin --collect"),
    Case("convert a.pbin -o converted.ds"),
    Case("convert a.pbin b.pbin -o converted --to megatron --digest"),
    Case("convert a.pbin -o converted.ds --file-existence-policy skip"),
    Case("convert a.pbin -o llmc.bin --to llmc"),
    Case("convert a.pbin -o converted.ds", 1, clean=True),
    Case("convert a.pbin -o converted", 1, clean=True),
    Case("plan a.pbin b.pbin --seq-len 8 -o a.plan --seed 1 --repeat 2 0.5"),
    Case("plan a.pbin --seq-len 8 -o b.plan --balance attention --data-parallel 2"),
    Case("plan a.pbin --seq-len 8 -o a.plan --if-exists skip"),
    Case("plan a.pbin --seq-len 8 -o a.plan", 1, clean=True),
    Case("shuffle a.pbin s.pbin --seed 1"),
    Case("shuffle a.jsonl s.jsonl --seed 1 --dry-run"),
    Case("shuffle a.pbin s.pbin --seed 1 --if-exists skip"),
    Case("chunk a.pbin b.pbin -o c.pbin --num-chunks 2 --chunk-id 0"),
    Case("chunk a.jsonl -o c.jsonl --num-chunks 2 --chunk-id 0 --dry-run"),
    Case("shuffle a.jsonl t.jsonl --seed 1 --rank 0 --world-size 1"),
    Case("shuffle a.jsonl t.jsonl --seed 1 --collect"),
    Case("shuffle a.jsonl t.jsonl --collect", 2, clean=True),
    Case("chunk a.pbin b.pbin -o d.pbin --num-chunks 2 --chunk-id 0 --seed 1 --rank 0 --world-size 1"),
    Case("filter a.pbin f.pbin --min-length 3"),
    Case("filter a.pbin g.pbin --min-length 3 --dry-run"),
    Case("prepare raw --non-interactive --split-ratio 1,1,0 --sample-type CrudeWebdataset --dry-run"),
    Case("prepare raw --non-interactive --split-ratio 1,1,0 --sample-type CrudeWebdataset"),
    Case("prepare raw --non-interactive --tar-index-only"),
    Case("prepare raw --force-overwrite --rank 0 --world-size 1"),
    Case("prepare raw --force-overwrite --collect --split-ratio 1,1,0"),
    Case("prepare raw --non-interactive", 2, clean=True),
    Case("prepare docs.jsonl --dry-run"),
    Case("prepare docs.jsonl"),
    Case("prepare joins/skip.yaml --dry-run"),
    Case("prepare joins/skip.yaml"),
    Case("prepare absent", 1, clean=True),
    Case("prepare-media web --media-metadata-by-extension --dry-run"),
    Case("prepare-media web --media-metadata-by-extension"),
    Case("fix-duplicates web copies --dry-run"),
    Case("fix-duplicates web copies"),
    Case("info i.jsonl"),
    Case("info lines/plain.jsonl"),
    Case("info i.idx"),
    Case("info a.pbin"),
    Case("info a.pbin --eos-token-id 256 --seq-len 2 --quick"),
    Case("info rows.plan"),
    Case("info shards"),
    Case("info tatm"),
    Case("info shards/0.npy"),
    Case("info tokens_litdata"),
    Case("info web"),
    Case("info damaged.pbin", 1, clean=True),
    *(Case(f"info {name}") for name in TABLES),
    Case("info a.parquet --quick"),
    Case("info a.parquet --text-field absent", 1, clean=True),
    Case("validate shards"),
    Case("validate shards --deep --seq-len 8 --eos-token-id 0"),
    Case("validate zeros --deep --eos-token-id 3", 1),
    Case("validate absent", 1, clean=True),
    Case("verify a.pbin"),
    Case("verify i.jsonl"),
    Case("verify shards --eos-token-id 3"),
    Case("verify web --deep"),
    Case("verify damaged.pbin a.pbin --rank 0 --world-size 1"),
    Case("verify damaged.pbin a.pbin --collect", 3),
    Case("verify damaged.pbin", 3),
    Case("verify a.pbin damaged.pbin absent.pbin", 3),
    Case("verify absent.pbin", 1, clean=True),
    Case("repair a.pbin --dry-run"),
    Case("repair hurt.pbin -o r.pbin --eos-token-id 256 --dry-run"),
    Case("repair damaged.pbin -o r.pbin --eos-token-id 256"),
    Case("repair i.jsonl --dry-run"),
    Case("preview a.jsonl"),
    Case("preview a.jsonl --tokenizer bytes -n 9 --max-tokens 3"),
    Case("preview a2.jsonl.gz"),
    Case("preview a.pbin"),
    Case("preview a.pbin --tokenizer bytes"),
    Case("preview shards"),
    Case("preview shards --tokenizer bytes --eos-token-id 6"),
    Case("preview tatm"),
    Case("preview web"),
    Case("preview kinds -n 9"),
    Case("preview lines/plain.jsonl"),
    Case("preview damaged.pbin", 1, clean=True),
    *(Case(f"preview {name} --tokenizer bytes --max-characters 9") for name in TABLES),
    Case("preview a.parquet --start 99", 1, clean=True),
    Case("report a.parquet texts.txt -o tables.html"),
    Case("bench shards --kernels cython --seq-len 16 --batch-size 2 --seconds 0.02"),
    Case("bench a.pbin --kernels cython --seq-len 4 --batch-size 1 --seconds 0.02 --eos-token-id 256"),
    Case("bench a.pbin --kernels cython --seq-len 4000", 1, clean=True),
    Case("completion fish"),
    Case("report a.pbin shards web i.jsonl -o r.html"),
    Case("report lines/plain.jsonl -o r2.html"),
    Case("report a.pbin --vocab-size 8 --eos-token-id 256 -o r3.html"),
    Case("report a.pbin -o r.html --if-exists skip"),
    Case("report absent -o r4.html", 1, clean=True),
    Case("compare a.pbin b.pbin"),
    Case("compare a.parquet bad.jsonl --id-field text -o compare.html"),
    Case("compare a.jsonl chats.jsonl --exit-code", 3),
    Case("compare a.pbin a.jsonl", 1, clean=True),
    Case("chat configs/one_byte.yaml --dry-run"),
    Case("chat configs/one_byte.yaml"),
    Case("chat configs/one_byte.yaml --if-exists skip"),
    Case("chat absent.yaml", 1, clean=True),
    Case("chat chats.jsonl --tokenizer bytes --chat-template chat.jinja --dry-run"),
    Case("chat chats.jsonl --tokenizer bytes --chat-template chat.jinja"),
    Case("chat chats.jsonl --tokenizer bytes --chat-template chat.jinja -o ranks.pbin --rank 0 --world-size 1 --force"),
    Case("chat pairs.jsonl --tokenizer bytes --chat-template chat.jinja -o dpo.pbin"),
    Case("mount web target"),
    Case("trace run.json --step 0 --text --tokenizer bytes"),
    Case("trace run.json --document a.pbin:1"),
    Case("info shards.fpm"),
    Case("manifest shards"),
    Case("manifest shards -o shards/full.fpm --eos-token-id 6 --checksums"),
    Case("manifest shards --if-exists skip"),
    Case("manifest tatm --pattern *.bin -o tatm/all.fpm"),
    Case("manifest absent", 1, clean=True),
    Case("verify shards.fpm"),
    Case("doctor"),
    Case("init script.py"),
    Case("init script.py --if-exists skip"),
    Case("fetch s3://bucket/folder"),
    Case("fetch a.pbin", 1, clean=True),
]
