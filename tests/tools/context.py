"""An ActivityContext for tests."""

from __future__ import annotations

from dataclasses import dataclass, field

from ideabridge.tools.encoding import JSON, JSONObject


@dataclass
class RecordingContext:
    """Keeps what an activity says."""

    call: JSONObject = field(default_factory=dict[str, JSON])
    instance: str | None = None
    output_paths: tuple[str, ...] = ()
    reports: list[tuple[float, float | None, str | None]] = field(
        default_factory=list[tuple[float, float | None, str | None]]
    )
    messages: list[JSONObject] = field(default_factory=list["JSONObject"])
    chosen: str | None = None

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        self.reports.append((progress, total, message))

    def add_message(self, message: JSONObject) -> None:
        self.messages.append(message)

    def choose(self, path: str) -> None:
        self.chosen = path
