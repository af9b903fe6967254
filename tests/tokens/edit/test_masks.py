"""Loss masks go with their documents through every edit and conversion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli

import fastpack
from fastpack.distributed.convert_tasks import collect_conversion, plan_conversion
from fastpack.distributed.edit_tasks import collect_edit, plan_merge, plan_shuffling
from fastpack.distributed.ranks import run_rank
from fastpack.tokens.loss_mask import open_loss_mask
from fastpack.tokens.mask_bits import MaskBits

# A token below 1000 counts in the loss.


def write(path: Path, seed: int, masked: bool = True) -> Path:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 9, 25)
    tokens = random.integers(1, 2000, int(lengths.sum())) if masked else random.integers(1, 1000, int(lengths.sum()))
    with fastpack.PackedWriter(path, 2) as writer:
        writer.append_many(tokens, lengths)
        writer.mask = MaskBits(tokens < 1000) if masked else None
    return path


def check(path: Any, n_tokens: int | None = None, **options: Any) -> None:
    with fastpack.open_tokens(path, **options) as tokens:
        mask = open_loss_mask(tokens)
        assert mask is not None
        flat = np.concatenate([np.asarray(segment.open()) for segment in tokens.segments()])
        assert mask.read(0, tokens.n_tokens).tolist() == (flat < 1000).tolist()
        assert 0 < mask.n_counted < tokens.n_tokens
        assert n_tokens in (None, tokens.n_tokens)


EDITS: dict[str, Callable[[list[Path], Path], object]] = {
    "merge": fastpack.merge_packed_data,
    "shuffle": lambda paths, target: fastpack.shuffle_tokenized_data(paths[0], target, seed=3),
    "chunk": lambda paths, target: fastpack.create_shuffled_dataset_chunk(paths, target, 1, 2, global_seed=3),
    "filter": lambda paths, target: fastpack.filter_packed_data(paths[0], target, fastpack.KeepRules(min_length=4)),
    "filter by tokens": lambda paths, target: fastpack.filter_packed_data(paths[0], target, lambda i, _: i % 3 > 0),
    "convert": fastpack.convert,
}


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("suffix", [".pbin", ".ds"])
def test_masks_go_with_their_documents(tmp_path: Path, name: str, suffix: str) -> None:
    paths = [write(tmp_path / "a.pbin", 0), write(tmp_path / "b.pbin", 1, masked=False), write(tmp_path / "c.pbin", 2)]
    EDITS[name](paths, tmp_path / f"o{suffix}")
    check(tmp_path / f"o{suffix}")


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("damage", ["bits", "tokens"])
def test_a_mask_that_does_not_fit_is_an_error(tmp_path: Path, name: str, damage: str) -> None:
    paths = [write(tmp_path / f"{n}.pbin", n) for n in range(2)]
    damaged = Path(f"{paths[0]}.mask") if damage == "bits" else paths[0]
    data = bytearray(damaged.read_bytes())
    data[-1 if damage == "bits" else 20] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(fastpack.FormatError, match=r"0\.pbin\.mask"):
        EDITS[name](paths, tmp_path / "o.pbin")
    assert not list(tmp_path.glob("o.pbin*"))


@pytest.mark.parametrize("name", EDITS)
def test_files_without_masks_get_none(tmp_path: Path, name: str) -> None:
    EDITS[name]([write(tmp_path / f"{i}.pbin", i, masked=False) for i in range(3)], tmp_path / "o.pbin")
    assert not list(tmp_path.glob("*.mask"))


@pytest.mark.parametrize("format", ["megatron", "datatrove", "llmc", "nanogpt", "npy", "litdata", "mds"])
def test_masks_are_converted_there_and_back(tmp_path: Path, format: str) -> None:
    source = write(tmp_path / "a.pbin", 0)
    suffix = {"llmc": ".bin", "nanogpt": ".bin", "npy": ".npy"}.get(format, "")
    output = fastpack.convert(source, tmp_path / f"o{suffix}", format=format).output
    eos = 1 if format in ("llmc", "nanogpt", "npy") else None
    back = fastpack.convert(output, tmp_path / "back.pbin", source_format=format, eos_token_id=eos)
    check(back.output, fastpack.PackedFile(source).n_tokens)


def test_datatrove_has_a_byte_per_token(tmp_path: Path) -> None:
    source = write(tmp_path / "a.pbin", 0)
    fastpack.convert(source, tmp_path / "o.ds")
    with fastpack.PackedFile(source) as file:
        assert (tmp_path / "o.ds.loss").read_bytes() == bytes((file.data < 1000).astype(np.uint8))
    fastpack.convert(write(tmp_path / "b.pbin", 1, masked=False), tmp_path / "o.ds", if_exists="overwrite")
    assert not (tmp_path / "o.ds.loss").exists()
    assert not (tmp_path / "o.ds.mask").exists()


def test_the_mask_of_datatrove_alone_is_read(tmp_path: Path, cli: Cli) -> None:
    source = write(tmp_path / "a.pbin", 0)
    (tmp_path / "o").mkdir()
    path = tmp_path / "o" / "o.ds"
    fastpack.convert(source, path)
    (tmp_path / "o" / "o.ds.mask").unlink()
    with fastpack.PackedFile(source) as file:
        n_tokens, mask = file.n_tokens, file.loss_mask
    assert mask is not None
    check(fastpack.convert(path, tmp_path / "back.pbin").output, n_tokens)
    assert fastpack.inspect(path)["loss_tokens"] == mask.sum()
    assert fastpack.verify(path).is_sound
    assert cli("verify", path.parent).out.count("sound") == 1  # the side files belong to the tokens
    dataset = fastpack.PackedMemMapDatasetContinuous(path, "x", 5, reuse_last_target=True)
    labels = dataset.batch([0], outputs=("labels",))["labels"][0]
    assert ((labels == -100) == ~mask[1:5]).all()
    loss = Path(f"{path}.loss")
    for data, message in ((b"\2" * n_tokens, "found byte 2"), (b"\1" * (n_tokens + 1), f"{n_tokens + 1} tokens")):
        loss.write_bytes(data)
        with pytest.raises(fastpack.FormatError, match=message):
            fastpack.convert(path, tmp_path / "no.pbin")
        (finding,) = fastpack.verify(path).findings
        assert (finding.severity, finding.file) == ("error", str(loss))


@pytest.mark.parametrize("shard_tokens", [20, 10**6])
@pytest.mark.parametrize("format", ["pbin", "megatron", "datatrove", "olmo", "llmc", "npy", "litdata", "mds"])
def test_every_shard_has_its_part_of_the_mask(tmp_path: Path, format: str, shard_tokens: int) -> None:
    suffix = {"pbin": ".pbin", "olmo": ".npy", "npy": ".npy", "llmc": ".bin"}.get(format, "")
    source, target = write(tmp_path / "a.pbin", 0), tmp_path / "o" / f"o{suffix}"
    target.parent.mkdir()
    outputs: list[str] = []
    for masked in (True, False, True):  # shards of an earlier run lose their masks
        one = source if masked else write(tmp_path / "b.pbin", 1, masked=False)
        options: Any = {"shard_tokens": shard_tokens, "if_exists": "overwrite"}
        outputs = fastpack.convert(one, target, format=format, **options).outputs
        assert bool(list(target.parent.rglob("*.mask"))) == masked
        assert bool(list(target.parent.rglob("*.loss"))) == (masked and format == "datatrove")
    assert (len(outputs) > 1) == (shard_tokens == 20 and format not in ("litdata", "mds"))
    eos = 1 if format in ("llmc", "npy") else None
    dtype = "uint16" if format == "olmo" else None
    back = fastpack.convert(outputs, tmp_path / "back.pbin", source_format=format, eos_token_id=eos, dtype=dtype)
    check(back.output, fastpack.PackedFile(source).n_tokens)


def test_shards_of_a_manifest_and_documents_in_another_order_keep_their_masks(tmp_path: Path) -> None:
    write(tmp_path / "a.pbin", 0)
    other = write(tmp_path / "b.pbin", 1, masked=False)
    fastpack.write_manifest(tmp_path, tmp_path / "all.fpm")
    check(fastpack.convert(tmp_path / "all.fpm", tmp_path / "o.npy").output)
    with fastpack.PackedFile(other) as file, fastpack.PackedWriter(tmp_path / "c.pbin", 2) as writer:
        writer.append_tokens(file.data)
        rows = np.stack([file.index[::2, 0] // 2, file.index[::2, 1] // 2], axis=1)
        writer.append_documents([rows])
    check(fastpack.convert([tmp_path / "a.pbin", tmp_path / "c.pbin"], tmp_path / "p.pbin").output)


@pytest.mark.parametrize("shard_tokens", [None, 20])
def test_conversions_by_ranks_carry_masks(tmp_path: Path, shard_tokens: int | None) -> None:
    source = write(tmp_path / "a.pbin", 0)
    plan = plan_conversion(source, tmp_path / "o.ds", shard_tokens=shard_tokens, bytes_per_task=30)
    run_rank(plan, 0, 1)
    back = fastpack.convert(collect_conversion(plan).outputs, tmp_path / "back.pbin")
    check(back.output, fastpack.PackedFile(source).n_tokens)


@pytest.mark.parametrize("suffix", [".pbin", ".ds"])
def test_edits_by_ranks_carry_masks(tmp_path: Path, suffix: str) -> None:
    paths = [write(tmp_path / "a.pbin", 0), write(tmp_path / "b.pbin", 1, masked=False), write(tmp_path / "c.pbin", 2)]
    chunk = {"chunk_id": 1, "num_chunks": 2, "global_seed": 3}
    for plan in (
        plan_merge(paths, tmp_path / f"merged{suffix}", bytes_per_task=60),
        plan_shuffling("shuffle pbin", paths[:1], tmp_path / f"shuffled{suffix}", {"seed": 3}, bytes_per_task=60),
        plan_shuffling("chunk pbin", paths, tmp_path / f"chunk{suffix}", chunk, bytes_per_task=60),
    ):
        run_rank(plan, 0, 1)
        check(collect_edit(plan).path)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_repaired_file_keeps_the_mask_of_its_tokens(tmp_path: Path, in_place: bool) -> None:
    path = write(tmp_path / "a.pbin", 0)
    with fastpack.PackedFile(path) as file:
        eos, n_tokens = int(file[10][-1]), file.n_tokens
    path.write_bytes(path.read_bytes()[: 12 + 2 * n_tokens - 4])  # a copy that was cut off
    options: dict[str, Any] = {"in_place": True} if in_place else {"output_path": tmp_path / "b.pbin"}
    result = fastpack.repair(path, **options, eos_token_id=eos)
    assert 0 < result.tokens < n_tokens
    with fastpack.PackedFile(result.path) as file:
        assert file.loss_mask is not None
        assert file.loss_mask.tolist() == (file.data < 1000).tolist()
    assert fastpack.verify(result.path).is_sound


def test_a_mask_that_does_not_fit_is_not_kept_by_a_repair(tmp_path: Path) -> None:
    path, other = write(tmp_path / "a.pbin", 0), write(tmp_path / "b.pbin", 1)
    data = path.read_bytes()
    for mask in (b"damaged", Path(f"{other}.mask").read_bytes()[:-4]):
        path.write_bytes(data[:-5])
        Path(f"{path}.mask").write_bytes(mask)
        with pytest.warns(fastpack.DataWarning, match="no loss mask: all tokens count"):
            fastpack.repair(path, in_place=True, eos_token_id=int(fastpack.PackedFile(other).data[-1]) + 1)
        assert not Path(f"{path}.mask").exists()


@pytest.mark.parametrize("in_place", [True, False])
def test_an_unfinished_file_is_repaired_with_its_mask(tmp_path: Path, in_place: bool) -> None:
    from fastpack.tokens.pbin.packed_writer import CheckpointedPackedWriter

    random, mask = np.random.default_rng(0), MaskBits()
    writer = CheckpointedPackedWriter(tmp_path / "a.pbin", 2, {"job": 1})
    for _ in range(4):
        before, tokens = writer.n_tokens, random.integers(1, 2000, 11)
        writer.append(tokens)
        mask.append(tokens < 1000)
        writer.checkpoint({"mask": mask.note(before)})
    writer.suspend()
    options: dict[str, Any] = {"in_place": True} if in_place else {"output_path": tmp_path / "b.pbin"}
    check(fastpack.repair(tmp_path / "a.pbin", **options).path, 44)
