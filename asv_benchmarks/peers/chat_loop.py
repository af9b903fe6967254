"""A loop of transformers' `apply_chat_template` over a file of conversations, in an interpreter of its own.

    python chat_loop.py TOKENIZER TEMPLATE SOURCE OUTPUT tokens|mask

Prints {"cpu", "wall"} as JSON: the seconds from the first line of the file to the ids of its last conversation, without
imports and the tokenizer. OUTPUT.npz gets the ids, and with `mask` those of the assistant, by a second loop.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    tokenizer_path, template_path, source, output, wanted = sys.argv[1:]
    import numpy as np
    import transformers

    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(tokenizer_path)
    apply, template = tokenizer.apply_chat_template, Path(template_path).read_text(encoding="utf-8")
    apply([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], chat_template=template)
    cpu, wall = time.process_time(), time.perf_counter()
    with open(source, "rb") as file:
        ids = [apply(json.loads(line)["messages"], chat_template=template, tokenize=True) for line in file]
    print(json.dumps({"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}))
    masks: list[list[int]] = []
    if wanted == "mask":
        options = {"return_dict": True, "return_assistant_tokens_mask": True}
        with open(source, "rb") as file:
            found = [apply(json.loads(line)["messages"], chat_template=template, **options) for line in file]
        assert [one["input_ids"] for one in found] == ids
        masks = [one["assistant_masks"] for one in found]
    flat = {"tokens": np.concatenate(ids).astype(np.uint32), "lengths": np.array([len(one) for one in ids])}
    np.savez(output, mask=np.concatenate([np.zeros(0, bool), *masks]).astype(bool), **flat)


if __name__ == "__main__":
    main()
