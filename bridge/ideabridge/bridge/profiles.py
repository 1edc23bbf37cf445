"""Decide which servers, tools and ideas a session, an address or a token is allowed to use.

`Profile.admits_server`, `admits_tool` and `admits_idea` decide what a profile contains. `Offer.to`
applies these methods to the tools, and `Publications.admits` applies them to the ideas, so no
handler has to check anything itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.context.reader import is_reader
from ideabridge.bridge.loop.catalogue import matcher
from ideabridge.bridge.store.users import profile_of
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import did_you_mean, shown_name
from ideabridge.tools.tool import ANONYMOUS, IDEA, Tool

_BUILT_IN: Final = builtin_toolbox()

_SHOWN_CHARACTERS: Final = 64


class ProfileError(IdeabridgeError):
    """A profile does not exist, or cannot be used."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The servers, tools and ideas that callers in a profile can use.

    Each of `servers`, `tools` and `ideas` is a tuple of names and patterns with `*`, `?` and
    `[abc]`, or None for all of them.

    Attributes:
        name: the name of the profile.
        servers: the servers.
        tools: the tools, as `NAME` or `SERVER.NAME`. This restricts both the tools of `servers` and
            the tools from tool files.
        ideas: the published ideas, by name. If None, the profile contains the ideas that call only
            tools in the profile.
    """

    name: str
    servers: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    ideas: tuple[str, ...] | None = None

    def admits_server(self, name: str) -> bool:
        """Return whether the profile contains a server."""
        return _matches(self.servers, name)

    def admits_tool(self, tool: Tool) -> bool:
        """Return whether the profile contains a tool.

        Every profile contains the built-in tools and clean rooms, because these do not touch
        anything outside their run.
        """
        if tool.module == ANONYMOUS or is_reader(tool):
            return True
        if tool.in_room:
            return self.admits_idea(tool.module or "")
        if tool.module is None and _BUILT_IN.tools.get(tool.name) == tool:
            return True
        # Like rules, patterns match the server's name for the tool, even if the configuration
        # renames it.
        return self.admits(tool.module, tool.real.name, tool.real.label)

    def admits(self, server: str | None, *names: str) -> bool:
        """Return whether the profile contains the tool with these names. The server is None for an
        in-process tool.
        """
        if server is not None and not self.admits_server(server):
            return False
        known_as = {*names}
        if server is not None:
            known_as |= {f"{server}.{name}" for name in names}
        return any(_matches(self.tools, name) for name in known_as)

    def admits_idea(self, name: str) -> bool:
        """Return whether the profile contains the idea `NAME`, which can be written with or without
        `idea:` and a version.

        If `ideas` is None, return True. `AdmittedIdeas` checks what else an idea needs.
        """
        return _matches(self.ideas, name.removeprefix(IDEA).partition("@")[0])

    def refusal(self, kind: str, name: str) -> str:
        """Return why an existing server, tool or idea cannot be used.

        For example: "the tool 'push' is not in profile 'review'".
        """
        return (
            f"the {kind} {shown_name(name)[:_SHOWN_CHARACTERS]!r} is not in profile {self.name!r}"
        )

    def lack(self, kind: str, name: str) -> str:
        """Return the reason of `refusal` as a noun phrase.

        For example: "the tool 'push', which is not in profile 'review'".
        """
        return (
            f"the {kind} {shown_name(name)[:_SHOWN_CHARACTERS]!r}, which is not in profile "
            f"{self.name!r}"
        )


def _matches(patterns: tuple[str, ...] | None, name: str) -> bool:
    return patterns is None or _matcher(patterns)(name)


@lru_cache(maxsize=256)
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    return matcher(patterns)


class Profiles:
    """The profiles in a configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self._unusable = configuration.unusable_profiles
        self._profiles = {
            name: Profile(name, settings.servers, settings.tools, settings.ideas)
            for name, settings in configuration.profiles.items()
        }

    @property
    def names(self) -> Iterable[str]:
        """The names of the profiles, in configuration order."""
        return self._profiles.keys()

    def named(self, name: str) -> Profile:
        """Return the profile with this name.

        Raises:
            ProfileError: the profile does not exist, or it names a server that does not exist.
        """
        profile = self._profiles.get(name)
        if profile is None:
            near = did_you_mean(name, self._profiles)
            configured = ", ".join(self._profiles) or "none"
            raise ProfileError(
                f"profile {shown_name(name)[:_SHOWN_CHARACTERS]!r} is not configured.{near} "
                f"Configured profiles: {configured}"
            )
        if name in self._unusable:
            raise ProfileError(self._unusable[name])
        return profile

    def of(self, caller: str) -> Profile | None:
        """Return the profile of a caller, or None if no profile restricts the caller.

        A profile that is no longer configured, or cannot be used, contains only the built-in tools.
        """
        name = profile_of(caller)
        if name is None:
            return None
        try:
            return self.named(name)
        except ProfileError:
            return Profile(name, (), (), ())
