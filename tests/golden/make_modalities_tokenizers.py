"""What Modalities' tokenizer wrappers answer, for directories of transformers/cases.json; run with Modalities 0.5.0."""

import json
import tempfile
import warnings
from pathlib import Path

from modalities.tokenization.tokenizer_wrapper import PreTrainedHFTokenizer

HERE = Path(__file__).parent
TEXTS = ["Hello world , this is n't 's ! fine ?", "x </s> <s> y <pad>", "Äöü 12 brown fox"]
DIRECTORIES = ("additional", "bert", "gpt2", "llama", "neox", "plain", "qwen2", "roberta", "xlmr")


def main() -> None:
    warnings.simplefilter("ignore")
    cases = json.loads((HERE / "transformers/cases.json").read_text(encoding="utf-8"))
    answers = []
    for name in DIRECTORIES:
        for cleans_up in (False, True):
            directory = cases["directories"][name]
            files = {**directory["files"], "tokenizer.json": cases["tokenizers"][directory["tokenizer"]]}
            config = {**files["tokenizer_config.json"], "clean_up_tokenization_spaces": cleans_up}
            files["tokenizer_config.json"] = config
            with tempfile.TemporaryDirectory() as folder:
                for file, content in files.items():
                    (Path(folder) / file).write_text(json.dumps(content), encoding="utf-8")
                answers.append({"directory": name, "cleans_up": cleans_up, **answer(PreTrainedHFTokenizer(folder))})
    target = HERE / "modalities/tokenizer_wrappers.json"
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in answers)
    target.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def answer(tokenizer: PreTrainedHFTokenizer) -> dict:
    ids = [tokenizer.tokenize(text) for text in TEXTS]
    return {
        "ids": ids,
        "decoded": [tokenizer.decode(i) for i in ids],
        "vocab_size": tokenizer.vocab_size,
        "special_tokens": tokenizer.special_tokens,
        "special": [i for i in range(tokenizer.vocab_size + 10) if tokenizer.is_special_token_id(i)],
    }


if __name__ == "__main__":
    main()
