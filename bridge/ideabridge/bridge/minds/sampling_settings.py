"""Sampling settings: what the client is told about the model that shall answer (DESIGN 5)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class SamplingSettings(BaseModel):
    """`sampling` in `ideabridge.json`: wishes, all of which a client may ignore."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    max_tokens: int = Field(default=16_384, ge=256, le=1_000_000, description="Tokens one answer may have.")
    models: tuple[str, ...] = Field(default=(), description="Names, or parts of names, of models; the best first.")
    temperature: float | None = Field(default=None, ge=0, le=2, description="Temperature; null: the client's.")
    cost_priority: float | None = Field(default=None, ge=0, le=1, description="How much a low price counts.")
    speed_priority: float | None = Field(default=None, ge=0, le=1, description="How much speed counts.")
    intelligence_priority: float | None = Field(default=None, ge=0, le=1, description="How much ability counts.")
