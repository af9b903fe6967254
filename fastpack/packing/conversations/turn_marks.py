"""Marks in a template that tell the texts of all prefixes of a conversation without rendering them. Needs Jinja2.

Most templates render one message after another, so that the text of the first messages begins the text of all. Such a
template has one loop over the messages, at its top level, and after it only text that does not depend on them. Each
turn of the loop is marked. What could differ for a prefix, such as `loop.last` or `messages[-1]`, is marked, too: where
a conversation evaluates it, its prefixes have to be rendered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

MESSAGES, PROMPT, LOOP = "messages", "add_generation_prompt", "loop"
_Node = TypeVar("_Node", bound=nodes.Node)
_SAFE = frozenset(("first", "index", "index0", "depth", "depth0", "previtem", "cycle", "changed"))  # attributes of loop
_REFUSED = (nodes.Block, nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport, nodes.Break)
_AFTER = (
    *(nodes.Output, nodes.TemplateData, nodes.If, nodes.Name, nodes.Const, nodes.Not, nodes.And, nodes.Or),
    *(nodes.Compare, nodes.Operand, nodes.Add, nodes.Concat, nodes.CondExpr, nodes.Test),
)


def mark_turns(tree: nodes.Template, extension: str) -> int | None:
    """Insert the marks, which call `turn()` and `beyond(value)` of a Jinja2 extension.

    Return the smallest number of messages of a prefix that the marks describe; None for a template without marks,
    which is not changed.
    """
    body = [statement for statement in tree.body if not _defines_prompt(statement)]
    stored = [name.name for name in _all(body, nodes.Name) if name.ctx != "load"]
    stored += [macro.name for macro in _all(body, nodes.Macro)]
    aliases = _aliases(body, stored)
    loops = [n for n, node in enumerate(body) if isinstance(node, nodes.For) and _is_messages(node.iter, aliases)]
    if not loops:
        return None
    loop, after = body[loops[-1]], body[loops[-1] + 1 :]
    assert isinstance(loop, nodes.For)
    in_loop = {name.name for name in _all([*loop.body, *after], nodes.Name) if name.ctx != "load"}
    if (
        loop.test is not None
        or loop.recursive
        or loop.else_
        or {MESSAGES, PROMPT, LOOP} & {*stored}
        or aliases & in_loop
        or any(isinstance(node, _REFUSED) for node in _all(body, nodes.Node))
        or any(one.name == "random" for one in _all(body, nodes.Filter))  # and the function lipsum
        or any(one.name == "lipsum" for one in _all(body, nodes.Name))
        or not all(isinstance(node, _AFTER) for node in _all(after, nodes.Node))
        or {MESSAGES, "tools", *stored} & {name.name for name in _all(after, nodes.Name)}
    ):
        return None
    marks = _Marks(loop, aliases, extension)
    for n in range(loops[-1] + 1):
        body[n] = marks.visit(body[n])
    loop.body.insert(0, marks.turn())
    body.insert(loops[-1] + 1, marks.turn())
    tree.body = body
    return marks.n_needed


class _Marks(NodeTransformer):
    """Mark what could differ for a prefix. n_needed: the smallest number of messages that has `messages[0]` etc."""

    def __init__(self, loop: nodes.For, aliases: frozenset[str], extension: str) -> None:
        self.n_needed = 0
        self._loop, self._aliases, self._extension = loop, aliases, extension
        self._inside = False  # whether the name `loop` means this loop

    def turn(self) -> nodes.Stmt:
        statement = nodes.ExprStmt(nodes.ExtensionAttribute(self._extension, "turn"))
        statement.set_lineno(self._loop.lineno)
        return statement

    def visit_Name(self, node: nodes.Name) -> nodes.Node:  # noqa: N802  # as Jinja2 calls it
        """Mark a use of the messages, of `loop`, or of the generation prompt."""
        watched = node.name in (MESSAGES, PROMPT) or node.name in self._aliases or (node.name == LOOP and self._inside)
        if not watched or node.ctx != "load":
            return node
        mark = nodes.ExtensionAttribute(self._extension, "beyond")
        return nodes.Call(mark, [node], [], None, None).set_lineno(node.lineno)

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:  # noqa: N802
        """Leave `loop.first` and the like."""
        is_safe = isinstance(node.node, nodes.Name) and node.node.name == LOOP and node.attr in _SAFE
        return node if is_safe else self.generic_visit(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        """Leave `messages[0]` and the like."""
        if isinstance(node.node, nodes.Name) and node.node.name == MESSAGES and _is_count(node.arg):
            assert isinstance(node.arg, nodes.Const)
            self.n_needed = max(self.n_needed, node.arg.value + 1)
            return node
        return self.generic_visit(node)

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node:  # noqa: N802
        """Leave the definition of an alias, except for its conditions."""
        if not (isinstance(node.target, nodes.Name) and node.target.name in self._aliases):
            return self.generic_visit(node)
        self._visit_conditions(node.node)
        return node

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        """Mark the parts of a loop, in which `loop` has another meaning."""
        if node is self._loop:
            self._visit_conditions(node.iter)
        else:
            node.iter = self.visit(node.iter)
        before, self._inside = self._inside, node is self._loop
        node.test = None if node.test is None else self.visit(node.test)
        node.body = [self.visit(statement) for statement in node.body]
        self._inside = before
        node.else_ = [self.visit(statement) for statement in node.else_]
        return node

    def _visit_conditions(self, node: nodes.Node | None) -> None:
        """Visit the conditions of an expression that is the messages."""
        if isinstance(node, nodes.CondExpr):
            node.test = self.visit(node.test)
            self._visit_conditions(node.expr1)
            self._visit_conditions(node.expr2)


def _all(statements: list[nodes.Node], kind: type[_Node]) -> Iterator[_Node]:
    for statement in statements:
        if isinstance(statement, kind):
            yield statement
        yield from statement.find_all(kind)


def _defines_prompt(node: nodes.Node) -> bool:
    """Return whether a statement defines `add_generation_prompt` if it is not defined, which it always is."""
    if not isinstance(node, nodes.If) or node.elif_ or node.else_ or not isinstance(node.test, nodes.Not):
        return False
    test = node.test.node
    if not isinstance(test, nodes.Test) or test.name != "defined":
        return False
    return isinstance(test.node, nodes.Name) and test.node.name == PROMPT


def _aliases(body: list[nodes.Node], stored: list[str]) -> frozenset[str]:
    """Return the names that mean the messages, or the messages without the first ones, wherever they are assigned."""
    assigned = [(one.target, one.node) for one in _all(body, nodes.Assign)]
    names = [target.name for target, value in assigned if isinstance(target, nodes.Name) and _is_messages(value)]
    return frozenset(name for name in names if names.count(name) == stored.count(name))


def _is_messages(node: nodes.Node | None, aliases: frozenset[str] = frozenset()) -> bool:
    if isinstance(node, nodes.CondExpr):
        return _is_messages(node.expr1) and _is_messages(node.expr2)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        rest = node.arg
        return rest.stop is None and rest.step is None and _is_count(rest.start) and _is_messages(node.node)
    return isinstance(node, nodes.Name) and (node.name == MESSAGES or node.name in aliases)


def _is_count(node: nodes.Node | None) -> bool:
    return isinstance(node, nodes.Const) and type(node.value) is int and node.value >= 0
