"""Compile the catalogue of a task, which contains the tools selected by its patterns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ideabridge.bridge.context.references import quoted
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.catalogue import Catalogue, chosen_tools, has_wildcard, matcher
from ideabridge.bridge.offer.offer import Offer
from ideabridge.tools.names import did_you_mean, is_safe_name, joined
from ideabridge.tools.tool import ANONYMOUS, IDEA, Tool

MAX_PATTERNS: Final = 100
"""Maximum number of patterns with wildcards. Each pattern is compared with the name of every
tool.
"""

MAX_IDEAS: Final = 100
"""Maximum number of published ideas that a pattern such as `idea:*` can offer. Each idea adds its
schema to every Request.
"""

_SHOWN_PATTERNS: Final = 10
_SHOWN_PATTERN: Final = 100
"""Maximum number of patterns that an error repeats, and maximum number of characters that it shows
of each pattern.
"""


class TaskTools:
    """The tools that a task can call: those selected by its patterns, and those defined by its
    context.

    Published ideas are selected by names that no tool has, and by patterns such as `*` or `idea:*`.
    A pattern that begins with `idea:` selects the `MAX_IDEAS` most used ideas that match, and any
    other pattern selects the `listed_ideas` most used ones.

    Args:
        offer: everything that a run could call now.
        patterns: names or patterns such as `git_*`, `anonymous.solve` for clean rooms, and
            `idea:NAME` for an idea; or None for all tools.
        defined: the tools defined by `tool` messages, each of which replaces any tool with the same
            name.
        caller: the caller who started the task, and to whom ideas must be published.
    """

    def __init__(
        self,
        offer: Offer,
        patterns: Iterable[str] | None,
        defined: Iterable[Tool] = (),
        *,
        caller: str,
    ) -> None:
        self._offer = offer.to(caller)
        self._chooses = patterns is not None
        self._patterns = list(patterns or ())
        self._defined = list(defined)
        self._caller = caller

    async def catalogue(self) -> Catalogue:
        """Wait for the servers of these tools to be up or have failed, and return the result of
        `present`.

        Raises:
            PlanError: no tool matches the patterns, or too many patterns have wildcards.
        """
        wild = {pattern for pattern in self._patterns if has_wildcard(pattern)}
        if len(wild) > MAX_PATTERNS:
            raise PlanError(
                f"tools: expected at most {MAX_PATTERNS} patterns such as git_*, not counting "
                f"names; found {len(wild):,}"
            )

        offer = self._offer
        await offer.know_names()
        await offer.reach(tool.module for tool in self._defined)
        if not self._are_present():
            await offer.until(self._are_present, offer.deadline())
            await offer.reach(
                tool.module
                for tool in chosen_tools(offer.known, self._patterns)
                if tool.module is not None and not offer.modules[tool.module].is_callable
            )

        catalogue = self.present()
        if self._patterns and not catalogue.tools:
            raise PlanError(self._nothing_matches())
        return catalogue

    def _are_present(self) -> bool:
        """Return whether all patterns are names of current tools or ideas, so that there is no need
        to wait for servers.
        """
        names = {tool.name for tool in self._offer.catalogue.tools}
        return bool(self._patterns) and all(
            pattern in names or pattern.startswith(IDEA) for pattern in self._patterns
        )

    def _nothing_matches(self) -> str:
        offer = self._offer
        patterns = [pattern[:_SHOWN_PATTERN] for pattern in self._patterns]
        shown = joined(patterns, _SHOWN_PATTERNS)
        names = [*(tool.name for tool in offer.known), *offer.idea_names(self._caller)]
        near = did_you_mean(self._patterns[0].removeprefix(IDEA), names)
        hidden = [
            reason
            for pattern in self._patterns[:_SHOWN_PATTERNS]
            if (reason := offer.missing.why_hidden(pattern)) is not None
        ]
        reasons = f" {'; '.join(hidden)}." if hidden else ""
        return f"tools: nothing matches {shown}.{near}{reasons}{offer.missing.sentences()}"

    def present(self) -> Catalogue:
        """Return the current tools that match the patterns, and those that the context defines.

        Raises:
            PlanError: a definition passes its calls to a tool or idea that does not exist here.
        """
        offer = self._offer
        passing_to_ideas = offer.passing_to_ideas(self._caller)
        if not self._chooses and not self._defined and not passing_to_ideas:
            return offer.catalogue

        tools = [*offer.catalogue.tools, *passing_to_ideas]
        if self._chooses:
            tools = chosen_tools(tools, self._patterns)

        plain = [name for name in self._patterns if self._may_name_idea(name)]
        matching, left_out = self._matching_ideas()
        modules = [
            ANONYMOUS if pattern == f"{ANONYMOUS}.solve" else pattern for pattern in self._patterns
        ]
        modules += [f"{IDEA}{name}" for name in (*plain, *matching)]
        rooms = offer.rooms(modules, self._caller)
        chosen = offer.with_defined(tools, self._defined, rooms, caller=self._caller)
        if not left_out:
            return chosen

        missing = (
            f" {left_out:,} more published ideas match tools; they are offered only by name: "
            "idea:NAME."
        )
        return Catalogue(chosen.tools, chosen.latent, missing)

    def _may_name_idea(self, name: str) -> bool:
        """Return whether a name can refer to an idea.

        It cannot if it is the name of a tool in the toolbox or of any server.
        """
        if not is_safe_name(name):
            return False
        if any(name in (tool.name, tool.remote_name) for tool in self._offer.known):
            return False
        return not any(name in names for names in self._offer.modules.reserved().values())

    def _matching_ideas(self) -> tuple[list[str], int]:
        """Return the names of the ideas selected by wildcard patterns, and the number of further
        matches.
        """
        wild = [pattern for pattern in self._patterns if has_wildcard(pattern)]
        if not wild:
            return [], 0

        for_ideas = [pattern for pattern in wild if pattern.startswith(IDEA)]
        for_all = [pattern for pattern in wild if not pattern.startswith(IDEA)]
        matches_idea = matcher(pattern.removeprefix(IDEA) for pattern in for_ideas)
        matches_any = matcher(for_all)
        names = self._offer.idea_names(self._caller)
        of_ideas = [name for name in names if matches_idea(name)]
        of_all = [name for name in names if matches_any(name)]
        most = self._offer.configuration.listed_ideas
        chosen = list(dict.fromkeys([*of_ideas[:MAX_IDEAS], *of_all[:most]]))
        return chosen, len({*of_ideas, *of_all}) - len(chosen)

    def expect(self, name: str, catalogue: Catalogue) -> None:
        """Check that the catalogue contains a tool that the context names.

        Raises:
            PlanError: the catalogue does not contain the tool. The message suggests the nearest
                names.
        """
        if chosen_tools(catalogue.tools, [name]):
            return
        near = did_you_mean(name, [tool.name for tool in self._offer.known])
        raise PlanError(
            f"context: a tool message names {quoted(name)}, which is not available "
            f"here.{near}{self._offer.missing.sentences()}"
        )
