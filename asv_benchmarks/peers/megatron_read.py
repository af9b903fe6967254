"""Read batches of Megatron's GPT samples with one system, in its environment, and print the cost and a digest as JSON.

    python megatron_read.py megatron|fastpack PREFIX LENGTH BATCH N_BATCHES FOLDER [--eod]

{"imports", "first", "rest": [CPU, wall] seconds each; "grown": bytes; "digest"}: imports; from the construction to the
first batch; the batches that follow; the peak of resident memory since the imports without the mapped tokens. FOLDER:
of Megatron's index files. --eod: positions and attention restart after EOD tokens, which have no loss.
"""

import hashlib
import json
import os
import sys
import time
import warnings

del sys.path[0]  # the megatron.py there is not the package of that name
EOD = 0
SIDE, PREFIX, FOLDER = sys.argv[1], sys.argv[2], sys.argv[6]
LENGTH, BATCH, N_BATCHES = map(int, sys.argv[3:6])
RESET = "--eod" in sys.argv
NAMES = ("tokens", "labels", "loss_mask", "position_ids")


class Tokenizer:
    """What megatron-core asks of a tokenizer."""

    vocab_size, eod = 50_000, EOD
    unique_identifiers = {}


def import_megatron():
    warnings.simplefilter("ignore")
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from torch.utils.data import default_collate

    def open_batches():
        config = GPTDatasetConfig(
            random_seed=1,
            sequence_length=LENGTH,
            blend=([PREFIX], None),
            split="1,0,0",
            path_to_cache=FOLDER,
            tokenizer=Tokenizer(),
            reset_position_ids=RESET,
            reset_attention_mask=False,  # a mask of [LENGTH, LENGTH] per sample otherwise
            eod_mask_loss=RESET,
            create_attention_mask=False,
        )
        dataset = BlendedMegatronDatasetBuilder(GPTDataset, [None, 0, 0], lambda: True, config).build()[0]
        return lambda numbers: default_collate([dataset[number] for number in numbers])

    return open_batches


def import_fastpack():
    import fastpack

    outputs = (*NAMES, "cu_seqlens", "max_seqlen") if RESET else NAMES
    build = fastpack.GPTDataset.build  # imports it

    def open_batches():
        options = {"eod_token_id": EOD, "reset_position_ids": RESET, "eod_mask_loss": RESET}
        dataset, _, _ = build(PREFIX, LENGTH, 1, (None, 0, 0), "1,0,0", **options)
        return lambda numbers: dataset.batch(numbers, outputs=outputs)

    return open_batches


def resident(name):
    """Return a value of /proc/self/status in bytes."""
    with open("/proc/self/status") as file:
        (value,) = [int(line.split()[1]) for line in file if line.startswith(name + ":")]
    return value * 1024


def tokens_in_memory():
    """Return the bytes of the mapped tokens that count as memory of the process."""
    found, counts = 0, False
    with open("/proc/self/smaps") as file:
        for line in file:
            if "-" in line.split()[0]:
                counts = line.rstrip().endswith(PREFIX + ".bin")
            elif counts and line.startswith("Rss:"):
                found += int(line.split()[1]) * 1024
    return found


class Clock:
    def __enter__(self):
        self.cpu, self.wall = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *error):
        self.cost = [time.process_time() - self.cpu, time.perf_counter() - self.wall]


def main():
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with Clock() as imports:
        open_batches = {"megatron": import_megatron, "fastpack": import_fastpack}[SIDE]()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts here
    before, digest = resident("VmRSS"), hashlib.sha256()
    order = [list(range(k, k + BATCH)) for k in range(0, (N_BATCHES + 1) * BATCH, BATCH)]
    with Clock() as first:
        batches = open_batches()
        batches(order[0])
    grown = resident("VmHWM") - before - tokens_in_memory()
    with Clock() as rest:
        for numbers in order[1:]:
            batches(numbers)
    for numbers in order[:20]:
        batch = batches(numbers)
        for name in NAMES:
            digest.update(batch[name].numpy().tobytes() if SIDE == "megatron" else batch[name].tobytes())
    found = {"imports": imports.cost, "first": first.cost, "rest": rest.cost, "grown": grown}
    print(json.dumps({**found, "digest": digest.hexdigest()}), file=replies, flush=True)


if __name__ == "__main__":
    main()
