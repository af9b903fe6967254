"""Sandboxed Jinja2 with the functions that the chat templates of language models use."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fastpack.errors import MissingExtra

if TYPE_CHECKING:
    from jinja2 import Template, nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment


class TemplateFault(ValueError):
    """The template failed on a conversation, or rejected it with `raise_exception`; the message has the reason."""


def new_environment(extensions: Sequence[Any] = ()) -> ImmutableSandboxedEnvironment:
    """Return an environment for untrusted templates; MissingExtra without Jinja2.

    Templates can access neither unsafe attributes nor files, cannot change the messages, and ranges are limited.
    """
    try:
        import jinja2
        from jinja2.runtime import LoopContext
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        from fastpack.packing.conversations.template_code import DictCodeGenerator
    except ImportError:
        raise MissingExtra("jinja2", "chat", "a chat template") from None

    class Environment(ImmutableSandboxedEnvironment):
        code_generator_class = DictCodeGenerator

        def getattr(self, obj: Any, attribute: str) -> Any:
            """Return what the base class does; of common types without its checks."""
            kind = type(obj)
            if kind is dict and attribute not in _DICT_ATTRIBUTES:
                return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
            if (kind is str and attribute in _STR_METHODS) or (kind is LoopContext and attribute in _LOOP_ATTRIBUTES):
                return getattr(obj, attribute)
            return super().getattr(obj, attribute)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=list(extensions))
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = raise_exception
    return environment


def compile_source(
    environment: ImmutableSandboxedEnvironment,
    source: str,
    name: str,
    change: Callable[[nodes.Template], None] | None = None,
) -> Template:
    """Return a compiled template; ValueError, which names it, for one that cannot be compiled.

    change: is called with the parsed template before it is compiled.
    """
    import jinja2

    try:
        tree = environment.parse(source)
        if change is not None:
            change(tree)
        return environment.from_string(tree)
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"{name}: line {error.lineno}: {error.message}") from None
    except (jinja2.TemplateError, RecursionError, OverflowError, SyntaxError) as error:
        raise ValueError(f"{name}: {type(error).__name__}: {error}") from None


@contextlib.contextmanager
def template_faults() -> Iterator[None]:
    """Turn any error of a template into TemplateFault."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # any exception: the template can compute anything
        raise template_fault(error) from error


def template_fault(error: Exception) -> TemplateFault:
    """Return the error of a template as a TemplateFault."""
    import jinja2

    reason = error.message if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {error}"
    return TemplateFault(f"the template failed: {reason}")


_DICT_ATTRIBUTES = frozenset(dir(dict))
_STR_METHODS = frozenset(("endswith", "lstrip", "replace", "rstrip", "split", "startswith", "strip"))
_LOOP_ATTRIBUTES = frozenset(("first", "index", "index0", "last"))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON without the HTML escapes of Jinja2's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
