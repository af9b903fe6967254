"""Writes tests/golden/modalities/editing with the real Modalities 0.5.0. Run by hand, where it is installed:

python tests/golden/make_modalities_editing.py

cases.json lists each call (function of modalities.api, arguments with paths relative to tests/golden/modalities) with
the size and SHA-256 of what it wrote, or the error it raised; outputs of up to 2 kB stand beside it under `file`.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from modalities import api
from modalities.dataloader.filter_packed_data import filter_dataset
from modalities.dataloader.preprocessing.tokenization.tokenized_file_writer import TokenizedFileWriter

ROOT = Path(__file__).resolve().parent / "modalities"
OUT = ROOT / "editing"
KEPT = 2048
ERROR = api.FileExistencePolicy.ERROR

DOCS, CRLF, ONE = "pbin/docs_bpe2000.pbin", "pbin/docs_crlf_bpe2000.pbin", "pbin/one_bpe2000.pbin"
CHARS, TINY, WIDE = "pbin/docs_char250.pbin", "editing/tiny.pbin", "editing/wide.pbin"
OLD = "legacy/v0.2.0/docs_escaped_bpe2000.v0.2.0.pbin"  # its index counts from the file's start
J_DOCS, J_CRLF, J_ONE = "jsonl/docs.jsonl", "jsonl/docs_crlf.jsonl", "jsonl/one.jsonl"
J_OPEN, J_BLANK = "editing/open.jsonl", "jsonl/edge_empty_end.jsonl"

FILTERS = {  # of (number, tokens)
    "even": lambda i, _tokens: i % 2 == 0,
    "longer_than_20": lambda _i, tokens: len(tokens) > 20,
    "has_267": lambda _i, tokens: 267 in tokens or 7_000_000 in tokens,
    "none": lambda _i, _tokens: False,
    "all": lambda _i, _tokens: True,
}


def inputs() -> None:
    """Small files that the goldens beside lack: few tokens, tokens of 4 bytes, a last line without newline."""
    for name, size, lengths in (("tiny", 2, [1, 2]), ("wide", 4, [3, 1, 40, 7])):
        documents = [np.arange(100 * n, 100 * n + n) * 70_000 ** (size == 4) % 2 ** (8 * size) for n in lengths]
        TokenizedFileWriter.write_tokenized_dataset(documents, OUT / f"{name}.pbin", token_size_in_bytes=size)
    (OUT / "open.jsonl").write_bytes(b"".join(b'{"text": "%d"}\n' % i for i in range(7)) + b'{"text": "open"}')


def calls() -> Iterator[tuple[str, dict]]:
    """Each call: the function and its arguments."""
    merged = [[DOCS, CRLF], [DOCS, CRLF, ONE], [ONE, DOCS, DOCS], [CHARS], [TINY, CRLF, TINY], [WIDE, WIDE]]
    for sources in (*merged, [OLD, OLD, DOCS]):
        yield "merge_packed_data_files", {"src_paths": sources}
    for source in (DOCS, CHARS, ONE, WIDE):
        for seed in (0, 7, -3, 2**40 + 1):
            yield "shuffle_tokenized_data", {"input_data_path": source, "batch_size": 3, "seed": seed}
    for source in (J_DOCS, J_CRLF, J_ONE, J_OPEN, J_BLANK):
        for seed in (0, 5, 99):
            yield "shuffle_jsonl_data", {"input_data_path": source, "seed": seed}
    for name, lists in (
        ("create_shuffled_dataset_chunk", ([DOCS], [DOCS, CRLF, ONE], [WIDE])),
        ("create_shuffled_jsonl_dataset_chunk", ([J_DOCS], [J_ONE, J_OPEN, J_CRLF])),
    ):
        for files in lists:
            for chunk_id, num_chunks, global_seed in ((0, 1, 1), (0, 3, 1), (2, 3, 1), (1, 4, 2**33), (3, 4, 0)):
                arguments = {"file_path_list": files, "chunk_id": chunk_id, "num_chunks": num_chunks}
                yield name, arguments | {"global_seed": global_seed}
        yield name, {"file_path_list": lists[0], "chunk_id": 3, "num_chunks": 3, "global_seed": 1}
        yield name, {"file_path_list": lists[-1], "chunk_id": 900, "num_chunks": 901, "global_seed": 1}
    for source in (DOCS, WIDE):
        for rule in FILTERS:
            yield "create_filtered_tokenized_dataset", {"input_data_path": source, "rule": rule}
            yield "filter_dataset", {"src_path": source, "rule": rule}


def run(name: str, arguments: dict, target: Path) -> None:
    given = dict(arguments)
    for key in ("src_paths", "file_path_list"):
        if key in given:
            given[key] = [ROOT / path for path in given[key]]
    for key in ("input_data_path", "src_path"):
        if key in given:
            given[key] = ROOT / given[key]
    keep = FILTERS[given.pop("rule")] if "rule" in given else None
    if name == "merge_packed_data_files":
        api.merge_packed_data_files(**given, target_path=target)
    elif name == "filter_dataset":
        filter_dataset(given["src_path"], target, lambda pair: keep(pair[0], pair[1]["input_ids"]))
    elif name == "create_filtered_tokenized_dataset":
        dataset = api.PackedMemMapDatasetBase(given["input_data_path"], sample_key="x", load_index=True)
        api.create_filtered_tokenized_dataset(
            given["input_data_path"], lambda i: keep(i, dataset[i]["x"]), target, file_existence_policy=ERROR
        )
    else:
        output = "output_chunk_file_path" if "chunk" in name else "output_data_path"
        getattr(api, name)(**given, **{output: target}, file_existence_policy=ERROR)


def main() -> None:
    OUT.mkdir(exist_ok=True)
    inputs()
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, arguments) in enumerate(calls()):
            target = Path(folder) / "out"
            case = {"function": name, "arguments": arguments}
            try:
                run(name, arguments, target)
            except Exception as error:
                case |= {"error": type(error).__name__, "message": str(error)}
                assert not target.exists() or not target.stat().st_size
            else:
                data = target.read_bytes()
                case |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
                if len(data) <= KEPT:
                    case["file"] = f"out_{number:03}{'.jsonl' if 'jsonl' in name else '.pbin'}"
                    (OUT / case["file"]).write_bytes(data)
            if target.exists():
                os.remove(target)
            cases.append(case)
    lines = ",\n".join(json.dumps(case, sort_keys=True) for case in cases)
    (OUT / "cases.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
