"""Sixty tasks, each as a plan, as a program, and as single calls of an assistant;
test_three_ways.py compares them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.toolbox import Toolbox

PEOPLE: dict[str, list[dict[str, Any]]] = {
    "red": [
        {"name": "Ada", "age": 36, "city": "Rome"},
        {"name": "Bob", "age": 52, "city": "Bern"},
        {"name": "Cy", "age": 19, "city": "Rome"},
    ],
    "blue": [
        {"name": "Dora", "age": 28, "city": "Oslo"},
        {"name": "†Eve", "age": 61, "city": "Bern"},
    ],
    "none": [],
}


class Desk:
    """Tools of the user, and what was noted."""

    def __init__(self) -> None:
        self.notes: list[str] = []

        @tool(read_only=True)
        def people(team: str) -> list[dict[str, JSON]]:
            """The people of a team."""
            return [dict(one) for one in PEOPLE[team]]

        @tool(read_only=True)
        def price(item: str) -> float:
            """The price of an item."""
            if item.startswith("no"):
                raise ActivityError(f"there is no {item}")
            return len(item) * 1.25

        @tool(read_only=True)
        def page(number: int, size: int = 2) -> dict[str, JSON]:
            """A page of a list of seven numbers."""
            rows = list(range(7))[number * size : (number + 1) * size]
            return {
                "rows": list[JSON](rows),
                "next": number + 1 if (number + 1) * size < 7 else None,
            }

        @tool
        def note(text: str) -> int:
            """Note a text; returns how many there are."""
            self.notes.append(text)
            return len(self.notes)

        @tool(read_only=True)
        def noted() -> list[str]:
            """The notes."""
            return list(self.notes)

        self.toolbox = Toolbox(people, price, page, note, noted)


class Call(Protocol):
    """Makes one call, and returns its result."""

    def __call__(self, name: str, /, **parameters: Any) -> Awaitable[Any]: ...


ByHand = Callable[[Call, dict[str, Any]], Awaitable[Any]]


@dataclass(frozen=True)
class Task:
    """A task in three forms. `calls` and `output` are the plan, with (MODULE.TOOL, parameters,
    meta-properties).
    """

    name: str
    given: JSONObject
    calls: list[tuple[str, JSONObject] | tuple[str, JSONObject, JSONObject]]
    output: JSON
    program: str
    by_hand: ByHand

    @property
    def plan(self) -> JSONObject:
        listed: list[JSON] = []
        for name, parameters, *more in self.calls:
            module, _, own = name.rpartition(".")
            call: JSONObject = {
                "_tool": own,
                **({"_module": module} if module else {}),
                **parameters,
            }
            listed.append({**call, **(more[0] if more else {})})
        return {"calls": listed, "output": self.output, "input": self.given}


_EITHER = "†state.one || †state.problem"
_SUBJECT = re.compile(r"Message: (.*)")


# -- git -------------------------------------------------------------------------------------------


async def _log(call: Call, i: dict[str, Any]) -> Any:
    return await call("git.git_log", repo_path=i["repo"], max_count=i["n"])


async def _subjects(call: Call, i: dict[str, Any]) -> Any:
    return _SUBJECT.findall(await call("git.git_log", repo_path=i["repo"], max_count=i["n"]))


async def _log_and_status(call: Call, i: dict[str, Any]) -> Any:
    log = await call("git.git_log", repo_path=i["repo"], max_count=1)
    status = await call("git.git_status", repo_path=i["repo"])
    return {"log": log, "clean": "nothing to commit" in status}


async def _show_newest(call: Call, i: dict[str, Any]) -> Any:
    log = await call("git.git_log", repo_path=i["repo"], max_count=1)
    return len(
        await call("git.git_show", repo_path=i["repo"], revision=log.split("Commit: ")[1][:40])
    )


async def _branches(call: Call, i: dict[str, Any]) -> Any:
    text = await call("git.git_branch", repo_path=i["repo"], branch_type="local")
    return sorted(line.strip("* ") for line in text.split("\n") if line.strip())


async def _both_diffs(call: Call, i: dict[str, Any]) -> Any:
    one = await call("git.git_diff_unstaged", repo_path=i["repo"])
    other = await call("git.git_diff_staged", repo_path=i["repo"])
    return [one, other]


async def _each_count(call: Call, i: dict[str, Any]) -> Any:
    return [
        len(_SUBJECT.findall(await call("git.git_log", repo_path=i["repo"], max_count=n)))
        for n in i["counts"]
    ]


async def _if_dirty(call: Call, i: dict[str, Any]) -> Any:
    status = await call("git.git_status", repo_path=i["repo"])
    if "modified" in status:
        return await call("git.git_diff_unstaged", repo_path=i["repo"])
    return None


def git_tasks(repo: str, number: int) -> list[Task]:
    """Tasks over one repository."""
    one: JSONObject = {"repo_path": "†input.repo"}
    given: JSONObject = {"repo": repo, "n": number}
    return [
        Task(
            f"log of {number}",
            given,
            [("git.git_log", {**one, "max_count": "†input.n"})],
            "†results.0",
            "import git\nawait git.git_log(repo_path=input['repo'], max_count=input['n'])",
            _log,
        ),
        Task(
            f"subjects of {number}",
            given,
            [
                ("git.git_log", {**one, "max_count": "†input.n"}, {"_outputPath": "log"}),
                ("compute", {"code": "re.findall('Message: (.*)', log)", "log": "†state.log"}),
            ],
            "†results.1",
            "import git, re\nlog = await git.git_log(max_count=input['n'], "
            "repo_path=input['repo'])\n"
            "[line[9:] for line in log.split('\\n') if line.startswith('Message: ')]",
            _subjects,
        ),
        Task(
            f"log and status {number}",
            given,
            [
                ("git.git_log", {**one, "max_count": 1}),
                ("git.git_status", one),
                ("compute", {"code": "'nothing to commit' in status", "status": "†results.1"}),
            ],
            {"log": "†results.0", "clean": "†results.2"},
            "import git\nstatus = git.git_status(repo_path=input['repo'])\n"
            "log = git.git_log(repo_path=input['repo'], max_count=1)\n"
            "{'log': await log, 'clean': (await status).find('nothing to commit') >= 0}",
            _log_and_status,
        ),
        Task(
            f"show the newest {number}",
            given,
            [
                ("git.git_log", {**one, "max_count": 1}),
                ("compute", {"code": "log.split('Commit: ')[1][:40]", "log": "†results.0"}),
                ("git.git_show", {**one, "revision": "†results.1"}),
                ("count", {"items": "†results.2"}),
            ],
            "†results.3",
            "import git, re\nlog = await git.git_log(repo_path=input['repo'], max_count=1)\n"
            "found = re.search(r'Commit: (\\w{40})', log)\n"
            "len(await git.git_show(repo_path=input['repo'], revision=found.group(1)))",
            _show_newest,
        ),
        Task(
            f"branches {number}",
            given,
            [
                ("git.git_branch", {**one, "branch_type": "local"}, {"_outputPath": "text"}),
                (
                    "compute",
                    {
                        "code": "sorted(x.strip('* ') for x in t.split('\\n') if x.strip())",
                        "t": "†state.text",
                    },
                ),
            ],
            "†results.1",
            "import git\nnames = []\nfor line in (await git.git_branch(repo_path=input['repo'], "
            "branch_type='local'))"
            ".splitlines():\n    name = line.replace('*', '').strip()\n    if name:\n        "
            "names.append(name)\n"
            "sorted(names)",
            _branches,
        ),
        Task(
            f"both diffs {number}",
            given,
            [("git.git_diff_unstaged", one), ("git.git_diff_staged", one)],
            ["†results.0", "†results.1"],
            "import asyncio, git\nrepo = input['repo']\n"
            "list(await asyncio.gather(git.git_diff_unstaged(repo_path=repo), "
            "git.git_diff_staged(repo_path=repo)))",
            _both_diffs,
        ),
        Task(
            f"log of each count {number}",
            {**given, "counts": [1, number]},
            [
                ("git.git_log", {**one, "max_count": "†item"}, {"_each": "†input.counts"}),
                (
                    "compute",
                    {"code": "[log.count('Message: ') for log in logs]", "logs": "†results.0"},
                ),
            ],
            "†results.1",
            "import asyncio, git\nlogs = [git.git_log(repo_path=input['repo'], "
            "max_count=n) for n in input['counts']]\n"
            "[log.count('Commit: ') for log in await asyncio.gather(*logs)]",
            _each_count,
        ),
        Task(
            f"the diff, if there is one {number}",
            given,
            [
                ("git.git_status", one),
                (
                    "compute",
                    {
                        "code": "[repo] if 'modified' in text else []",
                        "repo": "†input.repo",
                        "text": "†results.0",
                    },
                ),
                ("git.git_diff_unstaged", {"repo_path": "†item"}, {"_each": "†results.1"}),
                (
                    "compute",
                    {"code": "diffs[0] if diffs else None", "diffs": "†results.2"},
                    {"_outputPath": "diff"},
                ),
            ],
            {"diff": "†state.diff"},
            "import git\ndiff = None\nif 'modified' in await "
            "git.git_status(repo_path=input['repo']):\n"
            "    diff = await git.git_diff_unstaged(repo_path=input['repo'])\n{'diff': diff}",
            lambda call, i: _as_member("diff", _if_dirty(call, i)),
        ),
    ]


async def _as_member(name: str, value: Awaitable[Any]) -> Any:
    return {name: await value}


# -- time ------------------------------------------------------------------------------------------


async def _difference(call: Call, i: dict[str, Any]) -> Any:
    found = await call(
        "time.convert_time", source_timezone=i["here"], time="12:00", target_timezone=i["there"]
    )
    return found["time_difference"]


async def _there_and_back(call: Call, i: dict[str, Any]) -> Any:
    there = await call(
        "time.convert_time", source_timezone=i["here"], time="09:30", target_timezone=i["there"]
    )
    clock = there["target"]["datetime"][11:16]
    back = await call(
        "time.convert_time", source_timezone=i["there"], time=clock, target_timezone=i["here"]
    )
    return [clock, back["target"]["datetime"][11:16]]


async def _zones(call: Call, i: dict[str, Any]) -> Any:
    found: list[Any] = []
    for zone in i["zones"]:
        one = await call(
            "time.convert_time", source_timezone="UTC", time="00:00", target_timezone=zone
        )
        found.append(one["time_difference"])
    return dict(zip(i["zones"], found, strict=True))


async def _unknown_zone(call: Call, i: dict[str, Any]) -> Any:
    try:
        return (await call("time.get_current_time", timezone=i["zone"]))["timezone"]
    except ActivityError:
        return (await call("time.get_current_time", timezone="UTC"))["timezone"]


def time_tasks(here: str, there: str) -> list[Task]:
    """Tasks over two time zones."""
    given: JSONObject = {"here": here, "there": there}
    convert: JSONObject = {"source_timezone": "†input.here", "target_timezone": "†input.there"}
    return [
        Task(
            f"from {here} to {there}",
            given,
            [("time.convert_time", {**convert, "time": "12:00"})],
            "†results.0.time_difference",
            "from servers import time\nfound = await "
            "time.convert_time(source_timezone=input['here'], time='12:00',"
            " target_timezone=input['there'])\nfound['time_difference']",
            _difference,
        ),
        Task(
            f"to {there} and back",
            given,
            [
                ("time.convert_time", {**convert, "time": "09:30"}),
                (
                    "compute",
                    {"code": "found[11:16]", "found": "†results.0.target.datetime"},
                    {"_outputPath": "clock"},
                ),
                (
                    "time.convert_time",
                    {
                        "source_timezone": "†input.there",
                        "time": "†state.clock",
                        "target_timezone": "†input.here",
                    },
                ),
                (
                    "compute",
                    {"code": "found[11:16]", "found": "†results.2.target.datetime"},
                    {"_outputPath": "back"},
                ),
            ],
            ["†state.clock", "†state.back"],
            "from servers import time as t\n\nasync def clock(at, source, target):\n"
            "    found = await t.convert_time(source_timezone=source, time=at, "
            "target_timezone=target)\n"
            "    return found['target']['datetime'].split('T')[1][:5]\n\n"
            "there = await clock('09:30', input['here'], input['there'])\n"
            "[there, await clock(there, input['there'], input['here'])]",
            _there_and_back,
        ),
        Task(
            f"zones with {there}",
            {"zones": [here, there, "UTC"]},
            [
                (
                    "time.convert_time",
                    {"source_timezone": "UTC", "time": "00:00", "target_timezone": "†item"},
                    {"_each": "†input.zones"},
                ),
                (
                    "compute",
                    {
                        "code": "dict(zip(z, [c['time_difference'] for c in f]))",
                        "z": "†input.zones",
                        "f": "†results.0",
                    },
                ),
            ],
            "†results.1",
            "from servers import time\ntasks = {zone: time.convert_time(source_timezone='UTC', "
            "time='00:00',"
            " target_timezone=zone) for zone in input['zones']}\n"
            "{zone: (await task)['time_difference'] for zone, task in tasks.items()}",
            _zones,
        ),
        Task(
            f"the zone {here}, or UTC",
            {"zone": here if here.startswith("A") else "No/Where"},
            [
                (
                    "time.get_current_time",
                    {"timezone": "†input.zone"},
                    {"_outputPath": "one || problem"},
                ),
                ("compute", {"code": "[] if 'timezone' in it else ['UTC']", "it": _EITHER}),
                ("time.get_current_time", {"timezone": "†item"}, {"_each": "†results.1"}),
                (
                    "compute",
                    {
                        "code": "(many or [one])[0]",
                        "one": "†state.one || †state.problem",
                        "many": "†results.2",
                    },
                ),
            ],
            "†results.3.timezone",
            "from servers import time\ntry:\n    "
            "found = await time.get_current_time(timezone=input['zone'])\n"
            "except RuntimeError:\n    found = await "
            "time.get_current_time(timezone='UTC')\nfound['timezone']",
            _unknown_zone,
        ),
    ]


# -- files -----------------------------------------------------------------------------------------


async def _write_and_read(call: Call, i: dict[str, Any]) -> Any:
    await call("files.write_file", path=i["file"], content=i["text"])
    return (await call("files.read_text_file", path=i["file"]))["content"]


async def _copy_upper(call: Call, i: dict[str, Any]) -> Any:
    found = await call("files.read_text_file", path=i["source"])
    await call("files.write_file", path=i["file"], content=found["content"].upper())
    return await call("files.read_text_file", path=i["file"])


async def _names(call: Call, i: dict[str, Any]) -> Any:
    found = await call("files.list_directory", path=i["folder"])
    return [
        line.removeprefix("[FILE] ")
        for line in found["content"].split("\n")
        if line.startswith("[FILE] ")
    ]


async def _words(call: Call, i: dict[str, Any]) -> Any:
    return {
        path: len((await call("files.read_text_file", path=path))["content"].split())
        for path in i["paths"]
    }


def file_tasks(folder: Path, number: int, text: str) -> list[Task]:
    """Tasks in a folder that holds `a.txt` and `b.txt`."""
    file = str(folder / f"new{number}.txt")
    source = str(folder / "a.txt")
    other = str(folder / "b.txt")
    return [
        Task(
            f"write and read {number}",
            {"file": file, "text": text},
            [
                ("files.write_file", {"path": "†input.file", "content": "†input.text"}),
                ("files.read_text_file", {"path": "†input.file"}),
            ],
            "†results.1.content",
            "import files\nawait files.write_file(path=input['file'], content=input['text'])\n"
            "(await files.read_text_file(path=input['file']))['content']",
            _write_and_read,
        ),
        Task(
            f"a copy in capitals {number}",
            {"file": file, "source": source},
            [
                ("files.read_text_file", {"path": "†input.source"}),
                ("compute", {"code": "text.upper()", "text": "†results.0.content"}),
                ("files.write_file", {"path": "†input.file", "content": "†results.1"}),
                ("files.read_text_file", {"path": "†input.file"}),
            ],
            "†results.3",
            "import files\ntext = await files.read_text_file(path=input['source'])\n"
            "await files.write_file(path=input['file'], content=text['content'].upper())\n"
            "await files.read_text_file(path=input['file'])",
            _copy_upper,
        ),
        Task(
            f"names of files {number}",
            {"folder": str(folder)},
            [
                ("files.list_directory", {"path": "†input.folder"}),
                (
                    "compute",
                    {
                        "code": "[x[7:] for x in t.split('\\n') if x[:7] == '[FILE] ']",
                        "t": "†results.0.content",
                    },
                ),
            ],
            "†results.1",
            "import files, re\nfound = await files.list_directory(path=input['folder'])\n"
            "re.findall(r'\\[FILE\\] (.*)', found['content'])",
            _names,
        ),
        Task(
            f"words of files {number}",
            {"paths": [source, other]},
            [
                ("files.read_text_file", {"path": "†item"}, {"_each": "†input.paths"}),
                (
                    "compute",
                    {
                        "code": "{p: len(f['content'].split()) for p, f in zip(paths, found)}",
                        "paths": "†input.paths",
                        "found": "†results.0",
                    },
                ),
            ],
            "†results.1",
            "import files\nreading = [(path, "
            "files.read_text_file(path=path)) for path in input['paths']]\n"
            "counts = {}\nfor path, found in reading:\n"
            "    counts[path] = len((await found)['content'].split())\ncounts",
            _words,
        ),
    ]


# -- the desk --------------------------------------------------------------------------------------


async def _older(call: Call, i: dict[str, Any]) -> Any:
    return sorted(
        one["name"] for one in await call("people", team=i["team"]) if one["age"] > i["above"]
    )


async def _oldest(call: Call, i: dict[str, Any]) -> Any:
    people = await call("people", team=i["team"])
    return max(people, key=lambda one: one["age"])["name"] if people else None


async def _by_city(call: Call, i: dict[str, Any]) -> Any:
    counts: dict[str, int] = {}
    for one in await call("people", team=i["team"]):
        counts[one["city"]] = counts.get(one["city"], 0) + 1
    return counts


async def _greet(call: Call, i: dict[str, Any]) -> Any:
    for one in await call("people", team=i["team"]):
        if one["age"] >= i["above"]:
            await call("note", text=f"Dear {one['name']} of {one['city']}")
    return await call("noted")


async def _total(call: Call, i: dict[str, Any]) -> Any:
    return sum([await call("price", item=item) for item in i["items"]])


async def _first_price(call: Call, i: dict[str, Any]) -> Any:
    try:
        return await call("price", item=i["items"][0])
    except ActivityError:
        return await call("price", item=i["items"][-1])


async def _pages(call: Call, i: dict[str, Any]) -> Any:
    rows: list[Any] = []
    for number in i["pages"]:
        rows += (await call("page", number=number))["rows"]
    return rows[::-1]


async def _three_notes(call: Call, i: dict[str, Any]) -> Any:
    counts = [
        await call("note", text=f"{number}: {item}") for number, item in enumerate(i["items"])
    ]
    return {"counts": counts, "notes": await call("noted")}


def desk_tasks(team: str, above: int, items: list[JSON]) -> list[Task]:
    """Tasks with the tools of the user."""
    people: tuple[str, JSONObject, JSONObject] = (
        "people",
        {"team": "†input.team"},
        {"_outputPath": "people"},
    )
    of_team: JSONObject = {"team": team, "above": above}
    of_items: JSONObject = {"items": items}
    return [
        Task(
            f"{team} above {above}",
            of_team,
            [
                people,
                (
                    "compute",
                    {
                        "code": "[p for p in ps if p['age'] > n]",
                        "ps": "†state.people",
                        "n": "†input.above",
                    },
                ),
                ("pick", {"data": "†results.1", "path": "sort([*].name)"}),
            ],
            "†results.2",
            "import tools\npeople = await tools.people(team=input['team'])\n"
            "sorted([one['name'] for one in people if one['age'] > input['above']])",
            _older,
        ),
        Task(
            f"the oldest of {team}",
            of_team,
            [
                people,
                (
                    "pick",
                    {"data": "†state.people", "path": "max_by(@, &age).name"},
                    {"_outputPath": "name"},
                ),
            ],
            {"name": "†state.name"},
            "import tools\nname, age = None, "
            "-1\nfor one in await tools.people(team=input['team']):\n"
            "    if one['age'] > age:\n        name, age = one['name'], one['age']\n{'name': name}",
            lambda call, i: _as_member("name", _oldest(call, i)),
        ),
        Task(
            f"{team} by city",
            of_team,
            [people, ("count", {"items": "†state.people", "by": "city"})],
            "†results.1",
            "import tools\ncities = [one['city'] for one in await "
            "tools.people(team=input['team'])]\n"
            "{city: cities.count(city) for city in sorted(set(cities))}",
            _by_city,
        ),
        Task(
            f"greetings to {team}",
            of_team,
            [
                people,
                (
                    "compute",
                    {
                        "code": "[p for p in ps if p['age'] >= n]",
                        "ps": "†state.people",
                        "n": "†input.above",
                    },
                ),
                (
                    "template",
                    {"text": "Dear {name} of {city}", "values": "†item"},
                    {"_each": "†results.1"},
                ),
                ("note", {"text": "†item"}, {"_each": "†results.2"}),
                ("noted", {}),
            ],
            "†results.4",
            "import tools\nfor one in await tools.people(team=input['team']):\n    "
            "if one['age'] >= input['above']:\n"
            "        await tools.note(text=f\"Dear {one['name']} of "
            "{one['city']}\")\nawait tools.noted()",
            _greet,
        ),
        Task(
            f"the price of {len(items)} with {team}",
            {"items": [one for one in items if not str(one).startswith("no")]},
            [
                ("price", {"item": "†item"}, {"_each": "†input.items"}),
                ("compute", {"code": "sum(prices)", "prices": "†results.0"}),
            ],
            "†results.1",
            "import asyncio, tools\nsum(await asyncio.gather(*[tools.price(item=item) for "
            "item in input['items']]))",
            _total,
        ),
        Task(
            f"the first price of {len(items)} with {team}",
            of_items,
            [
                ("pick", {"data": "†input.items", "path": "[0]"}),
                ("price", {"item": "†results.0"}, {"_outputPath": "one || problem"}),
                (
                    "compute",
                    {
                        "code": "[x[-1]] if isinstance(f, dict) else []",
                        "x": "†input.items",
                        "f": _EITHER,
                    },
                ),
                ("price", {"item": "†item"}, {"_each": "†results.2"}),
                ("compute", {"code": "(many or [one])[0]", "one": _EITHER, "many": "†results.3"}),
            ],
            "†results.4",
            "import tools\nitems = input['items']\ntry:\n    "
            "found = await tools.price(item=items[0])\n"
            "except RuntimeError:\n    found = await tools.price(item=items[-1])\nfound",
            _first_price,
        ),
        Task(
            f"pages backwards with {team}",
            {"pages": list(range(1, 1 + len(items)))},
            [
                ("page", {"number": "†item"}, {"_each": "†input.pages"}),
                ("pick", {"data": "†results.0", "path": "reverse([].rows[])"}),
            ],
            "†results.1",
            "import tools\nrows = []\nfor number in input['pages']:\n"
            "    rows = [*reversed((await tools.page(number=number))['rows']), *rows]\nrows",
            _pages,
        ),
        Task(
            f"notes about {len(items)} with {team}",
            of_items,
            [
                (
                    "compute",
                    {"code": "[f'{n}: {x}' for n, x in enumerate(items)]", "items": "†input.items"},
                ),
                ("note", {"text": "†item"}, {"_each": "†results.0"}),
                ("noted", {}),
            ],
            {"counts": "†results.1", "notes": "†results.2"},
            "import asyncio, tools\nasync def all_notes():\n"
            "    return await asyncio.gather(*[tools.note(text=f'{n}: {x}') for n, "
            "x in enumerate(input['items'])])\n"
            "counts = await all_notes()\n{'counts': list(counts), 'notes': await tools.noted()}",
            _three_notes,
        ),
    ]


def tasks(repos: list[Path], folder: Path) -> list[Task]:
    """All tasks. Those of the files come last: without their server they are left out."""
    return [
        *git_tasks(str(repos[0]), 1),
        *git_tasks(str(repos[1]), 3),
        *time_tasks("Europe/Lisbon", "Asia/Tokyo"),
        *time_tasks("Asia/Kathmandu", "America/Bogota"),
        *desk_tasks("red", 30, ["pen", "nothing", "paper"]),
        *desk_tasks("blue", 60, ["no pen", "ink"]),
        *desk_tasks("none", 0, ["†state.x"]),
        *file_tasks(folder, 1, "one\ntwo\n"),
        *file_tasks(folder, 2, "†input.file is text ✓"),
        *file_tasks(folder, 3, ""),
    ]
