"""Writes tests/golden/energon/reading with the real Megatron-Energon 7.4.1. Run by hand, where it and GNU tar are:

python tests/golden/make_energon_reading.py

`kinds.tar`, prepared as a crude dataset: parts of every kind, sparse files of three formats, a repeated part, members
that belong to no sample. `expected.json`: "samples", what Energon's loader gives, in order (arrays and images as dtype,
shape and SHA-256); "images", {mode: {part: value}}; "fields", [expression, result or error] on the first sample's
`tree.json`; "types", the fields of each sample type with their defaults.
"""

import dataclasses
import hashlib
import io
import json
import pickle
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import fields
from pathlib import Path

import megatron.energon as energon
import numpy as np
import webdataset.tenbin
from megatron.energon.flavors.vqa_and_ocr import VQAOCRSample
from megatron.energon.flavors.webdataset.field_access import field_access, split_field_access
from PIL import Image

OUT = Path(__file__).resolve().parent / "energon" / "reading"
MODES = [
    "l8",
    "rgb8",
    "rgba8",
    "l",
    "rgb",
    "rgba",
    "torchl8",
    "torchrgb8",
    "torchrgba8",
    "torchl",
    "torchrgb",
    "torch",
    "torchrgba",
    "pill",
    "pil",
    "pilrgb",
    "pilrgba",
]
TREE = {"a": {"b": [1, {"c": "deep"}], "": 0}, "n": None, "s": "text", "l": [10, 20, 30], "1": "one", "x,y": 5, "x": 6}
EXPRESSIONS = [
    "tree.json",
    "tree.json[s]",
    "tree.json[a][b]",
    "tree.json[a][b][1][c]",
    "tree.json[l][0]",
    "tree.json[l][-1]",
    "tree.json[l][3]",
    "tree.json[l][x]",
    "tree.json[1]",
    "tree.json[n]",
    "tree.json[n][x]",
    "tree.json[s][0]",
    "tree.json[missing]",
    "tree.json[missing],txt",
    "tree.json[s][0],txt",
    "tree.json[l][x],txt",
    "tree.json[l][9],txt",
    "nothing,tree.json[s]",
    "nothing",
    "nothing,also_nothing",
    "tree.json[x,y]",
    "tree.json[a",
    "tree.json[]",
    "tree.json[a][b],tree.json[x]",
    "txt,nothing",
    "__key__",
    "tree.json[a]b",
    "tree.json[[a]]",
    "",
    ",txt",
    "txt, nothing",
    " txt",
    "txt ",
    "tree.json[ s]",
    "tree.json[s] ",
    "tree.json [s]",
]

SPARSE = (  # pieces, format; a map of the old kind goes on in further blocks
    (27, "gnu"),
    (3, "gnu"),
    (4, "pax", "--sparse-version=0.0"),
    (4, "pax", "--sparse-version=0.1"),
    (4, "pax", "--sparse-version=1.0"),
)


@energon.edataclass
class Whole(energon.Sample):
    """A crude sample as it is."""

    crude: dict


@energon.stateless
def cook(sample: dict) -> Whole:
    return Whole(**energon.basic_sample_keys(sample), crude=dict(sample))


class Encoder(energon.DefaultTaskEncoder):
    cookers = (energon.Cooker(cook),)
    decoder = energon.SampleDecoder()

    def __init__(self) -> None:
        super().__init__(raw_batch_type=dict)


def image(kind: str, mode: str, size: tuple[int, int] = (5, 3)) -> bytes:
    rng = np.random.default_rng(len(kind) + len(mode))
    bands = len(Image.new(mode, (1, 1)).getbands())
    if mode == "1":
        picture = Image.fromarray(rng.integers(0, 2, size[::-1], dtype=np.uint8) * 255).convert("1")
    elif mode == "P":
        picture = Image.fromarray(rng.integers(0, 255, (*size[::-1], 3), dtype=np.uint8)).quantize(8)
    elif mode == "I;16":
        picture = Image.fromarray(rng.integers(0, 65535, size[::-1], dtype=np.uint16))
    else:
        shape = size[::-1] if bands == 1 else (*size[::-1], bands)
        picture = Image.fromarray(rng.integers(0, 255, shape, dtype=np.uint8), mode)
    out = io.BytesIO()
    picture.save(out, kind)
    return out.getvalue()


def numpy_bytes(save: object, *arrays: object, **named: object) -> bytes:
    out = io.BytesIO()
    save(out, *arrays, **named)
    return out.getvalue()


def gzipped(data: bytes) -> bytes:
    import gzip

    return gzip.compress(data, mtime=0)


IMAGES = {
    "png": image("png", "RGB"),
    "gray.PNG": image("png", "L"),
    "alpha.png": image("png", "RGBA"),
    "graya.png": image("png", "LA"),
    "bits.png": image("png", "1"),
    "wide.png": image("png", "I;16"),
    "gif": image("gif", "P"),
    "bmp": image("bmp", "RGB"),
    "webp": image("png", "RGB"),  # what it is decides, not its name
}
KINDS = {
    "tree.json": json.dumps(TREE).encode(),
    "txt": "grüße \u65e5\n".encode(),
    "text": b"",
    "transcript": b"a\r\nb",
    "cls": b" 12\n",
    "id": b"-7",
    "index": b"00012",
    "jsn": b'[1, 1e400, -0.0, 12345678901234567890123, {"a": 1, "a": 2}]',
    "nan.json": b"[NaN, Infinity, -Infinity]",
    "half.json": b'"\\ud800"',
    "number.json": b" 5 ",
    "json.gz": gzipped(b'{"zipped": true}'),
    "txt.gz": gzipped(b"zipped"),
    "gz": gzipped(b"bytes"),
    "bin.gz.gz": gzipped(gzipped(b"twice")),
    "npy": numpy_bytes(np.save, np.arange(6, dtype=">i4").reshape(2, 3)),
    "flat.npy": numpy_bytes(np.save, np.float64(2.5)),
    "npz": numpy_bytes(np.savez, np.arange(3), b=np.ones((2, 2), np.float16)),
    "ten": bytes(webdataset.tenbin.encode_buffer([np.arange(5, dtype=np.float32), np.ones((2, 1), np.uint8)])),
    "TXT": b"not known in capitals",
    "bin": bytes(range(256)),
    "": b"no extension",
    "jpg\n": b"no image",
    "pickle": pickle.dumps({"a": (1, 2)}),
}


def add(tar: tarfile.TarFile, name: str, data: bytes, **fields: object) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    tar.addfile(info, io.BytesIO(data))


def write_tar(path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        add(tar, "readme", b"of no sample")
        for part, data in KINDS.items():
            add(tar, f"kinds.{part}", data)
        add(tar, "__meta__/a.json", b"{}")
        for part, data in IMAGES.items():
            add(tar, f"images/k.{part}", data)
        add(tar, "twice.txt", b"first")
        add(tar, "twice.json", b"1")
        add(tar, "twice.txt", b"last")
        add(tar, f"{'long/' * 60}näme.txt", b"long name")
        add(tar, "link.txt", b"", type=tarfile.SYMTYPE, linkname="twice.txt")
        end = tar.offset
    with tempfile.TemporaryDirectory() as folder:
        extra = Path(folder, "extra.tar")
        blocks = path.read_bytes()[:end]
        for number, (n_pieces, *options) in enumerate(SPARSE):
            for name in ("sparse", "full"):
                with Path(folder, f"s{number}.{name}").open("wb") as file:
                    for piece in range(n_pieces):
                        file.seek(piece * 12288 if name == "sparse" else piece * 10)
                        file.write(b"piece %04d" % piece)
                    file.truncate(n_pieces * 12288 + 700 if name == "sparse" else 400)
            names = [f"s{number}.sparse", f"s{number}.full"]
            command = ["tar", "-S", "--sort=name", "--mtime=@0", "-C", folder, f"--format={options[0]}", *options[1:]]
            subprocess.run([*command, "-cf", extra, *names], check=True)
            with tarfile.open(extra) as written:
                written.getmembers()
                blocks += extra.read_bytes()[: written.offset]
        path.write_bytes(blocks + bytes(1024))


def described(value: object) -> object:
    if hasattr(value, "numpy"):
        return {"tensor": described(value.numpy())}
    if isinstance(value, Image.Image):
        return {"image": value.mode, "size": value.size, "sha256": hashlib.sha256(value.tobytes()).hexdigest()}
    if isinstance(value, (np.ndarray, np.generic)):
        data = np.ascontiguousarray(value).tobytes()
        return {"array": value.dtype.str, "shape": value.shape, "sha256": hashlib.sha256(data).hexdigest()}
    if isinstance(value, bytes):
        return {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    if isinstance(value, dict):
        return {key: described(one) for key, one in value.items()}
    return [described(one) for one in value] if isinstance(value, (list, tuple)) else value


def field_cases(sample: dict) -> list:
    cases = []
    for expression in EXPRESSIONS:
        try:
            cases.append([expression, described(field_access(sample, split_field_access(expression)))])
        except Exception as error:
            cases.append([expression, {"error": type(error).__name__}])
    return cases


def type_fields() -> dict:
    """{sample type: [[field, None or [its default]], ...]}."""
    missing = dataclasses.MISSING
    kinds = [kind for kind in vars(energon).values() if isinstance(kind, type) and issubclass(kind, energon.Sample)]
    return {
        kind.__name__: [[field.name, None if field.default is missing else [field.default]] for field in fields(kind)]
        for kind in sorted([*kinds, VQAOCRSample], key=lambda kind: kind.__name__)
        if dataclasses.is_dataclass(kind) and "Batch" not in kind.__name__
    }


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    write_tar(OUT / "kinds.tar")
    options = ["--non-interactive", "--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset", "--num-workers", "1"]
    subprocess.run(["energon", "prepare", OUT, *options], check=True)
    config = energon.WorkerConfig(rank=0, world_size=1, num_workers=0)
    options = {"worker_config": config, "batch_size": None, "task_encoder": Encoder()}
    dataset = energon.get_val_dataset(OUT, split_part="train", **options)
    samples = [sample.crude for sample in energon.get_loader(dataset)]
    images = {}
    for mode in MODES:
        decoder = energon.SampleDecoder(image_decode=mode)
        images[mode] = {part: described(decoder.decode(f"k.{part}", data)) for part, data in IMAGES.items()}
    dunders = ("__sources__",)
    expected = {
        "samples": [{key: described(one) for key, one in sample.items() if key not in dunders} for sample in samples],
        "file_names": [sample["__sources__"][0].file_names for sample in samples],
        "images": images,
        "fields": field_cases(samples[0]),
        "types": type_fields(),
    }
    (OUT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
