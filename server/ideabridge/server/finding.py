"""Search for tools and ideas by words, and ideas as guidance of new runs."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from typing import Final

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.context.messages import read_context
from ideabridge.bridge.runs.offer import look_alikes
from ideabridge.bridge.store.errors import UnknownPublicationError
from ideabridge.bridge.store.idea import IdeaHit, IdeaMeta, Publication, StoredIdea
from ideabridge.bridge.store.ideas import IdeaFilter
from ideabridge.server.answers import MAX_RESULT, ToolAnswer, answer
from ideabridge.server.asking.rounds import ToolRequest
from ideabridge.server.catalogue import LIST_SECONDS
from ideabridge.server.served_tools import described
from ideabridge.tools.encoding import JSON, JSONObject, encode, encode_text
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import IDEA, Tool, ToolKey

_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MOST_WORDS: Final = 32
_MOST_CHARACTERS: Final = 10_000
"""Characters of the searched words: splitting 4 MB takes a second."""

_WEIGHTS: Final = {"name": 6.0, "module": 3.0, "parameter": 2.0, "description": 1.0}
_SUFFIXES: Final = ("ing", "es", "ed", "s")


class ToolSearch:
    """An index of a list of tools, made again for another list.

    Attributes:
        look_alikes: the function of this name, applied to the list.
    """

    def __init__(self) -> None:
        self._tools: list[Tool] = []
        self._indexed: list[dict[str, float]] = []
        self._frequency: Counter[str] = Counter()
        self.look_alikes: dict[ToolKey, str] = {}

    def find(self, tools: list[Tool], words: str, limit: int, module: str | None = None) -> tuple[list[Tool], int]:
        """The best matches, best first, and the number of all matches.

        Args:
            tools: all tools.
            words: any text; an empty one matches every tool, in the order of the list.
            limit: the largest number of tools returned.
            module: the only module to search, or None.
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
        """Whether some tool matches every word; false without words."""
        if tools is not self._tools:
            self._index(tools)
        wanted = set(_words(words[:_MOST_CHARACTERS]))
        return bool(wanted) and any(self._fits(terms, wanted) for terms in self._indexed)

    @staticmethod
    def _fits(terms: dict[str, float], wanted: set[str]) -> bool:
        return all(word in terms or any(term.startswith(word) for term in terms) for word in wanted)

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
            description = _description(schema)
            if description:
                texts.append(("description", description))
    for kind, text in texts:
        for word in _words(text):
            terms[word] = max(terms.get(word, 0.0), _WEIGHTS[kind])
    return terms


def _description(schema: JSON) -> str:
    told = schema.get("description") if isinstance(schema, dict) else None
    return told[:500] if isinstance(told, str) else ""


def _words(text: str) -> list[str]:
    return [_stem(word) for word in _WORD.findall(_CAMEL.sub(" ", text).lower())]


def _stem(word: str) -> str:
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3 and not word.endswith("ss"):
            return word[: -len(suffix)]
    return word


# -- finding ---------------------------------------------------------------------------------------------------------

_TOOLS: Final = 8
_IDEAS: Final = 10
_FILTERS: Final = tuple(entry.name for entry in dataclasses.fields(IdeaFilter))
_ROOM: Final = MAX_RESULT // 3


class UnknownFilterError(IdeabridgeError):
    """A module named in a search that is not configured."""


class Finding:
    """Searches of one bridge."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._search = ToolSearch()

    async def search_tools(self, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Tools by words, best first, with their parameter schemas.

        Waits at most `LIST_SECONDS` for modules that are still connecting and of which nothing is known, unless a known
        tool fits every word. The modules whose tools are missing are named in the answer.

        Raises:
            UnknownFilterError: `module` is no configured server.
        """
        module = arguments.get("module")
        names = self._bridge.modules.names
        if isinstance(module, str) and module not in names:
            known = f" Known: {', '.join(names)[:300]}." if names else " None is configured."
            raise UnknownFilterError(f"module: unknown module {module[:64]!r}.{did_you_mean(module, names)}{known}")
        given, words = arguments.get("limit", _TOOLS), str(arguments["words"])
        limit = given if isinstance(given, int) else _TOOLS
        # A published idea is a tool too, told to the host or not: among many tools, up to half the places are theirs.
        ideas: list[Publication] = []
        if not isinstance(module, str) and limit > 1:
            ideas = self._bridge.store.publications.search(words, limit // 2, caller=asked.caller)
        own = module if isinstance(module, str) else None
        modules = self._bridge.modules
        if not await modules.known(0, own) and (own or not self._search.fits(self._bridge.known_tools(), words)):
            await modules.known(LIST_SECONDS, own)
        found, count = self._search.find(self._bridge.known_tools(), words, limit - len(ideas), own)
        tools: list[JSON] = []
        left = _ROOM
        for tool in found:
            told = tool.to_json()
            for inner in ("remoteName", "renamed", "activity", "wrapper"):
                told.pop(inner, None)
            flag = self._search.look_alikes.get(tool.origin)
            if flag is not None:
                told["looks_like"] = flag
            observed = self._bridge.observed(tool, caller=asked.caller)
            if observed is not None:
                told["observed"] = observed
            left -= len(encode(told))
            if left < 0:
                break
            tools.append(told)
        for one in ideas:
            told = self._idea_told(one, asked.caller)
            left -= len(encode(told))
            if left < 0:
                break
            tools.append(told)
            count += 1
        result: JSONObject = {"tools": tools, "found": count}
        away = self._away(own)
        if away:
            result["unavailable"] = away
        lines = [f"{count} tools fit; {len(tools)} shown" if count else 'no tool fits; try other words, or "" for all']
        untrusted = self._bridge.configuration.untrusted
        if untrusted is not None:
            result["note"] = untrusted.told_to_hosts()
            lines.append(untrusted.told_to_hosts())
        lines += [encode_text(tool) for tool in tools]
        if any(isinstance(tool, dict) and "observed" in tool for tool in tools):
            lines.append("observed: the shape of earlier results of your runs; the tool itself does not declare one")
        if any(isinstance(tool, dict) and "looks_like" in tool for tool in tools):
            lines.append("looks_like: the name could be taken for that of the tool named there, which is another one")
        if away:
            lines.append(f"servers whose tools may be missing or fail: {encode_text(away)}")
        if any(isinstance(one, dict) and one["state"] == "connecting" for one in away):
            lines.append("Servers that are connecting may have more tools: search again in a moment.")
        return answer(result, "\n".join(lines))

    def _idea_told(self, publication: Publication, caller: str) -> JSONObject:
        """A published idea as a tool of plans; where a host has it as a tool, by the same name."""
        told: JSONObject = {
            "name": publication.name,
            "module": f"{IDEA}{publication.name}",
            "description": described(publication),
            "parameters": publication.input_schema or {"type": "object", "properties": {}},
        }
        if publication.output_schema is not None:
            told["output"] = publication.output_schema
        annotations = self._bridge.hints(publication, caller=caller)
        if annotations:
            told["annotations"] = annotations
        return told

    def _away(self, module: str | None) -> list[JSON]:
        """The servers (or the one that is searched) that have failed, or whose tools are not known yet, and why."""
        known = {tool.module for tool in self._bridge.known_tools()}
        away: list[JSON] = []
        for status in self._bridge.modules.away():
            if module not in (None, status.name) or (status.state != "failed" and status.name in known):
                continue
            told: JSONObject = {"module": status.name, "state": status.state}
            if status.error:
                told["error"] = status.why[:300]
            away.append(told)
        return away

    async def search_ideas(self, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Saved ideas by words, best first (without words the newest): this caller's, and what is published to it.

        Raises:
            FilterError: a time that is none.
        """
        limit = arguments.get("limit", _IDEAS)
        count = limit if isinstance(limit, int) else _IDEAS
        chosen = IdeaFilter(**{name: str(arguments[name]) for name in _FILTERS if name in arguments})
        words, caller = str(arguments.get("words", "")), asked.caller
        hits = self._bridge.store.ideas.search(words, count, chosen, caller=caller)
        ideas: list[JSON] = [self._hit_json(hit, caller) for hit in hits]
        lines = [f"{len(ideas)} ideas found" if ideas else "no idea found; try other words"]
        lines += [encode_text(idea) for idea in ideas]
        return answer({"ideas": ideas}, "\n".join(lines))

    def _hit_json(self, hit: IdeaHit, caller: str) -> JSONObject:
        run, meta = self._made(hit, caller)
        told: JSONObject = {"idea": hit.id, "title": meta.title[:200], "time": meta.time}
        # Others may have come to the same idea, and published it to themselves.
        names = [name for name in hit.names if self._published_to(name, caller)]
        if names:
            told["published_as"] = list[JSON](names)
        if meta.description:
            told["description"] = meta.description[:500]
        if meta.tools:
            told["tools"] = list[JSON](meta.tools[:20])
        if run is not None:
            told["run"] = run
        if meta.outcome:
            told["outcome"] = meta.outcome
        return told

    def _made(self, hit: IdeaHit, caller: str) -> tuple[str | None, IdeaMeta]:
        """The run an idea was first saved in, and what is kept of that; where that run is another's, the first of this
        caller's. Of what another published to this caller, their run is not told.
        """
        store, first = self._bridge.store, hit.meta.run
        if first is None or (record := store.runs.get(first)) is None or record.caller == caller:
            return first, hit.meta
        for run in store.ideas.runs_of(hit.id):
            record = store.runs.get(run)
            if record is not None and record.caller == caller:
                own = next(one.meta for one in store.ideas.of_run(run) if one.id == hit.id)
                return run, own
        return None, hit.meta

    def _published_to(self, ref: str, caller: str) -> bool:
        try:
            self._bridge.store.publications.named(ref, caller=caller)
        except UnknownPublicationError:
            return False
        return True

    def expect_visible(self, ref: str, caller: str) -> StoredIdea:
        """The idea `ref` names, if this caller may see it.

        Raises:
            UnknownIdeaError: there is none for this caller.
            AmbiguousIdeaError: several ids start so.
        """
        stored = self._bridge.store.ideas.get(ref, caller=caller)
        if self._bridge.store.ideas.may_see(stored.id, caller) or self._published_to(ref, caller):
            return stored
        raise self._bridge.store.ideas.unknown(ref, caller)

    def guidance(self, ref: str, caller: str) -> list[JSON]:
        """A stored idea as guidance for a new run: its words, and its calls as a plan.

        Raises:
            UnknownIdeaError, AmbiguousIdeaError: as `expect_visible`.
        """
        stored = self.expect_visible(ref, caller)
        messages: list[JSON] = []
        for message in read_context(stored.idea.context):
            # Its input and state were that run's own.
            if message.type in ("text", "data", "tool", "plan"):
                messages.append(message.to_json())
        solution = stored.idea.solution
        calls = self._calls(stored, caller)
        if calls and isinstance(solution, dict):
            plan: JSONObject = {"calls": calls, "output": solution.get("output")}
            messages.append({"type": "plan", "plan": plan, "description": f"idea {stored.id[:12]}"})
        return messages

    def _calls(self, stored: StoredIdea, caller: str) -> list[JSON]:
        """The calls of an idea, after those of the steps of its run before it: of the caller's own run, where there is
        one, as another's may have come to the same idea on another way.
        """
        _, meta = self._made(IdeaHit(stored.id, stored.meta, (), 0.0), caller)
        ideas = [stored]
        if meta.run is not None and meta.step is not None and meta.step > 1:
            steps = self._bridge.store.ideas.of_run(meta.run)
            before = [one.id for one in steps if one.meta.step is not None and one.meta.step < meta.step]
            ideas = [*(self._bridge.store.ideas.get(one) for one in before), stored]
        calls: list[JSON] = []
        for one in ideas:
            solution = one.idea.solution
            listed = solution.get("calls") if isinstance(solution, dict) else None
            calls.extend(listed if isinstance(listed, list) else [])
        return calls
