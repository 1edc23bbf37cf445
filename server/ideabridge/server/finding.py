"""Search tools and ideas by words, and offer ideas as guidance for new runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any, Final, cast

import anyio

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.context.messages import read_context
from ideabridge.bridge.offer.offer import Offer
from ideabridge.bridge.programs.names import ProgramNames
from ideabridge.bridge.programs.stubs import JSON_TEXT, OBSERVED, first_line_of
from ideabridge.bridge.store.idea import IdeaHit, Publication, StoredIdea
from ideabridge.bridge.store.ideas import IdeaFilter
from ideabridge.server.answers import MAX_RESULT, ToolAnswer, answer
from ideabridge.server.asking.rounds import ToolRequest
from ideabridge.server.direct_calls import DirectCalls
from ideabridge.server.search import Matches, ToolSearch, tool_line
from ideabridge.server.served_tools import published_description
from ideabridge.tools.encoding import JSON, JSONObject, encode, encode_text
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import counted, did_you_mean
from ideabridge.tools.tool import IDEA, Tool, ToolKey

# -- searching tools and ideas ---------------------------------------------------------------------

LIST_SECONDS: Final = 8.0
"""How long after the start, in seconds, lists and searches wait for servers whose tools are not
known yet. Hosts allow ten seconds for the start and the first list.
"""

_FOUND_TOOLS: Final = 8
_QUESTIONS: Final = 20
"""Maximum number of questions in one search."""

_FOUND_IDEAS: Final = 10
_FILTERS: Final = tuple(entry.name for entry in dataclasses.fields(IdeaFilter))
_MOST_TOOL_BYTES: Final = MAX_RESULT // 3
"""Limit on the tools in one answer, in bytes of JSON."""

_TO_SECONDS: Final = len("2026-11-29T12:00:00")
_LONGEST_REASON: Final = 600
"""Maximum length, in characters, of the reason why a server is not up. Some reasons end with a
helpful command."""


class UnknownFilterError(IdeabridgeError):
    """Raised when a search names a server that is not configured."""


class Finding:
    """Searches the tools and ideas of one bridge, using an index of the tools."""

    def __init__(self, bridge: Bridge, record: DirectCalls, search: ToolSearch) -> None:
        self._bridge = bridge
        self._record = record
        self._searches = {"": search}
        self._patience = anyio.current_time() + LIST_SECONDS

    async def search_tools(self, arguments: dict[str, Any], request: ToolRequest) -> ToolAnswer:
        """Find tools by words, best match first.

        Each tool comes with its signature and a one-line description; a tool whose exact name is
        given is described in full.

        Until `LIST_SECONDS` after the start, the search waits for servers that are still connecting
        and whose tools are unknown, unless a known tool fits every word. If `module` names a
        server, the search always waits up to `LIST_SECONDS` for that server. The answer names the
        servers whose tools are missing.

        Raises:
            UnknownFilterError: `module` is not a configured server.
        """
        module = arguments.get("module")
        offer = self._bridge.offer.to(request.caller)
        self._expect_server(module, offer)
        words = cast("str | list[str]", arguments["words"])
        if isinstance(words, str):
            questions = [words]
        else:
            questions = words[:_QUESTIONS] or [""]

        limit = int(arguments.get("limit", _FOUND_TOOLS))
        caller = request.caller
        # Divide the places among the questions equally, with at least two for each.
        share = max(limit // len(questions), min(limit, 2))
        ideas: dict[str, Publication] = {}
        if module is None and share > 1:
            # Give ideas at most half of the places.
            ideas = self._ideas_for(questions, share // 2, caller)

        search = self._search_in(offer)
        await self._wait_for_tools(questions, module, offer)
        if len(questions) == 1:
            share -= len(ideas)

        tools, fitting = self._tools_for(questions, share, module, offer, weak="limit" in arguments)
        names = {question.strip() for question in questions}
        entries: list[JSONObject] = []
        tool_lines: list[str] = []
        bytes_left = _MOST_TOOL_BYTES
        for hit in (*tools, *ideas.values()):
            entry, line = self._describe(hit, names, caller, search)
            bytes_left -= len(encode(entry))
            if bytes_left < 0:
                break
            entries.append(entry)
            tool_lines.append(line)

        # Count only the ideas in the answer, because the store returns no more than were requested.
        count = fitting + max(0, len(entries) - len(tools))
        return self._search_answer(entries, tool_lines, count, names, module, offer)

    def _search_in(self, offer: Offer) -> ToolSearch:
        """Return the index of the tools in an offer. Each profile has a separate index."""
        name = "" if offer.profile is None else offer.profile.name
        return self._searches.setdefault(name, ToolSearch())

    def _tools_for(
        self,
        questions: Sequence[str],
        most: int,
        module: str | None,
        offer: Offer,
        *,
        weak: bool,
    ) -> Matches:
        """Return the tools that best fit the questions, up to `most` per question. The total is
        the largest for any one question, but at least the number of returned tools. For `weak`, see
        `ToolSearch.find`.
        """
        search = self._search_in(offer)
        tools: dict[ToolKey, Tool] = {}
        total = 0
        for words in questions:
            matches = search.find(offer.known, words, most, module, weak=weak)
            tools |= {tool.origin: tool for tool in matches.tools}
            total = max(total, matches.total)

        return Matches(list(tools.values()), max(total, len(tools)))

    def _search_answer(
        self,
        tools: Sequence[JSONObject],
        tool_lines: Sequence[str],
        count: int,
        names: set[str],
        module: str | None,
        offer: Offer,
    ) -> ToolAnswer:
        """Return the answer to a search: the tools, the number of matches, and the servers whose
        tools are missing.
        """
        result: JSONObject = {"tools": list[JSON](tools), "found": count}
        away = self._away(module, offer)
        if away:
            result["unavailable"] = list[JSON](away)

        refused = self._refused(names, module, offer)
        if refused:
            result["refused"] = list[JSON](refused)

        if count:
            lines = [f"found: {counted(count, 'tool')}; shown: {len(tools)}"]
        else:
            lines = ['no tool matches; try other words, or "" for all']

        unused = self._bridge.configuration.unused_files
        if unused:
            result["note"] = " ".join(unused)
            lines += unused

        lines += tool_lines
        lines += _explanations(tools)
        lines += [f"{tool['tool']} cannot be called: {tool['why']}" for tool in refused]
        idle = self._idle({str(tool.get("module")) for tool in tools})
        if idle:
            result["idle"] = list[JSON](idle)
            listed = ", ".join(f"{server['module']} {server['listed_at']}" for server in idle)
            lines.append(
                "Servers that start at their first call, and when they last listed their tools: "
                f"{listed}"
            )

        if away:
            lines.append(
                f"servers whose tools might be missing or fail: {encode_text(list[JSON](away))}"
            )

        if any(server["state"] == "connecting" for server in away):
            lines.append(
                "Servers that are connecting might have more tools: search again in a moment."
            )

        return answer(result, "\n".join(lines))

    def _expect_server(self, module: str | None, offer: Offer) -> None:
        """Raise `UnknownFilterError` if the search names a server that is not configured or not in
        the profile.
        """
        modules = self._bridge.modules
        if module is None or (module in modules and offer.has_server(module)):
            return
        if module in modules and offer.profile is not None:
            raise UnknownFilterError(f"module: {offer.profile.refusal('server', module)}")

        names = [name for name in modules.names if offer.has_server(name)]
        if names:
            configured = f" Known: {', '.join(names)[:300]}."
        else:
            configured = " No server is configured."

        raise UnknownFilterError(
            "module: unknown server "
            f"{module[:64]!r}.{did_you_mean(module, names)}{configured}"
            f"{offer.missing.sentences()}"
        )

    def _ideas_for(
        self, questions: Sequence[str], most: int, caller: str
    ) -> dict[str, Publication]:
        """Return up to `most` published ideas for each question that they fit, keyed by name.

        A published idea counts as a tool even if the host does not list it.
        """
        publications = self._bridge.store.publications
        ideas: dict[str, Publication] = {}
        for words in questions:
            for publication in publications.search(words, most, caller=caller):
                ideas[publication.name] = publication

        return ideas

    async def _wait_for_tools(
        self, questions: Sequence[str], module: str | None, offer: Offer
    ) -> None:
        """Wait for servers that are still connecting, as `search_tools` describes."""
        modules = self._bridge.modules
        if await modules.known(0, module):
            return

        tools = offer.known
        search = self._search_in(offer)
        if module is None and all(search.fits(tools, words) for words in questions):
            return

        if module is None:
            seconds = max(0.0, self._patience - anyio.current_time())
        else:
            seconds = LIST_SECONDS
        await modules.known(seconds, module)

    def _describe(
        self, hit: Tool | Publication, searched_names: set[str], caller: str, search: ToolSearch
    ) -> tuple[JSONObject, str]:
        """Describe a tool or a published idea, as JSON and as text.

        The description is complete if one of the questions is exactly its name. Otherwise, it has
        the signature and the first line of the description.
        """
        observed: JSONObject | None = None
        looks_like: str | None = None
        lack: str | None = None
        if isinstance(hit, Tool):
            tool = hit
            names = search.names
            observed = self._bridge.observed(tool, caller=caller)
            looks_like = search.look_alikes.get(tool.origin)
        else:
            tool = _idea_tool(hit)
            names = ProgramNames([tool])
            lack = self._bridge.why_not_here(hit, caller=caller)

        entry: JSONObject = {"name": tool.name}
        if tool.module is not None:
            entry["module"] = tool.module

        signature = tool_line(tool, names, observed)
        entry["signature"] = signature
        place = names.place(tool)
        name_in_plans = tool.label if place is None else ".".join(place)
        is_named = not searched_names.isdisjoint((tool.name, tool.label, name_in_plans))
        description = tool.description if is_named else first_line_of(tool.description)
        entry["description"] = description
        if looks_like is not None:
            entry["looks_like"] = looks_like
            description = f"[looks_like: {looks_like}] {description}"

        text = f"{signature}\n  {description}".rstrip()
        if lack is not None:
            entry["cannot_be_called"] = lack
            text += f"\n  cannot be called here: it {lack}"

        if is_named:
            schemas: JSONObject = {"parameters": tool.parameters}
            if tool.output is not None:
                schemas["output"] = tool.output
            if observed is not None:
                schemas["observed"] = observed

            entry |= schemas
            text += f"\n  {encode_text(schemas)}"

        return entry, text

    def _refused(self, names: set[str], module: str | None, offer: Offer) -> list[JSONObject]:
        """Return the tools with these names that servers list but that cannot be called, with the
        reasons.
        """
        refused: list[JSONObject] = []
        if offer.profile is not None:
            for name in sorted(names):
                reason = offer.missing.why_refused(name, module)
                if reason is not None:
                    refused.append({"tool": name, "why": reason})
            return refused[:_QUESTIONS]

        owners = self._bridge.modules.names if module is None else [module]
        for owner in owners:
            owner_module = self._bridge.modules[owner]
            for name in owner_module.refused:
                if name in names:
                    refused.append(
                        {"tool": name, "module": owner, "why": str(owner_module.why_without(name))}
                    )

        return refused[:_QUESTIONS]

    def _idle(self, modules: Collection[str]) -> list[JSONObject]:
        """Return the servers in `modules` that have not started yet, each with the date of its tool
        list.
        """
        return [
            {"module": status.name, "listed_at": status.listed_at[:_TO_SECONDS]}
            for status in self._bridge.modules.statuses()
            if status.name in modules and status.state == "idle" and status.listed_at
        ]

    def _away(self, module: str | None, offer: Offer) -> list[JSONObject]:
        """Return the servers that have failed or whose tools are unknown, with the reasons. If the
        search names a server, only that server is considered.
        """
        listed_modules = {tool.module for tool in offer.known}
        away: list[JSONObject] = []
        for status in self._bridge.modules.away():
            if not offer.has_server(status.name):
                continue
            if module not in (None, status.name) or (
                status.state not in ("failed", "unusable") and status.name in listed_modules
            ):
                continue

            entry: JSONObject = {"module": status.name, "state": status.state}
            if status.error:
                entry["error"] = status.why[:_LONGEST_REASON]

            away.append(entry)

        return away

    async def search_ideas(self, arguments: dict[str, Any], request: ToolRequest) -> ToolAnswer:
        """Find ideas of the caller, and ideas published to the caller. Return the ideas that fit
        the words, best match first or, if there are no words, the newest ideas.

        Raises:
            FilterError: `since` or `until` is not a time.
        """
        chosen = IdeaFilter(**{name: arguments[name] for name in _FILTERS if name in arguments})
        words = arguments.get("words", "")
        limit = int(arguments.get("limit", _FOUND_IDEAS))
        hits = self._bridge.store.ideas.search(words, limit, chosen, caller=request.caller)
        ideas: list[JSON] = [self._hit_json(hit, request.caller) for hit in hits]
        found = f"{counted(len(ideas), 'idea')} found"
        lines = [found if ideas else "no idea found; try other words"]
        lines += [encode_text(idea) for idea in ideas]
        result: JSONObject = {"ideas": ideas}
        # Add sessions that are still in progress, because they are not ideas yet and the search
        # does not find them.
        sessions = [
            session for session in await self._record.shown(request.caller) if session.fits(words)
        ]
        if sessions:
            result["sessions"] = [session.to_json() for session in sessions]
            lines += [
                "sessions of direct calls, which publish_idea accepts:",
                *(session.line for session in sessions),
            ]

        return answer(result, "\n".join(lines))

    def _hit_json(self, hit: IdeaHit, caller: str) -> JSONObject:
        meta = hit.meta
        entry: JSONObject = {"idea": hit.id, "title": meta.title[:200], "time": meta.time}
        publications = self._bridge.store.publications
        named = [publications.look_up(name, caller=caller) for name in hit.names]
        published = [publication for publication in named if publication is not None]
        if published:
            entry["published_as"] = [publication.name for publication in published]

        lacks = {
            publication.name: lack
            for publication in published
            if (lack := self._bridge.why_not_here(publication, caller=caller)) is not None
        }
        if lacks:
            entry["cannot_be_called"] = dict[str, JSON](lacks)

        if meta.description:
            entry["description"] = meta.description[:500]

        if meta.tools:
            entry["tools"] = list[JSON](meta.tools[:20])

        if meta.run is not None:
            entry["run"] = meta.run

        if meta.outcome:
            entry["outcome"] = meta.outcome

        return entry

    def guidance(self, ref: str, caller: str) -> list[JSON]:
        """Return a stored idea as guidance for a new run: its messages, and its calls as a plan.
        Raises the same errors as `Ideas.get`.
        """
        stored = self._bridge.store.ideas.get(ref, caller=caller)
        # Leave out the input and the state, because they belong to the earlier run.
        messages: list[JSON] = [
            message.to_json()
            for message in read_context(stored.idea.context)
            if message.type in ("text", "data", "tool", "plan")
        ]
        calls = self._calls(stored, caller)
        if calls:
            plan: JSONObject = {"calls": calls, "output": stored.idea.solution_parts.output}
            messages.append({"type": "plan", "plan": plan, "description": f"idea {stored.id[:12]}"})

        return messages

    def _calls(self, stored: StoredIdea, caller: str) -> list[JSON]:
        """Return the calls of the run's earlier steps, followed by the idea's own calls.

        Each step is read as `Ideas.get` would return it to the caller.
        """
        ideas = self._bridge.store.ideas
        meta = stored.meta
        steps = [stored]
        if meta.run is not None and meta.step is not None and meta.step > 1:
            earlier = [
                idea
                for idea in ideas.of_run(meta.run)
                if idea.meta.step is not None and idea.meta.step < meta.step
            ]
            steps = [*(ideas.get(idea.id, caller=caller) for idea in earlier), stored]

        calls: list[JSON] = []
        for step in steps:
            calls += step.idea.solution_parts.calls

        return calls


def _explanations(tools: Sequence[JSONObject]) -> list[str]:
    """Return lines that explain names, marks and types that occur only in some answers."""
    lines: list[str] = []
    if any("module" not in tool for tool in tools):
        lines.append("tools.NAME: a tool without _module")

    if any("observed" in tool or str(tool["signature"]).endswith(OBSERVED) for tool in tools):
        lines.append(
            "observed: the shape of earlier results of your runs; the tool "
            "itself does not declare one"
        )

    if any(f"{JSON_TEXT}[" in str(tool["signature"]) for tool in tools):
        lines.append(f"{JSON_TEXT}[T]: a string that contains a T as JSON")

    if any("looks_like" in tool for tool in tools):
        lines.append(
            "looks_like: the name resembles that of the tool given there, which is a different tool"
        )

    return lines


def _idea_tool(publication: Publication) -> Tool:
    """Return a published idea as a tool for plans, with the same name as in hosts' lists of
    tools.
    """
    parameters: JSONObject = publication.input_schema or {"type": "object", "properties": {}}
    module = f"{IDEA}{publication.name}"
    return Tool(
        publication.name,
        published_description(publication),
        parameters,
        publication.output_schema,
        module=module,
    )
