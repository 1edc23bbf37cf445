"""Explain, for errors about unknown tools, why tools are missing from this process."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Generator, Iterable
from contextlib import contextmanager
from typing import Final

from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.modules.errors import ToolNotAllowedError
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.settings import ModuleStatus
from ideabridge.bridge.profiles import Profile
from ideabridge.bridge.programs.names import identifier
from ideabridge.bridge.programs.sandbox import AbsentServers
from ideabridge.tools.names import shown_name
from ideabridge.tools.tool import Tool, ToolKey

_AWAY: Final = 600
"""Maximum total length, in characters, of the reasons why servers are not up, in an error about an
unknown tool.
"""

_REFUSED: Final = 5
"""Maximum number of reasons why tools cannot be called, in an error about a program."""


class MissingTools:
    """Explains why tools are not in the offer, or cannot be called.

    Args:
        configuration: contains the entries of the servers, and says whether a project file is
            ignored.
        modules: the servers, whose states explain why tools are missing.
        own: the names of the tools of this process.
        profile: the profile that restricts the offer, or None for no restriction. Errors name a
            server outside the profile only if a call names it.
        hidden: returns the known tools that are outside the profile.
    """

    def __init__(
        self,
        configuration: Configuration,
        modules: Modules,
        own: Container[str],
        profile: Profile | None = None,
        hidden: Callable[[], Iterable[Tool]] = list,
    ) -> None:
        self._configuration = configuration
        self._modules = modules
        self._own = own
        self._profile = profile
        self._hidden = hidden

    def follow(self, configuration: Configuration) -> None:
        """Switch to another configuration for the same process."""
        self._configuration = configuration

    def sentences(self, named: Collection[str | None] = ()) -> str:
        """Return the reasons why tools might be missing, for errors about unknown tools: the
        project file is not used, or servers are not up.

        Each sentence begins with a space, and the result is "" if there is no such reason. The
        servers in `named` come first.
        """
        return f"{self.unused_file()}{self.away(named)}"

    def unused_file(self) -> str:
        """Return sentences about the files that are not used, each beginning with a space, or "" if
        all files are used.
        """
        return "".join(f" {sentence}" for sentence in self._configuration.unused_files)

    def away(self, named: Collection[str | None] = ()) -> str:
        """Return a sentence about the servers that are not up, for errors about unknown tools.

        The sentence begins with a space. The result is "" if all servers are up. The servers in
        `named` come first.
        """
        reasons: list[str] = []
        left = _AWAY
        away = [status for status in self._modules.away() if self._has_server(status.name)]
        for status in sorted(away, key=lambda status: status.name not in named):
            reason = f"{status.name} ({status.why[:_AWAY]})"
            left -= len(reason)
            if reasons and left < 0:
                # Mention only the name of the server, because a truncated reason might lack the
                # very command that helps.
                reason = status.name
            reasons.append(reason)

        if not reasons:
            return ""
        return f" Unavailable servers: {', '.join(reasons)}."

    def lacking(self, key: ToolKey) -> str | None:
        """Return what a call to a tool lacks in this process, regardless of which servers are up.

        See the `lacking` function.
        """
        lack = lacking(self._configuration, key, self._own)
        hidden = self._hidden_part(key[1], key[0])
        if lack is not None or hidden is None or self._profile is None:
            return lack
        return self._profile.lack(*hidden)

    def hides(self, key: ToolKey) -> str | None:
        """Return why the profile does not contain a tool, or None if it does or if there is no
        profile.
        """
        hidden = self._hidden_part(key[1], key[0])
        if hidden is None or self._profile is None:
            return None
        return self._profile.refusal(*hidden)

    def _has_server(self, name: str) -> bool:
        return self._profile is None or self._profile.admits_server(name)

    def _hidden_part(self, name: str, module: str | None) -> tuple[str, str] | None:
        """Return the kind and name of what the profile omits: the server of an existing tool, or
        the tool itself. Return None if the profile contains the tool.

        Args:
            name: the name of the tool.
            module: the server of the tool, or None for this process.
        """
        profile = self._profile
        if profile is None:
            return None
        if module is not None and module in self._modules and not profile.admits_server(module):
            return "server", module

        for tool in self._hidden():
            names = (tool.name, tool.name_in_module)
            if tool.module == module and name in names:
                return "tool", tool.label

        if module is not None and module in self._modules and not profile.admits(module, name):
            # The server has not listed its tools yet, so only the name can be compared with the
            # patterns of the profile.
            return "tool", f"{module}.{name}"
        return None

    def why_away(self, module: str) -> str | None:
        """Return a sentence that says why a configured server currently has no tools.

        The server is not up, has not listed its tools, or has none. Return None if it has tools or
        does not exist.
        """
        if module not in self._modules:
            return None
        if self._profile is not None and not self._profile.admits_server(module):
            return self._profile.refusal("server", module)
        return _why_away(self._modules[module].status(), listed=self._modules[module].listed)

    def absent(self) -> AbsentServers:
        """Return why a server that a program imports might be missing from this process."""
        servers: dict[str, str] = {}
        for name in self._modules.names:
            reason = self.why_away(name)
            if reason is not None and not (self._has_server(name) and self._modules[name].tools):
                servers[identifier(name)] = reason
                servers[name] = reason
        return AbsentServers(servers, self.sentences())

    # -- tools that cannot be called ---------------------------------------------------------------

    def why_refused(self, name: str, module: str | None = None) -> str | None:
        """Return a sentence that says why a server's tool cannot be called, or None if the tool is
        unknown.

        The configuration might not allow the tool, its definition might be unusable, or the server
        might be disabled, not up, or not have listed its tools.

        Args:
            name: the tool's name, or MODULE_NAME.
            module: the server that a call names, or None for any server.
        """
        if module is None:
            return self._why_refused_anywhere(name)
        if module not in self._modules:
            return None

        hidden = self.hides((module, name))
        if hidden is not None:
            return hidden

        reason = self._modules[module].why_without(name)
        if isinstance(reason, ToolNotAllowedError):
            return str(reason)

        away = self.why_away(module)
        if away is not None or reason is None:
            return away
        return str(reason)

    def why_hidden(self, name: str) -> str | None:
        """Return why the profile does not contain a tool named `name`, from any server. Return None
        if no tool outside the profile has this name.
        """
        for tool in self._hidden():
            if name in (tool.name, tool.label, f"{tool.module}.{tool.name}") and self._profile:
                return self._profile.refusal("tool", name)
        return None

    def _why_refused_anywhere(self, name: str) -> str | None:
        hidden = self.why_hidden(name)
        if hidden is not None:
            return hidden

        for owner in self._modules.names:
            if not self._has_server(owner):
                continue
            module = self._modules[owner]
            names = (name, name.removeprefix(f"{owner}_"))
            for refused in module.refused:
                if refused in names:
                    return str(module.why_without(refused))

        return None

    @contextmanager
    def naming_refused(self, program: str) -> Generator[None]:
        """Add to an error about a program why tools and servers that the program might name cannot
        be called.
        """
        try:
            yield
        except PlanError as error:
            words = {*re.findall(r"\w+", program)}
            reasons: list[str] = []
            for module in self._modules.names:
                if {module, identifier(module)} & words:
                    reasons += self._refused_among(words, module)

            text = str(error)
            lines = [reason for reason in reasons[:_REFUSED] if reason not in text]
            raise PlanError("\n".join([text, *lines])) from None

    def _refused_among(self, words: set[str], name: str) -> list[str]:
        profile = self._profile
        if profile is not None:
            if not profile.admits_server(name):
                return [profile.refusal("server", name)]

            of_server = [tool for tool in self._hidden() if tool.module == name]
            hidden = [
                profile.refusal("tool", tool.label)
                for tool in of_server
                if {tool.name_in_module, identifier(tool.name_in_module)} & words
            ]
            if hidden:
                return hidden

        module = self._modules[name]
        if module.state == "disabled":
            return [f"server {name!r} is disabled in the configuration"]
        tools = [tool for tool in module.refused if {tool, identifier(tool)} & words]
        return [str(module.why_without(tool)) for tool in tools]


def _why_away(status: ModuleStatus, *, listed: bool) -> str | None:
    match status.state:
        case "up":
            if listed and status.tools:
                return None
            if listed:
                state = "is up, but has no tools that can be called"
            else:
                state = f"is up, but {status.why}"
        case "idle":
            if status.tools:
                return None
            state = "is not started yet"
        case "connecting":
            state = "is still connecting"
        case "disabled":
            state = "is disabled"
        case _:
            state = f"is down ({status.why})"
    return f"server {status.name!r} {state}, and no other tool replaces its tools"


def lacking(configuration: Configuration, key: ToolKey, own: Container[str] | None) -> str | None:
    """Return what a call to a tool lacks under the given configuration, or None if it lacks
    nothing.

    For example: "the server 'git', which is not configured here". None means that the tool might be
    available once its server is up.

    Args:
        configuration: the configuration with the servers.
        key: the server and the name of the tool.
        own: the names of the tools of this process, or None if unknown.
    """
    module, name = key
    if module is None:
        if own is None or name in own:
            return None
        return f"the tool {shown_name(name)[:64]!r}, which no tool file here defines"

    entry = configuration.modules.get(module)
    server = f"the server {shown_name(module)[:64]!r}"
    untrusted = configuration.untrusted
    if entry is None and untrusted is not None and module in untrusted.servers:
        return (
            f"{server}, which is only in the project's ideabridge.json, and nobody has trusted the "
            "current version of that file"
        )

    if entry is None:
        return f"{server}, which is not configured here (mcpServers)"
    if entry.disabled:
        return f"{server}, which is disabled here"
    return None
