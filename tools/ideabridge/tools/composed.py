"""The schema of a Solution in parsed form.

`solution_schema` in `compose.py` writes such a schema. Requests and saved ideas store it as JSON.
Code that needs parts of the schema reads them here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from ideabridge.tools.compose import OUTPUT_NOTE
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty, object_or_empty
from ideabridge.tools.keywords import (
    REFERENCE_PATTERN,
    map_schemas,
    references_in,
)

_DEFINED: Final = "#/$defs/"
_NULL: Final[JSONObject] = {"type": "null"}
_REFERENCE_PATTERNS: Final = (REFERENCE_PATTERN, "^\\u2020")


# The schema of a Solution can have a thousand of these, and creating a named tuple takes half as
# long as creating a frozen dataclass.
class CallSchema(NamedTuple):
    """The schema of calls to one tool.

    Attributes:
        schema: the schema, or the definition that the Solution's schema refers to.
        members: the schemas of the parameters and meta-properties.
        tool: the name of the tool, or "" if the schema accepts calls to any tool.
        module: the name of the tool's server, or "" if the tool does not belong to a server.
    """

    schema: JSONObject
    members: JSONObject
    tool: str
    module: str

    @classmethod
    def read(cls, schema: JSON, definitions: JSONObject) -> CallSchema:
        """Read the schema of a call, or the reference to its definition."""
        call = object_or_empty(schema)
        target = call.get("$ref")
        if target is not None:
            call = object_or_empty(definitions.get(str(target).removeprefix(_DEFINED)))

        members = object_or_empty(call.get("properties"))
        return cls(call, members, _text(members, "_tool"), _text(members, "_module"))


@dataclass(frozen=True)
class SolutionSchema:
    """The parts of a Solution's schema. Any other schema has no calls and no output.

    Attributes:
        properties: the schemas of a Solution's members, in the order of the schema.
        definitions: the schemas that other schemas refer to, keyed by name.
    """

    properties: JSONObject
    definitions: JSONObject

    @classmethod
    def read(cls, schema: JSON) -> SolutionSchema:
        """Read a schema. Malformed parts count as absent."""
        whole = object_or_empty(schema)
        properties = object_or_empty(whole.get("properties"))
        return cls(properties, object_or_empty(whole.get("$defs")))

    @cached_property
    def calls(self) -> tuple[CallSchema, ...]:
        """The schemas of the calls that a Solution can contain."""
        items = object_or_empty(self.properties.get("calls")).get("items")
        if not isinstance(items, dict):
            return ()

        alternatives = list_or_empty(items.get("anyOf")) or [items]
        return tuple(CallSchema.read(call, self.definitions) for call in alternatives)

    @property
    def output(self) -> JSONObject | None:
        """The schema of the output, or None if there is none."""
        output = self.properties.get("output")
        return output if isinstance(output, dict) else None

    @property
    def is_complete(self) -> bool:
        """True if the schema describes the calls and the output of a Solution."""
        listed = object_or_empty(self.properties.get("calls"))
        if listed.get("type") != "array" or "output" not in self.properties:
            return False
        if not self.calls:
            return listed.get("maxItems") == 0
        return all("_tool" in call.members for call in self.calls)

    @property
    def tools(self) -> dict[str, str]:
        """The server of each tool that has its own schema, or "" for a tool without a server."""
        return {call.tool: call.module for call in self.calls if call.tool}

    @property
    def outputs(self) -> list[JSON]:
        """The alternative schemas of the output, without the null that means "no output yet"."""
        if self.output is None:
            return []
        alternatives = list_or_empty(self.output.get("anyOf")) or [self.output]
        return [schema for schema in alternatives if schema != _NULL]

    @property
    def own_output(self) -> JSONObject | None:
        """The schema of the output before composition, or None if the schema does not describe the
        output.

        It has no null, no references, and no note in its description.
        """
        output = self.output
        if output is None or output == _NULL:
            return None

        alternatives = list_or_empty(output.get("anyOf"))
        if alternatives:
            others = [
                schema
                for schema in alternatives
                if schema != _NULL and not self._is_reference(schema)
            ]
            output = _joined(_without_note(output), others)

        own = object_or_empty(self._own(output))
        if "$defs" not in own:
            needed = self.definitions_for(own, self._own)
            if needed:
                own["$defs"] = needed

        return own

    def definitions_for(
        self, schema: JSON, change: Callable[[JSON], JSON] | None = None
    ) -> JSONObject:
        """Return the definitions that a schema refers to, directly or through other definitions.

        Args:
            schema: the schema that refers to definitions.
            change: applied to each definition first, if set.
        """
        needed: JSONObject = {}
        unread = [schema]
        while unread:
            for target in references_in(unread.pop()):
                name = target.removeprefix(_DEFINED).partition("/")[0]
                if name in needed or name not in self.definitions or name == target:
                    continue

                definition = self.definitions[name]
                needed[name] = definition if change is None else change(definition)
                unread.append(needed[name])

        return {name: needed[name] for name in self.definitions if name in needed}

    def _own(self, schema: JSON) -> JSON:
        return map_schemas(schema, self._without_references)

    def _without_references(self, schema: JSONObject) -> JSONObject:
        alternatives = list_or_empty(schema.get("anyOf"))
        others = [part for part in alternatives if not self._is_reference(part)]
        return _joined(schema, others) if len(others) < len(alternatives) else schema

    def _is_reference(self, schema: JSON) -> bool:
        """Return whether a schema accepts only references."""
        keywords = object_or_empty(schema)
        if "$ref" in keywords:
            target = str(keywords["$ref"])
            keywords = object_or_empty(self.definitions.get(target.removeprefix(_DEFINED)))

        pattern = str(keywords.get("pattern", ""))
        return keywords.get("type") == "string" and pattern.startswith(_REFERENCE_PATTERNS)


def _text(members: JSONObject, name: str) -> str:
    """Return the only string that a member can be, or "" if other values are possible."""
    if name not in members:
        return ""

    text = object_or_empty(members[name]).get("const")
    return text if isinstance(text, str) else ""


def _without_note(output: JSONObject) -> JSONObject:
    """Return the schema of the output without the note that was added to its description."""
    description = output.get("description")
    if not isinstance(description, str) or not description.endswith(OUTPUT_NOTE):
        return output

    others = {key: value for key, value in output.items() if key != "description"}
    own = description.removesuffix(OUTPUT_NOTE).removesuffix("\n")
    return {"description": own, **others} if own else others


def _joined(schema: JSONObject, alternatives: list[JSON]) -> JSONObject:
    """Return a schema with these alternatives as its `anyOf`. A single alternative is merged into
    the schema instead.
    """
    others = {key: value for key, value in schema.items() if key != "anyOf"}
    if len(alternatives) == 1:
        only = alternatives[0]
        if isinstance(only, dict) and not others.keys() & only.keys():
            return {**others, **only}
    return {**others, "anyOf": alternatives}
