"""Approval rules: what the configuration's key `approval` may hold (DESIGN 4.6). `loop.policy` applies them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ApprovalRule(BaseModel):
    """One rule of `approval`: it holds for a call where everything it names fits (DESIGN 4.6)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    module: str | None = Field(
        default=None, description='Modules: a name or a pattern with *, ? and [abc]; "": tools that are in no module.'
    )
    tool: str | None = Field(default=None, min_length=1, description="Tools: a name or a pattern.")
    read_only: bool | None = Field(default=None, description="Whether the tool says it is read-only.")
    destructive: bool | None = Field(default=None, description="false: it is read-only, or says it destroys nothing.")
    idempotent: bool | None = Field(default=None, description="true: it is read-only, or says it may be repeated.")
    open_world: bool | None = Field(default=None, description="false: it says it stays in a closed world.")
    then: Literal["allow", "ask", "deny"] = Field(description="What happens to such a call.")
    why: str | None = Field(default=None, max_length=500, description="What is told to whoever is asked or refused.")


class ApprovalRules(BaseModel):
    """Which calls run, ask a person, or are refused: the first rule that holds decides (DESIGN 4.6)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    default: Literal["ask", "allow", "deny", "read_only"] = Field(
        default="read_only", description="Where no rule holds; read_only: read-only calls run, all others ask."
    )
    rules: tuple[ApprovalRule, ...] = Field(default=(), max_length=1000, description="In this order.")
    by: Literal["person"] | None = Field(
        default=None,
        description="person: the assistant decides nothing, not even where its client shows no forms; a person does, in"
        " a form or at a terminal.",
    )
    timeout_seconds: float | None = Field(
        default=None, gt=0, le=365 * 86_400, description="A call nobody decided on in this time is denied."
    )
