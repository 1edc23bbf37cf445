"""Hindrance: why a run cannot go on under the configuration there is (DESIGN 7)."""

from __future__ import annotations

from ideabridge.bridge.loop.executor import Executor
from ideabridge.bridge.loop.machine import Machine


def hindrance(machine: Machine, executor: Executor, made_under: str, fingerprint: str) -> str | None:
    """Why a run that was read from its journal cannot go on; None: it can.

    Args:
        machine: the folded machine.
        executor: would run its calls.
        made_under: fingerprint of the configuration the run was made under.
        fingerprint: of the configuration there is.
    """
    latent = machine.catalogue.latent
    named = [tool for tool in machine.catalogue.tools if tool.key not in latent]
    # What a person put in the place of a call is needed until it has run.
    named += [one.replaced for one in machine.history if one.replaced is not None and not one.settled]
    messages = (one.value for one in machine.messages if one.type == "tool")
    defined = {str(one.get("name")) for one in messages if isinstance(one, dict)}
    began = {id(tool) for tool in machine.initial_catalogue.tools}
    for tool in named:
        if tool.module is None and not executor.has(tool):
            return f"its tool {tool.name!r} is not here; was a file of tools left out?"
        if tool.module is None and id(tool) in began and tool.name not in defined:
            # What a context or a handler defines is not what the files of tools have under its name.
            different = executor.difference(tool)
            if different is not None:
                return f"its tool {tool.name!r} has changed since it was started: {different}"
    if made_under != fingerprint:
        return (
            "the configuration has changed since it was started (--tools and --allow-all are part of it), "
            "or the run belongs to another project"
        )
    return None
