"""Search for tools and ideas by words, and ideas as guidance for new runs."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from typing import Any, Final

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.context.messages import read_context
from ideabridge.bridge.programs.names import ProgramNames
from ideabridge.bridge.programs.stubs import JSON_TEXT, OBSERVED, first_line
from ideabridge.bridge.runs.offer import look_alikes
from ideabridge.bridge.store.errors import UnknownPublicationError
from ideabridge.bridge.store.idea import IdeaHit, IdeaMeta, Publication, StoredIdea
from ideabridge.bridge.store.ideas import IdeaFilter
from ideabridge.server.answers import MAX_RESULT, ToolAnswer, answer
from ideabridge.server.asking.rounds import ToolRequest
from ideabridge.server.direct_calls import DirectCalls
from ideabridge.server.served_tools import described
from ideabridge.tools.encoding import JSON, JSONObject, encode, encode_text
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import did_you_mean, visible
from ideabridge.tools.tool import IDEA, Tool, ToolKey

_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MOST_WORDS: Final = 32
_MOST_CHARACTERS: Final = 10_000
"""Characters of the searched words: splitting 4 MB takes a second."""

_WEIGHTS: Final = {"name": 6.0, "module": 3.0, "parameter": 2.0, "description": 1.0}
_SUFFIXES: Final = ("ing", "es", "ed", "s")


class ToolSearch:
    """An index of a list of tools. It is rebuilt when it is used with another list.

    Attributes:
        look_alikes: the function of this name, applied to the list.
        names: what programs call the tools.
    """

    def __init__(self) -> None:
        self._tools: list[Tool] = []
        self._indexed: list[dict[str, float]] = []
        self._frequency: Counter[str] = Counter()
        self.look_alikes: dict[ToolKey, str] = {}
        self.names = ProgramNames(())

    def find(self, tools: list[Tool], words: str, limit: int, module: str | None = None) -> tuple[list[Tool], int]:
        """At most `limit` best matches in a module (None: in all), best first, and the number of all matches.

        `words` is any text; empty text matches every tool, in the order of the list.
        """
        if tools is not self._tools:
            self._index(tools)
        words = words[:_MOST_CHARACTERS]
        wanted = list(dict.fromkeys(_words(words)))[:_MOST_WORDS]
        whole = words.strip().lower()
        scored: list[tuple[float, int]] = []
        for number, tool in enumerate(tools):
            if module is not None and tool.module != module:
                continue
            score = self._score(number, wanted) + (100.0 if tool.name.lower() == whole else 0.0)
            if tool.origin in self.look_alikes:
                # After the tool that it looks like.
                score /= 2
            if score or not wanted:
                scored.append((-score, number))
        scored.sort()
        return [tools[number] for _, number in scored[:limit]], len(scored)

    def fits(self, tools: list[Tool], words: str) -> bool:
        """Return whether some tool matches every word; false without words."""
        if tools is not self._tools:
            self._index(tools)
        wanted = set(_words(words[:_MOST_CHARACTERS]))
        return bool(wanted) and any(
            all(word in terms or any(term.startswith(word) for term in terms) for word in wanted)
            for terms in self._indexed
        )

    def _score(self, number: int, wanted: list[str]) -> float:
        terms = self._indexed[number]
        score = 0.0
        hit = 0
        for word in wanted:
            weight = terms.get(word, 0.0)
            if not weight and len(word) > 2:
                # Part of a word: `repo` finds `repository`.
                weight = max((0.5 * value for term, value in terms.items() if term.startswith(word)), default=0.0)
            if weight:
                hit += 1
                score += weight * math.log(1 + len(self._indexed) / (1 + self._frequency[word]))
        # A tool that fits every word beats one that fits a single word well.
        return score * (hit / len(wanted)) if wanted else 0.0

    def _index(self, tools: list[Tool]) -> None:
        self._tools = tools
        self.look_alikes = look_alikes(tools)
        self.names = ProgramNames(tools)
        self._indexed = [_terms(tool) for tool in tools]
        self._frequency = Counter(term for terms in self._indexed for term in terms)


def _terms(tool: Tool) -> dict[str, float]:
    terms: dict[str, float] = {}
    texts: list[tuple[str, str]] = [
        ("name", tool.name),
        ("module", tool.module or ""),
        ("description", tool.description[:4000]),
    ]
    properties = tool.parameters.get("properties")
    if isinstance(properties, dict):
        for name, schema in list(properties.items())[:100]:
            texts.append(("parameter", name))
            description = schema.get("description") if isinstance(schema, dict) else None
            if isinstance(description, str):
                texts.append(("description", description[:500]))
    for kind, text in texts:
        for word in _words(text):
            terms[word] = max(terms.get(word, 0.0), _WEIGHTS[kind])
    return terms


def _words(text: str) -> list[str]:
    return [_stem(word) for word in _WORD.findall(_CAMEL.sub(" ", text).lower())]


def _stem(word: str) -> str:
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3 and not word.endswith("ss"):
            return word[: -len(suffix)]
    return word


# -- finding ---------------------------------------------------------------------------------------------------------

LIST_SECONDS: Final = 8.0
"""Seconds that lists after the start, and each search, wait for modules whose tools are not known yet. Hosts allow ten
seconds for the start and the first list."""

_TOOLS: Final = 8
_IDEAS: Final = 10
_FILTERS: Final = tuple(entry.name for entry in dataclasses.fields(IdeaFilter))
_ROOM: Final = MAX_RESULT // 3
"""Bytes of JSON of the tools in one answer."""


_NOTES: Final = 12
_NOTED: Final = 600


class UnknownFilterError(IdeabridgeError):
    """A search names a module that is not configured."""


class Finding:
    """Searches of one bridge."""

    def __init__(self, bridge: Bridge, record: DirectCalls) -> None:
        self._bridge = bridge
        self._record = record
        self._search = ToolSearch()

    async def search_tools(self, arguments: dict[str, Any], request: ToolRequest) -> ToolAnswer:
        """Tools by words, best first: a signature and a line of each, and all of a tool that is named exactly.

        Waits at most `LIST_SECONDS` for connecting modules whose tools are unknown, unless a known tool fits every
        word. The answer names the modules whose tools are missing.

        Raises:
            UnknownFilterError: `module` is not a configured server.
        """
        module, modules = arguments.get("module"), self._bridge.modules
        if module is not None and module not in modules:
            known = f" Known: {', '.join(modules.names)[:300]}." if modules.names else " None is configured."
            raise UnknownFilterError(
                f"module: unknown module {module[:64]!r}.{did_you_mean(module, modules.names)}{known}"
            )
        words, limit, caller = arguments["words"], int(arguments.get("limit", _TOOLS)), request.caller
        # A published idea is a tool, too, even if the host does not list it. Up to half of the places are for ideas.
        ideas: list[Publication] = []
        if module is None and limit > 1:
            ideas = self._bridge.store.publications.search(words, limit // 2, caller=caller)
        if not await modules.known(0, module) and (module or not self._search.fits(self._bridge.offer.known, words)):
            await modules.known(LIST_SECONDS, module)
        best, count = self._search.find(self._bridge.offer.known, words, limit - len(ideas), module)
        tools: list[JSONObject] = []
        shown: list[str] = []
        left = _ROOM
        for one in (*best, *ideas):
            entry, line = self._shown(one, words.strip(), caller)
            left -= len(encode(entry))
            if left < 0:
                break
            tools.append(entry)
            shown.append(line)
        # Only the ideas shown are counted: the store finds no more than asked for.
        count += max(0, len(tools) - len(best))
        result: JSONObject = {"tools": list[JSON](tools), "found": count}
        away = self._away(module)
        if away:
            result["unavailable"] = list[JSON](away)
        lines = [f"{count} tools fit; {len(tools)} shown" if count else 'no tool fits; try other words, or "" for all']
        untrusted = self._bridge.configuration.untrusted
        if untrusted is not None:
            result["note"] = untrusted.told_to_hosts()
            lines.append(untrusted.told_to_hosts())
        lines += shown
        if any("parameters" not in tool for tool in tools):
            lines.append("The exact name of a tool as words gives its JSON Schemas and its whole description.")
        if any("module" not in tool for tool in tools):
            lines.append("tools.NAME: a tool without _module")
        if any("observed" in tool or str(tool["signature"]).endswith(OBSERVED) for tool in tools):
            lines.append("observed: the shape of earlier results of your runs; the tool itself does not declare one")
        if any(f"{JSON_TEXT}[" in str(tool["signature"]) for tool in tools):
            lines.append(f"{JSON_TEXT}[T]: a text that contains a T as JSON")
        if any("looks_like" in tool for tool in tools):
            lines.append("looks_like: the name resembles that of the tool given there, which is a different tool")
        if away:
            lines.append(f"servers whose tools may be missing or fail: {encode_text(list[JSON](away))}")
        if any(one["state"] == "connecting" for one in away):
            lines.append("Servers that are connecting may have more tools: search again in a moment.")
        return answer(result, "\n".join(lines))

    def _shown(self, found: Tool | Publication, words: str, caller: str) -> tuple[JSONObject, str]:
        """What an answer tells of a tool or a published idea: as JSON, and as text."""
        if isinstance(found, Tool):
            tool, names = found, self._search.names
            hints = tool.annotations.to_json()
        else:
            tool = _idea_tool(found)
            names, hints = ProgramNames([tool]), self._bridge.hints(found, caller=caller)
        observed = self._bridge.observed(tool, caller=caller) if isinstance(found, Tool) else None
        place = names.place(tool)
        called = tool.label if place is None else ".".join(place)
        entry: JSONObject = {"name": tool.name}
        if tool.module is not None:
            entry["module"] = tool.module
        # Those that programs cannot call have no signature.
        line = called if place is None else names.signature(tool, observed)
        entry["signature"] = line
        notes = _notes(tool, place, names)
        if notes:
            line += f"{', ' if line.endswith(OBSERVED) else ' # '}{notes}"
        is_named = words in (tool.name, tool.label, called)
        entry["description"] = tool.description if is_named else first_line(tool.description)
        if hints:
            entry["annotations"] = hints
        looks_like = self._search.look_alikes.get(tool.origin) if isinstance(found, Tool) else None
        if looks_like is not None:
            entry["looks_like"] = looks_like
        marks = ["read-only"] if hints.get("readOnlyHint") is True else []
        marks += [f"looks_like: {looks_like}"] if looks_like is not None else []
        told = f"[{'; '.join(marks)}] " if marks else ""
        text = f"{line}\n  {told}{entry['description']}".rstrip()
        if is_named:
            schemas: JSONObject = {"parameters": tool.parameters}
            if tool.output is not None:
                schemas["output"] = tool.output
            if observed is not None:
                schemas["observed"] = observed
            entry |= schemas
            text += f"\n  {encode_text(schemas)}"
        return entry, text

    def _away(self, module: str | None) -> list[JSONObject]:
        """The servers (or the one that is searched) that have failed, or whose tools are unknown, and why."""
        known = {tool.module for tool in self._bridge.offer.known}
        away: list[JSONObject] = []
        for status in self._bridge.modules.away():
            if module not in (None, status.name) or (status.state != "failed" and status.name in known):
                continue
            entry: JSONObject = {"module": status.name, "state": status.state}
            if status.error:
                entry["error"] = status.why[:300]
            away.append(entry)
        return away

    async def search_ideas(self, arguments: dict[str, Any], request: ToolRequest) -> ToolAnswer:
        """Saved ideas by words, best first (without words the newest): the caller's own, and those published to it.

        Raises:
            FilterError: `since` or `until` is not a time.
        """
        chosen = IdeaFilter(**{name: arguments[name] for name in _FILTERS if name in arguments})
        words, limit = arguments.get("words", ""), int(arguments.get("limit", _IDEAS))
        hits = self._bridge.store.ideas.search(words, limit, chosen, caller=request.caller)
        ideas: list[JSON] = [self._hit_json(hit, request.caller) for hit in hits]
        lines = [f"{len(ideas)} ideas found" if ideas else "no idea found; try other words"]
        lines += [encode_text(idea) for idea in ideas]
        result: JSONObject = {"ideas": ideas}
        # Sessions in progress are not ideas yet.
        sessions = [one for one in await self._record.shown(request.caller) if one.fits(words)]
        if sessions:
            result["sessions"] = [one.to_json() for one in sessions]
            lines += ["sessions of direct calls, which publish_idea takes:", *(one.line for one in sessions)]
        return answer(result, "\n".join(lines))

    def _hit_json(self, hit: IdeaHit, caller: str) -> JSONObject:
        run, meta = self._origin(hit.id, hit.meta, caller)
        entry: JSONObject = {"idea": hit.id, "title": meta.title[:200], "time": meta.time}
        # Other users may have saved the same idea, and published it to themselves.
        names = [name for name in hit.names if self._is_published_to(name, caller)]
        if names:
            entry["published_as"] = list[JSON](names)
        if meta.description:
            entry["description"] = meta.description[:500]
        if meta.tools:
            entry["tools"] = list[JSON](meta.tools[:20])
        if run is not None:
            entry["run"] = run
        if meta.outcome:
            entry["outcome"] = meta.outcome
        return entry

    def _origin(self, idea: str, meta: IdeaMeta, caller: str) -> tuple[str | None, IdeaMeta]:
        """The run in which an idea was first saved, and the metadata of that run. If that run belongs to another
        caller, the first run of this caller; if there is no such run, None, because runs of others are not shown.
        """
        store, first = self._bridge.store, meta.run
        if first is None or (record := store.runs.get(first)) is None or record.caller == caller:
            return first, meta
        for run in store.ideas.runs_of(idea):
            record = store.runs.get(run)
            if record is not None and record.caller == caller:
                return run, next(one.meta for one in store.ideas.of_run(run) if one.id == idea)
        return None, meta

    def _is_published_to(self, ref: str, caller: str) -> bool:
        try:
            self._bridge.store.publications.named(ref, caller=caller)
        except UnknownPublicationError:
            return False
        return True

    def expect_visible(self, ref: str, caller: str) -> StoredIdea:
        """The idea with this id or name, if the caller may see it.

        Raises:
            UnknownIdeaError: the caller sees no such idea.
            AmbiguousIdeaError: several ids begin with `ref`.
        """
        stored = self._bridge.store.ideas.get(ref, caller=caller)
        if self._bridge.store.ideas.may_see(stored.id, caller) or self._is_published_to(ref, caller):
            return stored
        raise self._bridge.store.ideas.unknown(ref, caller)

    def guidance(self, ref: str, caller: str) -> list[JSON]:
        """A stored idea as guidance for a new run: its texts, and its calls as a plan; raises as `expect_visible`."""
        stored = self.expect_visible(ref, caller)
        # Without the input and the state, which belong to the earlier run.
        messages: list[JSON] = [
            message.to_json()
            for message in read_context(stored.idea.context)
            if message.type in ("text", "data", "tool", "plan")
        ]
        solution = stored.idea.solution
        calls = self._calls(stored, caller)
        if calls and isinstance(solution, dict):
            plan: JSONObject = {"calls": calls, "output": solution.get("output")}
            messages.append({"type": "plan", "plan": plan, "description": f"idea {stored.id[:12]}"})
        return messages

    def _calls(self, stored: StoredIdea, caller: str) -> list[JSON]:
        """The calls of an idea, after those of the earlier steps of its run. If the caller has a run of it, that run
        counts, because another caller's run may have reached the same idea in another way.
        """
        ideas = self._bridge.store.ideas
        _, meta = self._origin(stored.id, stored.meta, caller)
        steps = [stored]
        if meta.run is not None and meta.step is not None and meta.step > 1:
            earlier = [one for one in ideas.of_run(meta.run) if one.meta.step is not None and one.meta.step < meta.step]
            steps = [*(ideas.get(one.id) for one in earlier), stored]
        calls: list[JSON] = []
        for one in steps:
            solution = one.idea.solution
            listed = solution.get("calls") if isinstance(solution, dict) else None
            calls.extend(listed if isinstance(listed, list) else [])
        return calls


def _idea_tool(publication: Publication) -> Tool:
    """A published idea as a tool for plans. A host that lists it has it under the same name."""
    parameters: JSONObject = publication.input_schema or {"type": "object", "properties": {}}
    module = f"{IDEA}{publication.name}"
    return Tool(publication.name, described(publication), parameters, publication.output_schema, module=module)


def _notes(tool: Tool, place: tuple[str, str] | None, names: ProgramNames) -> str:
    """The names in plans where they are not those in the signature."""
    changed: list[str] = []
    if place is None or place[1] != tool.name:
        changed.append(f"_tool: {encode_text(tool.name)}")
    if tool.module is not None and (place is None or place[0] != tool.module):
        changed.append(f"_module: {encode_text(tool.module)}")
    if place is not None:
        parameters = names.parameters(tool).items()
        changed += [f"{python}: {encode_text(real)}" for python, real in parameters if python != real]
    if len(changed) > _NOTES:
        changed[_NOTES:] = ["..."]
    return visible(", ".join(changed)[:_NOTED])
