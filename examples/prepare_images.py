"""Draw pictures, write them to WebDataset tars, prepare the dataset, and read it with a loader.

    python examples/prepare_images.py pictures/
    python examples/prepare_images.py pictures/ --samples 1000 --shards 10

Needs Pillow (pip install 'fastpack-llm[media]'). Files whose names are equal up to the first dot are one sample:
000012.png and 000012.json. Megatron-Energon can read pictures/ too. To inspect it:

    fastpack info pictures/
    fastpack preview pictures/
    fastpack verify pictures/ --deep
"""

from __future__ import annotations

import argparse
import io
import json
import math
import random
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

import fastpack

COLOURS = {"red": (220, 50, 40), "green": (40, 160, 60), "blue": (40, 80, 220), "yellow": (240, 200, 30)}
CORNERS = {"circle": 64, "triangle": 3, "square": 4, "hexagon": 6}
SIZE = 64


def draw(colour: str, shape: str, rng: random.Random) -> bytes:
    """Return a PNG of a shape at a random position on a grey background."""
    image = Image.new("RGB", (SIZE, SIZE), (rng.randrange(150, 256),) * 3)
    radius, turn = rng.uniform(12, 20), rng.uniform(0, 2 * math.pi)
    x, y = (rng.uniform(radius, SIZE - radius) for _ in range(2))
    angles = [turn + 2 * math.pi * k / CORNERS[shape] for k in range(CORNERS[shape])]
    points = [(x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles]
    ImageDraw.Draw(image).polygon(points, fill=COLOURS[colour])
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def samples(n_samples: int, seed: int) -> Iterator[dict[str, bytes]]:
    """Yield the fields of each sample: a picture and its description."""
    rng = random.Random(seed)
    for _ in range(n_samples):
        colour, shape = rng.choice(list(COLOURS)), rng.choice(list(CORNERS))
        about = {"caption": f"a {colour} {shape}", "shape": shape}
        yield {"png": draw(colour, shape, rng), "json": json.dumps(about).encode()}


def write_shards(folder: Path, n_samples: int, n_shards: int, seed: int) -> None:
    """Write shard_000.tar, shard_001.tar, ...; the fields of a sample are adjacent."""
    numbered = enumerate(samples(n_samples, seed))
    for shard in range(n_shards):
        with tarfile.open(folder / f"shard_{shard:03d}.tar", "w") as tar:
            for _ in range(n_samples // n_shards + (shard < n_samples % n_shards)):
                number, fields = next(numbered)
                for field, data in fields.items():
                    member = tarfile.TarInfo(f"{number:06d}.{field}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def collate(batch: list[Any]) -> dict[str, Any]:
    """Return a batch of samples: pictures [B, 3, H, W] and captions."""
    return {
        "images": np.stack([sample.image for sample in batch]),
        "captions": [sample.caption for sample in batch],
    }


def read(folder: Path, batch_size: int) -> None:
    """Read a shuffled epoch of the training split, and one sample by its key."""
    dataset = fastpack.WebDataset(folder, "train")
    sampler = fastpack.DistributedSampler(dataset, num_replicas=1, rank=0, seed=7)
    loader = fastpack.StatefulDataLoader(dataset, batch_size, sampler, collate_fn=collate)
    n_seen, brightness = 0, 0.0
    for batch in loader:  # a background thread decodes two batches ahead
        n_seen += len(batch["captions"])
        brightness += float(batch["images"].mean())
    print(f"train: {len(dataset)} samples, {n_seen} of them in {len(loader)} batches of {batch_size}")
    print(f"mean brightness {brightness / len(loader):.2f}, first caption of the last batch: {batch['captions'][0]!r}")
    key = dataset.key(0)
    print(f"sample {key}: {dataset.get(key).caption}, float32 {list(dataset[0].image.shape)} in [0, 1]")
    loader.close()
    dataset.close()


def main(words: Sequence[str] | None = None) -> int:
    """Run all steps; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the output folder")
    parser.add_argument("--samples", type=int, default=120, help="the number of pictures (120)")
    parser.add_argument("--shards", type=int, default=6, help="the number of tars (6)")
    parser.add_argument("--batch-size", type=int, default=16, help="the number of samples in a batch (16)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(words)

    args.folder.mkdir(parents=True, exist_ok=True)
    write_shards(args.folder, args.samples, args.shards, args.seed)
    result = fastpack.prepare(
        args.folder,
        split_ratio=(3, 1, 1),
        sample_type="CaptioningSample",
        field_map={"image": "png", "caption": "json[caption]"},
        force_overwrite=True,
    )
    print(f"prepared {result.samples} samples of {len(result.shards)} shards")
    report = fastpack.verify(args.folder, deep=True)
    for finding in report.findings:
        print(finding, file=sys.stderr)
    read(args.folder, args.batch_size)
    return 0 if report.is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
