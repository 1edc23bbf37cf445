"""`compute`: one Python expression over named values, in a sandbox."""

from __future__ import annotations

from typing import cast

import anyio
import pytest

from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.tool import ActivityContext

pytestmark = pytest.mark.anyio


async def compute(code: str, **values: JSON) -> JSON:
    arguments: JSONObject = {"code": code, **values}
    activity = builtin_toolbox().activities["compute"]
    return cast("JSON", await activity.run(arguments, cast("ActivityContext", None)))


@pytest.mark.parametrize(
    ("code", "values", "expected"),
    [
        ("sum(row['n'] for row in rows)", {"rows": [{"n": 1}, {"n": 2.5}]}, 3.5),
        (
            "sorted({one['city'] for one in people})[:2]",
            {"people": [{"city": "Rome"}, {"city": "Bern"}]},
            ["Bern", "Rome"],
        ),
        ("re.findall(r'#([0-9]+)', text)", {"text": "see #12 and #7"}, ["12", "7"]),
        ("math.ceil(n / 3), json.loads(text)['a']", {"n": 7, "text": '{"a": null}'}, [3, None]),
        ("re['x'] + math", {"re": {"x": 1}, "math": 2}, 3),
        ("'†state.x' + text", {"text": "†"}, "†state.x†"),
        ("\n  {'a': a,\n 'none': None}\n", {"a": True}, {"a": True, "none": None}),
        ("(lambda n: n * 2)(n)", {"n": 4}, 8),
        ("print('lost')", {}, None),
    ],
)
async def test_the_value_of_an_expression(code: str, values: JSONObject, expected: JSON) -> None:
    assert await compute(code, **values) == expected


@pytest.mark.parametrize(
    ("code", "values", "why"),
    [
        ("x +", {"x": 1}, r'line 1, column \d+: expected one Python expression, found "x \+"'),
        (
            "y = x",
            {"x": 1},
            r"expected one Python expression, .*; use run_plan for a program with statements",
        ),
        ("import os", {}, r"use run_plan for a program with statements"),
        ("1)+(2", {}, r"expected one Python expression"),
        ("a" * 5_000, {}, r"code has 5,000 characters; the limit is 4,000"),
        ("(" * 3_000 + ")" * 3_000, {}, r"the limit is 4,000"),
        ("(" * 1_500 + "1" + ")" * 1_500, {}, r"code: "),
        (
            "total + 1",
            {"totl": 1},
            r"NameError: name 'total' is not defined; the code can use totl",
        ),
        ("n / 0", {"n": 1}, r"ZeroDivisionError"),
        ("rows[3]['n']", {"rows": []}, r"IndexError"),
        ("{1, 2}", {}, r"the value of code is a set, which is not JSON"),
        ("b'x'", {}, r"is a bytes, which is not JSON"),
        ("[float('nan')]", {}, r"nan, which JSON cannot represent"),
        ("len", {}, r"not JSON"),
        (
            "[[[[[1] * 99] * 99] * 99] * 99] * 99",
            {},
            r"the value of code has more than 64 MB once written out",
        ),
        ("open('/etc/passwd').read()", {}, r"PermissionError"),
        ("__import__('os').environ", {}, r"NameError: name '__import__'"),
        ("datetime.datetime.now()", {}, r"NameError: name 'datetime'"),
        ("random.random()", {}, r"NameError: name 'random'"),
        ("[0] * 10**9", {}, r"MemoryError: memory limit"),
        ("9**9**9", {}, r"MemoryError: memory limit"),
        ("(lambda f: f(f))(lambda f: f(f))", {}, r"RecursionError"),
        ("n", {"a-b": 1}, r'"a-b": expected a valid Python name'),
        ("n", {"class": 1}, r'"class": expected a valid Python name'),
    ],
)
async def test_what_is_refused_says_why(code: str, values: JSONObject, why: str) -> None:
    with pytest.raises(ActivityError, match=why):
        await compute(code, **values)


async def test_an_endless_expression_ends_and_others_go_on() -> None:
    async with anyio.create_task_group() as group:

        async def endless() -> None:
            with pytest.raises(ActivityError, match="limit exceeded"):
                await compute("all(True for a in range(10**9) for b in range(10**9))")

        group.start_soon(endless)
        assert await compute("n + 1", n=1) == 2
