"""Describe the plan of a setup in words for users and as JSON for scripts, without its secrets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ideabridge.bridge.masking import shown_definition
from ideabridge.server.hosts.entries import start_line
from ideabridge.server.setup.plan import (
    PlannedHost,
    PlannedServer,
    PlannedService,
    ServerSource,
    SetupPlan,
)
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.names import counted

TITLES = ("server", "from", "what it starts or calls")
"""The titles of the columns of `server_rows`."""


def server_rows(plan: SetupPlan) -> list[tuple[str, str, str]]:
    """Return a row for each of the user's servers: its name, the hosts that have it, and its
    command or address.
    """
    return [_row(server) for server in plan.servers if server.target.is_own]


def project_rows(plan: SetupPlan) -> list[tuple[str, str, str]]:
    """Return a row for each of the project's servers, as `server_rows` does."""
    servers = [server for server in plan.servers if not server.target.is_own]
    return [_row(server) for server in (*servers, *plan.asks_person)]


def _row(server: PlannedServer) -> tuple[str, str, str]:
    return server.name, ", ".join(_sources(server)), started(server.entry)


def _sources(server: PlannedServer) -> list[str]:
    return list(dict.fromkeys(map(_source, server.sources)))


def _source(source: ServerSource) -> str:
    match source.adoption.scope:
        case "local":
            return f"{source.host.title} (yours, in this project)"
        case _:
            return source.host.title


def started(entry: JSONObject) -> str:
    """Return the command or address of an entry, followed by its settings. Secrets are removed."""
    shown = shown_definition(entry)
    parts = [start_line(shown)]
    if "command" in shown and "cwd" in shown:
        parts.append(f"in {shown['cwd']}")

    for key, sign in (("env", "="), ("headers", ": "), ("auth", "=")):
        members = object_or_empty(shown.get(key))
        parts += [f"{name}{sign}{value}" for name, value in members.items()]

    if shown.get("disabled"):
        parts.append("disabled")
    return "; ".join(parts)


def refused_lines(plan: SetupPlan) -> list[str]:
    """Return a line for each server that cannot be adopted, and for each malformed file."""
    lines = [f"{server.name} ({server.host.title}): {server.why}" for server in plan.refused]
    lines += [
        f"{server.name} ({', '.join(server.titles)}): belongs to the project; to set it up, run "
        "`ideabridge setup` without --yes at a terminal"
        for server in plan.asks_person
    ]
    problems = [problem for host in plan.inventory.hosts for problem in host.problems]
    blocked = [host.why for host in plan.hosts]
    lines += [problem for problem in dict.fromkeys(problems) if problem not in blocked]
    lines += [
        f"{host.host.title} does not get ideabridge: {host.why}"
        for host in plan.hosts
        if host.state == "blocked"
    ]
    return lines


def difference_lines(plan: SetupPlan) -> list[str]:
    """Return a line for each difference between a server in ideabridge and in its hosts, and for
    each server that is not moved.
    """
    lines = [f"{server.name}: {note}" for server in plan.new_servers for note in server.notes]
    lines += [
        f"{server.name}: a secret of your entry cannot be read, so it stays in "
        f"{listed_words(server.titles)}; for details, run `ideabridge secrets list`"
        for server in plan.servers
        if not server.is_certain
    ]
    return lines


def change_lines(plan: SetupPlan) -> list[str]:
    """Return a line for each change that the setup will make."""
    lines: list[str] = []
    for change in plan.receiving():
        servers = counted(len(change.edits), "server")
        line = f"{servers} into {change.title}, {near(change.path)}"
        if change.project is not None:
            line += ", which will then be trusted as shown here"
        lines.append(line)

    secrets = [secret.name for secret in plan.secrets]
    if secrets:
        lines.append(
            f"{counted(len(secrets), 'secret')} ({', '.join(secrets)}) into the keyring or, if "
            "there is none, into a file that only you can read"
        )

    if plan.service is not None:
        lines += _service_lines(plan, plan.service)

    if plan.new_hosts:
        names = listed_words([host.host.title for host in plan.new_hosts])
        lines.append(f"ideabridge into {names}")
        lines += [f"  {near(host.place.path)}" for host in plan.new_hosts]
        if plan.note:
            lines.append(f"  {plan.note}")

    return lines


def _service_lines(plan: SetupPlan, planned: PlannedService) -> Iterator[str]:
    """Yield lines about the effects of a service that clients share."""
    place = planned.url.removesuffix("/mcp")
    if planned.is_installed:
        yield f"clients connect to your service at {place}, which is already there"
    else:
        yield f"a service at {place}, {near(planned.service.file)}, to which clients connect"
    yield (
        "  Each server then starts once for all clients. A server that keeps state, such as a "
        "browser or a shell, shares this state with all clients; with "
        '"sharing": "session" in its entry, each session has its own'
    )
    yield (
        "  Clients use your own configuration there. For a project's ideabridge.json, run "
        "`ideabridge install HOST --http --scope local` or `--scope project` in its folder"
    )
    if plan.apart:
        names = listed_words([host.host.title for host in plan.apart])
        yield (
            f"  A separate ideabridge starts for {names}, because ideabridge does not know how to "
            "connect these clients to an address"
        )


def habit_lines(plan: SetupPlan) -> list[str]:
    """Return a line for each rule of a host that would have no effect after a move."""
    return [
        f"{habit.host}, {habit.server}: {habit.shown} ({near(habit.path)})" for habit in plan.habits
    ]


def listed_words(words: Sequence[str]) -> str:
    """Join words to a list for use in a sentence."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def near(path: Path) -> str:
    """Return a path as text, with `~` for the home folder."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def plan_json(plan: SetupPlan) -> JSONObject:
    """Return a plan as JSON."""
    return {
        "clients": [_host_json(host) for host in plan.hosts],
        "service": None if plan.service is None else _service_json(plan.service),
        "servers": list(_servers_json(plan)),
        "refused": [
            {"name": server.name, "client": server.host.name, "why": server.why}
            for server in plan.refused
        ],
        "problems": [problem for host in plan.inventory.hosts for problem in host.problems],
        "rules": [
            {
                "client": habit.host,
                "server": habit.server,
                "file": str(habit.path),
                "words": [*habit.words],
                "count": habit.count,
            }
            for habit in plan.habits
        ],
    }


def _host_json(planned: PlannedHost) -> JSONObject:
    host: JSONObject = {
        "name": planned.host.name,
        "file": str(planned.place.path),
        "state": planned.state,
    }
    if planned.why:
        host["why"] = planned.why
    return host


def _service_json(planned: PlannedService) -> JSONObject:
    state = "present" if planned.is_installed else "new"
    return {"url": planned.url, "file": str(planned.service.file), "state": state}


def _servers_json(plan: SetupPlan) -> Iterator[JSON]:
    waiting = set(map(id, plan.asks_person))
    for server in (*plan.servers, *plan.asks_person):
        if id(server) in waiting:
            state = "needs_person"
        else:
            state = "new" if server.is_new else "present"

        yield {
            "name": server.name,
            "state": state,
            "to": str(server.target.file),
            "from": [
                {
                    "client": source.host.name,
                    "name": source.adoption.shown_name,
                    "file": str(source.adoption.file),
                    "scope": source.adoption.scope,
                }
                for source in server.sources
            ],
            "entry": shown_definition(server.entry),
            "secrets": [secret.name for secret in server.secrets],
            "notes": [*server.notes],
        }
