"""Loss masks and fingerprints next to token files in a store are read and written as on a disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack
from fastpack.tokens.mask_bits import MaskBits

LENGTHS = [7, 12, 5, 16, 9, 11]
TOKENS = np.arange(1, 61)
MASK = np.random.default_rng(0).random(60) < 0.5
OUTPUTS = ("input_ids", "labels")
LABELS = np.where(MASK, TOKENS, -100)


def write(folder: Path, n_files: int = 1, suffix: str = "npy") -> Path:
    """Write token files, the last of which has a mask; return the last one."""
    folder.mkdir()
    for number in range(n_files):
        path = folder / f"{number}.pbin"
        with fastpack.PackedWriter(path, 2) as writer:
            writer.append_many(TOKENS, LENGTHS)
            writer.mask = MaskBits(MASK) if number == n_files - 1 else None
        if suffix == "npy":
            fastpack.convert(path, folder / f"{number}.npy")
            for name in (f"{number}.pbin", f"{number}.pbin.mask"):
                (folder / name).unlink(missing_ok=True)
    return folder / f"{n_files - 1}.{suffix}"


def labels(dataset: Any) -> np.ndarray[Any, Any]:
    return np.concatenate(dataset.batch(list(range(len(dataset))), outputs=OUTPUTS)["labels"])


DATASETS: dict[str, Callable[[str], Any]] = {
    "continuous": lambda path: fastpack.PackedMemMapDatasetContinuous(path, "x", 11, reuse_last_target=True),
    "megatron": lambda path: fastpack.PackedMemMapDatasetMegatron(path, "x", 11),
}


@pytest.mark.parametrize("kind", DATASETS)
def test_one_file(store: Any, tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "x", suffix="pbin")
    url = f"{store.put_folder(tmp_path / 'x', 'x')}/{path.name}"
    np.testing.assert_array_equal(labels(DATASETS[kind](url)), labels(DATASETS[kind](str(path))))
    assert (labels(DATASETS[kind](url)) == -100).any()
    with fastpack.PackedFile(url) as file:
        np.testing.assert_array_equal(file.loss_mask, MASK)


def test_a_folder_of_shards_takes_no_request_per_shard(store: Any, tmp_path: Path) -> None:
    write(tmp_path / "x", 5)
    url = store.put_folder(tmp_path / "x", "x")
    dataset = fastpack.MemoryMappedDataset(url, 60)
    found = dataset.batch(range(len(dataset)), outputs=OUTPUTS)["labels"]
    assert [(row == -100).any() for row in found] == [False] * (len(found) - 1) + [True]
    assert not any(path.endswith(f"{n}.npy.mask") for _, path, _ in store.proxy.requests for n in range(4))
    assert not any(method == "HEAD" for method, path, _ in store.proxy.requests if path.endswith(".mask"))
    urls = [f"{url}/{number}.npy" for number in range(5)]
    fastpack.plan(urls, tmp_path / "p.fpplan", seq_length=16, eos_token_id=7)
    planned = fastpack.PlannedDataset(tmp_path / "p.fpplan")
    found = planned.batch(range(len(planned)), outputs=("input_ids", "labels", "loss_mask"))
    assert (found["labels"] == -100).sum() > 0
    local = [tmp_path / f"x/{number}.npy" for number in range(5)]
    fastpack.plan(local, tmp_path / "l.fpplan", seq_length=16, eos_token_id=7)
    expected = fastpack.PlannedDataset(tmp_path / "l.fpplan").batch(range(len(planned)), outputs=OUTPUTS)
    np.testing.assert_array_equal(found["labels"], expected["labels"])


def test_without_masks_a_folder_costs_no_request_for_them(store: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x", 5)
    Path(f"{path}.mask").unlink()
    dataset = fastpack.MemoryMappedDataset(store.put_folder(tmp_path / "x", "x"), 60)
    assert not (labels(dataset) == -100).any()
    assert not any(".mask" in path for _, path, _ in store.proxy.requests)


def test_shards_of_a_manifest(store: Any, tmp_path: Path) -> None:
    write(tmp_path / "x", 3)
    fastpack.write_manifest(tmp_path / "x")
    url = store.put_folder(tmp_path / "x", "x")
    (manifest,) = (tmp_path / "x").glob("*.fpm")
    local, remote = (fastpack.MemoryMappedDataset(f"{where}/{manifest.name}", 20) for where in (tmp_path / "x", url))
    np.testing.assert_array_equal(labels(remote), labels(local))
    assert (labels(remote) == -100).any()


def test_a_mask_of_another_file_is_an_error(store: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x", suffix="pbin")
    store.put_folder(tmp_path / "x", "x")
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    url = store.put("x/0.pbin", bytes(data))
    with pytest.raises(fastpack.FormatError, match="has changed since"):
        labels(DATASETS["continuous"](url))
    with pytest.raises(fastpack.FormatError, match="has changed since"), fastpack.PackedFile(url) as file:
        _ = file.loss_mask
    assert [finding.severity for finding in fastpack.verify(url).findings].count("error") == 1


def test_masks_and_fingerprints_are_written_to_a_store_and_converted_from_it(store: Any, tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text(
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %};{% endfor %}"
    )
    rows = [[{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": "x" * n}] for n in range(1, 9)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows))
    options: dict[str, Any] = {"tokenizer": "bytes", "chat_template": tmp_path / "t.jinja", "num_workers": 1}
    local, remote = (
        fastpack.pack_conversations(tmp_path / "a.jsonl", f"{where}/sft.pbin", **options)
        for where in (tmp_path, store.url)
    )
    for suffix in ("", ".mask", ".fptok"):
        assert store.get(f"sft.pbin{suffix}") == Path(f"{local.path}{suffix}").read_bytes()
    assert fastpack.read_fingerprint(remote.path) == fastpack.read_fingerprint(local.path) is not None
    assert fastpack.inspect(remote.path)["loss_tokens"] == local.loss_tokens
    fastpack.convert(remote.path, tmp_path / "a.npy")
    fastpack.convert(local.path, tmp_path / "b.npy")
    assert (tmp_path / "a.npy.mask").read_bytes() == (tmp_path / "b.npy.mask").read_bytes()
    fastpack.convert(local.path, f"{store.url}/c.ds")
    fastpack.convert(local.path, tmp_path / "c.ds")
    for suffix in (".mask", ".loss"):
        assert store.get(f"c.ds{suffix}") == (tmp_path / f"c.ds{suffix}").read_bytes()
    fastpack.merge_packed_data([remote.path, local.path], f"{store.url}/two.pbin")
    with fastpack.PackedFile(f"{store.url}/two.pbin") as two, fastpack.PackedFile(local.path) as one:
        np.testing.assert_array_equal(two.loss_mask, np.tile(one.loss_mask, 2))
