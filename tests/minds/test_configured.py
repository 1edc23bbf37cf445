"""The key `model` of a configuration and the option --model; nothing heavy before a
model is asked.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge import Bridge, Configuration
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.minds import model as module
from ideabridge.bridge.minds.errors import ModelSetupError
from ideabridge.bridge.minds.settings import ModelConfiguration
from ideabridge.server.cli.console import UsageError
from ideabridge.server.cli.serve import read_model_option
from tests import keyrings

HERE = Path()
DOCS = Path(__file__).parent.parent.parent / "docs"


def test_a_model_is_named_by_text_or_by_an_object() -> None:
    assert (
        parse_configuration({"model": "openai:gpt-5-mini"}, project=HERE).model
        == "openai:gpt-5-mini"
    )
    told: Any = {
        "name": "openai:qwen3",
        "base_url": "http://127.0.0.1:8080/v1/",
        "settings": {"temperature": 0},
    }
    parsed = parse_configuration({"model": told}, project=HERE).model
    assert isinstance(parsed, ModelConfiguration)
    assert parsed.base_url == "http://127.0.0.1:8080/v1"
    assert parsed.settings == {"temperature": 0}
    assert parse_configuration({"model": None}, project=HERE).model is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("gpt-5", "model.name: .*expected PROVIDER:MODEL"),
        (3, "model: expected an object, found a number"),
        ({}, "model.name: missing"),
        ({"name": "openai:x", "api_key": "sk-1"}, "model.api_key: unknown key"),
        ({"name": "openai:x", "base_url": "file:///etc/passwd"}, "model.base_url: .*http or https"),
        (
            {"name": "openai:x", "base_url": "http://me:secret1@host/v1"},
            "model.base_url: .*without credentials",
        ),
        (
            {"name": "openai:x", "settings": {"extra_headers": "x"}},
            "model.settings: .*unknown setting 'extra_headers'",
        ),
        (
            {"name": "openai:x", "key_env": "sk-secret1"},
            "model.key_env: .*the name of an environment variable",
        ),
        ({"name": "openai:x", "timeout": 0}, "model.timeout: .*greater than 0"),
        ({"name": "openai:x", "output": "tool"}, "model.output: expected"),
    ],
)
def test_what_is_wrong_with_a_model_is_told_with_its_place(given: Any, told: str) -> None:
    parsed = parse_configuration({"model": given, "expose": ["modules"]}, project=HERE)
    assert parsed.model is None
    assert parsed.expose == ("modules",)
    [line] = parsed.warnings
    assert re.search(told, line)
    assert line.endswith("The model is not used.")
    assert "secret1" not in line


def test_what_the_documents_let_people_copy_is_right() -> None:
    found = [
        json.loads(block)
        for name in ("minds.md", "configuration.md")
        for block in re.findall(
            r"^```json\n(.*?)^```$", (DOCS / name).read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
    ]
    models = [value for value in found if "model" in value]
    assert len(models) == 2
    for value in models:
        assert isinstance(parse_configuration(value, project=HERE).model, ModelConfiguration)


def test_the_option_names_a_model() -> None:
    assert read_model_option("anthropic:claude-sonnet-4-6").name == "anthropic:claude-sonnet-4-6"
    with pytest.raises(UsageError, match="--model: expected PROVIDER:MODEL"):
        read_model_option("claude")


def test_a_missing_package_is_told_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        return None

    monkeypatch.setattr(module, "find_spec", missing)
    for name, extra in (
        ("anthropic:x", "anthropic"),
        ("openai-chat:x", "openai"),
        ("mistral:x", "all-models"),
    ):
        with pytest.raises(ModelSetupError, match=rf"pip install 'ideabridge\[{extra}\]'"):
            Bridge(Configuration(model=name))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("openai:gpt-5-mini", "OPENAI_API_KEY"),
        ("nowhere:x", "Unknown provider: nowhere"),
        ("anthropic:claude-sonnet-4-6", "install"),
        (
            ModelConfiguration(name="openai:x", key_env="NOT_THERE"),
            "model.key_env: NOT_THERE is neither in the",
        ),
    ],
)
async def test_a_model_that_cannot_be_asked_is_told_by_the_run(
    model: str | ModelConfiguration, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    async with Bridge(Configuration(model=model)) as bridge:
        run = await bridge.solve("x")
        assert await run.wait(20) == "failed"
        assert told in str(run.answer()["errors"]) + str(run.answer().get("reason"))


KEY_ENV = ModelConfiguration(name="openai:x", key_env="NOT_THERE")


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (
            ModelConfiguration(name="openai:x"),
            (
                "OPENAI_API_KEY in the environment, or run `keyring set ideabridge OPENAI_API_KEY` "
                "if there is a keyring"
            ),
        ),
        (KEY_ENV, "model.key_env: NOT_THERE is neither in the environment nor in a keyring"),
    ],
)
def test_a_missing_key_is_told_with_why_there_is_no_keyring(
    model: ModelConfiguration, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    keyrings.without_backend(monkeypatch)
    with pytest.raises(ModelSetupError) as caught:
        module.ModelMind(model).check()

    assert str(caught.value).endswith(f"{told} (the package keyring has no backend on this system)")
    keyrings.installed(monkeypatch)
    with pytest.raises(ModelSetupError) as caught:
        module.ModelMind(model).check()

    assert str(caught.value).endswith(told)


def test_a_keyring_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    keyrings.installed(monkeypatch).failure = RuntimeError("Failed to unlock the collection!")
    with pytest.raises(
        ModelSetupError,
        match="the keyring cannot be read for NOT_THERE: Failed to unlock the collec",
    ):
        module.ModelMind(KEY_ENV).check()
    with monkeypatch.context() as patched:
        patched.setenv("NOT_THERE", "sk-0123456789abcdef")
        module.ModelMind(KEY_ENV).check()


def test_nothing_that_speaks_to_models_is_imported_before_one_is_asked() -> None:
    code = (
        "import sys\n"
        "from ideabridge.bridge import Bridge, Configuration\n"
        "import ideabridge.server.serve\n"
        "Bridge(Configuration(model='openai:gpt-5-mini'))\n"
        "print([name for name in ('pydantic_ai', 'openai', 'anthropic', "
        "'keyring') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("kind", "extra"), [("anthropic", "anthropic"), ("groq", "all-models")])
def test_a_package_that_pydantic_ai_misses_is_told_as_the_extra_that_brings_it(
    kind: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{kind.upper()}_API_KEY", "sk-0123456789abcdef")
    for name in (kind, f"pydantic_ai.providers.{kind}"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(
        ModelSetupError,
        match=rf"cannot be imported \(import of {kind} .*\); pip install 'ideabridge\[{extra}\]'",
    ):
        module.ModelMind(f"{kind}:tiny-1").check()
