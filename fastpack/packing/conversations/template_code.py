"""Python code of templates that reads keys of dicts without a call. Needs Jinja2."""

from __future__ import annotations

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame

_DICT_ATTRIBUTES = frozenset(dir(dict))


class DictCodeGenerator(CodeGenerator):
    """Generate the same code as Jinja2, except that `m.key` and `m["key"]` of a dict `m` are read in place.

    The sandbox gives the same values: it prefers attributes of dicts, such as `items`, which are not read in place.
    """

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:  # noqa: N802  # as Jinja2 calls it
        """Write the code of `m.key`."""
        if node.attr in _DICT_ATTRIBUTES:
            super().visit_Getattr(node, frame)
        else:
            self._write_key("getattr", node.node, node.attr, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        """Write the code of `m["key"]`."""
        if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
            self._write_key("getitem", node.node, node.arg.value, frame)
        else:
            super().visit_Getitem(node, frame)

    def visit_ExprStmt(self, node: nodes.ExprStmt, frame: Frame) -> None:  # noqa: N802
        """Write the call of a method of an extension, without the checks of the sandbox."""
        super().visit_ExprStmt(node, frame)
        if isinstance(node.node, nodes.ExtensionAttribute):
            self.write("()")

    def _write_key(self, method: str, owner: nodes.Expr, key: str, frame: Frame) -> None:
        name = self.temporary_identifier()
        self.write(f"({name}[{key!r}] if type({name} := ")
        self.visit(owner, frame)
        self.write(f") is dict and {key!r} in {name} else environment.{method}({name}, {key!r}))")
