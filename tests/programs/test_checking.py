"""What the check of a program refuses, and what it leaves to the run."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from ideabridge.bridge.programs.awaiting import unawaited
from ideabridge.bridge.programs.sandbox import ImportedModule, Sandbox, Setting, parsed
from ideabridge.tools.encoding import JSONObject

pytestmark = pytest.mark.anyio

STUB = """
from typing import Any, Literal, NotRequired, TypedDict
class Row(TypedDict):
    name: str
    age: NotRequired[int]
async def rows(*, team: str, kind: Literal["a", "b"] = "a", limit: int = 5) -> list[Row]: ...
async def one(*, n: int) -> Row: ...
async def maybe() -> Row | None: ...
async def put(*, row: Row, tags: list[str] = ...) -> Any: ...
"""


def _call(module: str, function: str, arguments: JSONObject) -> JSONObject:
    raise AssertionError(f"{module}.{function}({arguments}) is called by a check")


NAMES = ["rows", "one", "maybe", "put"]
SETTING = Setting(
    {"shop": ImportedModule(NAMES, lambda: STUB)}, {}, {"input": {}, "state": {}}, _call, 0.0, ""
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for all tests of this file, because they share a sandbox."""
    return "asyncio"


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    """Each check begins anew, and an interpreter takes longer to start than to check."""
    box = Sandbox()
    yield box
    box.close()


RIGHT = """
row = await shop.one(n=1)
row["total"] = 3
f"{row["total"]}"
---
import re
re.search("a", "bab").group(0)
---
found = {"a": {"b": 1}}
found.get("a")["b"]
---
rows = [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]
sum(row["n"] for row in rows)
---
counts = {"a": 1, "b": 2}
max(counts, key=counts.get)
---
mixed = [1]
mixed.append("a")
mixed[0] + 1
---
def first(n: int = None):
    return n
first()
---
team = ["x", 1][0]
await shop.rows(team=team)
---
team = {"a": "b"}.get("a")
await shop.rows(team=team)
---
kind = "AB"[0].lower()
await shop.rows(team="x", kind=kind)
---
def name_of(row: dict) -> str:
    return row["name"]
name_of(await shop.one(n=1))
---
row = await shop.one(n=1)
row["total"] = 3
row
---
row = await shop.one(n=1)
row["total"] = 3
row["total"] + 1
---
arguments = {"team": "x", "limit": 3}
await shop.rows(**arguments)
---
await shop.one(n=4 / 2)
---
(await shop.maybe())["name"]
---
sorted(await shop.rows(team="x"), key=lambda row: row.get("age"))
---
await shop.put(row={"name": "x", "age": 3}, tags=[str(1)])
---
rows = [{"name": one} for one in ("a", "b")]
await shop.put(row=rows[0])
"""

WRONG = [
    (
        'row = await shop.one(n=1)\nrow["total"] = 3\nrow["totl"]',
        'Unknown key "totl" for TypedDict `Row`',
    ),
    (
        "await shop.rows()",
        "line 2, column 7: No argument provided for required parameter `team` of function `rows`",
    ),
    (
        "await shop.rows(team='a', teams=1)",
        "column 27: Argument `teams` does not match any known parameter",
    ),
    ("await shop.rows('a')", "Too many positional arguments to function `rows`"),
    (
        "await shop.rows(team=1)",
        "Argument to function `rows` is incorrect: Expected `str`, found `Literal[1]`",
    ),
    (
        "n = len('abc')\nawait shop.rows(team=n)",
        "line 3, column 17: Argument to function `rows` is incorrect",
    ),
    ("await shop.rows(team='x', kind='c')", 'Expected `Literal["a", "b"]`, found `Literal["c"]`'),
    (
        "(await shop.one(n=1))['nam']",
        'Unknown key "nam" for TypedDict `Row` - did you mean "name"?',
    ),
    (
        "(await shop.one(n=1))['name'] + 1",
        "Operator `+` is not supported between objects of type `str` and",
    ),
    ("(await shop.one(n=1)).name", "Object of type `Row` has no attribute `name`"),
    (
        "shop.one(n=1)['name']",
        "line 2, column 1: shop.one(...) is used before its result exists: write `(await shop.",
    ),
    (
        "len(shop.rows(team='a'))",
        "line 2, column 5: shop.rows(...) is used before its result exists",
    ),
    (
        "def f(n):\n    return shop.one(n=n)\nf(1)['name']",
        "line 4, column 1: f(...) is used before its",
    ),
    ("await shop.row(n=1)", "Module `shop` has no member `row`"),
    (
        "import bank",
        "line 2, column 8: Cannot resolve imported module `bank`; the modules with tools are shop",
    ),
    ("await shop.rows(team=nme)", "Name `nme` used when not defined"),
    ("def f(:\n    pass", "line 2"),
    ("await shop.rows(team='a'\nlen('b')", "line "),
    (
        "n = await shop.one(n=1)\nclass Bad(ValueError):\n    pass",
        "line 3: NotImplementedError: programs do not have",
    ),
    ("n = await shop.one(n=1)\ndel n", "programs do not have the 'del' statement"),
]


@pytest.mark.parametrize("program", RIGHT.split("---\n"))
async def test_what_may_be_right_is_not_refused(sandbox: Sandbox, program: str) -> None:
    assert await sandbox.check(f"import shop\n{program.strip()}", SETTING) is None


@pytest.mark.parametrize(("program", "why"), WRONG)
async def test_what_always_fails_is_refused(sandbox: Sandbox, program: str, why: str) -> None:
    found = await sandbox.check(f"import shop\n{program}", SETTING)
    assert found is not None
    assert why in found


async def test_where_the_syntax_is_wrong_only_that_is_told(sandbox: Sandbox) -> None:
    found = await sandbox.check(
        "import shop\nteams = ['a', 'b'\nawait shop.rows(team=tem)", SETTING
    )
    assert found is not None
    assert found.startswith("line 3, column 1: Expected `,`")
    assert "shop" not in found
    assert "tem" not in found


async def test_a_failed_import_names_some_of_many_modules(sandbox: Sandbox) -> None:
    modules = {f"shop{number:02}": SETTING.modules["shop"] for number in range(50)}
    found = await sandbox.check("import bank", replace(SETTING, modules=modules))
    assert found is not None
    assert "the modules with tools are shop00, shop01, " in found
    assert found.endswith("shop19 and 30 more")
    # The program is the same, but a different module can be imported.
    assert "are shop" in str(await sandbox.check("import bank", SETTING))


@pytest.mark.parametrize(
    "program",
    [
        "from servers import time\nawait time.one(n=1)",
        "from servers import time as t, shop\nawait t.one(n=1)",
        "from servers import (\n    time,\n)\nawait time.one(n=1)",
        # Python 3.12, and therefore the interpreter, allows these quotes within quotes.
        'from servers import time  # a server\nrow = await time.one(n=1)\nf"{row["name"]}"',
        'if 1:\n    from servers import time as t, shop; row = await t.one(n=1)\nf"{row["name"]}"',
    ],
)
async def test_a_server_is_imported_under_its_own_name(sandbox: Sandbox, program: str) -> None:
    module = SETTING.modules["shop"]
    setting = replace(
        SETTING,
        modules={"time_": module, "shop": module},
        servers={"time": "time_", "shop": "shop"},
    )
    assert await sandbox.check(program, setting) is None
    # No parameter's name is remembered from before.
    other = ImportedModule(NAMES, lambda: STUB.replace("n: int", "m: int"))
    found = await sandbox.check(program, replace(setting, modules={"time_": other, "shop": module}))
    assert found is not None
    assert "parameter `m` of function `one`" in found
    # Python has a module `time`, but it is not a server.
    found = await sandbox.check(program, replace(setting, servers={"shop": "shop"}))
    assert found is not None
    assert "Cannot resolve imported module `servers`; the servers are shop" in found


@pytest.mark.parametrize(
    "program",
    [
        "import time\nawait time.one(n=1)",
        "from time import one\nawait one(n=1)",
        "import time as t\nawait t.one(n=1)",
    ],
)
async def test_a_server_whose_module_has_another_name_is_named(
    sandbox: Sandbox, program: str
) -> None:
    setting = replace(
        SETTING, modules={"time_": SETTING.modules["shop"]}, servers={"time": "time_"}
    )
    found = str(await sandbox.check(program, setting))
    assert (
        "Module `time` has no member `one`; the tools of the server `time` "
        "are in the module `time_`"
    ) in found
    assert found.endswith(": `import time_`, then `time_.one`")
    # Without the tool, the message names the module but not the tool. The program is the same, and
    # is checked again.
    fewer = ImportedModule(["rows"], lambda: "async def rows() -> int: ...\n")
    found = str(await sandbox.check(program, replace(setting, modules={"time_": fewer})))
    assert found.endswith("are in the module `time_`")
    # Python's own module has no tools.
    found = str(await sandbox.check(program, replace(setting, modules={}, servers={})))
    assert found.endswith("has no member `one`")


@pytest.mark.parametrize(
    "program", ["import shop\nawait shop.row(n=1)", "from shop import row\nawait row(n=1)"]
)
async def test_a_tool_that_the_run_does_not_have_is_said_to_be_missing_there(
    sandbox: Sandbox, program: str
) -> None:
    found = str(await sandbox.check(program, SETTING))
    assert "Module `shop` has no member `row`: the run does not have this tool" in found
    assert found.endswith("it has maybe, one, put, rows")
    many = ImportedModule([f"tool{number:02}" for number in range(30)], lambda: "")
    found = str(await sandbox.check(program, replace(SETTING, modules={"shop": many})))
    assert found.endswith("tool19 and 10 more")


async def test_of_many_findings_only_the_certain_ones_are_told(sandbox: Sandbox) -> None:
    program = (
        "import re, shop\nre.search('a', 'b').group()\nawait shop.rows()\n[1, "
        "'a'][0].upper()\nawait shop.one()"
    )
    found = await sandbox.check(program, SETTING)
    assert found is not None
    assert [line.partition(":")[0] for line in found.splitlines()] == [
        "line 3, column 7",
        "line 5, column 7",
    ]


# -- calls that are not awaited --------------------------------------------------------------------

FORGOTTEN = [
    (
        "shop.maybe()",
        "line 2, column 1: the result of shop.maybe() is not awaited: write `await shop.maybe()`",
    ),
    (
        "shop.put(row={'name': 'x'})\n5",
        "line 2, column 1: the result of shop.put(...) is not awaited: write `await shop.p",
    ),
    (
        "if True:\n    shop.maybe()\n5",
        "line 3, column 5: the result of shop.maybe() is not awaited",
    ),
    (
        "row = shop.one(n=1)\nrow['name']",
        "line 3, column 1: `row` is shop.one(...) from line 2, which is not aw",
    ),
    (
        "row = shop.one(n=1)\nrow['name']",
        "write `await row` here, or `row = await shop.one(...)` there",
    ),
    ("row = shop.one(n=1)\nrow", "line 3, column 1: `row` is shop.one(...) from line 2"),
    (
        "row = shop.put(row={'name': 'x'})\n5",
        "line 2, column 7: `row` is shop.put(...), which is never awaited: write",
    ),
    (
        'f"{shop.maybe()}"',
        "shop.maybe() is used before its result exists: write `(await shop.maybe())`",
    ),
    ("row = shop.maybe()\nf'{row}'", "line 3, column 4: `row` is shop.maybe() from line 2"),
    (
        "if shop.maybe():\n    5",
        "line 2, column 4: shop.maybe() is used before its result exists",
    ),
    ("while shop.maybe():\n    5", "line 2, column 7: shop.maybe() is used"),
    (
        "for row in shop.rows(team='a'):\n    print(row)",
        "line 2, column 12: shop.rows(...) is used",
    ),
    ("[row for row in shop.rows(team='a')]", "shop.rows(...) is used before its result exists"),
    ("shop.maybe() == None", "line 2, column 1: shop.maybe() is used"),
    ("not shop.maybe()", "shop.maybe() is used"),
    ("print(shop.maybe())", "line 2, column 7: shop.maybe() is used"),
    ("str(shop.maybe())", "shop.maybe() is used"),
    (
        "await shop.put(row=shop.one(n=1))",
        "line 2, column 20: shop.one(...) is used before its result exists",
    ),
    ("await ask('what', shop.maybe())", "shop.maybe() is used before its result exists"),
    (
        "ask('what')",
        "line 2, column 1: the result of ask(...) is not awaited: write `await ask(...)`",
    ),
    (
        "{'row': shop.maybe()}",
        (
            "line 2, column 9: a value contains shop.maybe() itself, not its result: write `await "
            "shop.maybe()`"
        ),
    ),
    ("[shop.one(n=n) for n in (1, 2)]", "a value contains shop.one(...) itself, not its result"),
    ("row = shop.maybe()\n{'row': [row]}", "line 3, column 10: `row` is shop.maybe() from line 2"),
    (
        "async def f():\n    return shop.maybe()\nawait f()",
        "line 3, column 12: shop.maybe() itself is returned, not its result",
    ),
    (
        "async def f():\n    return await shop.maybe()\nf()",
        "line 4, column 1: the result of f() is not awaited: write `await f()`",
    ),
    (
        "import asyncio\nasyncio.gather(shop.maybe(), shop.maybe())",
        "the result of asyncio.gather(...) is not awaited",
    ),
    ("import shop as s\ns.maybe()", "line 3, column 1: the result of s.maybe() is not awaited"),
    ("from shop import maybe\nmaybe()", "line 3, column 1: the result of maybe() is not awaited"),
    (
        "from shop import maybe as m, one\nawait one(n=m())",
        "line 3, column 13: m() is used before its result exists",
    ),
    (
        "from servers import shop as s\ns.maybe()",
        "line 3, column 1: the result of s.maybe() is not awaited",
    ),
]

AWAITED = """
a = shop.one(n=1)
b = shop.one(n=2)
[await a, await b]
---
import asyncio
await asyncio.gather(shop.one(n=1), shop.one(n=2))
---
import asyncio
calls = [shop.one(n=n) for n in range(3)]
await asyncio.gather(*calls)
---
import asyncio
calls = []
for n in range(3):
    calls.append(shop.one(n=n))
rows = []
for call in calls:
    rows.append(await call)
rows
---
import asyncio
calls = {n: shop.one(n=n) for n in range(3)}
{n: await call for n, call in calls.items()}
---
import asyncio
both = asyncio.gather(shop.one(n=1), shop.one(n=2))
row = await shop.one(n=3)
[row, *await both]
---
def start(n):
    return shop.one(n=n)
await start(1)
---
start = lambda n: shop.one(n=n)
await start(1)
---
async def start(n):
    return shop.one(n=n)
await (await start(1))
---
async def known(n):
    return (await shop.one(n=n))["name"]
import asyncio
await asyncio.gather(*[known(n) for n in range(3)])
---
row = shop.one(n=1)
row = await row
row["name"]
---
row = None
if input:
    row = shop.one(n=1)
if row:
    row = await row
row
---
found = shop.one(n=1) if input else shop.maybe()
(await found)["name"]
---
await (shop.one(n=1) if input else shop.maybe())
---
def both(first, second):
    return [first, second]
one, two = both(shop.one(n=1), shop.one(n=2))
[await one, await two]
---
async def later(call):
    return await call
await later(shop.one(n=1))
---
def one(n):
    return n
one(1)
str(one(2))
---
def name_of(shop):
    return shop.one
name_of
---
(await shop.one(n=1))["name"]
---
rows = [await shop.one(n=n) for n in range(3)]
f"{rows}"
---
if (row := await shop.maybe()) is not None:
    print(row["name"])
---
call = shop.one
await call(n=1)
---
first, second = shop.one(n=1), shop.one(n=2)
[await first, await second]
"""


@pytest.mark.parametrize(("program", "why"), FORGOTTEN)
async def test_a_forgotten_await_is_told_with_what_to_write(
    sandbox: Sandbox, program: str, why: str
) -> None:
    setting = replace(SETTING, servers={"shop": "shop"})
    found = await sandbox.check(f"import shop\n{program}", setting)
    assert found is not None
    assert why in found
    assert "CoroutineType" not in found


@pytest.mark.parametrize("program", AWAITED.split("---\n"))
async def test_what_is_awaited_later_is_not_refused(sandbox: Sandbox, program: str) -> None:
    assert await sandbox.check(f"import shop\n{program.strip()}", SETTING) is None


async def test_each_forgotten_await_is_told(sandbox: Sandbox) -> None:
    program = "import shop\nshop.one()\nrow = shop.one(n=1)\nprint(row['name'])\nshop.maybe()"
    found = await sandbox.check(program, SETTING)
    assert found is not None
    assert [line.partition(":")[0] for line in found.splitlines()] == [
        "line 2, column 1",
        "line 2, column 1",
        "line 4, column 7",
        "line 5, column 1",
    ]


async def test_a_hostile_program_is_looked_at_in_linear_time() -> None:
    many = [f"r = shop.maybe()\nr[{number}]" for number in range(2_000)]
    chain = [f"def f{number}():\n    return f{number + 1}()" for number in range(2_000)]
    for lines in (many, chain, ["[" * 80 + "shop.maybe()" + "]" * 80] * 500):
        text = "import shop\n" + "\n".join(lines)
        assert len(text) < 100_000
        tree = parsed(text)
        assert tree is not None
        began = time.process_time()
        unawaited(tree, {"shop": frozenset({"maybe"})}, frozenset())
        assert time.process_time() - began < 2
