"""Writes tests/golden/modalities/collators.json with the real Modalities 0.5.0. Run by hand, where it is installed:

python tests/golden/make_modalities_collators.py

Each case: samples [B, L] of a dtype, and what LossMaskingCollateFnWrapper around GPT2LLMCollateFn makes of them:
samples, targets (masked) and their dtype, or the error. "warned": whether it ignored the batch whole.
"""

import json
import random
from pathlib import Path
from unittest import mock

import numpy as np
from modalities.dataloader.collate_fns import collator_fn_wrapper_for_loss_masking as wrapping
from modalities.models.gpt2.collator import GPT2LLMCollateFn

OUT = Path(__file__).resolve().parent / "modalities" / "collators.json"
BEGIN, END, IGNORE = 5, 6, -100
HAND = [  # samples; the first token is in no target
    [[2, 2, 3, 5, 2, 4, 6, 2, 2]],
    [[2, 5, 6, 5, 3, 6, 2, 2, 5]],
    [[5, 2, 3, 6, 5, 3, 6, 2, 5]],  # the first span begins before the targets do
    [[2, 2, 6, 3, 5, 3, 6, 2, 5]],
    [[2, 5, 3, 5, 3, 6, 2, 2, 2]],
    [[2, 5, 3, 6, 3, 6, 2, 2, 2]],
    [[2, 2, 2, 2, 2, 2, 2, 2, 2]],
    [[2, 5, 2, 2, 2, 2, 2, 2, 2]],
    [[2, 2, 2, 2, 6, 2, 2, 2, 2]],
    [[2, 5, 2, 2, 2, 2, 2, 2, 2], [2, 2, 2, 5, 4, 6, 2, 2, 2]],
    [[2, 2, 2, 2, 2, 2, 2, 2, 2], [2, 2, 2, 5, 4, 6, 2, 2, 2]],
    [[2, 5, 3, 6, 2, 2, 2, 5, 5]],
    [[2, 5, 3, 6, 2, 5, 2, 2, 5]],  # a begin in a span, at the very end, where the check does not see it
]


class Tokenizer:
    def get_token_id(self, token):
        return {"<b>": BEGIN, "<e>": END}[token]


def rows(rng):
    """Random rows, most of them with markers that alternate."""
    out = []
    length = rng.randint(2, 14)
    for _ in range(rng.randint(1, 4)):
        inside, row = False, []
        for _ in range(length):
            token = rng.choice([1, 2, 3, 4, 7, 8])
            if rng.random() < 0.3:
                token, inside = (END if inside else BEGIN), not inside
            row.append(rng.choice([BEGIN, END]) if rng.random() < 0.02 else token)
        out.append(row)
    return out


def run(samples, dtype):
    config = wrapping.LossMaskingTokenConfig(b_include_to_loss_token="<b>", e_include_to_loss_token="<e>")
    inner = GPT2LLMCollateFn("ids", "labels")
    collate = wrapping.LossMaskingCollateFnWrapper(inner, ["labels"], IGNORE, config, Tokenizer())
    case = {"samples": samples, "dtype": dtype}
    with mock.patch.object(wrapping, "warn_rank_0") as warned:
        try:
            batch = collate([{"ids": np.array(row, dtype)} for row in samples])
        except ValueError as error:
            return case | {"error": type(error).__name__}
    targets = batch.targets["labels"]
    return case | {
        "inputs": batch.samples["ids"].tolist(),
        "targets": targets.tolist(),
        "targets_dtype": str(targets.dtype).removeprefix("torch."),
        "warned": warned.called,
    }


if __name__ == "__main__":
    generator = random.Random(5)
    inputs = HAND + [rows(generator) for _ in range(160)]
    cases = [run(samples, dtype) for samples in inputs for dtype in ("int32", "int64")]
    head = {"begin": BEGIN, "end": END, "ignore": IGNORE}
    lines = ",\n".join(json.dumps(case) for case in cases)
    OUT.write_text(f'{json.dumps(head)[:-1]}, "cases": [\n{lines}\n]}}\n')
