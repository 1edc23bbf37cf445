"""Definitions of tools as servers send them, and the digests that they have had since
tools are pinned.

`DIGESTS` was made by the code before odd members were repaired. A pinned tool blocks when its
digest changes, so no change of the reader may change one.
"""

from typing import Any

_OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {"q": {"type": "string"}},
    "required": ["q"],
}


def _tool(**members: Any) -> dict[str, Any]:
    return {"name": "search", "description": "Finds things", "inputSchema": _OBJECT, **members}


DEFINITIONS: dict[str, dict[str, Any]] = {
    "plain": _tool(),
    "bare": {"name": "search", "inputSchema": {"type": "object"}},
    "no type": _tool(inputSchema={"properties": {"q": {"type": "string"}}, "required": ["q"]}),
    "no type, empty": _tool(inputSchema={}),
    "null properties": _tool(inputSchema={"type": "object", "properties": None}),
    "null members": _tool(
        title=None,
        description=None,
        annotations=None,
        outputSchema=None,
        icons=None,
        _meta=None,
        execution=None,
    ),
    "unknown members": _tool(version=5, tags=["a"], strict=True),
    "odd unknown members": _tool(read_only=True, annotation={"readOnlyHint": True}),
    "title": _tool(title="Search"),
    "read-only": _tool(annotations={"readOnlyHint": True}),
    "not read-only": _tool(annotations={"readOnlyHint": False}),
    "all hints": _tool(
        annotations={
            "title": "S",
            "readOnlyHint": False,
            "destructiveHint": True,
            "idempotentHint": True,
            "openWorldHint": False,
        }
    ),
    "null hints": _tool(annotations={"readOnlyHint": None, "destructiveHint": None}),
    "unknown hints": _tool(annotations={"readOnly": True, "dangerous": "yes"}),
    "hint in words": _tool(annotations={"readOnlyHint": "true", "destructiveHint": "no"}),
    "hint in numbers": _tool(
        annotations={"readOnlyHint": 1, "idempotentHint": 0, "openWorldHint": 1.0}
    ),
    "capital hint": _tool(annotations={"readOnlyHint": "True"}),
    "output": _tool(
        outputSchema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    ),
    "wrapped output": _tool(
        outputSchema={
            "type": "object",
            "properties": {"result": {"type": "string"}},
            "required": ["result"],
            "title": "searchOutput",
        }
    ),
    "broken output": _tool(
        outputSchema={"type": "object", "properties": {"n": {"type": "strange"}}}
    ),
    "remote output": _tool(
        outputSchema={"type": "object", "properties": {"n": {"$ref": "https://x.example/s"}}}
    ),
    "icons": _tool(icons=[{"src": "https://x.example/i.png", "sizes": ["48x48"], "theme": "dark"}]),
    "task": _tool(execution={"taskSupport": "optional"}),
    "_meta": _tool(_meta={"ui": {"resourceUri": "ui://a"}, "x": [1, None]}),
    "definitions": _tool(
        inputSchema={
            "type": "object",
            "$defs": {"a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/a"}}}},
            "properties": {"a": {"$ref": "#/$defs/a"}},
        }
    ),
    "any of": _tool(
        inputSchema={
            "type": "object",
            "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        }
    ),
    "constraints": _tool(
        inputSchema={
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 0, "maximum": 2**60, "default": 5},
                "s": {"type": "string", "pattern": "^a+$", "enum": ["b", "a"], "description": "d"},
                "l": {"type": "array", "items": {"type": "number"}, "maxItems": 3},
                "f": {"type": "number", "multipleOf": 0.01},
            },
            "additionalProperties": False,
        }
    ),
    "draft 7": _tool(inputSchema={**_OBJECT, "$schema": "http://json-schema.org/draft-07/schema#"}),
    "keywords of nobody": _tool(
        inputSchema={**_OBJECT, "x-order": ["q"], "nullable": True, "strict": False}
    ),
    "boolean properties": _tool(
        inputSchema={"type": "object", "properties": {"a": True, "b": False}}
    ),
    "meta-parameters": _tool(
        inputSchema={"type": "object", "properties": {"_id": {}, "q": {}}, "required": ["_id"]}
    ),
    "name with spaces": _tool(name="find all things"),
    "name of unicode": _tool(name="поиск"),
    "long description": _tool(description="x" * 20_000),
    "one of at the root": _tool(
        inputSchema={**_OBJECT, "oneOf": [{"required": ["q"]}, {"required": []}]}
    ),
}
"""One tool each, by what it shows."""

DIGESTS: dict[str, tuple[str, str]] = {
    "plain": (
        "df733a364b11a3708b3f4695df2089b6e954534065e8fe1101699a6231c0d7b5",
        "237fca4a4040efc817a29e42ddd81bfee59043491c018436bb4fbac47f9aba9d",
    ),
    "bare": (
        "9cffe8d995d81e311b6070ca6e7f0cc800680d322a4f6a60ab487811519dec55",
        "7ac9d471d3b3ef3ffdb07f45d4e11230f43f9949e5545484d89efcac8c75e6b2",
    ),
    "no type": (
        "df733a364b11a3708b3f4695df2089b6e954534065e8fe1101699a6231c0d7b5",
        "237fca4a4040efc817a29e42ddd81bfee59043491c018436bb4fbac47f9aba9d",
    ),
    "no type, empty": (
        "9cffe8d995d81e311b6070ca6e7f0cc800680d322a4f6a60ab487811519dec55",
        "0d1b1e1f4cf343458d52b52700cdb965f70dc9753d1635e829500822e1c31b15",
    ),
    "null members": (
        "df733a364b11a3708b3f4695df2089b6e954534065e8fe1101699a6231c0d7b5",
        "b3614d1c93e0a22b3e34db287a82a5719a9ae8972fbf546384c5ecdff5753bb0",
    ),
    "unknown members": (
        "df733a364b11a3708b3f4695df2089b6e954534065e8fe1101699a6231c0d7b5",
        "237fca4a4040efc817a29e42ddd81bfee59043491c018436bb4fbac47f9aba9d",
    ),
    "odd unknown members": (
        "df733a364b11a3708b3f4695df2089b6e954534065e8fe1101699a6231c0d7b5",
        "237fca4a4040efc817a29e42ddd81bfee59043491c018436bb4fbac47f9aba9d",
    ),
    "title": (
        "df733a364b11a3708b3f4695df2089b6e954534065e8fe1101699a6231c0d7b5",
        "59c192a8fcada0fd5968352a8fbe7826470bcf1affe682d35c554965ebe4c6f6",
    ),
    "read-only": (
        "33fcdd0a4738ba134fe0706bd16613a5ce72b6a30c5d1f9b01f6c24aa7631e78",
        "208f39ebc57277604329b47c3ae77cb852a4397bdc8ba01dd77c0edf02f07d88",
    ),
    "not read-only": (
        "ef93a0f06222c677924913d12c189f8281b90391bedf3bf68fc4a332b92532b9",
        "04800737c443d8406df6a67f6d3265e5c71375acb48db362a61b6595f1f57900",
    ),
    "all hints": (
        "5230a04526691bdcba86b533d556395ee0bd7432884c0794294c29210e61541e",
        "69233e84b5bf823da912842397f9fdc50fb5af74d89f08b0c212e5241b542bf8",
    ),
    "null hints": (
        "df733a364b11a3708b3f4695df2089b6e954534065e8fe1101699a6231c0d7b5",
        "237fca4a4040efc817a29e42ddd81bfee59043491c018436bb4fbac47f9aba9d",
    ),
    "unknown hints": (
        "df733a364b11a3708b3f4695df2089b6e954534065e8fe1101699a6231c0d7b5",
        "237fca4a4040efc817a29e42ddd81bfee59043491c018436bb4fbac47f9aba9d",
    ),
    "hint in words": (
        "e951239e08d704b2eff22c8eb59bafa500cafaab5c0cab89a789fbb352cb6d6e",
        "fc72ca316999c567fc1b222997c81ee75881c9d7c0895de77630b3157aa35de8",
    ),
    "hint in numbers": (
        "0652330f1afff538e1ea2c9fb77c992fa7ce31bef72ae01654fd3acdd6930ec0",
        "d010b0e77534cbab42f447674502e409d25b035e0cba2e16d80e79baea2d0a65",
    ),
    "capital hint": (
        "33fcdd0a4738ba134fe0706bd16613a5ce72b6a30c5d1f9b01f6c24aa7631e78",
        "208f39ebc57277604329b47c3ae77cb852a4397bdc8ba01dd77c0edf02f07d88",
    ),
    "output": (
        "8f8f3cee23267c005c54b77e9321737478aca3345fa87d1cad6c8cd277a5d3b1",
        "e4dd61c380eff142206385ebe97a2066a1871fa2c92ac810260abfec65fb5f10",
    ),
    "wrapped output": (
        "79cd31842ce9dd1cf07cc62c2c2c03a9bf39f80f7a19cb538de1101218ba4ae0",
        "6cbcffe22701fa781832077c397450999532a4489a508ac1edf4de9eec128701",
    ),
    "broken output": (
        "df733a364b11a3708b3f4695df2089b6e954534065e8fe1101699a6231c0d7b5",
        "237fca4a4040efc817a29e42ddd81bfee59043491c018436bb4fbac47f9aba9d",
    ),
    "remote output": (
        "df733a364b11a3708b3f4695df2089b6e954534065e8fe1101699a6231c0d7b5",
        "237fca4a4040efc817a29e42ddd81bfee59043491c018436bb4fbac47f9aba9d",
    ),
    "icons": (
        "df733a364b11a3708b3f4695df2089b6e954534065e8fe1101699a6231c0d7b5",
        "237fca4a4040efc817a29e42ddd81bfee59043491c018436bb4fbac47f9aba9d",
    ),
    "task": (
        "df733a364b11a3708b3f4695df2089b6e954534065e8fe1101699a6231c0d7b5",
        "237fca4a4040efc817a29e42ddd81bfee59043491c018436bb4fbac47f9aba9d",
    ),
    "_meta": (
        "df733a364b11a3708b3f4695df2089b6e954534065e8fe1101699a6231c0d7b5",
        "237fca4a4040efc817a29e42ddd81bfee59043491c018436bb4fbac47f9aba9d",
    ),
    "definitions": (
        "1cf2d4a4dafd7f19ecb2037f0cfbcb537647467c5c294e21c9ab315f3dab8183",
        "f2564b6881f18644c52ad76a0ddd988155850b96e56f9702f0a1041935f654d0",
    ),
    "any of": (
        "a4552c03e1dae5a42b3ade9a28dc1aa9275b379ce2f0480d9b4769290a5cfab6",
        "bc39dc3ab8511db731261e3be0bdc29d45556a7a2aae5f8b92fc97399e9c4f1c",
    ),
    "constraints": (
        "3544391ab410a7fd79794ae5d324afd616c8281bc5942059f50b960462cbf6e5",
        "b3be41c146c0df8a004108d91f26a4fd1844bd4f769d6dc9523e2eaf93a546b1",
    ),
    "draft 7": (
        "c8846ebeabdfb786437678d2d9052b9584841a7c98ae1ba33b3873e5e48024af",
        "427b52ccfd48f927e50d72d621811bcf0986cc89e909aec82588fc89e066b389",
    ),
    "keywords of nobody": (
        "007f9280e4173a06a59bdd562fe0f5f4042d91bc7fba407876e88de4f5e94845",
        "95b743a1bcd8af6218380b818d974b7a64abfc12b51504fbbc992812d2bced5f",
    ),
    "boolean properties": (
        "9c418a19780d40d947c60d7dc921eded69150b4ef7d6eb7741dcba9184197cdb",
        "85efc8eaf989fb43508a428dea8891feaedcc420579706c204db13c76f0bf28d",
    ),
    "meta-parameters": (
        "b2e006ac478af662a2951b369db88557c44a2a5d3fe9ddc7b73fbf527cc7037e",
        "083ed993f4dfc72b549d1cd840a4262d81be0c6b36cfae06b9226580246e20f5",
    ),
    "name with spaces": (
        "5c54c61a6921e2ccbbd0a026baa2bc633b97fe1a5bcd2befbf520f3351a9ecd1",
        "ed523e96d0f3939f7d7f3e43172b31df38700bc1ab0cf994d9b317a5f4b6834b",
    ),
    "name of unicode": (
        "0dfb03e1faa01a5b828657634f620db3b6a1b3ffca85dc3a36eabee8cd055ba0",
        "c91d0763567043589012933e0afadcc5e869ed1c027e0f4d636ee5b55c8db585",
    ),
    "long description": (
        "df733a364b11a3708b3f4695df2089b6e954534065e8fe1101699a6231c0d7b5",
        "cc32374eab9fdb6065fa9e4a194056b2ed47bda6bbedbb6b5b5c24808682785c",
    ),
    "one of at the root": (
        "dc8e0634b697eeac3d5fc4be14e2e33360c21730befbd684c6e1425a3b2c7f3b",
        "de7fd1fd994b650a53a85e79aef3b973192da2c9d678716207c0e52a64ffc0e2",
    ),
}
"""The digest and the prose digest of each definition as the only tool of module `m`; none if
it was left out."""
