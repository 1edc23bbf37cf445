"""The pages for users and their tokens, the limits of runs, and the store."""

from __future__ import annotations

import platform
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final
from urllib.parse import quote

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ideabridge.bridge.configuration import (
    Configuration,
    Limits,
    parse_configuration,
    user_file,
)
from ideabridge.bridge.loop.event import LOCAL_USER
from ideabridge.bridge.loop.policy import approval_parts
from ideabridge.bridge.store.errors import StoreAccessError
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL, SEES_ALL, Token, User, read_expiry
from ideabridge.server.hosts.editing.host_text import read_host_text
from ideabridge.server.hosts.host import SERVER_NAME
from ideabridge.server.hosts.table import host_title
from ideabridge.server.transports.gate import PAGE
from ideabridge.server.ui.access import (
    FormFields,
    Note,
    PageSession,
    Visitor,
    access_of,
    expect_manager,
    expect_owner,
    form_of,
    is_encrypted,
    visitor_of,
)
from ideabridge.server.ui.change_sentences import change_sentences
from ideabridge.server.ui.connecting import known_assistants
from ideabridge.server.ui.server_forms import file_to_change
from ideabridge.server.ui.servers_by_state import ServersByState
from ideabridge.server.ui.sign_ins import servers_to_sign_in_to
from ideabridge.server.ui.site import Handler, Site
from ideabridge.server.views import checks
from ideabridge.server.views.checks import CheckResult, Findings
from ideabridge.tools.encoding import decode, encode_text, number_or_none
from ideabridge.tools.errors import ArgumentError, IdeabridgeError
from ideabridge.tools.names import age_text, counted, size_text
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.tool import Order

_COUNTED: Final = 1000

_SHOWN_SESSIONS: Final = 5
"""Number of sessions that the page shows expanded. The others are collapsed."""

_ORDERS: Final[dict[Order, str]] = {
    "effects": "a call that may change something waits for the earlier calls of its server",
    "all": "every call waits for all earlier calls",
    "none": "no call waits for another, unless it needs its result",
}
_APPROVALS: Final = {
    "default": "ask before changes",
    "allow_all": "never ask",
}
"""Phrases for the named approval settings."""

_CHANGES: Final = 20
"""Maximum number of changes to the configuration that the page shows."""


class AdminPages:
    """The page for the store's owner and for admins."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        changing = self._site.changing
        return [
            Route("/admin", self._guarded(self.show)),
            Route("/admin/doctor", self._guarded(self.doctor)),
            Route("/admin/users/{name}", self._guarded(self.show_user)),
            Route("/admin/limits", changing(self.change_limits), methods=["POST"]),
            Route("/admin/sessions", changing(self._guarded(self.end_session)), methods=["POST"]),
            Route("/admin/users", changing(self._guarded(self.change_user)), methods=["POST"]),
            Route("/admin/tokens", changing(self._guarded(self.change_token)), methods=["POST"]),
            Route("/admin/backup", changing(self._guarded(self.back_up)), methods=["POST"]),
        ]

    @staticmethod
    def _guarded(handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            expect_manager(visitor_of(request))
            return await handler(request)

        return guarded

    async def show(self, request: Request) -> Response:
        """Show the server and its store or, depending on the `show` parameter, the users or the
        limits.
        """
        bridge = self._bridge
        store = self._bridge.store
        configuration = bridge.configuration
        tokens = store.users.tokens()
        listed = store.runs.newest(SEES_ALL, limit=_COUNTED, rooms=False)
        own_version = f"ideabridge {version('ideabridge')}"
        programs = f"{own_version}, mcp {version('mcp')}"
        place = "in memory"
        stored = ""
        if store.path != ":memory:":
            stored = size_text(store.used_bytes())
            place = f"{store.path}, {stored}"

        runs = f"{len(listed):,}"
        if len(listed) == _COUNTED:
            runs += " or more"

        mind = "that of the assistant that asks" if bridge.mind is None else bridge.mind.name
        visitor = visitor_of(request)
        access = access_of(request)
        sessions = access.sessions(visitor)
        return self._site.page(
            request,
            "admin.html",
            view=request.query_params.get("show", ""),
            users=[_row(user, tokens, sessions, visitor) for user in store.users.all()],
            owner_used=_last_used(LOCAL_USER, sessions),
            sessions=sessions,
            most_sessions=_SHOWN_SESSIONS,
            needs_token=access.needs_token,
            version=own_version,
            by_state=ServersByState.of(bridge.modules.statuses()),
            stored=stored,
            facts=[
                ("Program", f"{programs}, Python {platform.python_version()}"),
                ("Database", store.engine()),
                ("Data", place),
                ("Runs", runs),
                ("Model", mind),
                ("Approval", _approval(configuration)),
                ("Calls that change something", _ORDERS[configuration.order]),
            ],
            limits=_limits(configuration),
            fields=_limit_fields(configuration.limits),
            limits_file=file_to_change(configuration) if visitor.is_owner else None,
            retention=configuration.retention,
            layers=configuration.layers,
            away=bridge.modules.away(),
            to_sign_in_to=servers_to_sign_in_to(bridge, visitor),
            changes=[
                (change, change_sentences(change))
                for change in store.configuration_log.newest(_CHANGES)
            ],
            backups=store.is_file,
        )

    async def doctor(self, request: Request) -> Response:
        """Show what `ideabridge doctor` would report about this process."""
        bridge = self._bridge
        findings = Findings()
        checks.check_program(findings)
        checks.check_configuration(findings, bridge.configuration)
        # Use a thread, because this check counts the runs that retention will delete.
        await anyio.to_thread.run_sync(
            checks.describe_store, findings, bridge.store, bridge.configuration
        )
        own = sorted(tool.name for tool in bridge.tools() if tool.module is None)
        findings.add("tools", ", ".join(own) or "none of its own")
        for fault in bridge.configuration.tool_faults:
            findings.add("tools", fault, wrong=True)

        for status in bridge.modules.statuses():
            checks.describe_module(findings, status)

        await checks.check_mind(findings, bridge.configuration)
        visitor = visitor_of(request)
        if visitor.caller == LOCAL:
            called = await compute_in_thread(_last_calls, bridge.store, visitor)
            checks.check_hosts(findings, bridge.configuration.project, called)

        return self._site.page(
            request,
            "doctor.html",
            concerns=_concerns(findings.found),
            fine=[one for one in findings.found if one.state == "ok" and not one.is_unused],
            host_title=host_title,
            to_sign_in_to=servers_to_sign_in_to(bridge, visitor),
        )

    async def show_user(self, request: Request) -> Response:
        """Show one user, with the user's tokens and editable settings."""
        users = self._bridge.store.users
        user = users.get(request.path_params["name"])
        tokens = [token for token in users.tokens() if token.user == user.name]
        return self._site.page(
            request,
            "admin_user.html",
            user=user,
            tokens=tokens,
            is_self=user.caller == visitor_of(request).caller,
        )

    async def change_limits(self, request: Request) -> Response:
        """Change the limits for runs in the configuration file."""
        expect_owner(visitor_of(request))
        form = form_of(request)
        file = file_to_change(self._bridge.configuration)
        reloading = self._site.front.reloading
        if file is None or reloading is None:
            raise ArgumentError(
                "this ideabridge was started by a program that gives it its configuration, so its "
                "limits cannot be changed here"
            )

        limits = self._bridge.configuration.limits
        await anyio.to_thread.run_sync(_write_limits, file, form, limits)
        await reloading.look()
        return self._site.back(request, "/admin?show=limits", f"The limits are written to {file}.")

    async def end_session(self, request: Request) -> Response:
        """End one session on the page, or all sessions except the visitor's own."""
        access = access_of(request)
        form = form_of(request)
        if form.get("which") == "others":
            ended = access.end_other_sessions(visitor_of(request))
            text = f"{counted(ended, 'session')} ended."
        else:
            session = access.end_session(form.get("session"), visitor_of(request))
            text = f"A session of {session.name} has ended."
        return self._site.back(request, "/admin?show=users", text)

    async def change_user(self, request: Request) -> Response:
        """Add, disable, enable or promote a user."""
        form = form_of(request)
        users = self._bridge.store.users
        name = form.get("name").strip()
        action = form.get("action")
        if action == "add":
            with self._bridge.store.transaction():
                user = users.add(name, "admin" if form.get("role") == "admin" else "member")
                _, text = users.add_token(name, "first", _expiry(form.get("expires")))
            return self._invite(request, user, text)

        if users.get(name).caller == visitor_of(request).caller:
            raise ArgumentError(
                "you cannot change your own role or state; ask another admin to do it"
            )
        if action in ("disable", "enable"):
            users.change(name, state="disabled" if action == "disable" else "active")
        elif action in ("member", "admin"):
            users.change(name, role="admin" if action == "admin" else "member")
        else:
            raise ArgumentError(
                f"action: expected add, disable, enable, member or admin, found {action[:40]!r}"
            )

        return self._site.back(request, _page_of(name), f"{name}: {action}.")

    async def change_token(self, request: Request) -> Response:
        """Create a token for a user, or revoke one."""
        form = form_of(request)
        users = self._bridge.store.users
        if form.get("action") == "revoke":
            token = users.revoke(form.get("token"))
            return self._site.back(
                request, _page_of(token.user), f"Token {token.id} of {token.user} is revoked."
            )

        name = form.get("name")
        _, text = users.add_token(name, form.get("label").strip(), _expiry(form.get("expires")))
        return self._invite(request, users.get(name), text)

    def _invite(self, request: Request, user: User, token: str) -> Response:
        """Show, only once, a text with the token to pass on to a user."""
        visitor = visitor_of(request)
        note = f"Hand this over to {user.name}. It has the token, which is not shown again:"
        visitor.notes.append(Note("good", note))
        visitor.notes.append(Note("text", _invitation(request, user, token)))
        return self._site.back(request, _page_of(user.name))

    async def back_up(self, request: Request) -> Response:
        """Copy the store to a new file next to it."""
        store = self._bridge.store
        if not store.is_file:
            raise StoreAccessError(
                "only a store in a file can be copied here; for PostgreSQL, use `ideabridge store "
                "backup`"
            )

        path = Path(store.path)
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        target = path.with_name(f"{path.stem}-{stamp}{path.suffix}")
        size = await anyio.to_thread.run_sync(store.back_up, target)
        return self._site.back(request, "/admin", f"{size_text(size)} copied to {target}.")


@dataclass(frozen=True, slots=True)
class Concern:
    """The check results for one topic, such as an assistant, that need attention.

    Attributes:
        results: at least one result, with errors first, then warnings, then what is not set up.
    """

    results: list[CheckResult]

    @property
    def topic(self) -> str:
        """The topic of the results."""
        return self.results[0].topic

    @property
    def parts(self) -> tuple[str, str]:
        """The kind and the name of the topic; see `CheckResult.parts`."""
        return self.results[0].parts

    @property
    def is_server(self) -> bool:
        """True if the topic is a server."""
        return self.parts[0] == "server"

    @property
    def state(self) -> str:
        """The worst state of the results: `wrong`, `warning` or `ok`."""
        return self.results[0].state

    @property
    def is_unused(self) -> bool:
        """True if something is not set up."""
        return any(result.is_unused for result in self.results)


def _concerns(results: Sequence[CheckResult]) -> list[Concern]:
    """Return the results that need attention, grouped by topic."""
    by_topic: dict[str, list[CheckResult]] = {}
    for result in results:
        if result.state != "ok" or result.is_unused:
            by_topic.setdefault(result.topic, []).append(result)

    order = ["wrong", "warning", "ok"]
    return [
        Concern(sorted(found, key=lambda result: order.index(result.state)))
        for found in by_topic.values()
    ]


def _last_calls(store: Store, visitor: Visitor) -> dict[str, str]:
    """Return how long ago each recent assistant last called, keyed by its name. This function
    blocks.
    """
    now = time.time()
    return {
        assistant.name: age_text(now - assistant.seen.at)
        for assistant in known_assistants(store, visitor, ())
        if assistant.seen is not None
    }


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user in the list.

    Attributes:
        user: the user.
        valid: how many valid tokens the user has.
        used: when any of these tokens, or a session of the user, was last used, in seconds since
            1970, or None if none has been used.
        is_self: whether the user is the visitor.
    """

    user: User
    valid: int
    used: float | None
    is_self: bool


@dataclass(frozen=True, slots=True)
class LimitField:
    """A limit for runs that can be changed on the page.

    Attributes:
        limit: the limit and its description.
        value: the limit's value, or "" if there is no limit.
    """

    limit: ChangedLimit
    value: str


@dataclass(frozen=True, slots=True)
class ChangedLimit:
    """A limit for runs that the page can change, with its description.

    Attributes:
        key: the limit's configuration key.
        label: the limit's name on the page.
        unit: the unit of the limit.
        hint: a sentence that explains the limit.
        may_be_empty: whether the limit can be turned off.
    """

    key: str
    label: str
    unit: str
    hint: str
    may_be_empty: bool = False


_CHANGED_LIMITS: Final = (
    ChangedLimit("parallel_calls", "Calls at once", "calls", "Further calls of the run wait."),
    ChangedLimit("calls", "Calls per run", "calls", "Failed calls count, too."),
    ChangedLimit(
        "requests", "Model requests per run", "requests", "How often a run may ask its model."
    ),
    ChangedLimit(
        "tokens",
        "Tokens per run",
        "tokens",
        "The text that its models read and write.",
        may_be_empty=True,
    ),
    ChangedLimit(
        "cost",
        "Cost per run",
        "US dollars",
        "The price of its models, if it is known.",
        may_be_empty=True,
    ),
    ChangedLimit("wall_seconds", "Time per run", "seconds", "Waiting for a person does not count."),
)


_GROUPED: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
"""A number with commas between its groups of three digits. In another place, a comma may stand for
a decimal point.
"""


def _limit_fields(limits: Limits) -> list[LimitField]:
    written = limits.model_dump()
    fields: list[LimitField] = []
    for limit in _CHANGED_LIMITS:
        value = written[limit.key]
        text = "" if value is None else encode_text(value)
        if isinstance(value, int):
            text = f"{value:,}"
        fields.append(LimitField(limit, text))
    return fields


def _write_limits(path: Path, form: FormFields, present: Limits) -> None:
    """Write the limits of a form that differ from the current ones to a configuration file, and
    leave all other bytes unchanged. This function blocks.

    Raises:
        ArgumentError: a limit is not a number.
        ConfigurationError: a limit is out of range.
        HostFileError: the file cannot be written.
    """
    text = read_host_text(path, "json")
    limits = {**text.entries(("limits",))}
    values = present.model_dump()
    for limit in _CHANGED_LIMITS:
        number = _number_of(form.get(limit.key).strip(), limit)
        if number == values[limit.key]:
            continue
        if number is None:
            text = text.without_entry(("limits",), limit.key)
            limits.pop(limit.key, None)
        else:
            text = text.with_entry(("limits",), limit.key, number)
            limits[limit.key] = number

    parse_configuration({"limits": limits}, project=path.parent)
    text.edit(private=path == user_file())


def _number_of(text: str, limit: ChangedLimit) -> int | float | None:
    """Return the number in a field, or None if the field means no limit.

    Raises:
        ArgumentError: the text is not a number.
    """
    if not text and limit.may_be_empty:
        return None
    digits = text.replace(",", "") if _GROUPED.fullmatch(text) else text
    try:
        number = number_or_none(decode(digits, what=limit.label))
    except IdeabridgeError:
        number = None
    if number is None:
        raise ArgumentError(f"{limit.label}: expected a number, found {text[:80]!r}")
    return number


def _approval(configuration: Configuration) -> str:
    """Return a phrase that says which calls need approval."""
    parts = approval_parts(configuration.approval_setting)
    words = [
        _APPROVALS.get(part, part) if isinstance(part, str) else "as the rules say"
        for part in parts
    ]
    return "; ".join(dict.fromkeys(words))


def _row(
    user: User, tokens: Sequence[Token], sessions: Sequence[PageSession], visitor: Visitor
) -> UserRow:
    own = [token for token in tokens if token.user == user.name]
    used = [datetime.fromisoformat(token.used).timestamp() for token in own if token.used]
    in_session = _last_used(user.caller, sessions)
    if in_session is not None:
        used.append(in_session)
    return UserRow(
        user,
        valid=sum(token.state == "valid" for token in own),
        used=max(used, default=None),
        is_self=user.caller == visitor.caller,
    )


def _last_used(caller: str, sessions: Sequence[PageSession]) -> float | None:
    """Return when a caller last used a session, in seconds since 1970, or None if the caller has no
    session.
    """
    idle = [session.idle for session in sessions if session.caller == caller]
    return time.time() - min(idle) if idle else None


def _page_of(name: str) -> str:
    return f"/admin/users/{quote(name, safe='')}"


def _invitation(request: Request, user: User, token: str) -> str:
    """Return the instructions that a user needs to connect.

    They contain the address that the visitor's browser uses, so this address must also be reachable
    for the user.
    """
    scheme = "https" if is_encrypted(request.scope) else "http"
    base = f"{scheme}://{request.headers['host']}"
    header = f"Authorization: Bearer {token}"
    words = ["claude", "mcp", "add", "--transport", "http", SERVER_NAME, f"{base}/mcp"]
    return "\n".join(
        [
            f"{user.name}, you can use the ideabridge of your team.",
            "",
            "Claude Code:",
            f"  {shlex.join([*words, '--header', header])}",
            "",
            "Other assistants:",
            f"  address: {base}/mcp",
            f"  header:  {header}",
            "",
            f"Your runs and approvals are at {base}{PAGE}/ ; sign in there with the token:",
            f"  {token}",
            "",
            "The token is yours alone: whoever has it acts in your name.",
        ]
    )


def _limits(configuration: Configuration) -> list[tuple[str, str]]:
    """Return the name and value of each limit that the page shows but cannot change."""
    limits = configuration.limits
    users = configuration.users
    return [
        ("Size of one result", size_text(limits.result_bytes)),
        ("Size of all results of a run", size_text(limits.run_bytes)),
        ("Active runs per user", f"{users.runs:,}"),
        ("Requests of a user per minute", f"{users.requests_per_minute:,}"),
        ("Who may share tools", users.share),
    ]


def _expiry(text: str) -> float | None:
    return read_expiry(text.strip()) if text.strip() else None
