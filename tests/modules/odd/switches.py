"""The switches of the odd server: what each does, and what must hold.

What must hold for every one of them, unless it says otherwise: the module comes up with all its
tools, `look` gives the right value, everything ends in time, and no error and no note has a
traceback or the words of a library.
"""

# The types of the odd values do not matter.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tests.modules.servers.odd import LEGACY, RIGHT, Edit

Part = Literal["reader", "transport", "connecting", "definitions", "results", "doors"]

ANY: Final = object()
"""In `value`: any value, but no error."""


@dataclass(frozen=True, slots=True)
class Switch:
    """One oddity.

    Attributes:
        name: names it in the tests and in reports.
        part: the part of the product that deals with it.
        edits: what the server does; see `odd.py`.
        era: of the server: legacy, modern or both.
        up: the module comes up.
        without: tools that may be missing from the list.
        tool, arguments: a call beside that of `look`; `own`: the edits belong to that call alone.
        value: what the call gives; None: nothing is expected of it.
        error: a pattern of the error that the call gives, instead of a value.
        reaches: text that occurs in the value or in the error.
        note: a pattern of a note of the module; "": there is a note; None: none is needed.
        hints: annotations of tools, in wire form.
        offered: how many resources, templates or prompts are listed at least.
        within: seconds from the start until the module is up, under the clock of the test.
        says: a pattern of the error of the module, where it does not come up.
    """

    name: str
    part: Part
    edits: list[Edit]
    era: str = "legacy"
    up: bool = True
    without: frozenset[str] = frozenset()
    tool: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    own: bool = False
    value: Any = None
    error: str | None = None
    reaches: str | None = None
    note: str | None = None
    hints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    offered: Mapping[str, int] = field(default_factory=dict[str, int])
    within: float = 45.0
    says: str | None = None


SWITCHES: list[Switch] = []


def add(name: str, part: Part, *edits: Edit, **expects: Any) -> None:
    """Add a switch."""
    SWITCHES.append(Switch(name, part, list(edits), **expects))


def call(name: str, part: Part, tool: str, *edits: Edit, **expects: Any) -> None:
    """Add a switch that concerns one call."""
    SWITCHES.append(
        Switch(
            name, part, [["tools/call", *edit] for edit in edits], tool=tool, own=True, **expects
        )
    )


RESULT: Final = "result"
LOOK: Final = RIGHT + "look"

# -- reader: bytes, JSON, envelopes ----------------------------------------------------------------

for name, raw, note in (
    ("byte order mark", "\xef\xbb\xbf%M%", None),
    ("NUL before", "\x00%M%", ""),
    ("NULs before and after", "\x00\x00%M%\x00", ""),
    ("banner before, without a line end", "Server ready.%M%", ""),
    ("banner with braces before, without a line end", "Options {debug: off}%M%", ""),
    ("banner line before", "Server running on stdio\n%M%", ""),
    ("log line as JSON before", '{"level": 30, "msg": "ready"}\n%M%', ""),
    ("prompt before", "> %M%", ""),
    ("colours before", "\x1b[32minfo\x1b[0m %M%", ""),
    ("words after", "%M% done", ""),
    ("blank lines", "\n \n\t\n%M%\n\n", None),
    ("carriage return", "%M%\r", None),
    (
        "two messages in a line",
        '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}%M%',
        None,
    ),
    ("the word DONE", "[DONE]\n%M%", ""),
    ("an empty object", "{}\n%M%", ""),
    ("an empty list", "[]\n%M%", ""),
    ("null", "null\n%M%", ""),
    ("a number and a text", '5\n"hello"\n%M%', ""),
    ("a heartbeat", ": ping\n%M%", ""),
    ("a batch with the answer", "[%M%]", ""),
    (
        "a batch with a notification and the answer",
        '[{"jsonrpc":"2.0","method":"notifications/x"},%M%]',
        "",
    ),
    ("headers as in LSP", "Content-Length: 5\r\n\r\n%M%", ""),
    ("a byte that is not UTF-8 before", "\xff\xfe\n%M%", ""),
    ("an unknown notification", '{"jsonrpc":"2.0","method":"notifications/odd"}\n%M%', ""),
    (
        "a notification with a list",
        '{"jsonrpc":"2.0","method":"notifications/odd","params":[1]}\n%M%',
        None,
    ),
    (
        "a notification with a null id",
        '{"jsonrpc":"2.0","id":null,"method":"notifications/progress","params":{}}\n%M%',
        "",
    ),
    ("progress without members", '{"jsonrpc":"2.0","method":"notifications/progress"}\n%M%', None),
    (
        "progress that is a text",
        '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":"half"}}\n%M%',
        "",
    ),
    (
        "a log message of an unknown level",
        '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warn","data":"x"}}\n%M%',
        None,
    ),
    (
        "a log message without data",
        '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}\n%M%',
        None,
    ),
    (
        "a change with a text",
        '{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":"x"}\n%M%',
        None,
    ),
    (
        "a cancellation of nothing",
        '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}\n%M%',
        None,
    ),
    (
        "a cancellation without id",
        '{"jsonrpc":"2.0","method":"notifications/cancelled"}\n%M%',
        None,
    ),
    ("the answer twice", "%M%\n%M%", None),
    ("an answer to nobody", '{"jsonrpc":"2.0","id":987654,"result":{}}\n%M%', None),
    (
        "an error for nobody",
        '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"odd"}}\n%M%',
        None,
    ),
    (
        "an error for nobody, without id",
        '{"jsonrpc":"2.0","error":{"code":-32700,"message":"odd"}}\n%M%',
        None,
    ),
):
    call(name, "reader", "look", ["raw", raw], value=LOOK, note=note)
    if name in (
        "byte order mark",
        "banner before, without a line end",
        "banner line before",
        "a batch with the answer",
    ):
        for method in ("initialize", "tools/list"):
            add(f"{name}: {method}", "reader", [method, "raw", raw], note=note)

for name, member, value in (
    ("jsonrpc missing", ["drop", ["jsonrpc"]], LOOK),
    ("jsonrpc 1.0", ["put", ["jsonrpc"], "1.0"], LOOK),
    ("jsonrpc a number", ["put", ["jsonrpc"], 2.0], LOOK),
    ("jsonrpc null", ["put", ["jsonrpc"], None], LOOK),
    ("more members", ["put", ["extra"], {"a": 1}], LOOK),
    ("error null beside the result", ["put", ["error"], None], LOOK),
    ("method null beside the result", ["put", ["method"], None], LOOK),
    ("params null beside the result", ["put", ["params"], None], LOOK),
):
    call(name, "reader", "look", member, value=value, note="" if "jsonrpc" in name else None)
    add(f"{name}: initialize", "reader", ["initialize", *member])

call(
    "the id as text",
    "reader",
    "look",
    ["raw", '{"jsonrpc":"2.0","id":"%ID%","result":{"content":[]}}'],
)
call(
    "an error beside the result",
    "reader",
    "look",
    ["put", ["error"], {"code": -32000, "message": "it went wrong"}],
    error="it went wrong",
)
for name, value in (
    ("without", None),
    ("null", "null"),
    ("object", "{}"),
    ("list", "[1]"),
    ("other", "4711"),
):
    number = "" if value is None else f'"id":{value},'
    call(
        f"an answer with the id: {name}",
        "reader",
        "look",
        ["raw", f'{{"jsonrpc":"2.0",{number}"result":{{"content":[]}}}}'],
        error="did not answer|not a JSON-RPC message|id",
    )
for name, written, words in (
    ("a lone surrogate", '"a\\ud83d"', "a\ufffd"),
    ("a lone surrogate in the middle", '"a\\udc00b"', "a\ufffdb"),
    ("an escaped backslash before u", '"a\\\\ud83d"', "a\\\\ud83d"),
    ("a pair of surrogates", '"\\ud83d\\ude00"', "\U0001f600"),
    ("a Latin-1 byte", '"caf\xe9"', "caf\ufffd"),
    ("a control character", '"a\x01b"', "a"),
    ("a raw tab", '"a\tb"', "a"),
):
    raw = (
        '{"jsonrpc":"2.0","id":%ID%,"result":{"content":[{"type":"text","text":' + written + "}]}}"
    )
    call(
        name,
        "reader",
        "look",
        ["raw", raw],
        value=ANY,
        reaches=words,
        note="" if "lone" in name else None,
    )
for name, raw in (
    ("a trailing comma", '{"jsonrpc":"2.0","id":%ID%,"result":{"content":[],}}'),
    ("single quotes", "{'jsonrpc':'2.0','id':%ID%,'result':{'content':[]}}"),
    ("a cut message", '{"jsonrpc":"2.0","id":%ID%,"result":{"content":['),
    (
        "a number that is not one",
        '{"jsonrpc":"2.0","id":%ID%,"result":{"content":[],"structuredContent":{"n":NaN}}}',
    ),
):
    call(name, "reader", "look", ["raw", raw], error="JSON|did not answer|NaN|nan")
call(
    "deep nesting",
    "reader",
    "look",
    [
        "raw",
        '{"jsonrpc":"2.0","id":%ID%,"result":{"content":[],"structuredContent":'
        + "[" * 5000
        + "]" * 5000
        + "}}",
    ],
    error="deep|JSON",
)
for name, value, words in (
    ("a text", "it went wrong", "it went wrong"),
    ("null", None, ""),
    ("a number", 5, "5"),
    ("a list", ["it went wrong"], "it went wrong"),
    ("empty", {}, ""),
    ("without a code", {"message": "it went wrong"}, "it went wrong"),
    ("without a message", {"code": -32000}, "-32000"),
    ("with a code as text", {"code": "E_ODD", "message": "it went wrong"}, "it went wrong"),
    (
        "with a code as number in text",
        {"code": "-32000", "message": "it went wrong"},
        "it went wrong",
    ),
    ("with a code that is no integer", {"code": 1.5, "message": "it went wrong"}, "it went wrong"),
    ("with a code that is null", {"code": None, "message": "it went wrong"}, "it went wrong"),
    ("with a message that is null", {"code": -32000, "message": None}, "-32000"),
    (
        "with a message that is an object",
        {"code": -32000, "message": {"a": "it went wrong"}},
        "it went wrong",
    ),
    (
        "with odd data",
        {"code": -32000, "message": "it went wrong", "data": [None, {"x": []}]},
        "it went wrong",
    ),
    (
        "with more members",
        {"code": -32000, "message": "it went wrong", "name": "Odd"},
        "it went wrong",
    ),
):
    call(
        f"an error: {name}",
        "reader",
        "look",
        ["drop", [RESULT]],
        ["put", ["error"], value],
        error=words or "odd|error",
    )

# -- requests of the module during a call ----------------------------------------------------------

for name, *asked in (
    ("ping", "x1", "ping"),
    ("ping with params", "x1", "ping", {}),
    ("ping with a number", 1, "ping"),
    ("roots", "x1", "roots/list"),
    ("an unknown method", "x1", "odd/odd", {}),
    ("sampling without members", "x1", "sampling/createMessage", {}),
    ("elicitation without members", "x1", "elicitation/create", {}),
    ("elicitation with a list", "x1", "elicitation/create", []),
):
    call(f"asks during a call: {name}", "doors", "look", ["request", *asked], value=LOOK)
    add(f"asks before the handshake: {name}", "doors", ["initialize", "request", *asked])

# -- connecting: the handshake ---------------------------------------------------------------------

for name, path, values in (
    (
        "capabilities",
        ["capabilities"],
        [None, [], "all", 5, True, {}, {"tools": None}, {"tools": True}, {"odd": 1}],
    ),
    (
        "serverInfo",
        ["serverInfo"],
        [None, "odd", [], {}, {"name": "odd"}, {"version": "1"}, {"name": 1, "version": 2}],
    ),
    (
        "protocolVersion",
        ["protocolVersion"],
        [None, 1, 20251125, "odd", "2024-11-05", "2099-01-01", "", ["2025-06-18"]],
    ),
    ("instructions", ["instructions"], [None, 5, ["Be kind."], {"a": 1}]),
    ("_meta", ["_meta"], [None, [], "x"]),
):
    add(f"initialize without {name}", "connecting", ["initialize", "drop", [RESULT, *path]])
    for value in values:
        add(
            f"initialize with {name} {value!r}",
            "connecting",
            ["initialize", "put", [RESULT, *path], value],
        )
for name, path, values in (
    ("capabilities", ["capabilities"], [None, [], "all", {}, {"tools": None}, {"tools": True}]),
    (
        "supportedVersions",
        ["supportedVersions"],
        ["2026-07-28", [1, "2026-07-28"], ["2099-01-01", "2026-07-28"]],
    ),
    ("instructions", ["instructions"], [None, 5]),
    ("_meta", ["_meta"], [None, [], {"io.modelcontextprotocol/serverInfo": "odd"}]),
    ("ttlMs", ["ttlMs"], [None, "1000", -1, 1.5]),
    ("cacheScope", ["cacheScope"], [None, "shared", 1]),
    ("resultType", ["resultType"], [None, 1]),
):
    if name != "supportedVersions":
        add(
            f"discover without {name}",
            "connecting",
            ["server/discover", "drop", [RESULT, *path]],
            era="modern",
        )
    for value in values:
        edit = ["server/discover", "put", [RESULT, *path], value]
        add(f"discover with {name} {value!r}", "connecting", edit, era="modern")
for method in (
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "prompts/list",
):
    for member in ("ttlMs", "cacheScope", "resultType"):
        edit = [method, "drop", [RESULT, member]]
        counts = {"resources": 3, "templates": 2, "prompts": 2}
        add(f"{method} without {member}", "connecting", edit, era="modern", offered=counts)
ENDS = ["server/discover", "exit", 1]
add("ends when asked for discover", "connecting", ENDS, within=20)
add("ends well when asked for discover", "connecting", ["server/discover", "exit", 0], within=20)
add("silent when asked for discover", "connecting", ["server/discover", "silent"], within=20)
for name, code in (
    ("invalid request", -32600),
    ("invalid params", -32602),
    ("internal", -32603),
    ("own", -1),
):
    error = {"code": code, "message": "no"}
    add(
        f"discover refused as {name}",
        "connecting",
        ["server/discover", "put", ["error"], error],
        within=20,
    )
add(
    "discover refused by a text",
    "connecting",
    ["server/discover", "put", ["error"], "no"],
    within=20,
)
add(
    "discover answered with nothing",
    "connecting",
    ["server/discover", "drop", ["error"]],
    ["server/discover", "put", [RESULT], {}],
    within=20,
)
add("initialize silent, with discover", "connecting", ["initialize", "silent"], era="both")
for name, expects in (("silent", "did not answer"), ("exit", "exit code")):
    edit = ["initialize", "silent"] if name == "silent" else ["initialize", "exit", 3]
    add(f"never comes up: {name}", "connecting", edit, up=False, says=expects)
add("initialize refused", "connecting", ["initialize", "drop", [RESULT]],
    ["initialize", "put", ["error"], {"code": -32000, "message": "no key"}], up=False, says="no key")  # fmt: skip

# -- connecting: lists -----------------------------------------------------------------------------

CURSOR = [RESULT, "nextCursor"]
LISTS = {"tools/list": "tools", "resources/list": "resources", "resources/templates/list": "templates",
         "prompts/list": "prompts"}  # fmt: skip
LEAST = {"tools": 8, "resources": 2, "templates": 1, "prompts": 1}
for method, kind in LISTS.items():
    least = {} if kind == "tools" else {kind: LEAST[kind]}
    whole = {} if kind == "tools" else {kind: LEAST[kind] + 1}
    some = frozenset({"chatty"}) if kind == "tools" else frozenset[str]()
    add(f"{method}: two pages", "connecting", [f"{method}#1", "put", CURSOR, "2"], offered=whole)
    for name, first, second in (
        ("a repeated cursor", "2", "2"),
        ("a cursor to itself", "1", "1"),
        ("alternating cursors", "2", "1"),
    ):
        edits = [[f"{method}#{n}", "put", CURSOR, first if n % 2 else second] for n in range(1, 7)]
        if name != "alternating cursors":
            edits = [[method, "put", CURSOR, first]]
        add(f"{method}: {name}", "connecting", *edits, offered=whole, note="")
    for value in (2, 0, 1.5, {"page": 2}, ["2"], True):
        add(f"{method}: cursor {value!r}", "connecting", [f"{method}#1", "put", CURSOR, value], offered=least,
            without=some, note="")  # fmt: skip
    for value in ("", None, False):
        add(f"{method}: cursor {value!r}", "connecting", [f"{method}#1", "put", CURSOR, value], offered=least,
            without=some)  # fmt: skip
    key = "resourceTemplates" if kind == "templates" else kind
    for name, edit in (
        ("fails", ["put", ["error"], {"code": -32000, "message": "no page"}]),
        ("hangs", ["silent"]),
        ("has no list", ["drop", [RESULT, key]]),
        ("has a list of null", ["put", [RESULT, key], None]),
        ("has a text", ["put", [RESULT, key], "none"]),
        ("is null", ["put", [RESULT], None]),
    ):
        edits = [[f"{method}#{n}", *edit] for n in range(2, 9)]
        if name == "fails":
            edits += [[f"{method}#{n}", "drop", [RESULT]] for n in range(2, 9)]
        add(f"{method}: page 2 {name}", "connecting", [f"{method}#1", "put", CURSOR, "2"], *edits, offered=least,
            without=some, note="", within=90)  # fmt: skip
    for name, value in (("null", None), ("a text", "none"), ("an object", {}), ("a number", 0)):
        add(f"{method}: the list is {name}", "connecting", [method, "put", [RESULT, key], value],
            without=frozenset({"*"} if kind == "tools" else ()), note="")  # fmt: skip
    add(f"{method}: no list", "connecting", [method, "drop", [RESULT, key]],
        without=frozenset({"*"} if kind == "tools" else ()), note="")  # fmt: skip
    for name, entry in (
        ("null", None),
        ("a text", "x"),
        ("a list", []),
        ("a number", 5),
        ("an empty object", {}),
    ):
        add(f"{method}: an entry is {name}", "connecting", [method, "put", [RESULT, key, 1], entry],
            offered=least, without=frozenset({"typed"} if kind == "tools" else ()), note="")  # fmt: skip
add(
    "1,100 pages of tools",
    "connecting",
    ["tools/list", "pages", 1100, True],
    tool="any_900",
    value=RIGHT + "any_900",
)
add("endless empty pages of tools", "connecting", ["tools/list", "pages", 10**9, False], note="")
add("endless pages of tools", "connecting", ["tools/list", "pages", 10**9, True], note="", tool="any_100",
    value=RIGHT + "any_100")  # fmt: skip
for method, kind in (("resources/list", "resources"), ("prompts/list", "prompts")):
    add(f"{method}: endless empty pages", "connecting", [method, "pages", 10**9, False],
        offered={kind: LEAST[kind] + 1}, note="")  # fmt: skip
add("the first list fails once", "connecting", ["tools/list#1", "drop", [RESULT]],
    ["tools/list#1", "put", ["error"], {"code": -32603, "message": "starting"}], within=60)  # fmt: skip
for method, member, kind in (
    ("resources/list", "uri", "resources"),
    ("resources/templates/list", "uriTemplate", "templates"),
    ("prompts/list", "name", "prompts"),
):
    key = "resourceTemplates" if kind == "templates" else kind
    for value in (None, 5, [], {}):
        add(f"{method}: {member} {value!r}", "connecting", [method, "put", [RESULT, key, 1, member], value],
            offered={kind: LEAST[kind]}, note="")  # fmt: skip
    for other in (
        "name",
        "title",
        "description",
        "mimeType",
        "size",
        "annotations",
        "icons",
        "_meta",
        "arguments",
    ):
        if other == member:
            continue
        for value in (None, [5], "odd", 5):
            fits = isinstance(value, str) and other in ("name", "title", "description", "mimeType")
            missing = LEAST[kind] + (other != "name")
            add(f"{method}: {other} {value!r}", "connecting", [method, "put", [RESULT, key, 1, other], value],
                offered={kind: LEAST[kind] + 1 if fits else missing})  # fmt: skip

# -- definitions -----------------------------------------------------------------------------------

SCHEMA = [RESULT, "tools", 1, "inputSchema"]


def nested(levels: int) -> dict[str, Any]:
    """A schema whose JSON has so many levels."""
    made: dict[str, Any] = {"type": "string"}
    for _ in range(levels // 2):
        made = {"type": "object", "properties": {"a": made}}
    return made


SCHEMAS: Final[list[tuple[str, list[Any], Any]]] = [
    ("draft-03 required", ["properties", "q"], {"type": "string", "required": True}),
    ("draft-03 any", ["properties", "q"], {"type": "any"}),
    ("draft-03 divisibleBy", ["properties", "n"], {"type": "integer", "divisibleBy": 1}),
    (
        "draft-04 exclusiveMinimum",
        ["properties", "n"],
        {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
    ),
    ("draft-04 $schema", ["$schema"], "http://json-schema.org/draft-04/schema#"),
    ("draft-04 id", ["id"], "http://odd.invalid/schema"),
    ("unknown $schema", ["$schema"], "http://odd.invalid/schema"),
    ("$schema a number", ["$schema"], 5),
    ("type dict", ["properties", "q"], {"type": "dict"}),
    ("type str", ["properties", "q"], {"type": "str"}),
    ("type Object at the root", ["type"], "Object"),
    ("type null at the root", ["type"], None),
    ("type a list at the root", ["type"], ["object"]),
    ("type a list with null at the root", ["type"], ["object", "null"]),
    ("type twice", ["properties", "q"], {"type": ["string", "string"]}),
    ("type empty", ["properties", "q"], {"type": []}),
    ("type an object", ["properties", "q"], {"type": {"name": "string"}}),
    ("properties null", ["properties"], None),
    ("properties a list", ["properties"], [{"name": "q", "type": "string"}]),
    ("properties a text", ["properties"], "none"),
    ("a property null", ["properties", "q"], None),
    ("a property a text", ["properties", "q"], "string"),
    ("a property a list", ["properties", "q"], ["string"]),
    ("a property true", ["properties", "q"], True),
    ("required null", ["required"], None),
    ("required true", ["required"], True),
    ("required a text", ["required"], "q"),
    ("required twice", ["required"], ["edits", "edits"]),
    ("required numbers", ["required"], [1, None]),
    ("required empty", ["required"], []),
    ("required an unknown name", ["required"], []),
    ("a broken pattern", ["properties", "q"], {"type": "string", "pattern": "(["}),
    (
        "a pattern of another language",
        ["properties", "q"],
        {"type": "string", "pattern": "^\\p{Lu}(?<=x)\\Z"},
    ),
    ("a pattern that is null", ["properties", "q"], {"type": "string", "pattern": None}),
    ("a broken pattern of names", ["patternProperties"], {"([": {}}),
    ("enum null", ["properties", "q"], {"enum": None}),
    ("enum empty", ["properties", "q"], {"type": "string", "enum": []}),
    ("enum a text", ["properties", "q"], {"enum": "a"}),
    ("enum twice", ["properties", "q"], {"enum": ["a", "a"]}),
    ("a dangling $ref", ["properties", "q"], {"$ref": "#/$defs/Nothing"}),
    ("a remote $ref", ["properties", "q"], {"$ref": "https://odd.invalid/schema.json"}),
    ("a $ref to a file", ["properties", "q"], {"$ref": "file:///etc/passwd"}),
    ("a $ref that is null", ["properties", "q"], {"$ref": None}),
    ("a $ref to the root", ["properties", "q"], {"$ref": "#"}),
    ("a $ref to itself", ["properties", "q"], {"$ref": "#/properties/q"}),
    ("a $ref into another property", ["properties", "q"], {"$ref": "#/properties/edits"}),
    (
        "unknown keywords",
        ["properties", "q"],
        {"type": "string", "x-odd": 1, "ui:widget": {}, "nullable": True},
    ),
    ("nullable", ["properties", "q"], {"type": "string", "nullable": True}),
    ("10,000 properties", ["properties"], {f"p{n}": {"type": "string"} for n in range(10_000)}),
    ("300 KB", ["properties", "q"], {"type": "string", "description": "x" * 300_000}),
    ("450 levels", ["properties", "q"], nested(450)),
    ("900 levels", ["properties", "q"], nested(900)),
    ("additionalProperties a text", ["additionalProperties"], "true"),
    ("additionalProperties null", ["additionalProperties"], None),
    ("items a list", ["properties", "q"], {"type": "array", "items": [{"type": "string"}]}),
    ("items null", ["properties", "q"], {"type": "array", "items": None}),
    ("minimum a text", ["properties", "n"], {"type": "integer", "minimum": "0"}),
    ("minimum null", ["properties", "n"], {"type": "integer", "minimum": None}),
    ("minLength -1", ["properties", "q"], {"type": "string", "minLength": -1}),
    ("default of another type", ["properties", "n"], {"type": "integer", "default": "none"}),
    ("an unknown format", ["properties", "q"], {"type": "string", "format": "odd"}),
    ("format null", ["properties", "q"], {"type": "string", "format": None}),
    ("description a number", ["properties", "q"], {"type": "string", "description": 5}),
    ("description null", ["properties", "q"], {"type": "string", "description": None}),
    ("title null", ["title"], None),
    ("anyOf empty", ["properties", "q"], {"anyOf": []}),
    ("anyOf null", ["properties", "q"], {"anyOf": None}),
    ("anyOf with null", ["properties", "q"], {"anyOf": [{"type": "string"}, None]}),
    ("allOf an object", ["properties", "q"], {"allOf": {"type": "string"}}),
    ("not null", ["properties", "q"], {"not": None}),
    ("$defs null", ["$defs"], None),
    ("$defs with a text", ["$defs"], {"A": "odd"}),
    ("$id null", ["$id"], None),
    ("$id malformed", ["$id"], "::odd::"),
    ("a root allOf", ["allOf"], [{"properties": {"r": {"type": "string"}}}]),
    ("a root if and then", ["if"], {"required": ["q"]}),
    ("a root oneOf", ["oneOf"], [{"required": []}]),
    ("$comment a number", ["$comment"], 5),
    ("examples a text", ["properties", "q"], {"type": "string", "examples": "x"}),
    ("deprecated a text", ["properties", "q"], {"type": "string", "deprecated": "yes"}),
    ("dependencies", ["dependencies"], {"q": ["n"]}),
    ("const null", ["properties", "q"], {"const": None}),
    ("a property named $ref", ["properties", "$ref"], {"type": "string"}),
    ("a property without a name", ["properties", ""], {"type": "string"}),
    ("a root anyOf", ["anyOf"], [{"required": []}, {"required": ["q"]}]),
    ("a root not", ["not"], {"required": ["nothing"]}),
    ("additionalProperties false", ["additionalProperties"], False),
    ("propertyNames", ["propertyNames"], {"pattern": "(["}),
    ("unevaluatedProperties", ["unevaluatedProperties"], False),
    ("a dynamic reference", ["properties", "q"], {"$dynamicRef": "#nothing"}),
    ("a vocabulary", ["$vocabulary"], {"https://odd.invalid/v": True}),
    ("definitions by the older name", ["definitions"], {"A": {"type": "str"}}),
    ("numbers as texts", ["properties", "n"], {"type": "integer", "minimum": "0", "maximum": "9"}),
    ("a bound over 64 bits", ["properties", "n"], {"type": "integer", "maximum": 2**70}),
]
"""Changes of an input schema: a name, the path of a member, and its value."""

for name, path, value in SCHEMAS:
    add(
        f"schema: {name}",
        "definitions",
        ["tools/list", "put", [*SCHEMA, *path], value],
        tool="typed",
        value={"n": 3},
    )
for name, value in (
    ("null", None),
    ("true", True),
    ("a list", []),
    ("a text", "none"),
    ("empty", {}),
    ("a number", 5),
):
    add(f"schema: the whole is {name}", "definitions", ["tools/list", "put", SCHEMA, value], tool="typed",
        value={"n": 3}, note=None if value == {} else "")  # fmt: skip
add(
    "schema: missing",
    "definitions",
    ["tools/list", "drop", SCHEMA],
    tool="typed",
    value={"n": 3},
    note="",
)
add("schema: under another name", "definitions", ["tools/list", "rename", SCHEMA, "input_schema"], tool="typed",
    value={"n": 3}, note="")  # fmt: skip
add("schema: an array", "definitions", ["tools/list", "put", SCHEMA, {"type": "array"}], tool="typed", value={"n": 3},
    note="")  # fmt: skip
add("schema: one $id in all", "definitions", *(["tools/list", "put", [RESULT, "tools", n, "inputSchema", "$id"],
    "https://odd.invalid/s"] for n in range(9)), tool="typed", value={"n": 3})  # fmt: skip
for name, value in (
    ("null", None), ("a text", "none"), ("a list", []), ("true", True), ("empty", {}), ("an array", {"type": "array"}),
    ("without type", {"properties": {"n": {"type": "integer"}}}), ("type dict", {"type": "dict"}),
    ("properties null", {"type": "object", "properties": None}),
    ("required null", {"type": "object", "required": None}),
    ("a dangling $ref", {"type": "object", "properties": {"n": {"$ref": "#/$defs/No"}}}),
    ("a remote $ref", {"type": "object", "properties": {"n": {"$ref": "https://odd.invalid/"}}}),
    ("a broken pattern", {"type": "object", "properties": {"s": {"type": "string", "pattern": "(["}}}),
):  # fmt: skip
    add(f"output schema: {name}", "definitions", ["tools/list", "put", [RESULT, "tools", 1, "outputSchema"], value],
        tool="typed", value=None if value == {"type": "array"} else {"n": 3}, reaches="3",
        hints={"typed": {"readOnlyHint": True, "openWorldHint": False}})  # fmt: skip

GOOD = {"look": {"readOnlyHint": True, "openWorldHint": False}}
TOOL = [RESULT, "tools", 0]
for member, values in (
    ("description", [None, 5, ["x"], {}]),
    ("title", [None, 5, []]),
    (
        "icons",
        [
            None,
            "x",
            {},
            ["x"],
            [{}],
            [{"src": 5}],
            [{"src": "https://x.invalid", "sizes": "48x48"}],
            [None],
        ],
    ),
    ("_meta", [None, [], "x", 5]),
    ("execution", [None, "x", {"taskSupport": "odd"}, {"taskSupport": None}]),
    ("odd", [None, {"a": []}]),
    ("outputSchema", [None, "x", []]),
):
    for value in values:
        add(
            f"tool: {member} {value!r}",
            "definitions",
            ["tools/list", "put", [*TOOL, member], value],
            hints=GOOD,
        )
for value in (None, "none", [], 5, True):
    add(f"tool: annotations {value!r}", "definitions", ["tools/list", "put", [*TOOL, "annotations"], value],
        hints={"look": {}}, note=None if value is None else "")  # fmt: skip
for hint in ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"):
    for value in (None, "true", "false", 1, 0, [], {}):
        kept = {key: known for key, known in GOOD["look"].items() if key != hint}
        add(f"tool: {hint} {value!r}", "definitions", ["tools/list", "put", [*TOOL, "annotations", hint], value],
            hints={"look": kept}, note=None if value is None else "")  # fmt: skip
add("tool: hints in snake case", "definitions", ["tools/list", "put", [*TOOL, "annotations"], {"read_only_hint": True}],
    hints={"look": {}})  # fmt: skip
add("tool: title of annotations a number", "definitions", ["tools/list", "put", [*TOOL, "annotations", "title"], 5],
    hints=GOOD)  # fmt: skip
for value in (None, 5, "", [], {}, "a" * 300):
    add(f"tool: name {str(value)[:10]!r}", "definitions", ["tools/list", "put", [RESULT, "tools", 1, "name"], value],
        without=frozenset({"typed"}), note="")  # fmt: skip
for value in ("with space", "with/slash", "with.dot", "Ünïcode", "1number", "a" * 120):
    add(f"tool: name {value[:10]!r}, {len(value)} characters", "definitions",
        ["tools/list", "put", [RESULT, "tools", 1, "name"], value],
        without=frozenset({"typed"}), tool=value, error="no tool")  # fmt: skip
add("tool: listed twice", "definitions", ["tools/list", "double", TOOL], note="")
add("tool: without a name", "definitions", ["tools/list", "drop", [RESULT, "tools", 1, "name"]],
    without=frozenset({"typed"}), note="", tool="typed", error="left out|name|no tool")  # fmt: skip

# -- results ---------------------------------------------------------------------------------------

CONTENT = [RESULT, "content"]
for name, edit, expects in (
    ("missing", ["drop", CONTENT], {"value": ANY}),
    ("null", ["put", CONTENT, None], {"value": ANY}),
    ("a text", ["put", CONTENT, "hello"], {"value": ANY, "reaches": "hello"}),
    ("one block", ["put", CONTENT, {"type": "text", "text": "hello"}], {"value": ANY, "reaches": "hello"}),
    ("texts", ["put", CONTENT, ["hello", "you"]], {"value": ANY, "reaches": "hello"}),
    ("nested", ["put", CONTENT, [[{"type": "text", "text": "hello"}]]], {"value": ANY, "reaches": "hello"}),
    ("a number", ["put", CONTENT, 5], {}),
    ("a block null", ["put", [*CONTENT, 1], None], {"value": ANY, "reaches": LOOK}),
    ("a block of unknown type", ["put", [*CONTENT, 1], {"type": "odd", "odd": "hello"}],
     {"value": ANY, "reaches": LOOK}),
    ("a block of json", ["put", [*CONTENT, 1], {"type": "json", "json": {"a": 1}}], {"value": ANY, "reaches": LOOK}),
    ("a block without type", ["put", [*CONTENT, 1], {"text": "hello"}], {"value": ANY, "reaches": LOOK}),
    ("a block with type null", ["put", [*CONTENT, 1], {"type": None, "text": "a"}], {"value": ANY, "reaches": LOOK}),
    ("text a number", ["put", [*CONTENT, 1], {"type": "text", "text": 5}], {"value": ANY, "reaches": LOOK}),
    ("text an object", ["put", [*CONTENT, 1], {"type": "text", "text": {"a": 1}}], {"value": ANY, "reaches": LOOK}),
    ("text null", ["put", [*CONTENT, 1], {"type": "text", "text": None}], {"value": ANY, "reaches": LOOK}),
    ("text missing", ["put", [*CONTENT, 1], {"type": "text"}], {"value": ANY, "reaches": LOOK}),
    ("block annotations odd", ["put", [*CONTENT, 0, "annotations"], "x"], {"value": LOOK}),
    ("block audience odd", ["put", [*CONTENT, 0, "annotations"], {"audience": ["odd"]}], {"value": LOOK}),
    ("block priority odd", ["put", [*CONTENT, 0, "annotations"], {"priority": 5}], {"value": LOOK}),
    ("block _meta odd", ["put", [*CONTENT, 0, "_meta"], []], {"value": LOOK}),
    ("block members more", ["put", [*CONTENT, 0, "odd"], 5], {"value": LOOK}),
    ("an image beside, without mimeType", ["put", [*CONTENT, 1], {"type": "image", "data": "AAAA"}],
     {"value": ANY, "reaches": LOOK}),
    ("an image beside, with mime_type",
     ["put", [*CONTENT, 1], {"type": "image", "data": "AAAA", "mime_type": "image/png"}],
     {"value": ANY, "reaches": LOOK}),
    ("an image beside, without data", ["put", [*CONTENT, 1], {"type": "image", "mimeType": "image/png"}],
     {"value": ANY, "reaches": LOOK}),
    ("an image beside, as an address", ["put", [*CONTENT, 1], {"type": "image", "url": "https://x.invalid/a.png"}],
     {"value": ANY, "reaches": LOOK}),
    ("a link without name", ["put", [*CONTENT, 1], {"type": "resource_link", "uri": "odd://x"}],
     {"value": ANY, "reaches": LOOK}),
    ("a link without uri", ["put", [*CONTENT, 1], {"type": "resource_link", "name": "x"}],
     {"value": ANY, "reaches": LOOK}),
    ("a resource without uri", ["put", [*CONTENT, 1], {"type": "resource", "resource": {"text": "hello"}}],
     {"value": ANY, "reaches": LOOK}),
    ("a resource flat", ["put", [*CONTENT, 1], {"type": "resource", "uri": "odd://x", "text": "hello"}],
     {"value": ANY, "reaches": LOOK}),
    ("result _meta a list", ["put", [RESULT, "_meta"], []], {"value": LOOK}),
    ("result _meta null", ["put", [RESULT, "_meta"], None], {"value": LOOK}),
    ("more members of the result", ["put", [RESULT, "odd"], [1]], {"value": LOOK}),
    ("structured content a list", ["put", [RESULT, "structuredContent"], [1, 2]], {"value": ANY}),
    ("structured content a text", ["put", [RESULT, "structuredContent"], "hello"], {"value": ANY}),
    ("structured content a number", ["put", [RESULT, "structuredContent"], 5], {"value": ANY}),
    ("structured content null", ["put", [RESULT, "structuredContent"], None], {"value": LOOK}),
    ("structured content in snake case", ["put", [RESULT, "structured_content"], {"a": 1}], {"value": LOOK}),
    ("isError null", ["put", [RESULT, "isError"], None], {"value": LOOK}),
    ("isError a word", ["put", [RESULT, "isError"], "true"], {"error": LOOK}),
    ("isError another word", ["put", [RESULT, "isError"], "yes"], {"error": LOOK}),
    ("isError 1", ["put", [RESULT, "isError"], 1], {"error": LOOK}),
    ("isError an object", ["put", [RESULT, "isError"], {"a": 1}], {"error": LOOK}),
    ("isError in snake case", ["put", [RESULT, "is_error"], True], {"reaches": LOOK}),
    ("the result null", ["put", [RESULT], None], {}),
    ("the result a text", ["put", [RESULT], "hello"], {"reaches": "hello"}),
    ("the result a list", ["put", [RESULT], [{"type": "text", "text": "hello"}]], {"reaches": "hello"}),
    ("the result empty", ["put", [RESULT], {}], {"value": ANY}),
):  # fmt: skip
    if name in ("isError null", "result _meta null", "structured content null") or "more" in name:
        noted = None
    else:
        noted = ""
    call(f"content: {name}", "results", "look", edit, **expects)
    # Even if the tool may have changed something, an odd member must not leave the outcome of the
    # call unknown.
    if "result" not in name:
        call(f"content of a change: {name}", "results", "change", edit,
             **{**expects, "value": RIGHT + "change" if expects.get("value") == LOOK else expects.get("value"),
                "reaches": str(expects["reaches"]).replace("look", "change") if "reaches" in expects else None,
                "error": str(expects["error"]).replace("look", "change") if "error" in expects else None})  # fmt: skip
for name, edit, expects in (
    ("none where declared", ["drop", [RESULT, "structuredContent"]], {"reaches": '"n"'}),
    ("null where declared", ["put", [RESULT, "structuredContent"], None], {"reaches": '"n"'}),
    ("a text where declared", ["put", [RESULT, "structuredContent"], '{"n": 3}'], {"reaches": "n"}),
    ("of another type", ["put", [RESULT, "structuredContent"], {"n": "three"}], {"error": "three"}),
    ("without a member", ["put", [RESULT, "structuredContent"], {"m": 4}], {"error": "n"}),
    ("without content", ["drop", CONTENT], {"value": {"n": 3}}),
    ("with content null", ["put", CONTENT, None], {"value": {"n": 3}}),
    ("with an odd block", ["put", CONTENT, [{"type": "odd"}]], {"value": {"n": 3}}),
    ("with isError null", ["put", [RESULT, "isError"], None], {"value": {"n": 3}}),
    ("with isError", ["put", [RESULT, "isError"], True], {"error": "n"}),
):
    call(f"structured content: {name}", "results", "typed", edit, **expects)
for name, edit in (
    ("content missing", ["drop", CONTENT]),
    ("content a text", ["put", CONTENT, "it went wrong"]),
    ("an odd block", ["put", [*CONTENT, 1], {"type": "odd"}]),
    ("structured content a list", ["put", [RESULT, "structuredContent"], [1]]),
    ("_meta a list", ["put", [RESULT, "_meta"], []]),
    ("isError a word", ["put", [RESULT, "isError"], "true"]),
):
    call(
        f"a failure: {name}",
        "results",
        "fails",
        edit,
        error="" if name == "content missing" else "it went wrong",
    )
for name, edit in (
    ("resultType unknown", ["put", [RESULT, "resultType"], "odd"]),
    ("resultType null", ["put", [RESULT, "resultType"], None]),
    ("resultType a number", ["put", [RESULT, "resultType"], 5]),
):
    expects = {} if name == "resultType unknown" else {"value": LOOK}
    call(f"modern: {name}", "results", "look", edit, era="modern", **expects)
for name, edit in (
    ("without data", ["drop", [*CONTENT, 0, "data"]]),
    ("with data a number", ["put", [*CONTENT, 0, "data"], 5]),
    ("without mimeType", ["drop", [*CONTENT, 0, "mimeType"]]),
    ("with mime_type", ["rename", [*CONTENT, 0, "mimeType"], "mime_type"]),
    ("with mimeType null", ["put", [*CONTENT, 0, "mimeType"], None]),
    ("with data that is no base64", ["put", [*CONTENT, 0, "data"], "%%%"]),
    ("with a data address", ["put", [*CONTENT, 0, "data"], "data:image/png;base64,iVBORw0KGgo="]),
):
    call(f"an image alone, {name}", "results", "picture", edit)

NAMES: Final = ("look", "typed", "change", "delete", "fails", "picture", "blocks", "ask", "chatty")
VERSIONS: Final = {"legacy": LEGACY}
