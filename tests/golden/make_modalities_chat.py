"""Writes tests/golden/modalities/chat with Modalities 0.5.0: run it by a Python that has modalities==0.5.0.

    python tests/golden/make_modalities_chat.py

`configs` and `data` are what it is given, `out` is what it writes, file for file. Paths in the configurations are
relative to the folder `chat`, beside which the tokenizers of the other golden files lie.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent / "modalities" / "chat"
WORDS = [
    "naïve",
    "北京",
    "🙂",
    "e\u0301",
    "Ünïcödé",
    "\u2028",
    "\u0085",
    "</s>",
    '"quoted"',
    "back\\slash",
    "tab\there",
]
WORDS += ["{{", "braces", "}}", "{%", "raw", "%}", "&<>'"]

PACKING = """\
settings:
  src_path: ignored.jsonl
  dst_path: ignored.pbin
  index_path: ignored.idx
  jq_pattern: .chat
  num_cpus: 1
  eod_token: <|endoftext|>
  processing_batch_size: 3
  raw_samples_queue_size: 20
  processed_samples_queue_size: 20
  note: "Grüße, 世界: ünïcode that the dump keeps, in a text that is long enough to be folded at eighty columns"
  rate: 1e5
  day: 2024-01-01
  where: ${modalities_env:config_file_path}/x
tokenizer:
  component_key: tokenizer
  variant_key: pretrained_hf_tokenizer
  config:
    pretrained_model_name_or_path: ../tokenizers/%s
    padding: false
    truncation: false
"""

SETTINGS = """\
settings:
  src_path: data/{data}.jsonl
  dst_path: out/{case}/{dst}
  messages_key: {key}
  pbin_creation_config_file_path: configs/{packing}.yaml
  split_config:
    splitting: {{train: {train}, val: {val}, test: {test}}}
    seed: {seed}
instruction_data_transformation:
  role_mapping: {{human: User, user: User, gpt: "Assistant °", system: "Système", "": nobody}}
"""

MARKED = """\
jinja2_chat_template: |
  {{ chat_template_data.system + '\\n' }}
  {% for turn in messages %}
  {{ (turn.role or turn['from']) + ':' }}
  {% if turn.role == chat_template_data.assistant %}
  {{ chat_template_data.tokens.begin }}
  {% else %}
  {{ " " }}
  {% endif %}
  {{ turn.value + '\\n'}}
  {% if loop.last %}
  {{ chat_template_data.tokens.end }}
  {% endif %}
  {% endfor %}
chat_template_data:
  assistant: "Assistant °"
  system: "Grüße </s> 世界"
  tokens: {begin: ^, end: $}
"""

TOJSON = """\
jinja2_chat_template: |
  {%- for turn in messages -%}
      {% if turn.weight is defined and turn.weight > 5 %}
          {{ raise_exception("never: " ~ turn.weight) }}
      {% endif %}
      {# a comment #}
      <|{{ turn['role'] or turn['from'] }}|>{{ turn | tojson }}
      {{ turn | tojson(indent=2, sort_keys=true) }}
      {{ chat_template_data.tools | tojson(ensure_ascii=true, separators=(',', ':')) }}
      {%- set ns = namespace(n=0) %}
      {%- for letter in turn.value %}{% set ns.n = ns.n + 1 %}{% endfor %}
      {{ ns.n }} {{ missing }}{{ ''.__class__ }}{{ turn.get('nothing') }} {{ 7 / 2 }} {{ 1e22 }}
  {% endfor %}
  {{ messages | length }}
  {{ messages | map(attribute='value') | map('upper') | join(' | ') }}
chat_template_data:
  tools: [{name: größe, args: {a: 1.5, b: [true, null, 1e3, .inf], day: 2024-01-01}}, "</script>"]
"""

DRAWING = """\
jinja2_chat_template: "{{ ['a', 'b', 'c', 'd'] | random }}{{ range(1000) | random }} {{ messages | length }}}\\n\
  {{ lipsum(1, false, 3, 9) }}"
chat_template_data: {}
"""

REFERRING = """\
jinja2_chat_template: ${chat_template_data.template}
chat_template_data:
  template: "{% for t in messages %}{{ t.value }}{% endfor %} ${settings.messages_key} ${chat_template_data.n}."
  n: ${settings.split_config.seed}
"""

CASES: dict[str, tuple[str, str, tuple[float, int, int], object, str]] = {  # data, dst, percentages, seed, the rest
    "split": ("nasty", "chat.jsonl", (60, 25, 15), 42, MARKED),
    "tojson": ("nasty", "chat.jsonl", (34, 33, 33), -7, TOJSON),
    "train_only": ("nasty", "chat.json", (100, 0, 0), 0, MARKED),
    "val_and_test": ("nasty", "chat", (0, 50, 50), 1 << 70, MARKED),
    "empty_partition": ("few", "chat.jsonl", (98, 1, 1), 3, MARKED),
    "drawing": ("nasty", "chat.jsonl", (40, 30, 30), 5, DRAWING),
    "referring": ("few", "chat.jsonl", (50.0, 25, 25), "'12'", REFERRING),
    "one_byte": ("few", "c.jsonl", (50, 30, 20), 9, MARKED),
}
KEYS = {"nasty": "messages", "few": "turns"}


def nasty_rows() -> list[str]:
    """JSON texts with what survives a round trip, and what changes in it."""
    rng = random.Random(20261121)
    rows = []
    for i in range(60):
        turns = [
            {rng.choice(("role", "from")): rng.choice(("human", "user", "gpt", "system", "")), "value": text(rng)}
            for _ in range(rng.randint(1, 5))
        ]
        row = {"id": i, "messages": turns, "extra": [i / 7, -0.0, 1e300, 10**40 + i, None, True, {"k": text(rng)}]}
        rows.append(json.dumps(row, ensure_ascii=rng.random() < 0.5))
    rows[3] = (
        '{"chat": "old", "messages": [{"role": "gpt", "from": "human", "value": "both", "weight": 1.0}], "n": NaN}'
    )
    rows[5] = (
        ' {"messages":[{"value":"x","role":"gpt"}],"a":1,"messages":[{"value":"twice","from":"user"}], "b":-Infinity} '
    )
    rows[7] = '{"messages": [], "f": [1E5, 1e-7, 123456789012345678901234567890, 0.1, 1.0, -0, 5e-324, 1E400]}'
    rows[9] = '{"messages": "", "u": "\\u00e9\\u2028\\ud83d\\ude42\\u0000\\u001f\\u007f\\/"}'
    rows[11] = '{"messages": {}, "": {"": []}}'
    rows[13] = '{"messages": [{"role": "", "value": "no name", "role2": "gpt"}]}'
    rows[15] = json.dumps({"messages": [{"role": "user", "value": "long " * 3000}]})
    return rows


def text(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 12)))


def few_rows() -> list[str]:
    return [json.dumps({"turns": [{"from": "human", "value": f"line {i}"}]}) for i in range(12)]


def write_inputs() -> None:
    for folder in ("configs", "data"):
        (HERE / folder).mkdir(parents=True, exist_ok=True)
    endings = ["\n", "\r\n", "\r"]
    rows = nasty_rows()
    lines = "".join(row + endings[i % 3] for i, row in enumerate(rows)).removesuffix("\r")
    (HERE / "data" / "nasty.jsonl").write_bytes(lines.encode())
    (HERE / "data" / "few.jsonl").write_bytes("".join(row + "\n" for row in few_rows()).encode())
    (HERE / "configs" / "packing.yaml").write_text(PACKING % "tok_bpe2000", encoding="utf-8")
    (HERE / "configs" / "packing_one_byte.yaml").write_text(PACKING % "tok_char250", encoding="utf-8")
    for case, (data, dst, percentages, seed, rest) in CASES.items():
        values = {"data": data, "key": KEYS[data], "dst": dst, "seed": seed, "case": case}
        values |= dict(zip(("train", "val", "test"), percentages, strict=True))
        values["packing"] = "packing_one_byte" if case == "one_byte" else "packing"
        config = SETTINGS.format(**values) + rest
        (HERE / "configs" / f"{case}.yaml").write_text(config, encoding="utf-8")


def main() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    write_inputs()
    from modalities.dataloader.create_instruction_tuning_data import create_instruction_tuning_data

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "chat"
        shutil.copytree(HERE, work, ignore=shutil.ignore_patterns("out"))
        shutil.copytree(HERE.parent / "tokenizers", Path(folder) / "tokenizers")
        os.chdir(work)
        for case in CASES:
            create_instruction_tuning_data(Path("configs") / f"{case}.yaml")
        shutil.rmtree(HERE / "out", ignore_errors=True)
        shutil.copytree(work / "out", HERE / "out")


if __name__ == "__main__":
    sys.exit(main())
