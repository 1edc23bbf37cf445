"""The limits on what one run can use, as the configuration contains them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """The limits of one run."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    parallel_calls: int = Field(
        default=16, ge=1, le=10_000, description="How many calls in one run can run at once."
    )
    calls: int = Field(
        default=10_000, ge=1, le=1_000_000, description=("How many calls one run can make.")
    )
    requests: int = Field(
        default=50, ge=1, le=100_000, description="How many Requests one run can make."
    )
    tokens: int | None = Field(
        default=None,
        ge=1,
        description=("How many tokens the minds of one run can use; null: any number."),
    )
    cost: float | None = Field(
        default=None,
        gt=0,
        description=("How many US dollars the minds of one run can spend; null: any amount."),
    )
    wall_seconds: float = Field(
        default=3600, gt=0, le=30 * 86_400, description="How many seconds one run can take."
    )
    result_bytes: int = Field(
        default=8 * 1024 * 1024,
        ge=1024,
        le=512 * 1024 * 1024,
        description="How many bytes of JSON one result can have.",
    )
    run_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=1024,
        le=64 * 1024 * 1024 * 1024,
        description=(
            "How many bytes of JSON all results of one run can have, including results of its "
            "rooms."
        ),
    )
