"""Run the body of a check cell in its own scope, so that answers do not see the check's variables.

A check works with variables such as `x`, `W` and `want`. If they were globals of the notebook, an answer that forgets
`self.` would find them and pass. `Lab` therefore registers a transformation with IPython: a cell with a top-level
`with lab.check(...)` becomes the body of a function, which is then called. Its variables are local to the cell and are
gone afterwards; functions, classes and imports of the cell stay global, since later cells use them.
"""

from __future__ import annotations

import ast

NAME = "check_cell"  # Name of the function, as tracebacks show it.
# Statements whose names stay in the notebook.
KEPT = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


class CheckScope(ast.NodeTransformer):
    """Turns a cell that checks an exercise into a function and a call of it."""

    def visit_Module(self, module: ast.Module) -> ast.Module:
        if not any(map(is_check, module.body)):
            return module
        kept = [name for node in module.body if isinstance(node, KEPT) for name in bound(node)]
        body = [ast.Global(kept)] if kept else []
        wrapper = ast.parse(f"def {NAME}(): pass\n{NAME}()\ndel {NAME}").body
        wrapper[0].body = body + module.body
        module.body = wrapper
        first = wrapper[0].body[-1]
        for node in [*wrapper, *body]:
            ast.copy_location(node, first)
        return ast.fix_missing_locations(module)


def is_check(node) -> bool:
    """Return whether a statement is `with lab.check(...)`."""
    return isinstance(node, ast.With) and any(
        isinstance(item.context_expr, ast.Call)
        and isinstance(item.context_expr.func, ast.Attribute)
        and item.context_expr.func.attr == "check"
        for item in node.items
    )


def install(shell) -> None:
    """Register the transformation with a shell, once."""
    if not any(isinstance(transformer, CheckScope) for transformer in shell.ast_transformers):
        shell.ast_transformers.append(CheckScope())


def bound(node) -> list[str]:
    """Return the names that such a statement gives a value."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    return [node.name]
