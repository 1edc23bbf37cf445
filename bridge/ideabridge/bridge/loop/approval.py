"""Approval: whether a call whose references are resolved runs, is denied, or is put before a person."""

from __future__ import annotations

from dataclasses import dataclass

from ideabridge.bridge.loop.call import ErrorKind
from ideabridge.bridge.loop.effect import AskApproval
from ideabridge.bridge.loop.event import CallDecided
from ideabridge.bridge.loop.policy import Policy
from ideabridge.bridge.loop.progress import Progress
from ideabridge.bridge.loop.readiness import MOST_RESOLVED, Refusal, digest_of, resolved_call
from ideabridge.tools.encoding import JSONObject


@dataclass(frozen=True, slots=True)
class Denial:
    """The call does not run."""

    kind: ErrorKind
    message: str


def judged(policy: Policy, progress: Progress) -> AskApproval | Denial | None:
    """What a policy comes to for a call; None: it runs."""
    call, tool = progress.call, progress.tool
    if call.has_latent or tool is None or (call.room is not None and tool.module is None):
        # Only a mind is asked.
        return None
    resolved = resolved_call(progress)
    verdict = policy(tool, resolved)
    if verdict.verdict == "allow":
        return None
    if verdict.verdict == "deny":
        return Denial("denied", f"denied by policy: {verdict.why or 'no reason given'}")
    # All items together are what a person decides about.
    size = sum(item.size for item in progress.items)
    if size > MOST_RESOLVED:
        why = f"it would have {size:,} bytes with what it refers to; at most {MOST_RESOLVED:,} are put before a person"
        return Denial("runtime", f"not run: {why}")
    digest = digest_of(resolved)
    if isinstance(digest, Refusal):
        return Denial("runtime", f"not run: {digest.message}")
    return AskApproval(call, f"a{call.index}-{digest[:12]}", digest, resolved, verdict.why)


def correction(proposed: JSONObject, event: CallDecided) -> JSONObject | None:
    """What a mind is told of a decision: `{"proposed", "ran", "by", "reason"}`; None where it runs as proposed."""
    if event.decision == "approve" or (event.decision == "edit" and event.edited is None):
        return None
    ran = event.edited if event.decision == "edit" else None
    return {"proposed": proposed, "ran": ran, "by": str(event.by), "reason": event.reason}
