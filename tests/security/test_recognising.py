"""Which values of an entry are secrets: what moves to the keyring, and what stays."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ideabridge.bridge.modules.errors import ModuleConfigurationError
from ideabridge.bridge.modules.settings import ModuleConfiguration, expand, secrets_named
from ideabridge.bridge.recognising import recognise_secrets
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSONObject

GITHUB = "ghp_" + "Zq8vK1mN4pR7tX2yB5cD9fG3hJ6kL0wQsTuV"
FINE = "github_pat_" + "11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ0123456789abcdefghij"
ANTHROPIC = "sk-ant-" + "api03-Zq8vK1mN4pR7tX2yB5cD9fG3hJ6kL0"
OPENAI = "sk-proj-" + "Zq8vK1mN4pR7tX2yB5cD9fG3hJ6kL0wQ"
OLD_OPENAI = "sk-" + "Zq8vK1mN4pR7tX2yB5cD9fG3hJ6kL0wQ"
SLACK = "xoxb-" + "1234567890-0987654321-Zq8vK1mN4pR7tX2y"
AWS_ID = "AKIA" + "Z7Q8VK1MN4PR7TX2"
AWS_KEY = "Jalr7UtnFEMI/K7MDENG/bPxRfiCYz" + "EXAMPLEKE0"
GITLAB = "glpat-" + "Zq8vK1mN4pR7tX2yB5cD"
GOOGLE = "AIza" + "SyZq8vK1mN4pR7tX2yB5cD9fG3hJ6kL0w"
JWT = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0.Zq8vK1mN4pR7tX2y"
NOTION = "ntn_" + "12345678901Zq8vK1mN4pR7tX2yB5cD9fG3h"
HEX = "9f86d081884c7d659a2feaa0c55ad015"
UUID = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
WORD = "Correct-Horse"
PASSWORD = "Tr0ub4dor"
PHRASE = "p@ss w0rd; & more"


@dataclass(frozen=True)
class Sample:
    """An entry as public documentation shows it, with other names and values.

    Attributes:
        entry: the entry.
        secrets: the secrets in it, each as often as it occurs.
    """

    entry: JSONObject
    secrets: tuple[str, ...] = ()


def local(*words: str, env: dict[str, str] | None = None, command: str = "npx") -> JSONObject:
    entry: JSONObject = {"command": command, "args": list(words)}
    return entry if env is None else {**entry, "env": dict(env)}


def remote(url: str, **headers: str) -> JSONObject:
    return {"url": url, "headers": {name.replace("_", "-"): text for name, text in headers.items()}}


def docker(*words: str, env: dict[str, str] | None = None) -> JSONObject:
    return local("run", "-i", "--rm", *words, command="docker", env=env)


SAMPLES: dict[str, Sample] = {
    # Variables with a name that says so.
    "env-token": Sample(
        local("-y", "pkg", env={"GITHUB_PERSONAL_ACCESS_TOKEN": GITHUB}), (GITHUB,)
    ),
    "env-fine-grained": Sample(local("pkg", env={"GH": FINE}), (FINE,)),
    "env-api-key": Sample(
        local("pkg", env={"SEARCH_API_KEY": "BSA" + "k1Zq8vK1mN"}), ("BSA" + "k1Zq8vK1mN",)
    ),
    "env-word": Sample(local("pkg", env={"DB_PASSWORD": WORD}), (WORD,)),
    "env-phrase": Sample(local("pkg", env={"SMTP_PASS": PHRASE}), (PHRASE,)),
    "env-aws": Sample(
        local(
            "pkg",
            env={
                "AWS_ACCESS_KEY_ID": AWS_ID,
                "AWS_SECRET_ACCESS_KEY": AWS_KEY,
                "AWS_REGION": "eu-west-1",
            },
        ),
        (AWS_ID, AWS_KEY),
    ),
    "env-slack": Sample(
        local("pkg", env={"SLACK_BOT_TOKEN": SLACK, "SLACK_TEAM_ID": "T0123456789"}), (SLACK,)
    ),
    "env-gitlab": Sample(
        local(
            "pkg", env={"GITLAB_TOKEN": GITLAB, "GITLAB_API_URL": "https://gitlab.example/api/v4"}
        ),
        (GITLAB,),
    ),
    "env-google": Sample(local("pkg", env={"MAPS": GOOGLE}), (GOOGLE,)),
    "env-anthropic": Sample(
        local("pkg", env={"MODEL_KEY": ANTHROPIC, "MODEL": "sonnet-4-5-20250929"}), (ANTHROPIC,)
    ),
    "env-openai": Sample(
        local("pkg", env={"KEY": OPENAI, "OTHER": OLD_OPENAI}), (OPENAI, OLD_OPENAI)
    ),
    "env-jwt": Sample(local("pkg", env={"SUPABASE_ANON": JWT}), (JWT,)),
    "env-random": Sample(local("pkg", env={"ACCOUNT": HEX}), (HEX,)),
    "env-url": Sample(
        local(
            "pkg",
            env={"DATABASE_URL": f"postgres://app:{WORD}@db.example:5432/shop?sslmode=require"},
        ),
        (WORD,),
    ),
    "env-redis": Sample(
        local("pkg", env={"REDIS_URL": f"redis://:{WORD}@cache.example:6379/0"}), (WORD,)
    ),
    "env-mongo": Sample(
        local(
            "pkg",
            env={"MDB_CONNECTION": f"mongodb+srv://app:{WORD}@cluster.example/?retryWrites=true"},
        ),
        (WORD,),
    ),
    "env-json": Sample(
        local(
            "pkg",
            env={
                "OPENAPI_HEADERS": json.dumps(
                    {"Authorization": f"Bearer {NOTION}", "Version": "2022-06-28"}
                )
            },
        ),
        (NOTION,),
    ),
    "env-user": Sample(
        local(
            "pkg",
            env={
                "JIRA_USERNAME": "ann@shop.example",
                "JIRA_API_TOKEN": WORD,
                "JIRA_URL": "https://shop.atlassian.example",
            },
        ),
        (WORD,),
    ),
    "env-cookie": Sample(local("pkg", env={"SESSION_TOKEN": f"sid-{HEX}"}), (f"sid-{HEX}",)),
    "env-client": Sample(
        local("pkg", env={"CLIENT_ID": "shop-desktop", "CLIENT_SECRET": WORD, "TENANT_ID": UUID}),
        (WORD,),
    ),
    # Variables that are not secrets.
    "env-settings": Sample(
        local(
            "pkg",
            env={
                "MODEL": "gpt-4o-mini-2024-07-18",
                "MAX_TOKENS": "4096",
                "AUTH_TYPE": "basic",
                "AUTH": "oauth",
                "TOKENIZER": "cl100k_base",
                "LOG_LEVEL": "debug",
                "NODE_ENV": "production",
                "PORT": "8080",
            },
        )
    ),
    "env-authors": Sample(
        local("pkg", env={"GIT_AUTHOR_NAME": "Ann Example", "GIT_AUTHOR_EMAIL": "ann@shop.example"})
    ),
    "env-paths": Sample(
        local(
            "pkg",
            env={
                "GOOGLE_APPLICATION_CREDENTIALS": "/home/ann/key.json",
                "SSH_KEY_PATH": "~/.ssh/id",
                "TOKEN_FILE": "./token.txt",
            },
        )
    ),
    "env-names": Sample(
        local(
            "pkg",
            env={
                "SECRET_NAME": "prod/db",
                "TOKEN_URL": "https://login.example/oauth2/token",
                "KEY_PREFIX": "shop",
                "COOKIE_NAME": "session-id",
            },
        )
    ),
    "env-ids": Sample(
        local(
            "pkg",
            env={
                "PROJECT_ID": UUID,
                "COMMIT_SHA": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
                "BUILD": "2026.11.29-rc1",
                "BUCKET": "shop-assets-eu-west-1",
            },
        )
    ),
    "env-switches": Sample(
        local(
            "pkg",
            env={
                "PASSWORD_REQUIRED": "false",
                "ALLOW_TOKEN": "true",
                "API_KEY_ENABLED": "yes",
                "TOKEN_TTL": "3600",
                "PRIVATE": "repos",
            },
        )
    ),
    "env-variables": Sample(
        local(
            "pkg",
            env={
                "TOKEN": "${GITHUB_TOKEN}",
                "KEY": "${API_KEY:-}",
                "A_SECRET": "$SHOP",
                "B_SECRET": "%SHOP%",
                "C_TOKEN": "op://vault/item/field",
            },
        )
    ),
    "env-placeholders": Sample(
        local(
            "pkg",
            env={
                "API_KEY": "YOUR_API_KEY",
                "TOKEN": "<your-token>",
                "B_TOKEN": "your-token-here",
                "C_KEY": "sk-...",
                "D_SECRET": "xxxxxxxx",
                "E_PASSWORD": "changeme",
            },
        )
    ),
    "env-public": Sample(local("pkg", env={"PUBLIC_KEY": "shop-public-key-of-2026-and-later"})),
    "env-stored": Sample(local("pkg", env={"TOKEN": "${secret:shop-token}"})),
    # Headers.
    "header-bearer": Sample(
        remote("https://mcp.example/mcp", Authorization=f"Bearer {WORD}"), (WORD,)
    ),
    "header-basic": Sample(
        remote("https://mcp.example/mcp", Authorization="Basic YW5uOnBhc3N3b3Jk"),
        ("YW5uOnBhc3N3b3Jk",),
    ),
    "header-key": Sample(
        remote("https://mcp.example/mcp", X_API_Key=WORD, CONTEXT7_API_KEY=HEX), (WORD, HEX)
    ),
    "header-bare": Sample(remote("https://mcp.example/mcp", Authorization=GITHUB), (GITHUB,)),
    "header-cookie": Sample(
        remote("https://mcp.example/mcp", Cookie=f"sid={HEX}"), (f"sid={HEX}",)
    ),
    "header-settings": Sample(
        remote(
            "https://mcp.example/mcp",
            X_MCP_Toolsets="repos,issues",
            X_MCP_Readonly="true",
            X_Tenant="acme",
            Accept="application/json",
            X_Region="eu-west-1",
        )
    ),
    "header-variable": Sample(remote("https://mcp.example/mcp", Authorization="Bearer ${TOKEN}")),
    "header-placeholder": Sample(remote("https://mcp.example/mcp", Authorization="Bearer <token>")),
    # Addresses.
    "url-user": Sample({"url": f"https://ann:{WORD}@mcp.example/mcp"}, (WORD,)),
    "url-token-user": Sample({"url": f"https://{GITHUB}@mcp.example/mcp"}, (GITHUB,)),
    "url-query": Sample(
        {"url": f"https://mcp.example/mcp/?searchApiKey={WORD}&lang=en&page=2"}, (WORD,)
    ),
    "url-query-key": Sample({"url": f"https://mcp.example/sse?api_key={HEX}"}, (HEX,)),
    "url-path": Sample({"url": f"https://actions.example/mcp/s/{HEX}/mcp"}, (HEX,)),
    "url-plain": Sample(
        {"url": "https://mcp.example/v1/projects/shop-2026/mcp?region=eu&version=2026-07-28"}
    ),
    "url-user-name": Sample({"url": "https://git@mcp.example/mcp"}),
    "url-password-placeholder": Sample(local("pkg", "postgres://user:password@localhost/shop")),
    # Arguments.
    "arg-option": Sample(local("-y", "pkg", "--api-key", WORD, "--region", "eu"), (WORD,)),
    "arg-equals": Sample(local("-y", "pkg", f"--api-key={WORD}", "--verbose"), (WORD,)),
    "arg-access-token": Sample(
        local("-y", "pkg@latest", "--access-token", "sbp_" + HEX), ("sbp_" + HEX,)
    ),
    "arg-k": Sample(local("pkg", "-k", HEX), (HEX,)),
    "arg-k-switch": Sample(local("pkg", "-k", "insecure-mode")),
    "arg-header": Sample(
        local(
            "mcp-remote", "https://mcp.example/sse", "--header", f"Authorization: Bearer {NOTION}"
        ),
        (NOTION,),
    ),
    "arg-header-short": Sample(local("pkg", "-H", f"X-Api-Key: {HEX}"), (HEX,)),
    "arg-header-variable": Sample(
        local("mcp-remote", "https://mcp.example/sse", "--header", "Authorization:${AUTH_HEADER}")
    ),
    "arg-database": Sample(
        local("-y", "server-postgres", f"postgresql://app:{WORD}@db.example/shop"), (WORD,)
    ),
    "arg-json": Sample(
        local("-y", "cli", "run", "pkg", "--config", json.dumps({"apiKey": WORD, "debug": False})),
        (WORD,),
    ),
    "arg-json-inner": Sample(
        local("pkg", "--config", json.dumps(json.dumps({"githubToken": GITHUB, "user": "ann"}))),
        (GITHUB,),
    ),
    "arg-key-option": Sample(
        local("-y", "cli@latest", "run", "@shop/pkg", "--key", UUID, "--profile", "shop-profile-2"),
        (UUID,),
    ),
    "arg-bare": Sample(local("-y", "pkg", FINE), (FINE,)),
    "arg-package": Sample(
        local(
            "-y",
            "@shop/key-vault-mcp@1.2.3",
            "secret-scanner-2",
            "token-counter",
            "--max-tokens",
            "100000",
        )
    ),
    "arg-paths": Sample(
        local("-y", "pkg", "/home/ann/projects/shop-2026", "./data/keys-2026.db", command="npx")
    ),
    "arg-python": Sample(
        local(
            "--from",
            "git+https://git.example/shop/mcp-server@9f86d081884c7d659a2feaa0c55ad015",
            "mcp-server",
            command="uvx",
        )
    ),
    # docker.
    "docker-env": Sample(
        docker("-e", f"GITHUB_TOKEN={GITHUB}", "ghcr.example/shop/mcp"), (GITHUB,)
    ),
    "docker-env-long": Sample(
        docker("--env", f"API_KEY={WORD}", "--env=TOKEN=" + HEX, "shop/mcp"), (WORD, HEX)
    ),
    "docker-env-passed": Sample(
        docker("-e", "GITHUB_TOKEN", "shop/mcp", env={"GITHUB_TOKEN": GITHUB}), (GITHUB,)
    ),
    "docker-plain": Sample(
        docker(
            "-e",
            "TRANSPORT=stdio",
            "-v",
            "/home/ann/shop:/data",
            f"shop/mcp@sha256:{HEX}{HEX}",
            "--mount",
            "type=bind,src=/a,dst=/b",
        )
    ),
    # Signing in.
    "auth": Sample(
        {
            "url": "https://mcp.example/mcp",
            "auth": {"client_id": "shop", "client_secret": WORD, "issuer": "https://login.example"},
        },
        (WORD,),
    ),
    # What else is in an entry.
    "other": Sample(
        {
            "command": "uvx",
            "args": ["pkg"],
            "cwd": "/home/ann",
            "timeout": 60,
            "allow": ["get_token", "list_secrets"],
            "disabled": True,
        }
    ),
    # These entries were written after the rules.
    "more-brave": Sample(
        local("-y", "@mcp/brave", env={"BRAVE_API_KEY": "BSAdJ3kq0_zYx8wVu7tSr6qPo"}),
        ("BSAdJ3kq0_zYx8wVu7tSr6qPo",),
    ),
    "more-figma": Sample(
        local("-y", "figma-mcp", "--figma-api-key=figd_Zq8vK1mN-4pR7tX2yB5cD", "--stdio"),
        ("figd_Zq8vK1mN-4pR7tX2yB5cD",),
    ),
    "more-stripe": Sample(
        local("-y", "@stripe/mcp", "--tools=all", "--api-key=sk_test_51Zq8vK1mN4pR7tX2yB5"),
        ("sk_test_51Zq8vK1mN4pR7tX2yB5",),
    ),
    "more-supabase": Sample(
        local("-y", "@sb/mcp@latest", "--project-ref=zqkvmnprtxybcdfghjkl", "--access-token", JWT),
        (JWT,),
    ),
    "more-sentry": Sample(local("mcp", "--auth-token", HEX, command="uvx"), (HEX,)),
    "more-dsn": Sample(
        local("pkg", env={"SENTRY_DSN": f"https://{HEX}@o123.ingest.example/456"}), (HEX,)
    ),
    "more-mysql": Sample(
        local(
            "pkg",
            env={
                "MYSQL_HOST": "db.example",
                "MYSQL_PORT": "3306",
                "MYSQL_USER": "root",
                "MYSQL_PASSWORD": "s3cr3t!",
                "MYSQL_DATABASE": "shop",
            },
        ),
        ("s3cr3t!",),
    ),
    "more-mssql": Sample(
        local(
            "pkg",
            env={
                "CONN": "Server=db.example;Database=shop;User Id=sa;Password=Str0ng!Pw;Encrypt=true"
            },
        ),
        ("Str0ng!Pw",),
    ),
    "more-pg-kv": Sample(
        local("pkg", "host=db.example user=app password=Tr0ub4dor dbname=shop"), ("Tr0ub4dor",)
    ),
    "more-telegram": Sample(
        local("pkg", env={"TELEGRAM_BOT_TOKEN": "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"}),
        ("123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",),
    ),
    "more-discord": Sample(
        local(
            "pkg",
            env={"DISCORD": "MTE4NzY1NDMyMTA5ODc2NTQzMg.GaBcDe.Zq8vK1mN4pR7tX2yB5cD9fG3hJ6kL0w"},
        ),
        ("MTE4NzY1NDMyMTA5ODc2NTQzMg.GaBcDe.Zq8vK1mN4pR7tX2yB5cD9fG3hJ6kL0w",),
    ),
    "more-linear": Sample(
        remote(
            "https://mcp.linear.example/sse",
            Authorization="Bearer lin_api_Zq8vK1mN4pR7tX2yB5cD9fG3",
        ),
        ("lin_api_Zq8vK1mN4pR7tX2yB5cD9fG3",),
    ),
    "more-hf": Sample(
        local("pkg", "--hf-token", "hf_Zq8vKmNpRtXyBcDfGhJkLwQsTuV0"),
        ("hf_Zq8vKmNpRtXyBcDfGhJkLwQsTuV0",),
    ),
    "more-airtable": Sample(
        local("-y", "airtable-mcp", "patZq8vK1mN4pR7tX.9f86d081884c7d659a2feaa0c55ad015"),
        ("patZq8vK1mN4pR7tX.9f86d081884c7d659a2feaa0c55ad015",),
    ),
    "more-notion-old": Sample(
        local("pkg", env={"NOTION_API_KEY": "secret_Zq8vK1mN4pR7tX2yB5cD9fG3hJ6kL0wQsTuV"}),
        ("secret_Zq8vK1mN4pR7tX2yB5cD9fG3hJ6kL0wQsTuV",),
    ),
    "more-tavily": Sample(
        {"url": "https://mcp.tavily.example/mcp/?tavilyApiKey=tvly-Zq8vK1mN4pR7"},
        ("tvly-Zq8vK1mN4pR7",),
    ),
    "more-env-docker-file": Sample(
        docker(
            "--env-file", "/home/ann/.env", "-e", "TZ=Europe/Berlin", "-p", "8080:8080", "mcp/time"
        )
    ),
    "more-k8s": Sample(
        local(
            "mcp",
            "--kubeconfig",
            "/home/ann/.kube/config",
            "--context",
            "prod-eu-1",
            "--read-only",
            command="uvx",
        )
    ),
    "more-playwright": Sample(
        local(
            "-y",
            "@playwright/mcp@latest",
            "--browser",
            "chrome",
            "--user-data-dir",
            "/tmp/p-1",
            "--viewport-size",
            "1280,720",
            "--secrets",
            "secrets.env",
        )
    ),
    "more-fs": Sample(
        local("-y", "@mcp/filesystem", "/Users/ann/Desktop", "/Users/ann/key-notes-2026")
    ),
    "more-time": Sample(local("mcp-server-time", "--local-timezone=Europe/Berlin", command="uvx")),
    "more-git": Sample(
        local(
            "--directory",
            "/home/ann/git-2026",
            "run",
            "server.py",
            "--token-budget",
            "5000",
            command="uv",
        )
    ),
    "more-azure": Sample(
        local(
            "-y",
            "@azure/mcp",
            "server",
            "start",
            env={
                "AZURE_TENANT_ID": UUID,
                "AZURE_CLIENT_ID": UUID,
                "AZURE_CLIENT_SECRET": "8Q~Zq8vK1mN4pR7tX2yB5cD9fG3",
            },
        ),
        ("8Q~Zq8vK1mN4pR7tX2yB5cD9fG3",),
    ),
    "more-obs": Sample(
        local(
            "pkg",
            env={
                "OBSIDIAN_API_KEY": HEX + HEX,
                "OBSIDIAN_HOST": "127.0.0.1",
                "OBSIDIAN_PORT": "27124",
            },
        ),
        (HEX + HEX,),
    ),
    "more-atl": Sample(
        docker(
            "-e",
            "CONFLUENCE_URL=https://shop.atlassian.example/wiki",
            "-e",
            "CONFLUENCE_USERNAME=ann@shop.example",
            "-e",
            "CONFLUENCE_API_TOKEN=ATATT3xFfGF0Zq8vK1mN",
            "mcp-atlassian",
        ),
        ("ATATT3xFfGF0Zq8vK1mN",),
    ),
    "more-feature": Sample(
        local(
            "pkg",
            env={
                "ENABLE_TOKEN_COUNT": "true",
                "SESSION_TIMEOUT": "3600",
                "KEYBOARD_LAYOUT": "de-DE-nodeadkeys-1",
                "PASSWORDLESS": "yes",
                "CACHE_KEY_PREFIX": "shop-v2",
                "AUTH_METHOD": "device_code",
                "OAUTH_SCOPES": "read:user repo",
            },
        )
    ),
    "more-emb": Sample(
        local(
            "pkg",
            env={
                "EMBEDDING_MODEL": "sentence-transformers/all-MiniLM-L6-v2",
                "QDRANT_URL": "http://localhost:6333",
                "COLLECTION_NAME": "shop_2026_docs_v12345",
                "QDRANT_API_KEY": "",
            },
        )
    ),
    "more-hdr-misc": Sample(
        remote(
            "https://mcp.example",
            X_Goog_User_Project="shop-prod-2026",
            X_Atlassian_Cloud_Id=UUID,
            User_Agent="mcp/1.0",
            Authorization="Bearer xoxp-1234567890-Zq8vK1mN4p",
        ),
        ("xoxp-1234567890-Zq8vK1mN4p",),
    ),
    "more-java": Sample(
        local(
            "-jar",
            "/opt/mcp/server-1.2.3.jar",
            "--spring.datasource.password=Tr0ub4dor",
            command="java",
        ),
        ("Tr0ub4dor",),
    ),
    "more-mac": Sample(
        {
            "command": "/usr/local/bin/node",
            "args": ["/Users/ann/dev/mcp/build/index.js"],
            "env": {
                "API_BASE": "https://api.example/v2",
                "WORKSPACE": "ws_2026_main",
                "PASSPHRASE": "correct horse battery staple",
            },
        },
        ("correct horse battery staple",),
    ),
}

FALSE = {name for name, sample in SAMPLES.items() if not sample.secrets}


@pytest.mark.parametrize("name", SAMPLES)
def test_an_entry_has_these_secrets_and_no_others(name: str) -> None:
    sample = SAMPLES[name]
    recognised = recognise_secrets("shop", sample.entry)
    assert sorted(place.value for place in recognised.places) == sorted(sample.secrets)
    assert recognised.left == ()
    text = json.dumps(recognised.entry)
    assert [value for value in sample.secrets if value in text] == []
    assert all(value not in repr(recognised) for value in sample.secrets)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_values_in_their_places_give_the_entry_again(name: str) -> None:
    entry = SAMPLES[name].entry
    recognised = recognise_secrets("shop", entry)
    text = json.dumps(recognised.entry)
    for secret, value in recognised.values.items():
        text = text.replace(f"${{secret:{secret}}}", json.dumps(value)[1:-1])
    assert json.loads(text) == entry


def test_there_are_samples_of_both_kinds() -> None:
    assert len(SAMPLES) >= 60
    assert len(FALSE) >= 20


def test_names_begin_with_the_server_and_say_the_field() -> None:
    entry = local(
        "pkg",
        "--api-key",
        WORD,
        f"postgres://app:{PASSWORD}@db.example/shop",
        GITHUB,
        env={"SHOP_TOKEN": HEX, "dbPassword": WORD, "X": "a${HOME}b"},
    )
    places = recognise_secrets("Shop (test)", entry).places
    assert [(place.place, place.name, place.evidence) for place in places] == [
        ("args.2", "shop-test-api-key", "name"),
        ("args.3", "shop-test-password", "address"),
        ("args.4", "shop-test-token", "form"),
        ("env.SHOP_TOKEN", "shop-test-shop-token", "name"),
        ("env.dbPassword", "shop-test-api-key", "name"),
    ]
    assert [place.name for place in recognise_secrets("shop", entry).places][3] == "shop-token-2"
    assert recognise_secrets("ü", entry).places[0].name == "api-key"


def test_what_a_person_says_about_a_value_counts() -> None:
    env = {"SORT_KEY": "created_at", "TENANT": "acme", "REGION": "eu", "OF": "${HOME}/x"}
    entry = local("pkg", env=env)
    assert list(recognise_secrets("shop", entry).values) == ["shop-sort-key"]
    chosen = {"env.SORT_KEY": False, "env.TENANT": True, "env.OF": True, "env.NONE": True}
    recognised = recognise_secrets("shop", entry, chosen=chosen)
    assert recognised.values == {"shop-tenant": "acme"}
    assert [place.why for place in recognised.places] == ["you chose it"]
    assert recognised.entry["env"] == {**env, "TENANT": "${secret:shop-tenant}"}

    header = remote("https://mcp.example/mcp", X_Org="acme")
    recognised = recognise_secrets("shop", header, chosen={"headers.X-Org": True})
    assert recognised.entry["headers"] == {"X-Org": "${secret:shop-x-org}"}


def test_the_word_before_a_token_stays() -> None:
    entry = remote("https://mcp.example/mcp", Authorization=f"Bearer {WORD}")
    assert recognise_secrets("shop", entry).entry["headers"] == {
        "Authorization": "Bearer ${secret:shop-authorization}"
    }


@pytest.mark.parametrize(
    ("entry", "left"),
    [
        (local("pkg", "--password", PHRASE), ("args.2",)),
        (local("pkg", "--config", json.dumps({"password": 'quo"ted-9'})), ("args.2",)),
        ({"command": "sh", "args": ["-c", "run $API_TOKEN"], "env": {"API_TOKEN": "a; evil"}}, ()),
    ],
)
def test_what_may_be_executed_or_needs_escapes_stays_and_is_named(
    entry: JSONObject, left: tuple[str, ...]
) -> None:
    recognised = recognise_secrets("shop", entry)
    assert recognised.entry == entry
    assert recognised.places == ()
    assert recognised.left == left


def test_a_text_that_looks_like_a_mark_is_nothing_special() -> None:
    entry = local("•••0•••", "--token", f"•••{WORD}•••", env={"A_TOKEN": WORD, "B": "•••"})
    recognised = recognise_secrets("shop", entry)
    assert recognised.values.get("shop-a-token") == WORD
    assert recognised.entry["args"] == entry["args"]


VALUES = st.sampled_from([GITHUB, OPENAI, HEX, WORD, PHRASE, JWT, UUID, "x", "", 'a"b\\c-12345'])
TEMPLATES = st.sampled_from(
    [
        "{}",
        "--token={}",
        "Bearer {}",
        "https://u:{}@e.example/p?api_key={}",
        "X-Api-Key: {}",
        "TOKEN={} ${{HOME}} {}",
        "{} $${{literal}}",
        "host=h password='{}' user=u",
    ]
)


def filled_in(template: str, value: str) -> str:
    return template.replace("{}", value)


TEXTS = st.builds(filled_in, TEMPLATES, VALUES)
NAMES = st.sampled_from(["TOKEN", "Authorization", "PLAIN", "auth", "DB_PASS", "MODEL", "X-Any"])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXTS, max_size=5), st.dictionaries(NAMES, TEXTS), st.sampled_from(["npx", "sh"]))
def test_a_filled_entry_is_the_original(
    words: list[str], env: dict[str, str], command: str
) -> None:
    """The secrets in their places give the entry again, as a server gets it."""
    entry = local(*words, env=env, command=command)
    recognised = recognise_secrets("shop", entry)
    before = ModuleConfiguration.model_validate_json(json.dumps(entry))
    after = ModuleConfiguration.model_validate_json(json.dumps(recognised.entry))
    assert set(secrets_named(after)) == set(recognised.values)

    def launched(configuration: ModuleConfiguration) -> object:
        return _filled(configuration, recognised.values)

    assert launched(after) == launched(before)


def _filled(configuration: ModuleConfiguration, values: dict[str, str]) -> object:
    try:
        return expand("shop", configuration, Path("/base"), None, Secrets(), stored=values)
    except ModuleConfigurationError as error:
        return re.sub(r"\$\{secret:[^}]*\}", "", str(error))
