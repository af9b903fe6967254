"""The text of the script that `fastpack init` writes."""

from __future__ import annotations

import json

_HEAD = '''"""Train on {source}. Written by `fastpack init`; change it as you like.

    python {name}

The first run packs the text, which may be interrupted, and plans rows of whole documents. Every run trains for STEPS
steps and saves a checkpoint every ten, from which the next run continues. After a change of DATA or TOKENIZER, remove
the files that PACKED, PLAN and CHECKPOINT name.
"""

{imports}

DATA = {data}
TOKENIZER = {tokenizer}
EOS_TOKEN, VOCABULARY = {eos_token}, {vocabulary:_}
SEQ_LEN, BATCH_SIZE, STEPS = {seq_len}, {batch_size}, 50  # tokens per row, rows per step, steps per run
PACKED, PLAN, CHECKPOINT = {packed}, f{plan}, Path({checkpoint})

'''
_SAMPLE = '''
def write_sample() -> None:
    """Write the sources of Python's standard library as documents, in place of your own data."""
    with open(DATA, "w", encoding="utf-8") as file:
        for path in sorted(Path(json.__file__).parents[1].glob("*.py")):
            print(json.dumps({"text": path.read_text(encoding="utf-8", errors="replace")}), file=file)

'''
_LOADER = '''
def make_loader() -> {module}.StatefulDataLoader:
    """Pack and plan what is not there yet; return batches of input_ids, labels and doc_ids [BATCH_SIZE, SEQ_LEN]."""
{sample}    packed = fastpack.pack(DATA, PACKED, tokenizer=TOKENIZER, eos_token=EOS_TOKEN{field}, resume=True)
    if not packed.kept_existing:
        print(f"packed {{packed.documents:,}} documents, {{packed.tokens:,}} tokens; skipped {{len(packed.skipped):,}}")
    fastpack.plan(PACKED, PLAN, seq_length=SEQ_LEN, seed=0, if_exists="skip")
    dataset = {module}.PlannedDataset(PLAN)
    sampler = fastpack.DistributedSampler(dataset, num_replicas=1, rank=0, seed=0)  # or torchrun's WORLD_SIZE and RANK
    return {module}.StatefulDataLoader(dataset, min(BATCH_SIZE, len(dataset)), sampler)


def epochs(loader: {module}.StatefulDataLoader) -> Iterator[dict]:
    """Yield the batches of all epochs, each in another order."""
    while True:
        yield from loader


'''
_NUMPY = """def main() -> None:
    loader = make_loader()
    if CHECKPOINT.exists():
        loader.load_state_dict(json.loads(CHECKPOINT.read_text()))
    n_labels = 0
    for step, batch in zip(range(1, STEPS + 1), epochs(loader)):
        n_labels += int((batch["labels"] != -100).sum())  # your training step; labels of -100 do not count in the loss
        if step % 10 == 0 or step == STEPS:
            CHECKPOINT.write_text(json.dumps(loader.state_dict()))
    loader.close()
    print(f"{STEPS} steps of {batch['input_ids'].shape} tokens, {n_labels:,} labels")

"""
_TORCH = """def main() -> None:
    loader, first = make_loader(), 0
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, 64), torch.nn.Linear(64, VOCABULARY))  # your model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if CHECKPOINT.exists():
        saved = torch.load(CHECKPOINT, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        first = saved["step"]
    for step, batch in zip(range(first + 1, first + STEPS + 1), epochs(loader)):
        logits = model(batch["input_ids"])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())  # ignores -100
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == first + STEPS:
            print(f"step {step}: loss {loss.item():.3f}")
            states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
            torch.save({**states, "step": step}, CHECKPOINT)
    loader.close()

"""
_END = """
if __name__ == "__main__":  # packing starts processes that import this file
    main()
"""


def starter_script(
    *,
    name: str,
    data: str | None,
    tokenizer: str,
    eos_token: str,
    text_field: str,
    outputs: str,
    with_torch: bool,
    numbers: tuple[int, int, int],
) -> str:
    """Return the script. data: None for a script that makes its own; numbers: row length, batch size, vocabulary."""
    seq_len, batch_size, vocabulary = numbers
    needs_json = data is None or not with_torch
    imports = ["import json"] if needs_json else []
    imports += ["from collections.abc import Iterator", "from pathlib import Path", ""]
    imports += ["import torch", "", "import fastpack", "import fastpack.torch"] if with_torch else ["import fastpack"]
    head = _HEAD.format(
        source="Python's own sources" if data is None else _plain(data),
        name=name,
        imports="\n".join(imports),
        data=_literal(f"{outputs}.jsonl" if data is None else data),
        tokenizer=_literal(tokenizer),
        eos_token=_literal(eos_token),
        vocabulary=vocabulary,
        seq_len=seq_len,
        batch_size=batch_size,
        packed=_literal(f"{outputs}.pbin"),
        plan=_literal(f"{outputs}-{{SEQ_LEN}}.plan"),
        checkpoint=_literal(f"{outputs}.{'pt' if with_torch else 'state.json'}"),
    )
    loader = _LOADER.format(
        module="fastpack.torch" if with_torch else "fastpack",
        sample="    if not Path(DATA).exists():\n        write_sample()\n" if data is None else "",
        field="" if text_field == "text" else f", text_field={_literal(text_field)}",
    )
    return head + (_SAMPLE if data is None else "") + loader + (_TORCH if with_torch else _NUMPY) + _END


def _literal(text: str) -> str:
    """Return a string literal of Python, in double quotes."""
    return json.dumps(text)


def _plain(text: str) -> str:
    """Return a text that cannot end a docstring."""
    return json.dumps(text)[1:-1].replace('\\"', "'").replace("\\\\", "/")
