"""Edit: a call as a person changed it: other parameters, or another tool in its place.

Its values are literals. Where the result goes, and for which instance, stays as the call says.
"""

from __future__ import annotations

from dataclasses import dataclass

from ideabridge.bridge.context.reference import quoted
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import CallDecided
from ideabridge.bridge.loop.policy import Policy
from ideabridge.bridge.loop.progress import Item, Progress
from ideabridge.bridge.loop.readiness import Refusal
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.errors import IdeabridgeError, UnknownToolError
from ideabridge.tools.tool import ANONYMOUS, IDEA, META_PROPERTIES, Tool

_KEPT = ("_instance", "_outputPath", "_outputMethod", "_id", "_after", "_imports", "_output", "_activity")


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit that can run.

    Attributes:
        call: the call as it shall run.
        tool: the tool that runs in the place of the call's own; None: that stays.
    """

    call: JSONObject
    tool: Tool | None = None


def read_edit(progress: Progress, edited: JSONObject, catalogue: Catalogue, policy: Policy) -> Edit | Refusal:
    """A person's edit of a call that waits for a decision, checked; else why it cannot run.

    Args:
        progress: the call.
        edited: the resolved call as it shall run; without `_tool` that stays.
        catalogue: the tools the person may choose from.
        policy: of the run; what it denies nobody can approve.
    """
    own = progress.tool
    if own is None:
        return Refusal("the call has no tool")
    for key in _KEPT:
        if key in edited and edited[key] != progress.call.raw.get(key):
            return Refusal(f"{key}: an edit changes the parameters or the tool; leave {key} as it is, or out")
    tool = _wanted(own, edited, catalogue)
    if isinstance(tool, Refusal):
        return tool
    refusal = _parameters_problem(progress, edited, tool, catalogue)
    if refusal is not None:
        return refusal
    if tool.key == own.key:
        return Edit(edited)
    if progress.call.room is not None:
        return Refusal(
            f"{quoted(own.name)} opens a room, a run of its own: an edit keeps the tool; deny the call to have another"
            " one proposed"
        )
    if tool.key in catalogue.latent:
        return Refusal(f"tool {quoted(tool.name)} has no code: a mind writes its result, so it cannot run in a place")
    # The name of an activity is the old tool's.
    call: JSONObject = {key: value for key, value in edited.items() if key != "_activity"}
    verdict = policy(tool, call)
    if verdict.verdict == "deny":
        return Refusal(f"denied by policy: {verdict.why or 'no reason given'}")
    return Edit(call, tool)


def _wanted(own: Tool, edited: JSONObject, catalogue: Catalogue) -> Tool | Refusal:
    name = edited.get("_tool", own.name)
    stays = name in (own.name, own.remote_name)
    module = edited.get("_module", own.module if stays else None)
    if stays and module == own.module:
        return own
    if not isinstance(name, str) or not isinstance(module, str | None):
        return Refusal("_tool and _module: expected the name of a tool, and of a module or none")
    if module is not None and (module == ANONYMOUS or module.startswith(IDEA)):
        return Refusal(f"_module: {quoted(module)} opens a room, a run of its own, which cannot take a call's place")
    try:
        found = catalogue.find(name, module)
    except UnknownToolError as error:
        return Refusal(str(error))
    if found.in_room:
        return Refusal(f"_tool: {quoted(name)} opens a room, a run of its own, which cannot take a call's place")
    return found


def _parameters_problem(progress: Progress, edited: JSONObject, tool: Tool, catalogue: Catalogue) -> Refusal | None:
    each = edited.get("_each")
    if progress.call.has_each != ("_each" in edited):
        return Refusal("an edit keeps _each where the call has it, and has none where it has not")
    if progress.call.has_each and not (isinstance(each, list) and each and all(isinstance(one, dict) for one in each)):
        return Refusal(
            "_each: expected an array of objects, the parameters of one execution each; deny the call to run none"
        )
    for parameters in edited_parameters(edited):
        faults = catalogue.names(tool).faults(parameters)
        if faults:
            return Refusal("; ".join(faults.values()))
        try:
            catalogue.exact(tool).check(parameters)
        except IdeabridgeError as error:
            return Refusal(str(error))
    return None


def edited_parameters(edited: JSONObject) -> list[JSONObject]:
    """The parameters an edited call holds, one for each execution."""
    each = edited.get("_each")
    if isinstance(each, list):
        return [item for item in each if isinstance(item, dict)]
    return [{key: value for key, value in edited.items() if key not in META_PROPERTIES}]


def apply(progress: Progress, event: CallDecided) -> Tool | None:
    """What a decision changes of the call it is about; the tool that runs in its place, if another does."""
    if event.decision != "edit" or event.edited is None:
        return None
    # A room sees what its call imports, whatever its parameters are.
    imports = progress.items[0].imports
    progress.items = [Item(parameters, imports=imports) for parameters in edited_parameters(event.edited)]
    progress.replaced = Tool.from_json(event.tool) if event.tool is not None else None
    return progress.replaced
