"""The questions of `fastpack prepare`: those of Energon, in its order, answered on a terminal or through a pipe."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastpack.webdataset.prepare.dataset_yaml import Definition, Field
    from fastpack.webdataset.prepare.prepare_webdataset import PrepareResult
    from fastpack.webdataset.prepare.walk_shards import Walked

_SHOWN = 2  # samples of the first shard
_ITEMS, _CHARACTERS = 3, 25  # of lists and texts in JSON that is shown


class NoAnswer(RuntimeError):
    """The input ended before all questions were answered."""


class Assistant:
    """Asks for what the options do not say."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args

    def may_start(self) -> bool:
        """Whether a dataset that is already prepared may be prepared anew; says which shards were found."""
        from fastpack.webdataset import metadata as nvmeta
        from fastpack.webdataset.prepare.discover import find_shards

        args = self._args
        if nvmeta.is_prepared(args.path) and not (args.force_overwrite or args.resume):
            question = "It seems the dataset had already been prepared. Do you want to continue?"
            if not confirm(question, default=False):
                return False
        shards = find_shards(args.path, args.exclude)
        if shards and not args.quiet:
            print(f"{len(shards)} shards were found, from {shards[0]} to {shards[-1]}; --exclude leaves some out.")
        return True

    def ask_ratio(self) -> str:
        """The split as three numbers."""
        return str(ask('Please enter a desired train/val/test split like "0.5, 0.2, 0.3" or "8,1,1"'))

    def define(self, walked: Walked) -> Definition | None:
        """Show samples and ask what `dataset.yaml` is to say; None if none is wanted. Writes nothing."""
        from fastpack.webdataset.prepare.dataset_yaml import CRUDE, Definition
        from fastpack.webdataset.prepare.prepare_webdataset import part_types

        args, parts = self._args, part_types(walked)
        show_samples(args.path, walked.shards[0].name)
        if args.sample_type is None and not confirm(
            "Do you want to create a dataset.yaml interactively?", default=True
        ):
            print("You will have to add a dataset.yaml manually.")
            return None
        sample_type = args.sample_type or self._choose_type()
        if sample_type == CRUDE:
            print("Its samples are plain dicts: the training script needs a cooker for them.")
            return Definition(sample_type)
        field_map = self._ask_field_map(sample_type, parts)
        return Definition(sample_type, field_map, keep_loader=field_map is not None or self._keeps_loader())

    def finish(self, result: PrepareResult) -> None:
        """Say what was written for the user to edit."""
        from fastpack.webdataset import metadata as nvmeta
        from fastpack.webdataset.prepare.dataset_yaml import LOADER

        if LOADER in result.files:
            print(f"{nvmeta.meta_path(result.path, LOADER)} is a template for you to finish.")
        if self._args.dataset_yaml_name in result.files:
            print("Done")

    def _choose_type(self) -> str:
        from fastpack.webdataset.prepare.dataset_yaml import NAMES

        print("These are the types of samples:")
        for number, name in enumerate(NAMES):
            print(f"{number}. {name}")
        chosen: int = ask("Please enter a number to choose a class", lambda text: _number(text, len(NAMES)))
        return NAMES[chosen]

    def _ask_field_map(self, sample_type: str, parts: list[str]) -> dict[str, str] | None:
        from fastpack.webdataset.prepare.dataset_yaml import FEW_PARTS, SAMPLE_TYPES

        if len(parts) > FEW_PARTS:
            print("There are too many kinds of parts for a field map: a sample_loader is needed.")
            return None
        fields = SAMPLE_TYPES[sample_type]
        for field in fields:
            print(f"    {field.name}: {field.type}" + ("" if field.default is None else f" = {field.default}"))
        question = "Do you want to set a simple field_map[Y] (or write your own sample_loader [n])?"
        if not confirm(question, default=True):
            return None
        print(
            f"The parts are: {', '.join(parts)}. JSON: json[name][name]; alternatives: jpg,png; nothing: no such field"
        )
        answers = {field.name: _ask_field(field, parts) for field in fields}
        return {name: answer for name, answer in answers.items() if answer}

    def _keeps_loader(self) -> bool:
        from fastpack.webdataset import metadata as nvmeta
        from fastpack.webdataset.prepare.dataset_yaml import LOADER

        there = nvmeta.meta_path(self._args.path, LOADER).is_file()
        return not (there and confirm("Do you want to override the existing sample loader?", default=False))


def ask(question: str, check: Callable[[str], Any] = str) -> Any:
    """What `check` makes of the answer; asked again after an empty one and after a ValueError."""
    while True:
        answer = _read(f"{question}: ").strip()
        if answer:
            try:
                return check(answer)
            except ValueError as error:
                print(f"Error: {error}")


def confirm(question: str, default: bool) -> bool:
    """Yes or no; an empty answer is the default."""
    answers = {"y": True, "yes": True, "n": False, "no": False, "": default}
    while True:
        answer = _read(f"{question} [{'Y/n' if default else 'y/N'}]: ").strip().lower()
        if answer in answers:
            return answers[answer]
        print("Error: invalid input")


def _read(prompt: str) -> str:
    try:
        return input(prompt)
    except EOFError:
        print()
        raise NoAnswer("the input ended before all questions were answered (--non-interactive asks none)") from None


def _number(text: str, end: int) -> int:
    number = int(text) if text.isdecimal() else end
    if number >= end:
        raise ValueError(f"{text!r} is no number from 0 to {end - 1}")
    return number


def _ask_field(field: Field, parts: list[str]) -> str:
    default = "" if field.default is None else f", default: {field.default}"
    while True:
        answer = _read(f"Please enter a webdataset field name for '{field.name}' ({field.type}{default}): ")
        if not answer and default:
            return ""
        if all(option.split("[", 1)[0] in parts for option in answer.split(",")):
            return answer
        print("There is no such part. Please try again.")


def show_samples(folder: str, name: str) -> None:
    """Print the parts of the first two samples of the shard `name`, and their JSON, shortened."""
    import numpy as np

    from fastpack.io import open_reader
    from fastpack.webdataset.shard_index import scan_shard

    path = os.path.join(folder, name)
    scan, shard = scan_shard(path), open_reader(path)
    columns = (scan.part_samples.tolist(), scan.part_names, scan.part_offsets.tolist(), scan.part_sizes.tolist())
    shown = -1
    for number, part, offset, n_bytes in zip(*columns, strict=True):
        if number >= _SHOWN:
            break
        if number > shown:
            shown = number
            print(f"sample {number} of {name}:")
        print(f" - {part.decode()}")
        if part == b"json":
            content = np.empty(n_bytes, np.uint8)
            shard.read_into(content, offset)
            print(_shown_json(content.tobytes()))


def _shown_json(content: bytes) -> str:
    try:
        return json.dumps(_shortened(json.loads(content)), indent=2)
    except ValueError:
        return f"   (no JSON: {content[:_CHARACTERS]!r})"


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shortened(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value[:_ITEMS]] + ["..."] * (len(value) > _ITEMS)
    if isinstance(value, str) and len(value) > _CHARACTERS:
        return f"{value[:_CHARACTERS]}..."
    return value
