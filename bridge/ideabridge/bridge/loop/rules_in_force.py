"""The approval settings of a process, including earlier ones, in case its configuration changes."""

from __future__ import annotations

from collections.abc import Callable

from ideabridge.bridge.loop.policy import ApprovalSetting, strictest_of


class RulesInForce:
    """The approval settings of a process, each with the time at which it took effect.

    An assistant might have changed the configuration. A client that is already connected therefore
    does not benefit from looser rules: each of its calls gets the strictest verdict of all settings
    that have been in force since the client connected.

    Args:
        setting: the setting at the start of the process.
        now: returns the current time, from a monotonic clock.
    """

    def __init__(self, setting: ApprovalSetting, now: Callable[[], float]) -> None:
        self._now = now
        self._settings: list[tuple[float, ApprovalSetting]] = [(now(), setting)]

    def change(self, setting: ApprovalSetting) -> None:
        """Use a new setting from now on."""
        if setting != self._settings[-1][1]:
            self._settings.append((self._now(), setting))

    def since(self, begun: float | None) -> ApprovalSetting:
        """Return the setting for a client that connected at the time `begun`. None means the start
        of the process.
        """
        current = self._settings[-1][1]
        strictest = current
        for number in range(len(self._settings) - 2, -1, -1):
            ended = self._settings[number + 1][0]
            if begun is not None and ended <= begun:
                break
            strictest = strictest_of(strictest, self._settings[number][1])

        return strictest
