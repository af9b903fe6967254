"""Commands accept the path of a manifest instead of a folder of shards, with the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import Cli

import fastpack
from fastpack.datasets.mixture import MixtureDataset

EOS, N_TOKENS = 2, 6_000


@pytest.fixture(params=["npy", "bin"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Three shards, and their manifest; a `.bin` is uint16, though its size divides by 4."""
    for number in range(3):
        tokens = np.random.default_rng(number).integers(3, 900, N_TOKENS).astype(np.uint16)
        tokens[::60] = tokens[-1] = EOS
        if request.param == "npy":
            np.save(tmp_path / f"{number}.npy", tokens)
        else:
            tokens.tofile(tmp_path / f"{number}.bin")
    fastpack.write_manifest(tmp_path, dtype="uint16" if request.param == "bin" else None)
    return tmp_path


def test_bench_opens_the_dataset(folder: Path, cli: Cli) -> None:
    small = ["--kernels", "cython", "--seq-len", "64", "--batch-size", "4", "--seconds", "0.02"]
    found = cli.json("bench", folder / "manifest.fpm", *small)
    assert found["samples"] == 3 * (N_TOKENS // 65)
    (folder / "sub").mkdir()
    np.save(folder / "sub" / "x.npy", np.zeros(650, np.uint16))
    fastpack.write_manifest(folder, file_pattern="**/x.npy", if_exists="overwrite")
    assert cli.json("bench", folder / "manifest.fpm", *small)["samples"] == 10


def test_preview_shows_the_shards_in_order(folder: Path, cli: Cli) -> None:
    found = cli.json("preview", folder / "manifest.fpm", "--eos-token-id", str(EOS), "--start", str(N_TOKENS + 1))
    dtype = [] if next(folder.glob("*.npy"), None) else ["--dtype", "uint16"]
    of_folder = cli.json("preview", folder, "--eos-token-id", str(EOS), "--start", str(N_TOKENS + 1), *dtype)
    assert (found["files"], found["dtype"], found["dtype_from"]) == (3, "uint16", "manifest")
    assert found["documents"] == of_folder["documents"]
    assert Path(found["documents"][0]["file"]).stem == "1"
    assert cli("preview", folder / "manifest.fpm", "-n", "1").out.startswith("3 files, uint16 by the manifest\n")
    (folder / Path(found["documents"][0]["file"]).name).write_bytes(b"no")
    assert "manifest.fpm says" in cli("preview", folder / "manifest.fpm", "--start", N_TOKENS, code=1).err


def test_preview_accepts_another_dtype(folder: Path, cli: Cli) -> None:
    headerless = next(folder.glob("*.npy"), None) is None
    printed = cli("preview", folder / "manifest.fpm", "--dtype", "uint8", "-n", "1", code=int(not headerless))
    expected = "3 files, uint8 by --dtype\n" if headerless else "says its dtype itself"
    assert expected in "".join(printed)


def test_report_reads_the_shards(folder: Path, tmp_path: Path, cli: Cli) -> None:
    found = cli.json("report", folder / "manifest.fpm", "-o", tmp_path / "a.html")
    dtype = [] if next(folder.glob("*.npy"), None) else ["--dtype", "uint16"]
    of_folder = cli.json("report", folder, "-o", tmp_path / "b.html", *dtype)
    for name in ("bytes", "tokens", "documents", "lengths", "packing", "ids", "files"):
        assert found[name] == of_folder[name], name
    assert (found["documents"], found["warnings"]) == (3 * 101, [])
    (tmp_path / "c.toml").write_text(f'[data]\ndataset_path = "{folder / "manifest.fpm"}"\n')
    assert cli.json("report", tmp_path / "c.toml", "-o", tmp_path / "c.html")["tokens"] == 3 * N_TOKENS
    with open(sorted(folder.glob("1.*"))[0], "r+b") as file:
        file.truncate(900)
    assert "manifest.fpm says" in cli("report", folder / "manifest.fpm", "-o", tmp_path / "d.html", code=1).err


def test_report_reads_headerless_shards_by_another_dtype(tmp_path: Path, cli: Cli) -> None:
    np.arange(1, 2001, dtype=np.uint16).tofile(tmp_path / "a.bin")
    fastpack.write_manifest(tmp_path)
    found = cli.json("report", tmp_path / "manifest.fpm", "-o", tmp_path / "a.html", "--dtype", "uint16")
    assert (found["tokens"], found["files"]["summary"]["max"], found["ids"]["largest"]) == (2000, 2000, 2000)


def test_verify_reads_tokens_on_request(folder: Path, cli: Cli) -> None:
    manifest = folder / "manifest.fpm"
    assert cli.json("verify", manifest, "--vocab-size", "900", "--eos-token-id", str(EOS))["findings"] == []
    found = cli.json("verify", manifest, "--vocab-size", "850", code=3)["findings"]
    assert [Path(one["file"]).stem for one in found] == ["0", "1", "2"]
    assert all(one["expected"] == "ids below the vocabulary's 850" for one in found)
    shard = np.fromfile(found[0]["file"], np.uint8)[found[0]["offset"] :][:2].view(np.uint16)[0]
    assert found[0]["found"] == f"token {shard}"
    assert "no token 901" in cli.json("verify", manifest, "--eos-token-id", "901")["findings"][0]["found"]


def test_a_manifest_is_converted_to_shards(tmp_path: Path, cli: Cli) -> None:
    """Parts of the shards are read, which are not what the manifest says of the whole."""
    np.save(tmp_path / "0.npy", np.arange(1000, dtype=np.uint16))
    cli("manifest", tmp_path)
    cli(
        "convert",
        tmp_path / "manifest.fpm",
        "-o",
        tmp_path / "out" / "x.npy",
        "--shard-tokens",
        300,
        "--dtype",
        "uint32",
    )
    parts = [np.load(path) for path in sorted((tmp_path / "out").glob("*.npy"))]
    assert np.concatenate(parts).tolist() == list(range(1000))


def test_validate_suggests_verify_for_a_manifest(folder: Path, cli: Cli) -> None:
    for words in ([], ["--deep"], ["--json"]):
        out, err = cli("validate", folder / "manifest.fpm", *words, code=1)
        manifest = folder / "manifest.fpm"
        assert out == ""
        assert err == (
            f"Error: not a directory: {manifest} (`fastpack verify {manifest}` checks the shards of a manifest)\n"
        )


def test_mixture_configurations_accept_it(folder: Path) -> None:
    pattern = "*.npy" if next(folder.glob("*.npy"), None) else "*.bin"
    path = folder / "manifest.fpm"
    (folder / "c.toml").write_text(
        f'[data]\nfile_pattern = "{pattern}"\n[[data.datasets]]\npath = "{path}"\n[[data.datasets]]\npath = "{path}"\n'
    )
    config = fastpack.load_config(folder / "c.toml")
    datasets = [fastpack.MemoryMappedDataset(one.path, 61, config.file_pattern) for one in config.datasets]
    mixture = MixtureDataset(datasets, ["a", "b"])
    assert len(mixture) == 2 * 3 * (N_TOKENS // 61)
    batch = mixture.batch([0, len(mixture) - 1])
    np.testing.assert_array_equal(batch["input_ids"][1], datasets[1][len(datasets[1]) - 1]["input_ids"])
