"""Tokens and masks of conversations in chat/cases.json for the templates in chat/templates; with transformers 4.57.6.

Each template is used as written, and without its generation tags; then the mask is computed here from the texts of the
prefixes of the conversation.
"""

import json
import re
import tempfile
import warnings
from pathlib import Path

import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = Path(__file__).parent / "chat"
TAGS = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "[INST]", "[/INST]"]
TEXTS = [path.read_text(encoding="utf-8") for path in sorted((HERE / "templates").glob("*.jinja"))]
CALL = {"type": "function", "function": {"name": "sum", "arguments": {"a": 1.5, "b": [2, "ü<>&'"]}}}
TOOL = {"type": "function", "function": {"name": "sum", "description": "Add <numbers> & \u00fc", "parameters": {}}}


def say(*contents: str, first: str = "user") -> list[dict]:
    roles = ["user", "assistant"] if first == "user" else ["system", "user", "assistant"]
    order = roles[: len(roles) - 2] + ["user", "assistant"] * len(contents)
    return [{"role": role, "content": content} for role, content in zip(order, contents, strict=False)]


CONVERSATIONS = [
    {"messages": say("Hi", "Hello!")},
    {"messages": say("One", " two  ", "three\n", "four")},
    {"messages": say("Be brief.", "What is 1 + 1?", "2", "And 2 + 2?", "It is 4.", first="system")},
    {"messages": say("ünï, 日本語 e\u0301 😀", "Größe: 👨\u200d👩\u200d👧 e\u0301!", "x", "日本")},
    {"messages": say("<|im_end|> in a text", "</s><|im_start|>user\nyes <s> [INST]")},
    {"messages": say("empty", "", "next", " ")},
    {"messages": say("   spaces   ", "   \n\n def f():\n\treturn 1\n   ")},
    {
        "messages": [
            {"role": "user", "content": "Add."},
            {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
            {"role": "tool", "content": "3.5", "name": "sum"},
            {"role": "tool", "content": "4"},
            {"role": "assistant", "content": "3.5, 4"},
        ],
        "tools": [TOOL, TOOL],
    },
    {
        "messages": [
            {"role": "user", "content": "Why?"},
            {"role": "assistant", "reasoning_content": "\nso\n", "content": "So."},
        ]
    },
    {"messages": say("a", "<think>x</think>b", "c", "<think>y</think>d")},
    {"messages": [*say("a", "b"), {"role": "assistant", "content": "c"}]},
    {
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "user", "content": "b"},
            {"role": "assistant", "content": "c"},
        ]
    },
    {"messages": say("long " * 40, "answer " * 30, "more", "ß" * 20)},
]


def train(kind: str) -> Tokenizer:
    tokenizer = Tokenizer(
        models.BPE(byte_fallback=kind == "metaspace", unk_token="<s>" if kind == "metaspace" else None)
    )
    if kind == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        tokenizer.normalizer, tokenizer.decoder = normalizers.NFKC(), decoders.Metaspace()
        alphabet = [f"<0x{byte:02X}>" for byte in range(256)]
        specials = [*SPECIAL, *alphabet]
    else:
        split = pre_tokenizers.Split(Regex(r"\s?\p{L}+|\p{N}|\s?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"), "isolated")
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Sequence([split, last]), decoders.ByteLevel()
        if kind == "nfc":
            tokenizer.normalizer = normalizers.NFC()
        specials = SPECIAL
    letters = pre_tokenizers.ByteLevel.alphabet() if kind != "metaspace" else []
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=specials, initial_alphabet=letters)
    tokenizer.train_from_iterator(TEXTS, trainer)
    if kind == "trimmed":
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    elif kind == "plain":  # what the post-processor adds is not added to conversations
        ids = [(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")]
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", None, ids)
    return tokenizer


def main() -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    tokenizers = {kind: train(kind) for kind in ("plain", "nfc", "trimmed", "metaspace")}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    answers = []
    for kind, tokenizer in tokenizers.items():
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save(f"{folder}/tokenizer.json")
            Path(folder, "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
            loaded = transformers.AutoTokenizer.from_pretrained(folder)
        for path in sorted((HERE / "templates").glob("*.jinja")):
            source = path.read_text(encoding="utf-8")
            for marked, template in ((True, source), (False, TAGS.sub("", source))):
                rows = [answer(loaded, template, marked, row) for row in CONVERSATIONS]
                answers.append({"tokenizer": kind, "template": path.stem, "marked": marked, "rows": rows})
    whole = {
        "config": config,
        "conversations": CONVERSATIONS,
        "tokenizers": {kind: json.loads(tokenizer.to_str()) for kind, tokenizer in tokenizers.items()},
        "answers": answers,
    }
    (HERE / "cases.json").write_text(json.dumps(whole, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def answer(loaded, template: str, marked: bool, row: dict) -> dict | None:
    """Return tokens and mask; None if the template refuses the conversation, a mask of None if there is none."""
    messages, tools = row["messages"], row.get("tools")
    options = {"chat_template": template, "tools": tools}
    try:
        found = loaded.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=marked, **options)
    except Exception:
        return None
    tokens = found["input_ids"]
    assert tokens == loaded.apply_chat_template(messages, tokenize=True, **options)
    mask = found["assistant_masks"] if marked else prefix_mask(loaded, messages, options, len(tokens))
    return {"tokens": tokens, "mask": None if mask is None else "".join(map(str, mask))}


def prefix_mask(loaded, messages: list, options: dict, n_tokens: int) -> list[int] | None:
    text = loaded.apply_chat_template(messages, tokenize=False, **options)
    encoding, mask = loaded(text, add_special_tokens=False), [0] * n_tokens
    for turn, message in enumerate(messages):
        if message["role"] == "assistant":
            try:
                before = loaded.apply_chat_template(
                    messages[:turn], tokenize=False, add_generation_prompt=True, **options
                )
                through = loaded.apply_chat_template(messages[: turn + 1], tokenize=False, **options)
            except Exception:
                return None
            if not (text.startswith(through) and through.startswith(before)):
                return None
            if len(before) < len(through):
                found = {encoding.char_to_token(i) for i in range(len(before), len(through))} - {None}
                for i in range(min(found, default=0), max(found, default=-1) + 1):
                    mask[i] = 1
    return mask


if __name__ == "__main__":
    main()
