"""Sandboxed Jinja2 with the functions that the chat templates of language models use."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fastpack.errors import MissingExtra

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import ImmutableSandboxedEnvironment


class TemplateFault(ValueError):
    """The template failed on a conversation, or rejected it with `raise_exception`; the message has the reason."""


def new_environment(extensions: Sequence[Any] = ()) -> ImmutableSandboxedEnvironment:
    """Return an environment for untrusted templates; MissingExtra without Jinja2.

    Templates can access neither unsafe attributes nor files, cannot change the messages, and ranges are limited.
    """
    try:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise MissingExtra("jinja2", "chat", "a chat template") from None

    class Environment(ImmutableSandboxedEnvironment):
        def getattr(self, obj: Any, attribute: str) -> Any:
            """Return what the base class does; for keys of dicts without its exception per key."""
            if type(obj) is dict and attribute not in _DICT_ATTRIBUTES:
                return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
            return super().getattr(obj, attribute)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=list(extensions))
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = raise_exception
    return environment


def compile_source(environment: ImmutableSandboxedEnvironment, source: str, name: str) -> Template:
    """Return a compiled template; ValueError, which names it, for one that cannot be compiled."""
    import jinja2

    try:
        return environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"{name}: line {error.lineno}: {error.message}") from None
    except (jinja2.TemplateError, RecursionError, OverflowError, SyntaxError) as error:
        raise ValueError(f"{name}: {type(error).__name__}: {error}") from None


@contextlib.contextmanager
def template_faults() -> Iterator[None]:
    """Turn any error of a template into TemplateFault."""
    import jinja2

    try:
        yield
    except jinja2.TemplateError as error:
        raise TemplateFault(f"the template failed: {error.message}") from error
    except MemoryError:
        raise
    except Exception as error:  # any exception: the template can compute anything
        raise TemplateFault(f"the template failed: {type(error).__name__}: {error}") from error


_DICT_ATTRIBUTES = frozenset(dir(dict))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON without the HTML escapes of Jinja2's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
