"""Admin: users and their tokens, limits, and the store."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.loop.policy import approval_parts
from ideabridge.bridge.store.errors import StoreAccessError
from ideabridge.bridge.store.users import LOCAL, SEES_ALL, read_expiry
from ideabridge.server.ui.access import PREFIX, expect_manager, form_of, visitor_of
from ideabridge.server.ui.showing import duration
from ideabridge.server.ui.site import Handler, Site
from ideabridge.server.views import checks
from ideabridge.server.views.checks import Findings
from ideabridge.tools.errors import ArgumentError

_COUNTED: Final = 1000

_CHANGES: Final = 20
"""Maximum number of changes of the configuration that the page shows."""


class AdminPages:
    """The page for the owner of the store and for admins."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        changing = self._site.changing
        return [
            Route("/admin", self._guarded(self.show)),
            Route("/admin/doctor", self._guarded(self.doctor)),
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
        """Show users, limits and the store."""
        bridge = self._bridge
        store = self._bridge.store
        configuration = bridge.configuration
        tokens = store.users.tokens()
        listed = store.runs.newest(SEES_ALL, limit=_COUNTED, rooms=False)
        programs = f"ideabridge {version('ideabridge')}, mcp {version('mcp')}"
        place = "in memory"
        if store.path != ":memory:":
            place = f"{store.path}, {store.used_bytes() / 1e6:.1f} MB"

        runs = f"{len(listed):,}"
        if len(listed) == _COUNTED:
            runs += " or more"

        mind = "the caller, or its client's model" if bridge.mind is None else bridge.mind.name
        parts = approval_parts(configuration.approval_setting)
        approval = ", ".join(part if isinstance(part, str) else "rules" for part in parts)
        users = [
            (user, [token for token in tokens if token.user == user.name])
            for user in store.users.all()
        ]
        return self._site.page(
            request,
            "admin.html",
            users=users,
            facts=[
                ("Program", f"{programs}, Python {platform.python_version()}"),
                ("Database", store.engine()),
                ("Store", place),
                ("Runs", runs),
                ("Mind", mind),
                ("Approval", approval),
                ("Order of effects", str(configuration.order)),
            ],
            limits=_limits(configuration),
            retention=configuration.retention,
            layers=configuration.layers,
            away=bridge.modules.away(),
            changes=store.configuration_log.newest(_CHANGES),
            backups=store.is_file,
        )

    async def doctor(self, request: Request) -> Response:
        """Show what `ideabridge doctor` would say about this process."""
        bridge = self._bridge
        findings = Findings()
        checks.check_program(findings)
        checks.check_configuration(findings, bridge.configuration)
        # The check counts the runs that retention will delete.
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
        if visitor_of(request).caller == LOCAL:
            checks.check_hosts(findings, bridge.configuration.project)

        return self._site.page(request, "doctor.html", found=findings)

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
            return self._show_token(request, f"{user.name} is a {user.role}", text)

        if action in ("disable", "enable"):
            users.change(name, state="disabled" if action == "disable" else "active")
        elif action in ("member", "admin"):
            users.change(name, role="admin" if action == "admin" else "member")
        else:
            raise ArgumentError(
                f"action: expected add, disable, enable, member or admin, found {action[:40]!r}"
            )

        return self._site.back(request, f"{PREFIX}/admin", f"{name}: {action}.")

    async def change_token(self, request: Request) -> Response:
        """Create a token for a user, or revoke one."""
        form = form_of(request)
        users = self._bridge.store.users
        if form.get("action") == "revoke":
            token = users.revoke(form.get("token"))
            return self._site.back(
                request, f"{PREFIX}/admin", f"Token {token.id} of {token.user} is revoked."
            )

        _, text = users.add_token(
            form.get("name"), form.get("label").strip(), _expiry(form.get("expires"))
        )
        return self._show_token(request, f"A token of {form.get('name')}", text)

    def _show_token(self, request: Request, sentence: str, token: str) -> Response:
        return self._site.back(
            request,
            f"{PREFIX}/admin",
            f"{sentence}. Copy the token now, because it is not shown again:\n{token}",
        )

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
        return self._site.back(request, f"{PREFIX}/admin", f"{size:,} bytes copied to {target}.")


def _limits(configuration: Configuration) -> list[tuple[str, str]]:
    """Return (what is limited, its limit) for each limit that the configuration sets."""
    limits = configuration.limits
    users = configuration.users
    return [
        ("Calls of a run at the same time", f"{limits.parallel_calls:,}"),
        ("Calls of a run", f"{limits.calls:,}"),
        ("Requests of a run to a model", f"{limits.requests:,}"),
        ("Tokens of a run", "any number" if limits.tokens is None else f"{limits.tokens:,}"),
        ("Cost of a run", "any" if limits.cost is None else f"${limits.cost:g}"),
        ("Time that a run may take", duration(limits.wall_seconds)),
        ("A result", f"{limits.result_bytes / 2**20:g} MB"),
        ("All results of a run", f"{limits.run_bytes / 2**20:g} MB"),
        ("Runs of a user at the same time", f"{users.runs:,}"),
        ("Requests of a user per minute", f"{users.requests_per_minute:,}"),
        ("Who may share tools", users.share),
    ]


def _expiry(text: str) -> float | None:
    return read_expiry(text.strip()) if text.strip() else None
