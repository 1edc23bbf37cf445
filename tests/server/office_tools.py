"""Tools of an office for tests of publishing: files, tables, issues and messages, all in the
memory of the server.
"""

from __future__ import annotations

from typing import Any

from ideabridge.tools.decorator import tool
from ideabridge.tools.errors import ActivityError

FILES: dict[str, dict[str, Any]] = {
    "logs/a.log": {"day": "2026-11-01", "text": "error disk\nok\nerror net"},
    "logs/b.log": {"day": "2026-11-20", "text": "ok\nok"},
    "logs/c.log": {"day": "2026-11-27", "text": "error fan\nok"},
    "docs/x.txt": {"day": "2026-11-26", "text": "alpha"},
    "docs/y.txt": {"day": "2026-11-05", "text": "beta"},
    "arts/one.png": {"day": "2026-10-01", "text": "1"},
    "arts/two.gif": {"day": "2026-10-03", "text": "2"},
}
ROWS: dict[str, list[dict[str, Any]]] = {
    "sales": [
        {"city": "Bern", "amount": 120, "by": "ann"},
        {"city": "Kiel", "amount": 75, "by": "bob"},
        {"city": "Bern", "amount": 205, "by": "bob"},
    ],
    "costs": [
        {"city": "Kiel", "amount": 310, "by": "cid"},
        {"city": "Kiel", "amount": 11, "by": "ann"},
    ],
    "gifts": [{"city": "Ulm", "amount": 40, "by": "dan"}],
}
COMMITS: dict[str, list[dict[str, str]]] = {
    "oak": [{"id": "c1", "subject": "Fix the roof"}, {"id": "c2", "subject": "Add a window"}],
    "elm": [{"id": "c3", "subject": "Paint the door"}],
    "fir": [],
}
ISSUES: dict[str, dict[str, Any]] = {
    "I-101": {"state": "open", "labels": ["bug"], "owner": "ann"},
    "I-102": {"state": "closed", "labels": [], "owner": "bob"},
    "I-103": {"state": "open", "labels": ["bug", "late"], "owner": "cid"},
}
PEOPLE = {"ann": "ann@office.example", "bob": "bob@office.example", "cid": "cid@office.example"}
CODES = {"Bern": "CH-300", "Kiel": "DE-200", "Ulm": "DE-890"}
RATES = {"CH-300": 1.07, "DE-200": 1.19, "DE-890": 1.19}
DONE: list[list[Any]] = []
"""Everything that was changed, in order."""


@tool(read_only=True)
async def list_files(folder: str) -> list[dict[str, str]]:
    """The files of a folder, each with the day of its last change."""
    return [
        {"path": path, "day": one["day"]}
        for path, one in FILES.items()
        if path.startswith(f"{folder}/")
    ]


@tool(read_only=True)
async def read_file(path: str) -> str:
    """The text of a file."""
    if path not in FILES:
        raise ActivityError(f"there is no file {path}")
    return str(FILES[path]["text"])


@tool
async def move_file(source: str, target: str) -> None:
    """Move a file."""
    DONE.append(["move", source, target])


@tool(read_only=True)
async def rows(table: str) -> list[dict[str, Any]]:
    """The rows of a table."""
    return ROWS[table]


@tool(read_only=True)
async def page(table: str, number: int) -> dict[str, Any]:
    """A row of a table, and the number of the next one."""
    listed = ROWS[table]
    return {"row": listed[number], "next": number + 1 if number + 1 < len(listed) else None}


@tool(read_only=True)
async def commits(repository: str) -> list[dict[str, str]]:
    """The commits of a repository, the newest first."""
    return COMMITS[repository]


@tool(read_only=True)
async def issue(issue_id: str) -> dict[str, Any]:
    """An issue."""
    return ISSUES[issue_id]


@tool(read_only=True)
async def issues() -> list[dict[str, Any]]:
    """All issues."""
    return [{"id": key, **one} for key, one in ISSUES.items()]


@tool
async def label(issue_id: str, name: str) -> None:
    """Label an issue."""
    DONE.append(["label", issue_id, name])


@tool
async def close(issue_id: str, comment: str) -> None:
    """Close an issue."""
    DONE.append(["close", issue_id, comment])


@tool(read_only=True)
async def person(name: str) -> dict[str, str]:
    """A person."""
    return {"name": name, "mail": PEOPLE[name]}


@tool(read_only=True)
async def code(city: str) -> str:
    """The code of a city."""
    return CODES[city]


@tool(read_only=True)
async def rate(code: str) -> float:
    """The rate of a code."""
    return RATES[code]


@tool
async def send(to: str, text: str) -> None:
    """Send a message."""
    DONE.append(["send", to, text])


@tool(read_only=True)
async def done() -> list[list[Any]]:
    """What was changed since the last look."""
    changed = [*DONE]
    DONE.clear()
    return changed
