"""The content of `ideabridge.json`.

The settings of a project's file override the user's once a person has trusted the file
(`trust.py`). All problems in a file are reported together, each with its place.
`docs/configuration.md` documents each key. This file does not import the MCP SDK.
"""

from __future__ import annotations

import dataclasses
import glob
import logging
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, field_validator

from ideabridge.bridge.file_content import (
    FileContent,
    NoObjectError,
    decode_file_content,
    read_file_content,
)
from ideabridge.bridge.limits import Limits
from ideabridge.bridge.minds.settings import (
    SIGNING,
    ModelConfiguration,
    SamplingSettings,
    ShownSettings,
    expanded_model,
)
from ideabridge.bridge.modules.server_log import log_file
from ideabridge.bridge.modules.settings import ModuleConfiguration, ToolSettings, public_url
from ideabridge.bridge.server_entry import (
    HINTS,
    SYNONYMS,
    Remark,
    entry_problems,
    found_kind,
)
from ideabridge.bridge.settings_check import (
    NULL,
    Checker,
    Place,
    Repaired,
    may_restrict,
    nearest_key,
    null_places,
    place_text,
    without,
)
from ideabridge.bridge.store.database import check_store_place, is_address
from ideabridge.bridge.store.errors import StorePlaceError
from ideabridge.bridge.stored_secrets import SecretOwner, secret_owner
from ideabridge.bridge.trust import (
    FILE_NAME,
    MAX_FILE_BYTES,
    ProjectFile,
    ProjectTrust,
    TrustError,
    Untrusted,
    Variables,
    project_file,
    project_trust,
    read_own,
    read_trusted,
    was_trusted,
)
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    ObjectLike,
    content_hash,
    encode,
    list_or_empty,
    normalise,
    object_or_empty,
)
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import did_you_mean
from ideabridge.tools.tool import Order

logger: Final = logging.getLogger(__name__)

_TOP_HINTS: Final = {
    "modules": ". Did you mean 'mcpServers'?",
    "servers": ". Did you mean 'mcpServers'?",
    "mcp_servers": ". Did you mean 'mcpServers'?",
    "mcp": ". Did you mean 'mcpServers'?",
    "inputs": ". ideabridge does not ask for values: use ${VAR} in 'env' or 'headers'.",
}


class ConfigurationError(IdeabridgeError):
    """A configuration cannot be read. The message has one line per problem, with its location."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


# -- the settings ----------------------------------------------------------------------------------


class ApprovalRule(BaseModel):
    """One rule in `approval`. It matches a call if all conditions that the rule sets hold."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    module: str | None = Field(
        default=None,
        description=(
            'Servers: a name or a pattern with *, ? and [abc]; "": tools that belong to no server.'
        ),
    )
    tool: str | None = Field(default=None, min_length=1, description="Tools: a name or a pattern.")
    read_only: bool | None = Field(
        default=None, description="Whether the tool declares itself read-only."
    )
    destructive: bool | None = Field(
        default=None, description="false: it is read-only, or declares that it destroys nothing."
    )
    idempotent: bool | None = Field(
        default=None, description="true: it is read-only, or declares that it may be repeated."
    )
    open_world: bool | None = Field(
        default=None, description="false: it declares that it stays in a closed world."
    )
    then: Literal["allow", "ask", "deny"] = Field(description="What happens to such a call.")
    why: str | None = Field(
        default=None,
        max_length=500,
        description="The reason to show if the call asks or is refused.",
    )


class ApprovalRules(BaseModel):
    """Decides which calls run, ask a person, or are refused. The first rule that matches
    applies.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    default: Literal["ask", "allow", "deny", "read_only"] = Field(
        default="read_only",
        description=(
            "What happens if no rule matches. read_only: read-only calls run, all others ask."
        ),
    )
    rules: tuple[ApprovalRule, ...] = Field(
        default=(), max_length=1000, description="The first rule that matches decides."
    )
    by: Literal["person"] | None = Field(
        default=None,
        description="person: only a person decides, in a form or at a terminal. The assistant decides "
        "nothing, even if its client shows no forms.",
    )
    timeout_seconds: float | None = Field(
        default=None,
        gt=0,
        le=365 * 86_400,
        description="Seconds after which a call that nobody has decided on is denied.",
    )


class UsersSettings(BaseModel):
    """The permissions and limits of the named users of one server."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    share: Literal["members", "admins"] = Field(
        default="members",
        description="Who can publish ideas to others: every user, or only admins.",
    )
    requests_per_minute: int = Field(
        default=6000,
        ge=1,
        le=1_000_000,
        description="How many requests over HTTP one user can make per minute.",
    )
    runs: int = Field(
        default=64,
        ge=1,
        le=100_000,
        description="How many of one user's runs can be active at once.",
    )
    background: tuple[str, ...] = Field(
        default=(),
        description=(
            "Users whose runs a worker starts only when no other user's run is waiting. For jobs "
            "such as tests."
        ),
    )


class ProfileSettings(BaseModel):
    """The servers, tools and ideas that sessions in one profile can use. If a key is absent,
    sessions can use everything of that kind.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    servers: tuple[str, ...] | None = Field(
        default=None,
        max_length=1000,
        description="Servers: names or patterns with *, ? and [abc].",
    )
    tools: tuple[str, ...] | None = Field(
        default=None,
        max_length=1000,
        description="Tools of these servers and of the tool files: NAME or SERVER.NAME, or patterns "
        "of these.",
    )
    ideas: tuple[str, ...] | None = Field(
        default=None,
        max_length=1000,
        description="Published ideas: names or patterns. They use the tools that they were published "
        "with, whatever the profile has. If the key is absent: the ideas that call only tools of "
        "the profile.",
    )


class RetentionSettings(BaseModel):
    """How long a server keeps runs that have ended. It always keeps published and tagged runs."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    days: float | None = Field(
        default=180,
        ge=7,
        le=36_500,
        description="How many days to keep a run after it ends; null: forever.",
    )
    runs: int | None = Field(
        default=100_000,
        ge=100,
        le=1_000_000_000,
        description="How many runs to keep, including rooms. The oldest are deleted first, except "
        "those that ended within the last 7 days; null: any number.",
    )


class NotifySettings(BaseModel):
    """How ideabridge notifies a person that something is waiting for a decision."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    command: tuple[str, ...] = Field(
        default=(),
        max_length=100,
        description="A program and its arguments; the message follows as the last argument. Only "
        "your own configuration can name it.",
    )
    webhook: str | None = Field(
        default=None,
        max_length=2000,
        description='An address to which {"text", "waiting", "link"} is sent with POST.',
    )
    hosts: tuple[str, ...] = Field(
        default=(),
        max_length=100,
        description="Hosts that the webhook of a project's configuration is allowed to lead to. "
        "Only your own configuration can name them.",
    )

    @field_validator("command")
    @classmethod
    def _words(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Check that the words begin with a program and are valid on a command line."""
        if value and not value[0]:
            raise ValueError("expected the name of a program as the first word")
        if any("\0" in word for word in value):
            raise ValueError("expected words without NUL characters")
        return value

    @field_validator("webhook")
    @classmethod
    def _webhook(cls, value: str | None) -> str | None:
        return _protected_address(value, "https://hooks.example.com/...")

    @property
    def webhook_host(self) -> str | None:
        """The webhook's host."""
        return None if self.webhook is None else urlsplit(self.webhook).hostname


def _protected_address(value: str | None, example: str) -> str | None:
    """Return an address, or None if no address is set.

    Refuse an address with an unprotected connection, because others could read or change the data
    in transit.

    Raises: ValueError: the string is not an address, or its connection is not protected.
    """
    if value is None:
        return None

    parts = urlsplit(value)
    if not parts.hostname or parts.username is not None or parts.fragment:
        raise ValueError(f"expected an address such as {example}")

    here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme != "https" and not (parts.scheme == "http" and here):
        raise ValueError("expected https:// (http:// is allowed only for this machine)")
    return value


class AuthSettings(BaseModel):
    """The identity provider whose access tokens (JWT) are accepted over HTTP."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    issuer: str = Field(
        min_length=1, description=("The provider's address, which is `iss` in its tokens.")
    )
    audience: str = Field(
        min_length=1,
        description="What `aud` of a token must contain: the name of this server at the provider.",
    )
    jwks_url: str | None = Field(
        default=None, description="The address of its keys; null: from its metadata (.well-known)."
    )
    algorithms: tuple[
        Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"],
        ...,
    ] = Field(
        default=("RS256", "PS256", "ES256", "EdDSA"),
        min_length=1,
        description="The algorithms that tokens can be signed with.",
    )
    name_claim: str = Field(
        default="preferred_username",
        min_length=1,
        description=(
            "The claim that a user's name is made from at the first request. "
            "`sub` identifies the user."
        ),
    )
    scopes: tuple[str, ...] = Field(default=(), description="Scopes that a token must have.")
    profile: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "The profile to which everybody who signs in with such a token is restricted; null: no "
            "restriction."
        ),
    )
    resource: str | None = Field(
        default=None,
        description=(
            "The address at which clients reach this server; null: `audience`, if it is an address."
        ),
    )

    @field_validator("issuer", "jwks_url", "resource")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        return _protected_address(value, "https://login.example.com")


@dataclass(frozen=True, slots=True)
class Layer:
    """One of the files that make up a configuration.

    Attributes:
        file: the absolute path. Relative paths in the file are relative to its folder.
        keys: the top-level keys of the file.
        modules: the names of the servers in the file.
        is_own: whether this is the user's own file, which applies in every project.
        variables: the variables that the file is allowed to name as `${NAME}`, or None for every
            variable.
        digests: the SHA-256, in hex, that each tool file must have, keyed by absolute path. None if
            tool files are not checked.
        replaced: the names of the servers that replace a server in the layer below.
        narrowed: a line for each setting that applies only in part.
        refused: a line for each setting that does not apply.
    """

    file: Path
    keys: tuple[str, ...] = ()
    modules: frozenset[str] = frozenset()
    is_own: bool = False
    variables: Variables | None = None
    digests: Mapping[str, str] | None = None
    replaced: tuple[str, ...] = ()
    narrowed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def is_project(self) -> bool:
        """True if the layer is a project file, which a person has trusted."""
        return self.variables is not None


Approval = Literal["default", "allow_all"] | ApprovalRules


_PROFILE_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,47}", re.ASCII)

_LONGEST_FAULT: Final = 300
"""Maximum length, in characters, of a reason why a tool file could not be loaded, as shown to a
model.
"""

_MOST_FAULTS: Final = 5
"""Maximum number of these reasons that are shown to a model."""


def reason_of_setting(module: str, name: str, *, read_only: bool) -> str:
    """Return the reason for the verdict on a tool that a person's own file declares to be read-only
    or not.

    Args:
        module: the tool's server.
        name: the tool's name as its server writes it.
        read_only: what the file says.
    """
    kind = "only reads" if read_only else "changes something"
    place = f"mcpServers.{module}.tools.{name}.read_only"
    return f"the configuration says that it {kind} ({place})"


class Configuration(BaseModel):
    """The content of `ideabridge.json`. `load_configuration` makes the paths in `tools` and
    `store` absolute.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)

    schema_url: str | None = Field(
        default=None, alias="$schema", description="The address of this schema, for editors."
    )
    modules: dict[str, ModuleConfiguration] = Field(
        default_factory=dict[str, ModuleConfiguration],
        alias="mcpServers",
        description=(
            "The MCP servers behind ideabridge, by name: the same JSON every assistant uses."
        ),
    )
    tools: tuple[str, ...] = Field(
        default=(), description="Python files with tools; relative to this file."
    )
    store: str | None = Field(
        default=None,
        min_length=1,
        description="The SQLite file of ideas and runs, relative to this file; or a PostgreSQL database, "
        "as postgresql://USER@HOST/DATABASE, whose password is in PGPASSWORD or ~/.pgpass.",
    )
    durability: Literal["normal", "full"] = Field(
        default="normal",
        description="normal: safe against crashes of the process; full: also against power loss.",
    )
    approval: Approval = Field(
        default="default",
        description="default: read-only calls run, all others ask. allow_all: nothing asks. Or an "
        "object of rules. Calls of tools that a program passes to its own Bridge ask "
        "only if a rule, or the `default` of the rules, says so.",
    )
    order: Order = Field(
        default="effects",
        description="Which calls wait for those listed before them. effects: within one server, a "
        "call that may change something waits for all calls before it, and a read "
        "waits for the changes before it; all: every call waits for all calls before "
        "it; none: no call waits.",
    )
    limits: Limits = Field(default_factory=Limits, description="The limits of one run.")
    sampling: SamplingSettings = Field(
        default_factory=SamplingSettings,
        description="Preferences for the client's model, if it answers a run.",
    )
    model: str | ModelConfiguration | None = Field(
        default=None,
        description="The model endpoint that answers `solve`: PROVIDER:MODEL, or an object.",
    )
    thought_process: bool = Field(
        default=False,
        description="Whether minds write their reasoning before the calls, in `thought_process`.",
    )
    shown: ShownSettings = Field(
        default_factory=ShownSettings,
        description=(
            "How many bytes of call results minds see in full. They always see everything that a "
            "context's author wrote."
        ),
    )
    programs: bool = Field(
        default=True,
        description="false: programs are not offered to minds, and are refused everywhere.",
    )
    program_mind: Literal["caller", "model"] = Field(
        default="caller",
        description="Who writes the program for a published run whose copied values are open. "
        "caller: the mind that saw the run; the answer asks it. model: the configured "
        "model, which is sent the run's results.",
    )
    own_tools: Literal["core", "all"] = Field(
        default="core",
        description="Which of ideabridge's own tools clients see. core: those that most tasks "
        "need; all: every tool with every parameter. Tools that are not listed can "
        "still be called.",
    )
    schemas: Literal["auto", "plain", "as_sent"] = Field(
        default="auto",
        description="In which form clients see the schemas of exposed tools. plain: without $ref, "
        "and without alternatives at the top, which many clients and model APIs "
        "refuse; as_sent: as the server sends them; auto: plain for clients that are "
        "known to need it, otherwise as_sent.",
    )
    expose: tuple[Literal["modules", "tools"], ...] = Field(
        default=(),
        description=(
            "modules: the tools of every server are also tools of ideabridge; tools: those of the "
            "tool files."
        ),
    )
    sessions: bool = Field(
        default=True,
        description="false: the results of direct calls of exposed tools and ideas are not stored, so "
        "such calls cannot be published.",
    )
    listed_ideas: int = Field(
        default=20,
        ge=0,
        le=10_000,
        description=(
            "How many published ideas clients see as tools: one quarter are the newest, "
            "the others the most used."
        ),
    )
    users: UsersSettings = Field(
        default_factory=UsersSettings,
        description="What named users of one server are allowed to do.",
    )
    profiles: dict[str, ProfileSettings] = Field(
        default_factory=dict[str, ProfileSettings],
        description="Parts of the servers, tools and ideas, by name. A session, an address or a token "
        "can be restricted to one of them.",
    )
    retention: Literal[False] | RetentionSettings = Field(
        default_factory=RetentionSettings,
        description=(
            "When a server deletes old runs that are neither published nor tagged; false: never."
        ),
    )
    auth: AuthSettings | None = Field(
        default=None,
        description="The identity provider whose access tokens are accepted over HTTP; null: none.",
    )

    notify: NotifySettings | None = Field(
        default=None,
        description=(
            "How ideabridge tells you that something is waiting for a decision; null: it does not."
        ),
    )

    @field_validator("profiles")
    @classmethod
    def _profile_names(cls, value: dict[str, ProfileSettings]) -> dict[str, ProfileSettings]:
        """Check that each name can be part of an address."""
        for name in value:
            if _PROFILE_NAME.fullmatch(name) is None:
                raise ValueError(
                    f"{name[:64]!r} cannot be the name of a profile: expected a letter from a to "
                    "z, then up to 47 letters from a to z, digits, _ or -"
                )
        return value

    source: Path | None = Field(
        default=None,
        exclude=True,
        description=("The file that it was read from. If there are several, the topmost one."),
    )
    project: Path = Field(default_factory=Path.cwd, exclude=True, description="The project folder.")

    own_servers_in: Path | None = Field(
        default=None,
        exclude=True,
        description="The folder in which programs of the user's own file start if several projects "
        "share them; null: in the project folder.",
    )

    logs: Path | None = Field(
        default=None,
        exclude=True,
        description="The folder for the logs of servers; null: no logs are written.",
    )

    restricted_to: str | None = Field(
        default=None,
        exclude=True,
        description="The profile that every session of this process is restricted to; null: none.",
    )

    layers: tuple[Layer, ...] = Field(
        default=(), exclude=True, description="The files that it was read from, the lowest first."
    )
    also: tuple[Approval, ...] = Field(
        default=(),
        exclude=True,
        description=("Approval settings that apply in addition to `approval`."),
    )
    embedded: Mapping[str, tuple[str, str]] = Field(
        default_factory=dict[str, tuple[str, str]],
        exclude=True,
        description=(
            "The tools that a program passes to its Bridge: digest and code by name (see "
            "`embedded_tools`)."
        ),
    )
    unexposed: frozenset[str] = Field(
        default=frozenset(), exclude=True, description="Servers that `expose` does not cover."
    )
    untrusted: Untrusted | None = Field(
        default=None, exclude=True, description="A project file that is not used."
    )
    withheld: tuple[str, ...] = Field(
        default=(),
        exclude=True,
        description="Why the files' current content is not used, in sentences for a model.",
    )
    tool_faults: tuple[str, ...] = Field(
        default=(), exclude=True, description="Why files in `tools` could not be loaded."
    )
    notes: tuple[str, ...] = Field(
        default=(), exclude=True, description="What was unusual in the files, and how it was read."
    )
    unusable: Mapping[str, tuple[str, ...]] = Field(
        default_factory=dict[str, tuple[str, ...]],
        exclude=True,
        description="Why servers cannot be used as they are configured, by name.",
    )

    @property
    def unused_files(self) -> list[str]:
        """One sentence, for a model, about each file that is not used: an untrusted project file,
        or a tool file that could not be loaded.
        """
        sentences = [] if self.untrusted is None else [self.untrusted.told_to_hosts()]
        sentences += self.withheld
        sentences += [
            f"A file of the user's tools could not be loaded, so its tools are missing: "
            f"{fault[:_LONGEST_FAULT]}"
            for fault in self.tool_faults[:_MOST_FAULTS]
        ]
        return sentences

    @property
    def warnings(self) -> list[str]:
        """One line for each unusual part of the files, and for each server that cannot be used.

        The line for an unusual part says how the part was read, or that it is ignored.
        """
        unusable = [
            f"{self._file_of(name)}: {line}"
            for name, lines in self.unusable.items()
            for line in lines
        ]
        return [
            *self.notes,
            *unusable,
            *self.unusable_profiles.values(),
            *self.names_without_effect,
        ]

    @property
    def names_without_effect(self) -> list[str]:
        """A line for each name in `profiles`, `approval`, `allow` or `deny` that exists only
        because `tools` renames a tool. Such a name has no effect, because these keys refer to the
        names that servers list.
        """
        real_names: dict[str, tuple[str, str]] = {}
        for module, entry in self.modules.items():
            for real, settings in entry.tools.items():
                if settings.name is not None and settings.name != real:
                    real_names.setdefault(settings.name, (module, real))
                    real_names[f"{module}.{settings.name}"] = (module, real)

        lines: list[str] = []
        for place, name in self._names_of_tools():
            if name in real_names:
                module, real = real_names[name]
                lines.append(
                    f"{place}: {name[:64]!r} is the name that mcpServers.{module}.tools gives to "
                    f"{real[:64]!r}. This place accepts only names that servers list, so write "
                    f"{real[:64]!r}"
                )

        return lines

    def _names_of_tools(self) -> Iterator[tuple[str, str]]:
        """Yield the place and text of each tool name or pattern that restricts or allows calls."""
        for profile, settings in self.profiles.items():
            for number, name in enumerate(settings.tools or ()):
                yield f"profiles.{profile}.tools[{number}]", name

        for module, entry in self.modules.items():
            for number, name in enumerate(entry.deny):
                yield f"mcpServers.{module}.deny[{number}]", name
            for number, name in enumerate(entry.allow or ()):
                yield f"mcpServers.{module}.allow[{number}]", name

        for approval in (*self.also, self.approval):
            part = self._approval_as_written(approval)
            rules = list_or_empty(part.get("rules")) if isinstance(part, dict) else []
            for number, rule in enumerate(rules):
                name = rule.get("tool") if isinstance(rule, dict) else None
                if isinstance(name, str):
                    yield f"approval.rules[{number}].tool", name

    @property
    def unusable_profiles(self) -> dict[str, str]:
        """The reasons why profiles are unusable, keyed by name: they name servers that are not
        configured.

        Unknown names are not ignored, because a misspelling would then silently remove a server
        from the profile.
        """
        reasons: dict[str, str] = {}
        for name, profile in self.profiles.items():
            for place, server in enumerate(profile.servers or ()):
                if server not in self.modules and not any(mark in server for mark in "*?["):
                    near = did_you_mean(server, self.modules)
                    reasons[name] = (
                        f"profiles.{name}.servers[{place}]: server {server[:64]!r} is not "
                        f"configured.{near} The profile is not used"
                    )
                    break
        return reasons

    def _file_of(self, module: str) -> str:
        layer = self.layer_of(module)
        return FILE_NAME if layer is None else str(layer.file)

    def expect_usable(self, module: str) -> None:
        """Raise `ConfigurationError` if a server's entry cannot be used."""
        if module in self.unusable:
            file = self._file_of(module)
            raise ConfigurationError([f"{file}: {line}" for line in self.unusable[module]])

    @property
    def approval_setting(self) -> str | JSONObject:
        """The approval rules in the form in which a run stores them. If there are several sets of
        rules, the strictest set applies to each call.
        """
        parts: list[JSON] = []
        for approval in (*self.also, self.approval):
            part = self._approval_part(approval)
            if part != "allow_all" and part not in parts:
                parts.append(part)

        if len(parts) > 1:
            return {"all": parts}
        return cast("str | JSONObject", parts[0]) if parts else "allow_all"

    def _approval_part(self, approval: Approval) -> str | JSONObject:
        part = self._approval_as_written(approval)
        rules = self._rules_of_tools()
        if not rules or part == "allow_all":
            return part

        written: JSONObject = {} if isinstance(part, str) else part
        if written.get("default", "read_only") != "read_only":
            return part
        return {**written, "rules": [*list_or_empty(written.get("rules")), *rules]}

    def _rules_of_tools(self) -> list[JSON]:
        """Return a rule for each tool that the user's own files declare to be read-only, or not to
        be read-only.

        A project file cannot declare this. These rules come last, so any other rule about the tool
        takes precedence.
        """
        rules: list[JSON] = []
        for module, entry in self.modules.items():
            layer = self.layer_of(module)
            if layer is not None and layer.is_project:
                continue

            for name, tool in entry.tools.items():
                if tool.read_only is None:
                    continue

                rule: JSONObject = {
                    "module": glob.escape(module),
                    "tool": glob.escape(name),
                    "then": "allow" if tool.read_only else "ask",
                    "why": reason_of_setting(module, name, read_only=tool.read_only),
                }
                rules.append(rule)

        return rules

    def _approval_as_written(self, approval: Approval) -> str | JSONObject:
        embedded: JSONObject = {name: list[JSON](parts) for name, parts in self.embedded.items()}
        if isinstance(approval, ApprovalRules):
            part: JSONObject = approval.model_dump(mode="json", exclude_none=True)
            says_default = "default" in approval.model_fields_set
            if says_default or not embedded:
                return part
            return {**part, "embedded": embedded}

        if approval == "default" and embedded:
            return {"default": "read_only", "embedded": embedded}
        return approval

    @property
    def folder(self) -> Path:
        """The base folder for relative paths: the folder of the file or, if there is no file, the
        project folder.
        """
        return self.source.parent if self.source is not None else self.project

    def layer_of(self, module: str) -> Layer | None:
        """Return the layer that contains a server's entry, or None if the entry was not read from a
        file.
        """
        return next((layer for layer in reversed(self.layers) if module in layer.modules), None)

    def apart_file_of(self, module: str) -> Path | None:
        """Return the file whose existence gives each session its own server, or None if nothing is
        stored.

        See `Module.sharing`.
        """
        log_file = self.log_file_of(module)
        return None if log_file is None else log_file.with_suffix(".apart")

    def exposes(self, module: str) -> bool:
        """Return whether clients can call a server's tools directly (`expose: modules`)."""
        return "modules" in self.expose and module not in self.unexposed

    @property
    def enabled_modules(self) -> list[str]:
        """The names of all servers that are not disabled."""
        return [name for name, module in self.modules.items() if not module.disabled]

    def with_only(self, modules: Collection[str]) -> Configuration:
        """Return a copy in which all servers except `modules` are disabled.

        Raises:
            ConfigurationError: one of `modules` is not configured.
        """
        for name in modules:
            if name not in self.modules:
                configured = ", ".join(self.modules) or "none"
                raise ConfigurationError(
                    [f"server {name[:100]!r} is not configured; configured servers: {configured}"]
                )
        entries = {
            name: entry if name in modules else entry.model_copy(update={"disabled": True})
            for name, entry in self.modules.items()
        }
        return self.model_copy(update={"modules": entries})

    def folder_of(self, module: str) -> Path:
        """Return the absolute base folder for relative paths in a server's entry."""
        layer = self.layer_of(module)
        folder = self.folder if layer is None else layer.file.parent
        return folder.absolute()

    def working_folder_of(self, module: str) -> Path:
        """Return the absolute folder that a program without `cwd` starts in.

        A server from the user's own file starts in the project folder, as it does in other clients,
        or in `own_servers_in`. A server whose arguments or variables name a file next to the user's
        file starts in that folder instead. Otherwise, a file with the same name in a cloned
        repository could replace it.
        """
        folder = self.folder_of(module)
        layer = self.layer_of(module)
        if layer is None or not layer.is_own:
            return folder
        if _names_file_in(folder, self.modules[module]):
            return folder
        return (self.own_servers_in or self.project).absolute()

    def log_file_of(self, module: str) -> Path | None:
        """Return the file that a server's log is written to, or None if no log is written."""
        if self.logs is None:
            return None
        layer = self.layer_of(module)
        return log_file(self.logs, module, None if layer is None else layer.file)

    def variables_of(self, module: str) -> Variables | None:
        """Return the variables that a server's entry is allowed to name, or None for every
        variable.
        """
        layer = self.layer_of(module)
        return None if layer is None else layer.variables

    def secret_owner_of(self, module: str) -> SecretOwner:
        """Return the owner of the secrets that a server's entry is allowed to read."""
        layer = self.layer_of(module)
        return secret_owner(None if layer is None else layer.file)

    @property
    def refused(self) -> list[str]:
        """One line for each setting that does not apply."""
        return [line for layer in self.layers for line in layer.refused]

    def opened_by(self, *, needs_token: bool) -> str | None:
        """Return why an HTTP server must not start with this configuration, or None if it can
        start.

        The server must not start if an ignored file would have admitted fewer people.

        Args:
            needs_token: whether the server refuses everyone who has no token.
        """
        files = [layer.file for layer in self.layers if layer.is_project and "auth" in layer.keys]
        if self.untrusted is not None and "auth" in self.untrusted.keys:
            files.append(self.untrusted.file)

        left = self.untrusted
        if left is not None and left.problems and not left.is_readable:
            return (
                f"{left.told()}\nideabridge cannot tell whom the file would let in, so this "
                "server does not start over HTTP"
            )

        if files and self.auth is None:
            return (
                f"{files[0]}: a project file cannot set auth. Without auth, this server would let "
                f"in people whom the file refuses. Move auth into {user_file()}, or into a file "
                "outside the project that --config names, or remove it"
            )

        if left is not None and left.was_trusted and "store" in left.keys and not needs_token:
            # The server has used the store named in the file. Any other store would not know the
            # users of the server.
            return (
                f"{left.told()}. The file names a store, which may have users. Without these users, "
                "this server would let everybody in. Trust the file again, or name the store with "
                "--store"
            )

        return None

    def digest_of(self, tool_file: str) -> str | None:
        """Return the SHA-256, in hex, that a tool file must have to be loaded, or None if any
        content is accepted.
        """
        for layer in self.layers:
            if layer.digests is not None and tool_file in layer.digests:
                return layer.digests[tool_file]
        return None


def _names_file_in(folder: Path, entry: ModuleConfiguration) -> bool:
    """Return whether an argument or a variable in an entry names a file relative to a folder."""
    for word in (*entry.args, *entry.env.values()):
        for text in (word, word.partition("=")[2]):
            # Use `os.path.isfile`, because it returns False for a word that cannot be a path,
            # whereas `Path` might raise an error.
            if not os.path.isabs(text) and os.path.isfile(os.path.join(folder, text)):  # noqa: PTH117, PTH113, PTH118
                return True
    return False


_PROTECTING: Final = (
    "approval",
    "auth",
    "users",
    "profiles",
    "limits",
    "retention",
    "programs",
    "sessions",
    "store",
    "durability",
    "order",
)
"""Top-level keys that restrict what is allowed or protect what is stored. If one of them is not
understood, the whole file is refused: otherwise, it would apply with fewer restrictions than it
states.
"""

_SERVER_PROTECTING: Final = (
    "allow",
    "deny",
    "auth",
    "read_only",
    "disabled",
    "enabled",
    "parallel",
    "retry",
    "record",
    "sharing",
)
"""The corresponding keys in a server's entry. If one of them is not understood, only the server is
refused.
"""

_DROPPED_BY_MEMBER: Final = ("tools", "expose", "sampling", "shown")
"""Keys whose members are left out one by one if they are not understood."""


_EITHER: Final[dict[str, tuple[type[BaseModel], tuple[JSON, ...], str]]] = {
    "approval": (
        ApprovalRules,
        ("default", "allow_all"),
        "'default', 'allow_all' or an object of rules",
    ),
    "retention": (RetentionSettings, (False,), "false or an object"),
}
"""Keys that accept either a plain value or an object. The two forms are checked separately, because
pydantic would report problems with both.
"""

_MERGED: Final = ("limits", "sampling")
"""Keys whose value is an object. A project file replaces the members of the object one by one, not
the whole object.
"""

_USERS_OWN: Final = ("auth", "users", "retention")
"""Keys that a project file cannot set, because they decide who can use the server and what the
server deletes.
"""


_TOP: Final = Checker(Configuration, _TOP_HINTS)
_KEYS: Final = _TOP.keys()
_ENTRY: Final = Checker(
    ModuleConfiguration, {key: f": {hint}" for key, hint in HINTS.items()}, tuple(SYNONYMS)
)
_MOST_KNOWN: Final = 10
_NOT_USED: Final = "It is not used."
_NOT_IGNORED: Final = "It may restrict something, so it is not ignored."


class _Check:
    """Checks a document and collects everything in it that is unusual or wrong.

    Attributes:
        content: the document's content without the parts that are left out.
        problems: why the file cannot be used.
        notes: notes on how unusual values were read, and on parts that were left out.
        unusable: the reasons why servers cannot be used, keyed by server name.
    """

    def __init__(self, document: FileContent) -> None:
        self.content: JSONObject = dict(document.content)
        self.problems: list[Remark] = []
        self.notes: list[Remark] = list(document.notes)
        self.unusable: dict[str, list[Remark]] = {
            name: list(remarks) for name, remarks in document.unusable.items()
        }
        for key, remark in document.conflicts.items():
            if key in _KEYS:
                self._leave_out(remark)

        servers = self.content.get("mcpServers")
        if isinstance(servers, dict):
            self.content["mcpServers"] = {
                name: self._checked_entry(name, object_or_empty(entry))
                for name, entry in servers.items()
            }

        for key in [key for key in self.content if key not in _KEYS]:
            self._check_unknown(key)
        for key in _EITHER:
            self._check_either(key)
        self._check_model()
        self._check_settings()

    def remarks(self) -> list[Remark]:
        """Return all remarks, starting with the problems of the file."""
        unusable = [remark for remarks in self.unusable.values() for remark in remarks]
        return [*self.problems, *unusable, *self.notes]

    # -- servers -----------------------------------------------------------------------------------

    def _checked_entry(self, name: str, entry: JSONObject) -> JSONObject:
        """Return the members of a server's entry that are valid."""
        place = f"mcpServers.{name}"
        if not entry and name in self.unusable:
            return {}

        repaired = _ENTRY.repaired(
            {key: value for key, value in entry.items() if key != "enabled"},
            lambda loc, _value: not _protects_server(loc),
        )
        problems = [Remark(key, text) for key, text in entry_problems(entry)]
        problems += [Remark(place_text(null), NULL) for null in _loosening_nulls(repaired)]

        reported = {problem.place for problem in problems}
        ignored: list[Remark] = []
        for fault in repaired.faults:
            if fault.is_unknown_key and not _restricts_server(fault.loc):
                ignored.append(fault.remark)
            elif fault.loc[0] == "tools" and not (
                fault.is_unknown_key or _protects_server(fault.loc)
            ):
                # Only the change is left out; the tool is then shown as its server lists it.
                self.notes.append(fault.remark.below(place).continued(_NOT_USED))
            elif fault.is_unknown_key and fault.loc[0] not in (*HINTS, *_SERVER_PROTECTING):
                problems.append(fault.remark.continued(_NOT_IGNORED))
            elif fault.remark.place not in reported:
                problems.append(fault.remark)

        self.notes += [note.below(place) for note in repaired.notes]
        if problems or name in self.unusable:
            # Report unknown keys as well, because one might be a misspelling of a known key that is
            # missing.
            reasons = [remark.below(place) for remark in (*problems, *ignored)]
            self.unusable.setdefault(name, []).extend(reasons)
        else:
            self.notes += [_ignored(remark).below(place) for remark in ignored]

        members = without(repaired.members, [fault.loc for fault in repaired.faults])
        if _ENTRY.faults(members):
            # The server is unusable, so its remaining values are never used, but any secrets in
            # them must still be masked.
            members = {
                key: value for key, value in members.items() if not _ENTRY.faults({key: value})
            }
        return members

    # -- top-level keys ----------------------------------------------------------------------------

    def _leave_out(self, remark: Remark, further: str = _NOT_USED) -> None:
        """Leave out the top-level key that a remark is about, or refuse the file if the key
        protects something.
        """
        key = remark.place.partition(".")[0]
        self.content.pop(key, None)
        if key in _PROTECTING:
            self.problems.append(remark)
        else:
            self.notes.append(remark.continued(further))

    def _check_unknown(self, key: str) -> None:
        del self.content[key]
        remark = Remark(key, _TOP.unknown_key(key))
        if key not in _TOP_HINTS and may_restrict(key, _KEYS, _PROTECTING):
            self.problems.append(remark.continued(_NOT_IGNORED))
        else:
            self.notes.append(_ignored(remark))

    def _check_either(self, key: str) -> None:
        model, plain, expected = _EITHER[key]
        value = self.content.get(key, plain[0])
        if isinstance(value, dict):
            repaired = Checker(model).repaired(
                value, lambda _loc, value: key != "approval" and value is not None
            )
            self.problems += [fault.remark.below(key) for fault in repaired.faults]
            self.notes += [note.below(key) for note in repaired.notes]
            self.content[key] = repaired.members
            if key == "approval":
                self.problems += [
                    Remark(place_text(null), NULL) for null in null_places(value, (key,))
                ]
        elif type(value) is not type(plain[0]) or value not in plain:
            actual = repr(value[:40]) if isinstance(value, str) else found_kind(value)
            self.problems.append(Remark(key, f"expected {expected}, found {actual}"))

    def _check_model(self) -> None:
        """Check `model`, which is used as a whole or not at all.

        If only one of its keys were left out, the content of runs could be sent to a different
        endpoint.
        """
        if self.content.get("model") is None:
            return

        value = self.content["model"]
        checker = Checker(ModelConfiguration)
        if isinstance(value, dict):
            repaired = checker.repaired(value, lambda _loc, _value: True)
            self.notes += [note.below("model") for note in repaired.notes]
            self.content["model"] = repaired.members
            faults = repaired.faults
        else:
            faults = checker.faults(expanded_model(value))

        for fault in faults:
            self._leave_out(fault.remark.below("model"), "The model is not used.")

    def _check_settings(self) -> None:
        """Check all other top-level keys."""
        apart = {*_EITHER, "model", "mcpServers"}
        repaired = _TOP.repaired(
            {key: value for key, value in self.content.items() if key not in apart},
            _may_repair,
        )
        self.notes += repaired.notes
        self.content |= repaired.members
        for key in self.content.keys() - repaired.members.keys() - apart:
            del self.content[key]

        nulls = null_places(self.content.get("profiles", {}), ("profiles",))
        self.problems += [Remark(place_text(null), NULL) for null in nulls]
        places: list[Place] = []
        for fault in repaired.faults:
            key = fault.loc[0]
            if key in _PROTECTING:
                self.problems.append(fault.remark)
            elif fault.is_unknown_key:
                places.append(fault.loc)
                self.notes.append(_ignored(fault.remark))
            else:
                places.append(fault.loc[: 2 if key in _DROPPED_BY_MEMBER else 1])
                self.notes.append(fault.remark.continued(_NOT_USED))

        self.content = without(self.content, places)


def _ignored(unknown: Remark) -> Remark:
    """Return the note about an unknown key that is ignored. The note omits the list of known keys
    if it is long.
    """
    text, _, known = unknown.text.partition(" Known: ")
    is_long = known.count(",") > _MOST_KNOWN
    if is_long:
        unknown = Remark(unknown.place, text)
    return unknown.continued("It is ignored.")


def _may_repair(place: Place, value: JSON) -> bool:
    """Return whether a top-level value can be read as a value of a different type or, if it is
    null, as absent.
    """
    if place[0] in ("limits", "users"):
        return value is not None
    return place[0] not in _PROTECTING


def _protects_server(place: Place) -> bool:
    """Return whether a place in a server's entry holds something that restricts calls to the
    server.

    A value in such a place cannot be left out if it is not understood.
    """
    if place[0] == "tools":
        return place[2:3] == ("read_only",)
    return place[0] in _SERVER_PROTECTING


def _loosening_nulls(entry: Repaired) -> list[Place]:
    """Return the places in a server's entry that are meant to restrict its calls, but contain a
    null that their type allows.
    """
    faulty = {fault.loc for fault in entry.faults}
    return [
        null
        for null in null_places(entry.members, ())
        if _protects_server(null) and null not in faulty
    ]


def _restricts_server(place: Place) -> bool:
    """Return whether an unknown key in a server's entry might restrict the server, or might change
    how the server works in a way that must not be ignored.
    """
    key = str(place[0])
    if key == "tools" and len(place) > 2:
        return may_restrict(str(place[2]), [*ToolSettings.model_fields], ())
    if len(place) > 1:
        return key in _SERVER_PROTECTING
    return key in HINTS or may_restrict(key, [*_ENTRY.keys(), *SYNONYMS], _RESTRICTING_NAMES)


_RESTRICTING_NAMES: Final = (
    *_SERVER_PROTECTING,
    *(key for key, own in SYNONYMS.items() if own in _SERVER_PROTECTING),
)
"""All forms of the keys in an entry that restrict the server."""


def parse_configuration(
    raw: ObjectLike | JSON, *, project: Path | None = None, source: Path | None = None
) -> Configuration:
    """Read a decoded `ideabridge.json`.

    Args:
        raw: the object.
        project: the project folder, or None for the current folder. Relative paths are relative to
            this folder.
        source: the file that the object was read from, or None. Relative paths are relative to its
            folder.

    In the result, `warnings` describes everything that was unusual, and `unusable` lists the
    servers whose entries cannot be used.

    Raises:
        ConfigurationError: a key that restricts something (`approval`, `auth`, `limits`, ...) has
            problems, reported as `ideabridge.json: place: problem`.
        InvalidJSONError: the object contains a value that JSON cannot represent.
    """
    folder = project or Path.cwd()
    content = normalise(raw, what=FILE_NAME)
    name = str(source or FILE_NAME)
    try:
        return _parsed(read_file_content(content, folder), folder, source)
    except NoObjectError as error:
        raise ConfigurationError([f"{name}: {error}"]) from None


def _parsed(document: FileContent, project: Path, source: Path | None) -> Configuration:
    check = _Check(document)
    name = str(source or FILE_NAME)
    if check.problems:
        raise ConfigurationError([f"{name}: {line}" for line in _lines(check.remarks())])

    parsed = Configuration.model_validate_json(encode(check.content), by_alias=True)
    folder = project if source is None else source.parent
    folder = folder.absolute()
    try:
        store = None if parsed.store is None else place_of(parsed.store, folder)
    except StorePlaceError as error:
        raise ConfigurationError([f"{name}: store: {error}"]) from None

    layers: tuple[Layer, ...] = ()
    if source is not None:
        keys = tuple(check.content)
        names = frozenset(parsed.modules)
        layers = (Layer(source, keys, names, is_own=is_user_file(source)),)

    tools = tuple(str(folder / Path(path).expanduser()) for path in parsed.tools)
    notes = tuple(f"{name}: {line}" for line in _lines(check.notes))
    unusable = {server: _lines(remarks) for server, remarks in check.unusable.items()}
    return parsed.model_copy(
        update={
            "source": source,
            "project": project,
            "tools": tools,
            "store": store,
            "layers": layers,
            "notes": notes,
            "unusable": unusable,
        }
    )


_MOST_LINES: Final = 50
"""Maximum number of remarks shown about a file, and about each server."""

_LONGEST_LINE: Final = 500
"""Maximum length of a remark, in characters. Keys and names in a file can have any length."""


def _lines(remarks: Sequence[Remark]) -> tuple[str, ...]:
    lines = [str(remark) for remark in remarks[:_MOST_LINES]]
    lines = [f"{line[:_LONGEST_LINE]}…" if len(line) > _LONGEST_LINE else line for line in lines]
    if len(remarks) > _MOST_LINES:
        lines.append(f"and {len(remarks) - _MOST_LINES} more")
    return tuple(lines)


def check_server_entry(name: str, entry: JSONObject, *, project: Path) -> None:
    """Check that an entry of `mcpServers` can be used.

    Raises:
        ConfigurationError: the entry cannot be used, or the name is not valid for a server.
    """
    parsed = parse_configuration({"mcpServers": {name: entry}}, project=project)
    if name not in parsed.modules or name in parsed.unusable:
        raise ConfigurationError(parsed.warnings)


def place_of(store: str, folder: Path) -> str:
    """Return the absolute path of a store whose configured path is relative to a folder. The
    address of a PostgreSQL database is returned unchanged.

    Raises:
        StorePlaceError: the text names neither a file nor a PostgreSQL database.
    """
    check_store_place(store)
    if is_address(store):
        return store
    return str(folder / Path(store).expanduser())


def load_configuration(
    path: Path | str | None = None, *, project: Path | str | None = None
) -> Configuration:
    """Read a program's configuration from `path` or, without it, from the project folder as
    `load_workspace` does.

    Args:
        path: a file that must exist. It counts as trusted, and no other file is read.
        project: the project folder, or None for the current folder.

    Raises:
        ConfigurationError: a file cannot be read, can be written by others, is not JSON (the
            message names the place), or has problems.
    """
    project = Path.cwd() if project is None else Path(project).absolute()
    if path is not None:
        return _read_alone(Path(path).absolute(), project)

    loaded = load_workspace(project / FILE_NAME, project=project)
    if loaded.untrusted is not None:
        logger.warning("%s", loaded.untrusted.told())
    for line in loaded.warnings:
        logger.warning("%s", line)

    return loaded


def user_file() -> Path:
    """Return the path of the user's configuration."""
    return platformdirs.user_config_path("ideabridge") / FILE_NAME


def is_user_file(file: Path) -> bool:
    """Return whether a file is the user's configuration."""
    own = user_file()
    return own.is_file() and file.exists() and file.samefile(own)


def user_configuration(project: Path) -> Configuration:
    """Read the user's configuration, or return the defaults if the user has no file.

    Raises:
        ConfigurationError: as for `load_configuration`.
    """
    own = user_file()
    if os.path.lexists(own):
        # Report a folder or a broken link in place of the file as an error, because the user might
        # believe that rules in it are in force.
        return _read_alone(own.absolute(), project)
    return Configuration(project=project)


Ask = Callable[[ProjectTrust, Configuration, Configuration], bool]
"""A function that asks a person whether to trust a project file. Its arguments are the file's
trust, the file's content and the user's configuration.
"""


def load_workspace(
    file: Path, *, project: Path, ask: Ask | None = None, tolerant: bool = False
) -> Configuration:
    """Read the user's configuration and, if a person has trusted exactly the project file's
    content, apply the project file to it.

    If nobody has trusted the content, the result is the user's configuration, whose `untrusted`
    describes the project file.

    Args:
        file: the project file.
        project: the project folder, absolute.
        ask: a function that asks a person about a file that is not trusted, or None if nobody can
            be asked. If it returns True, the file is used this time. It can also store the trust.
        tolerant: whether to leave out a broken project file and describe it in `untrusted`.

    Raises:
        ConfigurationError: as for `load_configuration`, or a trusted file puts the store outside
            its folder. If `tolerant` is set, the error is raised only if the user's configuration
            is broken or the project file does not exist.
    """
    user = user_configuration(project)
    exists = os.path.lexists(file)
    if is_user_file(file) or (file.name == FILE_NAME and not exists):
        return user

    try:
        return _with_project_file(user, file, project, ask)
    except ConfigurationError as error:
        if not tolerant or not exists:
            raise
        return user.model_copy(update={"untrusted": _broken(file.absolute(), error.problems)})


def _with_project_file(
    user: Configuration, file: Path, project: Path, ask: Ask | None
) -> Configuration:
    """Apply a project file to the user's configuration; see `load_workspace`."""
    if file.name == FILE_NAME and not file.is_file():
        raise ConfigurationError([f"{file} is not a regular file"])
    if ask is None and not was_trusted(file):
        # If nobody has ever trusted the file, do not even read the files that it refers to.
        document = _read(file.absolute(), file.absolute().parent)[1]
        parsed = _parsed(document, project, file.absolute())
        _, problem = read_trusted()
        (layer,) = parsed.layers
        untrusted = Untrusted(
            file.absolute(), problem=problem, servers=layer.modules, keys=layer.keys
        )
        return user.model_copy(update={"untrusted": untrusted})

    found, parsed = read_project_file(file, project)
    standing = project_trust(found)
    if not standing.is_trusted and not (ask is not None and ask(standing, parsed, user)):
        changed = tuple(path for path, _ in standing.changed)
        (layer,) = parsed.layers
        untrusted = Untrusted(
            file.absolute(),
            changed,
            standing.problem,
            layer.modules,
            layer.keys,
            was_trusted=bool(changed),
        )
        return user.model_copy(update={"untrusted": untrusted})

    return lay_over(user, parsed, standing)


def _broken(file: Path, problems: list[str]) -> Untrusted:
    """Describe a project file that is not used because it has problems."""
    reason = problems[0].removeprefix(str(file)).removeprefix(": ").strip()
    try:
        content = _read(file, file.parent)[1].content if file.is_file() else None
    except ConfigurationError:
        content = None

    keys: tuple[str, ...] = ()
    if content is None:
        reason = reason if _PLAIN_REASON.fullmatch(reason) else "cannot be read"
        if reason.startswith("expected"):
            reason = f"is not a configuration ({reason})"
    else:
        keys = tuple(content)
        if any(key not in _KEYS and nearest_key(key, _KEYS) == "auth" for key in keys):
            keys = (*keys, "auth")
        places = [problem.removeprefix(f"{file}: ").partition(".")[0] for problem in problems]
        known = dict.fromkeys(
            key for place in places for key in _KEYS if place.partition(":")[0] == key
        )
        reason = f"has invalid settings in {', '.join(known) or 'keys that may restrict something'}"

    servers = object_or_empty((content or {}).get("mcpServers"))
    return Untrusted(
        file,
        servers=frozenset(servers),
        keys=keys,
        problems=tuple(problems),
        reason=reason,
        is_readable=content is not None,
        was_trusted=was_trusted(file),
    )


_PLAIN_REASON: Final = re.compile(
    r"is not UTF-8 \(byte \d+\)|is not JSON: [A-Za-z '\",:-]{1,80} at line \d+, column \d+|"
    r"cannot be read: [A-Za-z ]{1,80}|is not a regular file|is larger than [\d,]+ bytes|"
    r"expected an object, found [a-z ]{1,20}|is nested deeper than \d+ levels"
)
"""Matches the reasons that quote nothing from the file. Only these can be shown to a model, because
nobody has trusted the text of the file.
"""


def read_project_file(file: Path, project: Path) -> tuple[ProjectFile, Configuration]:
    """Read a project file, and parse its configuration from the same bytes. This function does not
    execute anything that the file names.

    Raises:
        ConfigurationError: as for `load_configuration`.
    """
    data, document = _read(file.absolute(), file.absolute().parent)
    parsed = _parsed(document, project, file.absolute())
    try:
        return project_file(file.absolute(), data, document.content), parsed
    except TrustError as error:
        raise ConfigurationError([str(error)]) from None


def _read(source: Path, workspace: Path) -> tuple[bytes, FileContent]:
    """Read a configuration file, in which `${workspaceFolder}` stands for `workspace`."""
    try:
        data = read_own(source)
        return data, decode_file_content(
            data, what=str(source), max_bytes=MAX_FILE_BYTES, workspace=workspace
        )
    except NoObjectError as error:
        raise ConfigurationError([f"{source}: {error}"]) from None
    except OSError as error:
        raise ConfigurationError([f"{source} cannot be read: {error.strerror or error}"]) from None
    except IdeabridgeError as error:
        raise ConfigurationError([str(error)]) from None


def _read_alone(source: Path, project: Path) -> Configuration:
    """Read a configuration file that is trusted."""
    return _parsed(_read(source, project.absolute())[1], project, source)


def lay_over(user: Configuration, project: Configuration, standing: ProjectTrust) -> Configuration:
    """Combine the settings of a trusted project file with the user's.

    Modules are merged by name, the `tools` of both apply, `limits` and `sampling` are merged key by
    key, and other settings replace the user's settings. For each call, the stricter of the two
    approval settings applies.

    Raises:
        ConfigurationError: the store is outside the project file's folder.
    """
    file = standing.found.file
    (layer,) = project.layers
    narrowed: list[str] = []
    refused: list[str] = []
    changes = _changes(user, project, file, refused)
    if project.model is not None:
        refusal = _model_refusal(project.model, standing.variables)
        if refusal is not None:
            refused.append(f"{file.name}: model is not used: {refusal}")
            del changes["model"]

    if "expose" in layer.keys:
        changes |= _exposed(user, project, narrowed)

    replaced = tuple(name for name in project.modules if name in user.modules)
    also = _also_in_force(user, project, replaced, narrowed)
    digests = {path: standing.found.digest_of(path) for path in project.tools}
    layer = dataclasses.replace(
        layer,
        variables=standing.variables,
        digests=digests,
        replaced=replaced,
        narrowed=tuple(narrowed),
        refused=tuple(refused),
    )
    # A server of the project replaces the user's server with the same name.
    unusable = {
        name: reasons for name, reasons in user.unusable.items() if name not in project.modules
    }
    unusable.update(project.unusable)
    return user.model_copy(
        update={
            **changes,
            "modules": {**user.modules, **project.modules},
            "notes": (*user.notes, *project.notes),
            "unusable": unusable,
            "tools": tuple(dict.fromkeys((*user.tools, *project.tools))),
            "also": also,
            "layers": (*user.layers, layer),
            "source": file,
        }
    )


def _changes(
    user: Configuration, project: Configuration, file: Path, refused: list[str]
) -> dict[str, Any]:
    """Return the settings in a project file that change the user's settings, keyed by attribute.

    If other settings are left out, add the reasons to `refused`.
    """
    (layer,) = project.layers
    changes: dict[str, Any] = {}
    for key in layer.keys:
        if key in _USERS_OWN:
            refused.append(
                f"{file.name}: {key} is not used, because it belongs in your own configuration"
            )
        elif key == "profiles":
            changes[key] = {**project.profiles, **user.profiles}
            refused += [
                (
                    f"{file.name}: profiles.{name} is not used, because your own configuration has a "
                    "profile of this name"
                )
                for name in project.profiles
                if name in user.profiles
            ]
        elif key == "notify":
            changes[key] = _notify(user.notify, project.notify, file, refused)
        elif key in _MERGED:
            part = getattr(project, key)
            below = getattr(user, key)
            changes[key] = below.model_copy(
                update={name: getattr(part, name) for name in part.model_fields_set}
            )
        elif key not in ("$schema", "mcpServers", "tools"):
            changes[key] = getattr(project, key)

    if project.store is not None:
        changes["store"] = _inner_store(project.store, file)

    for key in ("programs", "sessions"):
        if not getattr(user, key):
            changes.pop(key, None)

    return changes


def _also_in_force(
    user: Configuration, project: Configuration, replaced: tuple[str, ...], narrowed: list[str]
) -> tuple[Approval, ...]:
    """Return the approval settings that apply in addition to those of the project file. For each
    call, the strictest of all these settings applies. `replaced` names the user's servers that the
    project file replaces. If the project file allows less than it says, add the reason to
    `narrowed`.
    """
    (layer,) = project.layers
    also: list[Approval] = [*user.also]
    if "approval" in layer.keys:
        also.append(user.approval)
        if user.approval != "allow_all" and _allows(project.approval):
            narrowed.append(
                "approval: the file allows calls that your own configuration may not allow, so "
                "the stricter of the two applies"
            )

    if replaced and isinstance(user.approval, ApprovalRules) and _allows(user.approval):
        also.append(_strict_on(replaced))
        narrowed.append(
            f"approval: your rules do not allow calls of {', '.join(replaced)}, because the project "
            "replaces your servers of these names"
        )

    return tuple(also)


def _exposed(user: Configuration, project: Configuration, narrowed: list[str]) -> dict[str, Any]:
    """Merge `expose`. A project can expose only its own servers and tools, because direct calls run
    without anyone being asked.
    """
    expose = set(project.expose)
    unexposed = frozenset[str]()
    if "modules" in expose and "modules" not in user.expose:
        unexposed = frozenset(user.modules) - frozenset(project.modules)

    if "tools" in expose and "tools" not in user.expose and user.tools:
        expose.discard("tools")
        narrowed.append(
            "expose: 'tools' is not used, because it would also expose your own tool files"
        )

    if unexposed:
        narrowed.append(
            f"expose: 'modules' does not apply to your own servers: {', '.join(sorted(unexposed))}"
        )

    return {"expose": tuple(sorted(expose)), "unexposed": unexposed}


def _notify(
    user: NotifySettings | None, project: NotifySettings | None, file: Path, refused: list[str]
) -> NotifySettings | None:
    """Return the settings with the project's webhook if the user's own list contains the webhook's
    host. A project cannot name a command or add a host.
    """
    own = user or NotifySettings()
    for key in ("command", "hosts"):
        if project is not None and getattr(project, key):
            refused.append(
                f"{file.name}: notify.{key} is not used, because it belongs in your own "
                "configuration"
            )

    if project is None or project.webhook is None:
        return user
    if project.webhook_host not in own.hosts:
        refused.append(
            f"{file.name}: notify.webhook is not used: {project.webhook_host} is not in notify.hosts "
            "of your own configuration"
        )
        return user
    return own.model_copy(update={"webhook": project.webhook})


def _inner_store(store: str, file: Path) -> str:
    folder = os.path.realpath(file.parent)
    if is_address(store):
        raise ConfigurationError(
            [
                (
                    f"{file}: store: a project cannot name a database server; its store must be a "
                    f"file inside its folder {folder}"
                )
            ]
        )

    for path in (store, f"{store}-wal", f"{store}-shm", f"{store}-journal"):
        # Check every file that SQLite creates beside the store, because SQLite would follow a link
        # in place of any of them.
        if not Path(os.path.realpath(path)).is_relative_to(folder):
            raise ConfigurationError(
                [
                    (
                        f"{file}: store: {path} is outside the folder {folder}; the store "
                        "of a project must be inside its folder"
                    )
                ]
            )

    return store


def _model_refusal(model: str | ModelConfiguration, variables: Variables) -> str | None:
    """Return why a project's model is not used, or None if the model is used.

    A reason can be the model's key, or credentials for the model's address.
    """
    if isinstance(model, str):
        return None
    if model.key_env is not None and model.key_env not in variables:
        return f"key_env: {variables.refusal(model.key_env)}"

    provider = model.name.partition(":")[0]
    if model.base_url is not None and provider in SIGNING:
        return (
            f"base_url: {provider} would sign in to this address with credentials of this machine"
        )
    return None


_MAX_STRICT: Final = 500


def _allows(approval: Approval) -> bool:
    """Return whether an approval setting might allow calls that ask under the default."""
    if isinstance(approval, str):
        return approval == "allow_all"
    return approval.default == "allow" or any(rule.then == "allow" for rule in approval.rules)


def _strict_on(modules: tuple[str, ...]) -> ApprovalRules:
    """Return rules under which read-only calls to these servers run, other calls to them ask, and
    calls to all other servers run.
    """
    if len(modules) > _MAX_STRICT:
        modules = ("*",)

    rules: list[ApprovalRule] = []
    for name in modules:
        pattern = name if name == "*" else glob.escape(name)
        reason = (
            f"server {name!r} belongs to the project; it is not the one that your rules refer to"
        )
        rules += [
            ApprovalRule(module=pattern, read_only=True, then="allow"),
            ApprovalRule(module=pattern, then="ask", why=reason),
        ]
    return ApprovalRules(default="allow", rules=tuple(rules))


def fingerprint(configuration: Configuration) -> str:
    """Return the SHA-256 in hex of everything that affects how runs behave.

    The fingerprint covers the servers (see `module_fingerprint`), the tool files, approval, order
    and limits. It also covers the folder if a program or a tool file runs in it. A run continues
    under a different fingerprint only if the tools that its remaining calls use are unchanged; see
    `Binding`.
    """
    modules: JSONObject = {
        name: module_fingerprint(configuration, name)
        for name in sorted(configuration.enabled_modules)
    }
    is_local = bool(configuration.tools) or any(
        module.command for module in configuration.modules.values()
    )
    return content_hash(
        {
            "modules": modules,
            "approval": configuration.approval_setting,
            "order": configuration.order,
            "limits": cast("JSONObject", configuration.limits.model_dump(mode="json")),
            "tools": list[JSON](configuration.tools),
            "folder": str(configuration.folder.absolute()) if is_local else None,
        }
    )


def start_definitions(configuration: Configuration) -> dict[str, str]:
    """Return the fingerprint of each enabled server, keyed by name (see `module_fingerprint`).

    The key "" stands for the Python tools. If the configuration names tool files, the fingerprint
    under this key also covers the configuration's folder: projects share a store, and a run that
    calls the tools of one project must not continue in a different project.
    """
    definitions = {
        name: module_fingerprint(configuration, name) for name in configuration.enabled_modules
    }
    folder = str(configuration.folder.absolute()) if configuration.tools else None
    definitions[""] = content_hash({"folder": folder})
    return definitions


def module_fingerprint(configuration: Configuration, name: str) -> str:
    """Return the SHA-256 in hex of a server's definition without its secrets.

    The fingerprint covers the name, the command, its arguments, the address, the allowed and denied
    tools, and the names of headers and environment variables. For a program, it also covers the
    working folder and the base folder for relative paths.
    """
    module = configuration.modules[name]
    identity = cast(
        "JSONObject",
        module.model_dump(mode="json", include={"command", "args", "cwd", "allow", "deny"}),
    )
    identity["kind"] = module.kind
    identity["url"] = None if module.url is None else public_url(module.url)
    identity["headers"] = cast("list[JSON]", sorted(key.lower() for key in module.headers))
    identity["env"] = cast("list[JSON]", sorted(module.env))
    folder = str(configuration.folder_of(name)) if module.command else None
    content: JSONObject = {"name": name, "module": identity, "folder": folder}
    if module.command and module.cwd is None:
        working_folder = str(configuration.working_folder_of(name))
        if working_folder != folder:
            content["working_folder"] = working_folder
    return content_hash(content)
