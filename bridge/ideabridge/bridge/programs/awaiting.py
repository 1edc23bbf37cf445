"""Find the calls in a program whose results are never awaited.

A call starts where it is made, and `await` returns its result. A program can therefore make calls
first and await them later, one by one or with `asyncio.gather`. This file finds calls that are
certainly never awaited: the value of the call is thrown away, or it is used where only the result
can be meant, as in `git.log()["x"]` or `f"{git.log()}"`. The interpreter's type checker finds some
of these calls, but does not say what to write instead.

Calls that might be awaited elsewhere are not reported: they are passed on, returned by a plain
function, stored in a list, or held by a variable that is also used in other ways.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_READERS: Final = frozenset(
    {
        *(
            "abs",
            "all",
            "any",
            "bool",
            "dict",
            "enumerate",
            "float",
            "int",
            "len",
            "list",
            "max",
            "min",
            "print",
        ),
        *("range", "repr", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip"),
    }
)
"""Built-in functions that read a value and await nothing."""

_WAITS: Final = frozenset({"gather", "sleep"})
"""Functions of `asyncio` whose values must be awaited, too."""

_ROUNDS: Final = 3
"""The maximum length of a chain of functions in which each function returns a call to the next.
Calls through longer chains are not recognised. Each function in the chain costs one pass over the
program.
"""

_CONTAINERS: Final = (
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Dict,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
)


@dataclass(frozen=True, slots=True)
class Unawaited:
    """A call whose result is not awaited where it is needed.

    Attributes:
        line: the line of the call, from 1.
        column: the column of the call, from 1.
        text: what is wrong, and what to write instead.
    """

    line: int
    column: int
    text: str


def unawaited(
    tree: ast.Module, tools: Mapping[str, frozenset[str]], functions: frozenset[str]
) -> list[Unawaited]:
    """Return the calls in a program whose values are useless without `await`.

    Args:
        tree: the program.
        tools: the names of the functions in each module that can be imported.
        functions: the global functions whose values must be awaited.
    """
    return sorted(
        _Program(tree, tools, functions).find(), key=lambda call: (call.line, call.column)
    )


class _Program:
    def __init__(
        self, tree: ast.Module, tools: Mapping[str, frozenset[str]], functions: frozenset[str]
    ) -> None:
        self._nodes = [*ast.walk(tree)]
        self._tools = {**tools, "asyncio": _WAITS}
        self._parents: dict[ast.AST, ast.AST] = {}
        # For each name, the nodes that bind it, and the nodes that read it.
        self._bound: dict[str, list[ast.AST]] = {}
        self._read: dict[str, list[ast.Name]] = {}
        self._awaits_twice = False
        for node in self._nodes:
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node
            self._note(node)

        self._modules, self._functions = self._imported()
        self._functions |= {name for name in functions if name not in self._bound}
        self._add_functions()

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                self._read.setdefault(name, []).append(node)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                self._bound.setdefault(name, []).append(node)
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                self._bound.setdefault(name, []).append(node)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                for alias in names:
                    self._bound.setdefault(
                        (alias.asname or alias.name).partition(".")[0], []
                    ).append(node)
            case ast.Await(value=ast.Await()):
                self._awaits_twice = True
            case _:
                pass

    def _add_functions(self) -> None:
        """Add the functions of the program whose values must be awaited: those defined with `async
        def`, and those that return calls to such functions.
        """
        own = [
            node for node in self._nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        own = [node for node in own if len(self._bound[node.name]) == 1]
        own = [node for node in own if not isinstance(self._parents[node], ast.ClassDef)]
        for _ in range(_ROUNDS):
            self._functions |= {node.name for node in own if self._gives_call(node)}

    def _gives_call(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        parts = [*ast.walk(node)]
        if any(isinstance(part, ast.Yield | ast.YieldFrom) for part in parts):
            return False
        if isinstance(node, ast.AsyncFunctionDef):
            return True

        returned = [part.value for part in parts if isinstance(part, ast.Return)]
        return bool(returned) and all(
            value is not None and self._starts(value) for value in returned
        )

    def _imported(self) -> tuple[dict[str, str], set[str]]:
        """Return the modules with tools, keyed by their names in the program, and the functions
        that are imported from them.

        Names that are also bound elsewhere are left out, because they might mean something else.
        """
        modules: dict[str, str] = {}
        functions: set[str] = set()
        for node in self._nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name
                    if alias.name in self._tools and self._is_import(name):
                        modules[name] = alias.name
            elif isinstance(node, ast.ImportFrom) and node.module in self._tools:
                names = {alias.asname or alias.name: alias.name for alias in node.names}
                functions |= {
                    name
                    for name, real in names.items()
                    if real in self._tools[str(node.module)] and self._is_import(name)
                }

        return modules, functions

    def _is_import(self, name: str) -> bool:
        return all(isinstance(node, ast.Import | ast.ImportFrom) for node in self._bound[name])

    def _starts(self, node: ast.AST) -> bool:
        """Return whether an expression is a call that must be awaited."""
        match node:
            case ast.Call(func=ast.Name(id=name)):
                return name in self._functions
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=function)):
                module = self._modules.get(name)
                return module is not None and function in self._tools[module]
            case _:
                return False

    def find(self) -> Iterator[Unawaited]:
        """Return the calls that are not awaited."""
        for node in self._nodes:
            if not isinstance(node, ast.Call) or not self._starts(node):
                continue
            parent = self._parents[node]
            call = _shown(node)
            if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
                yield from self._find_variable(parent.targets[0], node, call)
            elif isinstance(parent, ast.Expr):
                yield _at(node, f"the result of {call} is not awaited: write `await {call}`")
            elif self._needs_result(node):
                yield _at(node, f"{call} is used before its result exists: write `(await {call})`")
            elif self._is_thrown_away(node):
                yield _at(
                    node, f"a value contains {call} itself, not its result: write `await {call}`"
                )
            elif (
                isinstance(parent, ast.Return) and self._is_async(parent) and not self._awaits_twice
            ):
                yield _at(
                    node, f"{call} itself is returned, not its result: write `return await {call}`"
                )

    def _find_variable(self, target: ast.expr, node: ast.Call, call: str) -> Iterator[Unawaited]:
        """Find a variable that only ever contains calls, none of which can be awaited."""
        if not isinstance(target, ast.Name):
            return

        name = target.id
        bound = self._bound[name]
        if bound[0] is not target:
            # The variable was already examined together with its first call.
            return
        if not all(self._holds_call(other) for other in bound):
            return

        read = self._read.get(name, [])
        if not read:
            yield _at(
                node,
                f"`{name}` is {call}, which is never awaited: write `{name} = await {call}`",
            )
        elif all(self._needs_result(node) or self._is_thrown_away(node) for node in read):
            first = min(read, key=lambda node: (node.lineno, node.col_offset))
            text = (
                f"`{name}` is {call} from line {node.lineno}, which is not awaited: write `await "
                f"{name}`"
            )
            yield _at(first, f"{text} here, or `{name} = await {call}` there")

    def _holds_call(self, node: ast.AST) -> bool:
        parent = self._parents[node]
        return (
            isinstance(parent, ast.Assign)
            and len(parent.targets) == 1
            and self._starts(parent.value)
        )

    def _is_async(self, node: ast.AST) -> bool:
        """Return whether a statement is inside an `async def`."""
        while not isinstance(
            node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        ):
            node = self._parents[node]
        return isinstance(node, ast.AsyncFunctionDef)

    def _is_thrown_away(self, node: ast.AST) -> bool:
        """Return whether a value is a whole statement, or part of a container that is a whole
        statement.

        The value of the last statement is the output, so it is not thrown away.
        """
        parent = self._parents[node]
        while isinstance(parent, _CONTAINERS):
            parent = self._parents[parent]
        return isinstance(parent, ast.Expr)

    def _needs_result(self, node: ast.AST) -> bool:
        """Return whether an expression is used where only the result of a call makes sense."""
        parent = self._parents[node]
        match parent:
            case (
                ast.Subscript()
                | ast.Attribute()
                | ast.FormattedValue()
                | ast.Slice()
                | ast.Assert()
            ):
                return True
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.AugAssign() | ast.Starred():
                return True
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                return node is test
            case ast.For(iter=values) | ast.AsyncFor(iter=values):
                return node is values
            case ast.comprehension():
                return True
            case ast.Call(func=ast.Name(id=name)) if name in _READERS and name not in self._bound:
                return node is not parent.func
            case ast.Call():
                return node is not parent.func and self._starts(parent) and not self._waits(parent)
            case ast.keyword(arg=name):
                outer = self._parents[parent]
                return name is None or (self._starts(outer) and not self._waits(outer))
            case _:
                return False

    def _waits(self, node: ast.AST) -> bool:
        """Return whether a called function might await its arguments: it comes from `asyncio`, or
        the program defines it.
        """
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
                return self._modules.get(name) == "asyncio"
            case ast.Call(func=ast.Name(id=name)):
                bound = self._bound.get(name, [])
                return any(
                    not isinstance(binding, ast.ImportFrom) or binding.module == "asyncio"
                    for binding in bound
                )
            case _:
                return False


def _shown(call: ast.Call) -> str:
    """Return the name of a call for messages, without the arguments."""
    arguments = "..." if call.args or call.keywords else ""
    return f"{ast.unparse(call.func)}({arguments})"


def _at(node: ast.expr, text: str) -> Unawaited:
    return Unawaited(node.lineno, node.col_offset + 1, text)
