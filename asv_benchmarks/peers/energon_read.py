"""Load a prepared dataset with Energon's loader, in Energon's environment, and print a summary of the samples.

    python energon_read.py PATH SPLIT...

Prints {split: {"samples", "distinct", "digest"}} as JSON on the last line; `digest` is over the sorted pairs of key and
text. `get_train_dataset` reads one epoch of each split; `get_val_dataset` also reads `val` and `test`, with equal
results. A .jsonl file has one split, `all`.
"""

import hashlib
import json
import sys

from megatron.energon import (
    Cooker,
    TaskEncoder,
    TextSample,
    WorkerConfig,
    basic_sample_keys,
    get_loader,
    get_train_dataset,
    get_val_dataset,
    stateless,
)


@stateless
def cook(sample):
    return TextSample(**basic_sample_keys(sample), text=sample["json"]["text"])


class Encoder(TaskEncoder):
    """Return unchanged samples in lists."""

    cookers = [Cooker(cook)]

    def batch(self, samples):
        return samples

    def encode_batch(self, batch):
        return batch


class CookingEncoder(Encoder):
    pass


class PlainEncoder(Encoder):
    cookers = []


def text_of(sample):
    return sample.caption if hasattr(sample, "caption") else sample.text


def check_picture(sample):
    """Check that a decoded picture is float32 [3, H, W]."""
    image = getattr(sample, "image", None)
    if image is not None and (image.ndim != 3 or image.shape[0] != 3 or min(image.shape) < 3):
        raise ValueError(f"{sample.__key__}: an image of the shape {tuple(image.shape)}")


def summary(dataset):
    lines, keys = [], set()
    for batch in get_loader(dataset):
        for sample in batch:
            check_picture(sample)
            keys.add(sample.__key__)
            lines.append(f"{sample.__key__}\t{text_of(sample)}\n")
    lines.sort()
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    return {"samples": len(lines), "distinct": len(keys), "digest": digest}


def read(path, split):
    encoder = CookingEncoder() if path.endswith(".jsonl") else PlainEncoder()
    options = {
        "split_part": split,
        "worker_config": WorkerConfig(rank=0, world_size=1, num_workers=0),
        "batch_size": 32,
        "task_encoder": encoder,
    }
    if path.endswith(".jsonl"):
        options["split_part"] = "train"
    train = {"shuffle_buffer_size": 100, "max_samples_per_sequence": 100, "repeat": False}
    found = summary(get_train_dataset(path, **options, **train))
    if split in ("val", "test") and summary(get_val_dataset(path, **options)) != found:
        raise ValueError(f"{split}: get_val_dataset gives other samples than get_train_dataset")
    return found


def main():
    path, splits = sys.argv[1], sys.argv[2:]
    print(json.dumps({split: read(path, split) for split in splits}))


if __name__ == "__main__":
    main()
