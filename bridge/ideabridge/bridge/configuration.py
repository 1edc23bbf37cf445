"""Configuration: what `ideabridge.json` holds (DESIGN 4.10, 6, 7).

Every problem of a file is reported at once, each with its place. `docs/configuration.md` tells each key;
`docs/ideabridge.schema.json` is `configuration_schema()`. Nothing here imports the MCP SDK.
"""

from __future__ import annotations

import codecs
import difflib
from pathlib import Path
from typing import Any, Final, Literal, cast

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from ideabridge.bridge.approval_rules import ApprovalRule, ApprovalRules
from ideabridge.bridge.minds.endpoint_settings import ModelConfiguration, as_object
from ideabridge.bridge.minds.sampling_settings import SamplingSettings
from ideabridge.bridge.modules.settings import (
    HINTS,
    KINDS,
    SYNONYMS,
    ModuleConfiguration,
    adapt,
    entry_problems,
    name_problem,
    public_url,
    schema_extras,
)
from ideabridge.tools.encoding import JSON, JSONObject, ObjectLike, content_hash, decode, encode, normalise
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.tool import Order

FILE_NAME: Final = "ideabridge.json"
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_TOP_HINTS: Final = {
    "modules": "Did you mean 'mcpServers'?",
    "servers": "Did you mean 'mcpServers'?",
    "mcp": "Did you mean 'mcpServers'?",
    "inputs": "Nobody is asked for values here: use ${VAR} in 'env' or 'headers'.",
}


class ConfigurationError(IdeabridgeError):
    """A configuration that cannot be read. The message has one line for each problem, with its place."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Limits(BaseModel):
    """Bounds of one run (DESIGN 4.4)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    parallel_calls: int = Field(default=16, ge=1, le=10_000, description="Calls of one run that run at once.")
    calls: int = Field(default=10_000, ge=1, le=1_000_000, description="Calls of one run.")
    requests: int = Field(default=50, ge=1, le=100_000, description="Requests to a mind in one run.")
    tokens: int | None = Field(default=None, ge=1, description="Tokens the minds of one run may use; null: any number.")
    cost: float | None = Field(default=None, gt=0, description="US dollars the minds of one run may spend; null: any.")
    wall_seconds: float = Field(default=3600, gt=0, le=30 * 86_400, description="Seconds one run may take.")
    result_bytes: int = Field(
        default=8 * 1024 * 1024, ge=1024, le=512 * 1024 * 1024, description="Bytes of JSON one result may have."
    )


class Configuration(BaseModel):
    """What `ideabridge.json` holds. Paths in `tools` and `store` are absolute after `load_configuration`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)

    schema_url: str | None = Field(default=None, alias="$schema", description="Address of this schema, for editors.")
    modules: dict[str, ModuleConfiguration] = Field(
        default_factory=dict[str, ModuleConfiguration],
        alias="mcpServers",
        description="The MCP servers behind ideabridge, by name: the same JSON every assistant uses.",
    )
    tools: tuple[str, ...] = Field(default=(), description="Python files with tools; relative to this file.")
    store: str | None = Field(
        default=None, min_length=1, description="The SQLite file of ideas and runs; relative to this file."
    )
    durability: Literal["normal", "full"] = Field(
        default="normal", description="normal: safe against crashes of the process; full: against power loss too."
    )
    approval: Literal["default", "allow_all"] | ApprovalRules = Field(
        default="default",
        description="default: read-only calls run, all others ask. allow_all: nothing asks. Or rules.",
    )
    order: Order = Field(
        default="effects",
        description="Which calls wait for those listed before them. effects: within one module, a call that may change"
        " something waits for all calls before it, and a read for the changes before it; all: every call for all"
        " before it; none: no call.",
    )
    limits: Limits = Field(default_factory=Limits, description="Bounds of one run.")
    sampling: SamplingSettings = Field(
        default_factory=SamplingSettings, description="Wishes for the client's model, where a run is answered by it."
    )
    model: str | ModelConfiguration | None = Field(
        default=None, description="The model endpoint that answers `solve`: PROVIDER:MODEL, or an object."
    )
    thought_process: bool = Field(
        default=False, description="Whether minds write their reasoning before the calls, in `thought_process`."
    )
    expose: tuple[Literal["modules", "tools"], ...] = Field(
        default=(),
        description="modules: every module's tools are tools of this server as well; tools: those of the tool files.",
    )
    listed_ideas: int = Field(
        default=300, ge=0, le=10_000, description="Published ideas hosts are told as tools; of more, the most used."
    )
    recorded_max_age_s: float = Field(default=300, ge=0, le=2_592_000, description="Seconds a stored answer holds.")
    source: Path | None = Field(default=None, exclude=True, description="The file it was read from.")
    project: Path = Field(default_factory=Path.cwd, exclude=True, description="The project folder.")

    @property
    def approval_setting(self) -> str | JSONObject:
        """`approval` as a run's settings hold it."""
        approval = self.approval
        if isinstance(approval, str):
            return approval
        return cast("JSONObject", approval.model_dump(mode="json", exclude_none=True))

    @property
    def folder(self) -> Path:
        """What relative paths in it are relative to: the folder of the file, else the project."""
        return self.source.parent if self.source is not None else self.project


_OURS: Final = ("source", "project")
"""Fields that say where a configuration came from; not keys of the file."""

_FIELDS: Final = (*_OURS, "modules", "schema_url")  # names in Python that are no keys of the file


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items() if name not in _OURS]


def _unknown(model: type[BaseModel], key: str) -> str:
    if model is ModuleConfiguration and key in HINTS:
        return f"unknown key: {HINTS[key]}"
    if model is Configuration and key in _TOP_HINTS:
        return f"unknown key. {_TOP_HINTS[key]}"
    keys = [*_keys(model), *(SYNONYMS if model is ModuleConfiguration else ())]
    near = difflib.get_close_matches(key, keys, n=1, cutoff=0.6)
    return f"unknown key. {f'Did you mean {near[0]!r}?' if near else 'Known: ' + ', '.join(_keys(model))}"


_PARTS: Final[dict[str, type[BaseModel]]] = {"limits": Limits, "sampling": SamplingSettings}
"""Keys that hold objects of their own."""

_EXPECTED: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def _found(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float):
        return "a number"
    return "a list" if isinstance(value, list) else "an object"


def _problem(model: type[BaseModel], error: ErrorDetails) -> str:
    kind = error["type"]
    if model is Configuration and len(error["loc"]) > 1:
        model = _PARTS.get(str(error["loc"][0]), model)
    if model is ApprovalRules and len(error["loc"]) > 2:
        model = ApprovalRule
    if kind == "extra_forbidden":
        return _unknown(model, _dotted(error["loc"][-1:]))
    if kind in _EXPECTED:
        # The value itself is not shown: it may be a secret.
        return f"expected {_EXPECTED[kind]}, found {_found(error['input'])}"
    if kind == "missing":
        return "missing"
    if kind == "literal_error":
        return f"expected {error.get('ctx', {}).get('expected', '')}, found {str(error['input'])[:40]!r}"
    if kind == "string_pattern_mismatch":
        return "text here cannot hold a NUL character"
    return error["msg"].replace("Input should", "should").replace("String should", "should")


def _validate(model: type[BaseModel], raw: JSON, place: str, problems: list[str]) -> None:
    """Append every problem of one object to `problems`, each with its place."""
    try:
        model.model_validate_json(encode(raw), by_alias=True)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            where = ".".join([place, *(str(part) for part in detail["loc"])]) if place else _dotted(detail["loc"])
            problems.append(f"{where}: {_problem(model, detail)}" if where else _problem(model, detail))


def _dotted(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)


def _check_modules(raw: JSON, problems: list[str]) -> JSONObject:
    if not isinstance(raw, dict):
        problems.append(f"mcpServers: expected an object of servers by name, found {_found(raw)}")
        return {}
    adapted: JSONObject = {}
    for name, entry in raw.items():
        place = f"mcpServers.{name}"
        trouble = name_problem(name)
        if trouble is not None:
            problems.append(f"mcpServers.{name[:64]!r}: {trouble}")
        if not isinstance(entry, dict):
            problems.append(f"{place}: expected an object, found {_found(entry)}")
            continue
        ours = adapt(entry)
        between = entry_problems(ours)
        problems += [f"{place}.{key}: {text}" if key else f"{place}: {text}" for key, text in between]
        told = {f"{place}.{key}" for key, _ in between}
        found: list[str] = []
        _validate(ModuleConfiguration, {key: value for key, value in ours.items() if key != "enabled"}, place, found)
        problems += [text for text in found if text.split(": ", 1)[0] not in told]
        adapted[name] = ours
    return adapted


def _check_approval(raw: JSON, problems: list[str]) -> None:
    if isinstance(raw, dict):
        _validate(ApprovalRules, raw, "approval", problems)
    elif raw not in ("default", "allow_all"):
        found = repr(raw[:40]) if isinstance(raw, str) else _found(raw)
        problems.append(f"approval: expected 'default', 'allow_all' or an object of rules, found {found}")


def parse_configuration(
    raw: ObjectLike | JSON, *, project: Path | None = None, source: Path | None = None
) -> Configuration:
    """The configuration in a decoded `ideabridge.json`.

    Args:
        raw: the object.
        project: the project folder, which paths are relative to; None: the current one.
        source: the file it was read from, where it was; then paths are relative to its folder.

    Raises:
        ConfigurationError: with every problem, each as `ideabridge.json: place: what is wrong`.
        InvalidJSONError: something in it is no JSON.
    """
    return _parsed(normalise(raw, what=FILE_NAME), project or Path.cwd(), source)


def _parsed(raw: JSON, project: Path, source: Path | None) -> Configuration:
    problems: list[str] = []
    modules: JSONObject = {}
    top: JSONObject = {}
    if isinstance(raw, dict):
        modules = _check_modules(raw.get("mcpServers", {}), problems)
        top = {key: value for key, value in raw.items() if key != "mcpServers"}
        problems += [f"{key}: {_unknown(Configuration, key)}" for key in _FIELDS if key in top]
        if "approval" in top:
            # By itself: of a key that may be one of two things, both would be told.
            _check_approval(top["approval"], problems)
        if top.get("model") is not None:
            _validate(ModelConfiguration, as_object(top["model"]), "model", problems)
        shown: JSONObject = {key: value for key, value in top.items() if key not in (*_FIELDS, "approval", "model")}
        _validate(Configuration, shown, "", problems)
    else:
        problems.append(f"expected an object, found {_found(raw)}")
    if problems:
        file = source.name if source is not None else FILE_NAME
        raise ConfigurationError([f"{file}: {problem}" for problem in problems])
    parsed = Configuration.model_validate_json(encode({**top, "mcpServers": modules}), by_alias=True)
    folder = (source.parent if source is not None else project).absolute()
    return parsed.model_copy(
        update={
            "source": source,
            "project": project,
            "tools": tuple(str(folder / Path(path).expanduser()) for path in parsed.tools),
            "store": None if parsed.store is None else str(folder / Path(parsed.store).expanduser()),
        }
    )


def load_configuration(path: Path | None = None, *, project: Path | None = None) -> Configuration:
    """Read the configuration: `path` (`--config`), else `ideabridge.json` in the project folder, else the one in
    the user's configuration folder, else the defaults (`source` is then None).

    Args:
        path: a file that must exist, or None to look for one.
        project: the project folder; default: the current one.

    Raises:
        ConfigurationError: the file cannot be read, is not JSON (line and column are told), or has problems.
    """
    project = (project or Path.cwd()).absolute()
    user = platformdirs.user_config_path("ideabridge") / FILE_NAME
    source = path if path is not None else next((file for file in (project / FILE_NAME, user) if file.is_file()), None)
    if source is None:
        return Configuration(project=project)
    source = source.absolute()
    try:
        data = source.read_bytes()
    except OSError as error:
        raise ConfigurationError([f"{source}: cannot be read: {error.strerror or error}"]) from None
    try:
        raw = decode(data.removeprefix(codecs.BOM_UTF8), what=source.name, max_bytes=MAX_FILE_BYTES)
    except IdeabridgeError as error:
        raise ConfigurationError([str(error)]) from None
    return _parsed(raw, project, source)


def configuration_schema() -> JSONObject:
    """JSON Schema (2020-12) of `ideabridge.json`: what `docs/ideabridge.schema.json` holds."""
    schema = cast("JSONObject", Configuration.model_json_schema(by_alias=True))
    properties = cast("JSONObject", schema["properties"])
    for name in _OURS:
        properties.pop(name)
    module = cast("JSONObject", cast("JSONObject", schema["$defs"])["ModuleConfiguration"])
    keys = cast("JSONObject", module["properties"])
    keys["type"] = {**cast("JSONObject", keys["type"]), "anyOf": [{"enum": list(KINDS)}, {"type": "null"}]}
    keys.update(schema_extras())
    module["description"] = "One MCP server: a program to start (command) or an address to call (url)."
    schema["title"] = FILE_NAME
    schema["description"] = "Configuration of ideabridge."
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def fingerprint(configuration: Configuration) -> str:
    """SHA-256 over what changes how runs behave: automatic resume needs the same one (DESIGN 7).

    Modules by what they are (command, arguments, address, tools allowed and denied; of headers and environment
    only the names), files of tools, approval, order and limits; and the folder, where anything runs in it: projects
    share a store, and a run of one must not go on in another. Values of headers, environment and credentials in an
    address are not in it.
    """
    modules: JSONObject = {
        name: _identity(module) for name, module in sorted(configuration.modules.items()) if not module.disabled
    }
    here = bool(configuration.tools) or any(module.command for module in configuration.modules.values())
    return content_hash(
        {
            "modules": modules,
            "approval": configuration.approval_setting,
            # A run keeps the order that its journal records: what was the default before still counts as the default.
            "order": "declared" if configuration.order == "effects" else configuration.order,
            "limits": cast("JSONObject", configuration.limits.model_dump(mode="json")),
            "tools": list[JSON](configuration.tools),
            "folder": str(configuration.folder.absolute()) if here else None,
        }
    )


def module_fingerprint(configuration: Configuration, name: str) -> str:
    """SHA-256 over the name of a module and what it is, as in `fingerprint`; its folder, where a program runs in it."""
    module = configuration.modules[name]
    folder = str(configuration.folder.absolute()) if module.command else None
    return content_hash({"name": name, "module": _identity(module), "folder": folder})


def _identity(module: ModuleConfiguration) -> JSONObject:
    """What a module is, without any secret."""
    told = cast("JSONObject", module.model_dump(mode="json", include={"command", "args", "cwd", "allow", "deny"}))
    told["kind"] = module.kind
    told["url"] = None if module.url is None else public_url(module.url)
    told["headers"] = cast("list[JSON]", sorted(key.lower() for key in module.headers))
    told["env"] = cast("list[JSON]", sorted(module.env))
    return told
