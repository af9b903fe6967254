"""`fastpack init`: ask three questions, and write a script that packs the answers' data and trains on them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from fastpack.cli.failures import UsageError
from fastpack.cli.options import Commands, add_if_exists_option, at_least, new_command, output_group
from fastpack.cli.output import emit

if TYPE_CHECKING:
    from fastpack.tokenizers.interface import Tokenizer

SAMPLE = "sample"  # the data of a script that makes its own
FRAMEWORKS = ("torch", "numpy")
_SUFFIXES = (".jsonl", ".ndjson", ".parquet", ".arrow", ".csv", ".tsv", ".txt")
_EOS_TOKENS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]")  # in the order of preference


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `init`."""
    parser = new_command(
        commands,
        "init",
        run=run_init,
        help="write a starter script that packs your data and trains",
        about="Ask for the data, the tokenizer and the framework, and write a script that packs the data, trains on "
        "them and continues where it stopped. A question whose option is given is not asked.",
        example="fastpack init        (or: fastpack init train.py --data 'crawl/*.jsonl' --tokenizer bytes "
        "--framework numpy)",
    )
    output_group(parser).add_argument(
        "script", metavar="FILE", nargs="?", default="train.py", help="the script (default: train.py)"
    )
    parser.add_argument(
        "--data",
        metavar="SRC",
        help=f"what `pack` takes: a file, a folder or a pattern of JSONL, Parquet, Arrow, CSV or text; `{SAMPLE}`: the "
        "sources of Python's standard library",
    )
    parser.add_argument("--tokenizer", metavar="T", help="`bytes`, or a tokenizer as for `pack`")
    parser.add_argument("--framework", choices=FRAMEWORKS, help="tensors of torch, or NumPy arrays for any other")
    parser.add_argument("--non-interactive", action="store_true", help="take the default answers instead of asking")
    parser.add_argument("--seq-len", type=at_least(2), default=512, metavar="N", help="tokens per row (512)")
    parser.add_argument("--batch-size", type=at_least(1), default=4, metavar="N", help="rows per step (4)")
    parser.add_argument("--text-field", metavar="NAME", default="text", help="key or column of the text (text)")
    parser.add_argument(
        "--eos-token",
        metavar="E",
        help="the token that ends each document (default: the tokenizer's own)",
    )
    add_if_exists_option(parser)
    return [parser]


class Answers(NamedTuple):
    """What the script depends on."""

    data: str
    tokenizer: str
    framework: str


def run_init(args: argparse.Namespace) -> int:
    """Ask, check the answers, and write the script; return the exit code."""
    from fastpack.io import AtomicFile, may_write
    from fastpack.tokenizers.decode import TokenDecoder

    result = {"path": args.script, "data": None, "tokenizer": None, "framework": None, "written": False}
    if not may_write(args.script, args.if_exists):
        emit(args, result, [f"{args.script}: exists, kept"])
        return 0
    answers = Answers(
        args.data or _ask(args, f"Data: a file, folder or pattern, or {SAMPLE!r}", _default_data(), _check_data),
        args.tokenizer or _ask(args, "Tokenizer: bytes, a file, a folder or ORG/NAME", "bytes", _tokenizer),
        args.framework or _ask(args, f"Framework: {' or '.join(FRAMEWORKS)}", _default_framework(), _check_framework),
    )
    _check_data(answers.data)
    tokenizer = _tokenizer(answers.tokenizer)
    eos_token = args.eos_token or _eos_token(answers.tokenizer, tokenizer)
    _check_texts(args, answers, eos_token)
    n_ids = max(TokenDecoder(tokenizer).vocab_size, tokenizer.eod_id(eos_token) + 1)
    with AtomicFile(args.script) as file:
        file.write(_script(args, answers, eos_token, n_ids).encode())
    emit(args, {**result, **answers._asdict(), "written": True}, [f"{args.script}: run it by `python {args.script}`"])
    return 0


def _ask(args: argparse.Namespace, question: str, default: str, check: Callable[[str], object]) -> str:
    """Return the answer to a question, or the default if nothing is to be asked or only enter is pressed.

    check: raises what is wrong with an answer, and the question is repeated.
    """
    if args.non_interactive or args.json:
        return default
    from fastpack.cli.prepare_assistant import read_answer

    while True:
        answer = read_answer(f"{question} [{default}]: ").strip() or default
        try:
            check(answer)
        except (OSError, ValueError, ImportError) as error:
            print(f"Error: {error}")
        else:
            return answer


def _default_data() -> str:
    """Return the first file in the current folder that could be data."""
    names = sorted(name for name in os.listdir() if os.path.isfile(name))
    return next((name for suffix in _SUFFIXES for name in names if name.endswith(suffix)), SAMPLE)


def _default_framework() -> str:
    from importlib.util import find_spec

    return FRAMEWORKS[find_spec("torch") is None]


def _check_framework(name: str) -> None:
    if name not in FRAMEWORKS:
        raise ValueError(f"{name!r} is neither {' nor '.join(FRAMEWORKS)}")


def _check_data(data: str) -> None:
    """Raise if there are no such files."""
    if data != SAMPLE:
        from fastpack.documents.source_paths import find_sources

        find_sources(data)


def _tokenizer(name: str) -> Tokenizer:
    from fastpack.errors import vocabulary
    from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

    with vocabulary({"tokenizer.config.pretrained_model_name_or_path": "--tokenizer"}):
        return TokenizerSpec.from_name(name).build()


def _eos_token(name: str, tokenizer: Tokenizer) -> str:
    """Return the token that ends documents: the tokenizer's own, or a special token with a usual name."""
    from fastpack.errors import vocabulary
    from fastpack.packing.pack import missing_eos_text
    from fastpack.tokenizers.decode import TokenDecoder

    number = TokenDecoder(tokenizer).eos()
    own = None if number is None else tokenizer.token_of_id(number)
    if own is not None:
        return own
    special = tokenizer.special_names()
    for token in (*_EOS_TOKENS, *special[: len(special) == 1]):
        if token in special:
            return token
    with vocabulary({"settings.eod_token": "--eos-token"}):
        raise UsageError(missing_eos_text(name))


def _check_texts(args: argparse.Namespace, answers: Answers, eos_token: str) -> None:
    """Raise if a sample of the documents has no texts to pack."""
    if answers.data == SAMPLE:
        return
    from fastpack.packing.pack_estimate import estimate_pack
    from fastpack.packing.settings import field_pattern, settings_of
    from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

    settings = settings_of(
        answers.data,
        _outputs(answers.data) + ".pbin",
        tokenizer=TokenizerSpec.from_name(answers.tokenizer),
        text_pattern=field_pattern(args.text_field),
        eos_token=eos_token,
        if_exists="overwrite",
    )
    if all(planned.source_bytes == 0 or planned.estimated_tokens == 0 for planned in estimate_pack(settings)):
        raise UsageError(f"{answers.data}: no text under {args.text_field!r}. Pass --text-field with the right name.")


def _outputs(data: str) -> str:
    """Return the name of the files that the script writes into the current folder, without suffix."""
    name = os.path.basename(data).split(".")[0]
    return name if name and name.isidentifier() else "corpus"


def _script(args: argparse.Namespace, answers: Answers, eos_token: str, n_ids: int) -> str:
    """Return the text of the script."""
    from fastpack.cli.starter_script import starter_script

    return starter_script(
        name=os.path.basename(args.script),
        data=None if answers.data == SAMPLE else answers.data,
        tokenizer=answers.tokenizer,
        eos_token=eos_token,
        text_field=args.text_field,
        outputs=_outputs(answers.data),
        with_torch=answers.framework == "torch",
        numbers=(args.seq_len, args.batch_size, n_ids),
    )
