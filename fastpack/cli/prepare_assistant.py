"""The interactive assistant of `fastpack prepare`: Energon's questions in its order, on a terminal or from a pipe."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastpack.webdataset.preparation.dataset_yaml import Field, SampleTypeSpec
    from fastpack.webdataset.preparation.prepare_webdataset import PrepareResult
    from fastpack.webdataset.preparation.walk_shards import WalkSummary

_N_SHOWN = 2  # samples of the first shard
_MAX_ITEMS, _MAX_CHARACTERS = 3, 25  # of lists and strings in JSON


class NoAnswer(RuntimeError):
    """The input ended before all questions were answered."""


class Assistant:
    """Ask for options that were not given."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args

    def may_start(self) -> bool:
        """Ask whether a prepared dataset may be prepared again; print the shards found."""
        from fastpack.webdataset import metadata as nvmeta
        from fastpack.webdataset.preparation.discover import find_shards

        args = self._args
        if nvmeta.is_prepared(args.path) and not (args.force_overwrite or args.resume):
            question = "It seems the dataset had already been prepared. Do you want to continue?"
            if not confirm(question, default=False):
                return False
        shards = find_shards(args.path, args.exclude)
        if shards and not args.quiet:
            print(f"{len(shards)} shards were found, from {shards[0]} to {shards[-1]}; --exclude excludes some.")
        return True

    def ask_ratio(self) -> str:
        """Ask for the split ratio."""
        return str(ask('Please enter a desired train/val/test split like "0.5, 0.2, 0.3" or "8,1,1"'))

    def define(self, summary: WalkSummary) -> SampleTypeSpec | None:
        """Show samples and ask for the contents of `dataset.yaml`; None if it is not written."""
        from fastpack.webdataset.preparation.dataset_yaml import CRUDE, SampleTypeSpec

        args = self._args
        show_samples(args.path, summary.shards[0].name)
        if args.sample_type is None and not confirm(
            "Do you want to create a dataset.yaml interactively?", default=True
        ):
            print("You will have to add a dataset.yaml manually.")
            return None
        sample_type = args.sample_type or self._choose_type()
        if sample_type == CRUDE:
            print("Its samples are plain dicts; the training script needs a cooker for them.")
            return SampleTypeSpec(sample_type, None, args.dataset_yaml_name)
        field_map = self._ask_field_map(sample_type, summary.field_names)
        keep_loader = field_map is not None or self._keeps_loader()
        return SampleTypeSpec(sample_type, field_map, args.dataset_yaml_name, keep_loader)

    def finish(self, result: PrepareResult) -> None:
        """Print which files the user has to edit."""
        from fastpack.webdataset import metadata as nvmeta
        from fastpack.webdataset.preparation.dataset_yaml import LOADER

        if LOADER in result.files:
            print(f"{nvmeta.meta_path(result.path, LOADER)} is a template. Complete it before you load the dataset.")
        if self._args.dataset_yaml_name in result.files:
            print("Done")

    def _choose_type(self) -> str:
        from fastpack.webdataset.preparation.dataset_yaml import SAMPLE_TYPE_NAMES

        print("These are the types of samples:")
        for number, name in enumerate(SAMPLE_TYPE_NAMES):
            print(f"{number}. {name}")
        chosen: int = ask("Please enter a number to choose a class", lambda text: _number(text, len(SAMPLE_TYPE_NAMES)))
        return SAMPLE_TYPE_NAMES[chosen]

    def _ask_field_map(self, sample_type: str, stored: list[str]) -> dict[str, str] | None:
        from fastpack.webdataset.preparation.dataset_yaml import MAX_LISTED_FIELDS, SAMPLE_TYPES

        if len(stored) > MAX_LISTED_FIELDS:
            print("There are too many stored fields for a field map: a sample_loader is needed.")
            return None
        fields = SAMPLE_TYPES[sample_type]
        for field in fields:
            print(f"    {field.name}: {field.type}" + ("" if field.default is None else f" = {field.default}"))
        question = "Do you want to set a simple field_map[Y] (or write your own sample_loader [n])?"
        if not confirm(question, default=True):
            return None
        print(
            f"The stored fields are: {', '.join(stored)}. "
            "JSON: json[name][name]; alternatives: jpg,png; empty: omit the field"
        )
        answers = {field.name: _ask_field(field, stored) for field in fields}
        return {name: answer for name, answer in answers.items() if answer}

    def _keeps_loader(self) -> bool:
        from fastpack.webdataset import metadata as nvmeta
        from fastpack.webdataset.preparation.dataset_yaml import LOADER

        exists = nvmeta.meta_path(self._args.path, LOADER).is_file()
        return not (exists and confirm("Do you want to override the existing sample loader?", default=False))


def ask(question: str, check: Callable[[str], Any] = str) -> Any:
    """Return `check(answer)`; repeat the question after an empty answer or a ValueError."""
    while True:
        answer = read_answer(f"{question}: ").strip()
        if answer:
            try:
                return check(answer)
            except ValueError as error:
                print(f"Error: {error}")


def confirm(question: str, default: bool) -> bool:
    """Ask a yes-or-no question; an empty answer is the default."""
    answers = {"y": True, "yes": True, "n": False, "no": False, "": default}
    while True:
        answer = read_answer(f"{question} [{'Y/n' if default else 'y/N'}]: ").strip().lower()
        if answer in answers:
            return answers[answer]
        print("Error: invalid input")


def read_answer(prompt: str) -> str:
    """Return the answer from the terminal or a pipe; NoAnswer at its end."""
    try:
        return input(prompt)
    except EOFError:
        print()
        raise NoAnswer("the input ended before all questions were answered (--non-interactive asks none)") from None


def _number(text: str, end: int) -> int:
    number = int(text) if text.isdecimal() else end
    if number >= end:
        raise ValueError(f"{text!r} is not a number from 0 to {end - 1}")
    return number


def _ask_field(field: Field, stored: list[str]) -> str:
    default = "" if field.default is None else f", default: {field.default}"
    while True:
        answer = read_answer(f"Please enter a webdataset field name for '{field.name}' ({field.type}{default}): ")
        if not answer and default:
            return ""
        if all(option.split("[", 1)[0] in stored for option in answer.split(",")):
            return answer
        print("There is no such stored field. Please try again.")


def show_samples(folder: str, name: str) -> None:
    """Print the stored fields of the first two samples of a shard, and their JSON, shortened."""
    import numpy as np

    from fastpack.io import open_reader
    from fastpack.webdataset.shard_index import scan_shard

    path = os.path.join(folder, name)
    scan, shard = scan_shard(path), open_reader(path)
    columns = (scan.field_samples.tolist(), scan.field_names, scan.field_offsets.tolist(), scan.field_sizes.tolist())
    shown = -1
    for number, field, offset, n_bytes in zip(*columns, strict=True):
        if number >= _N_SHOWN:
            break
        if number > shown:
            shown = number
            print(f"sample {number} of {name}:")
        print(f" - {field.decode()}")
        if field == b"json":
            content = np.empty(n_bytes, np.uint8)
            shard.read_into(content, offset)
            print(_shown_json(content.tobytes()))


def _shown_json(content: bytes) -> str:
    try:
        return json.dumps(_shortened(json.loads(content)), indent=2)
    except ValueError:
        return f"   (not JSON: {content[:_MAX_CHARACTERS]!r})"


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shortened(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value[:_MAX_ITEMS]] + ["..."] * (len(value) > _MAX_ITEMS)
    if isinstance(value, str) and len(value) > _MAX_CHARACTERS:
        return f"{value[:_MAX_CHARACTERS]}..."
    return value
