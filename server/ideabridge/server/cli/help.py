"""Help: what `--help` prints: plain text, wrapped to the terminal, with examples."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from ideabridge.server.cli.examples import EXAMPLES

_MOST: Final = 100
"""Longer lines are hard to read."""

_WIDEST: Final = 26
"""A longer name stands in a line of its own."""

_SHARED: Final = ("config", "project", "store", "tools", "allow_all", "json", "help")
"""What many commands take; listed after a command's own options."""

_REWORDED: Final = {
    "install_completion": "Install completion for the shell you are in (bash, zsh, fish or PowerShell).",
    "show_completion": "Print the completion script of the shell you are in, to install it yourself.",
    "help": "Show this help.",
}

_Row = tuple[str, str]


class Command(TyperCommand):
    """A command whose help is plain text."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(_help(self, ctx))


class Group(TyperGroup):
    """A group of commands whose help is plain text."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(_help(self, ctx))


def use_plain_help(app: typer.Typer) -> None:
    """Give the application, and every command in it, this help."""
    app.info.cls = Group
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        group.cls = Group
        if group.typer_instance is not None:
            use_plain_help(group.typer_instance)


def _help(command: Any, ctx: Any) -> str:
    width = max(40, min(shutil.get_terminal_size((80, 24)).columns, _MOST))
    commands: dict[str, Any] = getattr(command, "commands", {})
    shown = [one for one in command.get_params(ctx) if not getattr(one, "hidden", False)]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    options = [one for one in shown if one.param_type_name == "option"]
    words = [ctx.command_path, *map(_place, arguments), "[OPTIONS]", *(["COMMAND ..."] if commands else [])]
    parts = [_wrapped(f"Usage: {' '.join(words)}", width, "       ")]
    parts += [_wrapped(" ".join(text.split()), width) for text in (command.help or "").split("\n\n") if text.strip()]
    examples = EXAMPLES.get(ctx.command_path.partition(" ")[2], ())
    if examples:
        parts.append("\n".join(["Examples:", *(f"  {line}" for line in examples)]))
    parts += _section("Arguments:", [(_named(one), _said(one)) for one in arguments], width)
    parts += _section("Commands:", [(name, _first(one)) for name, one in commands.items()], width)
    own = [one for one in options if one.name not in _SHARED]
    shared = sorted((one for one in options if one.name in _SHARED), key=lambda one: _SHARED.index(one.name))
    if not commands or len(own) + len(shared) > 1:
        parts += _section("Options:", [_option(one) for one in own], width)
    title = "Options:" if len(shared) == 1 else "Shared options:"
    if commands and own:
        title = "Shared options, before or after the command:"
    parts += _section(title, [_option(one) for one in shared], width)
    if command.epilog:
        parts.append(_wrapped(command.epilog, width))
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(title: str, rows: Sequence[_Row], width: int) -> list[str]:
    if not rows:
        return []
    lines = [title]
    indent = 2 + min(_WIDEST, max(len(name) + 2 for name, _ in rows))
    for name, text in rows:
        start = f"  {name}"
        if len(start) > indent - 2:
            lines.append(start)
            start = ""
        wrapped = textwrap.wrap(text, width - indent, break_on_hyphens=False, break_long_words=False) or [""]
        lines.append(f"{start:<{indent}}{wrapped[0]}".rstrip())
        lines += [" " * indent + line for line in wrapped[1:]]
    return ["\n".join(lines)]


def _wrapped(text: str, width: int, indent: str = "") -> str:
    return textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def _named(argument: Any) -> str:
    """What an argument is called: its metavar without the signs for optional and repeated."""
    return str(argument.metavar or argument.name.upper()).strip("[]").removesuffix("...").rstrip("]")


def _place(argument: Any) -> str:
    """An argument in the usage line."""
    name = _named(argument)
    repeated = "..." if argument.nargs == -1 else ""
    return f"{name}{repeated}" if argument.required else f"[{name}{repeated}]"


def _option(option: Any) -> _Row:
    """An option with its value, and what it does."""
    short = [name for name in option.opts if not name.startswith("--")]
    long = [name for name in option.opts if name.startswith("--")]
    names = ", ".join([*short, " / ".join([*long, *option.secondary_opts])])
    value = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    return f"{names if short else f'    {names}'}{value}", _said(option)


def _said(parameter: Any) -> str:
    text = _REWORDED.get(parameter.name, parameter.help or "")
    default = getattr(parameter, "default", None)
    if isinstance(default, str | int) and not isinstance(default, bool) and "Default" not in text:
        text += f" Default: {default}."
    if parameter.required and parameter.param_type_name == "option":
        text += " Required."
    return text.strip()


def _first(command: Any) -> str:
    """The first sentence of a command's help."""
    text = " ".join((command.help or "").split("\n\n")[0].split())
    return text.partition(". ")[0].rstrip(".")
