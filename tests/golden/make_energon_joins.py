"""Makes `energon/joins`: three small sets, prepared and joined by Megatron-Energon 7.4.1 (`energon` on the PATH).

    python make_energon_joins.py TARGET

Only the `.nv-meta` folders are kept of the sets: a join reads nothing else.
"""

from __future__ import annotations

import io
import random
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

JOINER = "joiner: {__module__: megatron.energon, __class__: TextSample}"
METADATASET = """__module__: megatron.energon
__class__: MetadatasetV2
splits:
  train:
    join:
      a: {path: a}
      b: {path: ./b}
      c: {path: c, nonmatch: NONMATCH}
    JOINER
  val:
    blend:
      - weight: 1
        join:
          - {path: c, split_part: train}
          - {path: b, split_part: train}
        JOINER
      - {weight: 2, path: a}
"""
SPLIT = "split_parts:\n  train: [s/3.tar, 's/{0..2}.tar']\n  val: [s/0.tar]\nexclude: [EXCLUDE]\n"


def write_set(folder: Path, shards: list[list[str]], rng: random.Random) -> None:
    for i, keys in enumerate(shards):
        path = folder / f"s/{i}.tar"
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w") as tar:
            for key in keys:
                info = tarfile.TarInfo(f"{key}.txt")
                info.size = rng.randrange(2000)
                tar.addfile(info, io.BytesIO(bytes(info.size)))
    words = ["energon", "prepare", str(folder), "--non-interactive", "--split-parts", "train:.*"]
    subprocess.run([*words, "--sample-type", "CrudeWebdataset"], check=True)


def main(target: Path) -> None:
    rng = random.Random(5)
    keys = [f"k{i:02d}" for i in range(20)]
    shuffled = rng.sample(keys, 20)
    write_set(target / "a", [keys[i : i + 5] for i in range(0, 20, 5)], rng)
    write_set(target / "b", [shuffled[:12], shuffled[12:]], rng)
    write_set(target / "c", [shuffled[4:9], shuffled[9:13]], rng)
    for name, exclude in (("skip", "s/1.tar"), ("none", "s/2.tar/k11")):
        (target / "a/.nv-meta/split.yaml").write_text(SPLIT.replace("EXCLUDE", exclude))
        shutil.copy(target / "a/.nv-meta/split.yaml", target / f"{name}.split.yaml")
        text = METADATASET.replace("NONMATCH", name).replace("JOINER", JOINER)
        (target / f"{name}.yaml").write_text(text)
        subprocess.run(["energon", "prepare", str(target / f"{name}.yaml")], check=True)
    for shards in target.glob("*/s"):
        shutil.rmtree(shards)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
