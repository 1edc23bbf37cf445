"""CallSettler: what calls that have ended write, and where their failures go."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ideabridge.bridge.context.errors import StateWriteError
from ideabridge.bridge.context.reference import Path
from ideabridge.bridge.context.state_schema import StateSchema
from ideabridge.bridge.loop.call import UNCAUGHT, ErrorKind
from ideabridge.bridge.loop.group import Group
from ideabridge.bridge.loop.memory import Memory, Write
from ideabridge.bridge.loop.progress import Absent, Progress, Standing, items_error
from ideabridge.tools.encoding import JSON, JSONObject


class CallSettler:
    """Settles the calls of one Solution.

    Args:
        memory: where results are written.
        schemas: state schemas by instance.
        group: what the calls are to each other.
        settled: told of each call that has settled.
        uncaught_items: see `Settings`.
    """

    def __init__(
        self,
        memory: Memory,
        schemas: Mapping[str, StateSchema],
        group: Group,
        settled: Callable[[Progress], None],
        *,
        uncaught_items: bool,
    ) -> None:
        self._memory = memory
        self._schemas = schemas
        self._group = group
        self._settled = settled
        self._uncaught_items = uncaught_items

    def complete(self, progress: Progress, chosen: str | None) -> None:
        """Every execution of the call has ended."""
        call = progress.call
        failed = [(number, item.error) for number, item in enumerate(progress.items) if item.error is not None]
        if not call.has_each:
            if failed:
                self.fail_with(progress, failed[0][1] or {})
            else:
                self._write(progress, progress.items[0].value, chosen)
            return
        values: list[JSON] = [item.value for item in progress.items]
        if failed:
            error = items_error(progress.items, uncaught=self._uncaught_items)
            self.fail_with(progress, error, partial=values)
        else:
            self._write(progress, values, chosen)

    def _write(self, progress: Progress, value: JSON, chosen: str | None) -> None:
        call = progress.call
        target = call.target
        if target is None:
            paths = call.writes
        elif target.mode == "either":
            paths = (target.paths[target.texts.index(chosen)] if chosen in target.texts else target.paths[0],)
        else:
            paths = target.paths
        try:
            self._commit(progress, paths, value)
        except StateWriteError as error:
            self.fail(progress, "runtime", f"it ran, but its result cannot be written: {error}")
            return
        progress.value = value
        self.settle(progress, Standing.DONE)

    def _commit(self, progress: Progress, paths: tuple[Path, ...], value: JSON) -> None:
        call = progress.call
        writes = [Write(call.index, call.instance, path, call.method, value) for path in paths]
        changed = self._memory.try_write(writes)
        schema = self._schemas.get(call.instance)
        if schema is not None and any(path[0] == "state" for path in paths):
            document = changed[call.instance]
            schema.check_write(document["state"] if isinstance(document, dict) else None)
        self._memory.commit(writes, changed)
        progress.wrote = paths
        progress.staged = self._group.pattern == "all"

    def fail(self, progress: Progress, kind: ErrorKind, message: str) -> None:
        """A call has failed; see `fail_with`."""
        self.fail_with(progress, {"kind": kind, "message": message})

    def fail_with(self, progress: Progress, error: JSONObject, partial: list[JSON] | None = None) -> None:
        """A failure goes to `q` of `p || q`, where it is caught; else the call has failed."""
        call = progress.call
        progress.error = error
        target = call.target
        caught = target is not None and target.mode == "either" and error.get("kind") not in UNCAUGHT
        if target is not None and caught and self._group.catches:
            value: JSONObject = {**error} if partial is None else {**error, "results": partial}
            try:
                self._commit(progress, (target.paths[1],), value)
            except StateWriteError as fault:
                progress.error = {**error, "message": f"{error.get('message')}; and that cannot be written: {fault}"}
            else:
                self.settle(progress, Standing.CAUGHT)
                return
        self.settle(progress, Standing.FAILED)

    def fail_absent(self, progress: Progress, absent: Absent) -> None:
        """What a call reads is not there, and never will be."""
        if absent.why == "skipped":
            self.skip(progress, absent.message)
        else:
            self.fail(progress, "dependency" if absent.why == "failed" else "runtime", f"not run: {absent.message}")

    def skip(self, progress: Progress, message: str) -> None:
        """What a call reads is of a branch not taken: no error."""
        progress.error = {"kind": "skipped", "message": message}
        self.settle(progress, Standing.SKIPPED)

    def cancel(self, progress: Progress) -> None:
        """Nothing of a call counts: the group is decided."""
        progress.error = self._group.error()
        self.settle(progress, Standing.CANCELLED)

    def settle(self, progress: Progress, standing: Standing) -> None:
        """Nothing more comes of a call."""
        progress.standing = standing
        self._settled(progress)
