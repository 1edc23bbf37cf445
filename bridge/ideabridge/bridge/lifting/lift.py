"""Turn a finished run, which can have several Requests, into a single plan for other inputs.

Theory of operation. A mind that solves a task sees values and writes some of them as literals: it
calls `read(path="a.txt")` because an earlier `list` returned `a.txt`. A plan that repeats the
literal is correct only for that input. A single run cannot show where a literal comes from, so the
plan keeps every explanation (`context/explanations.py`).

1. `read_function` (function.py) reads the journal of the run: its input, the calls that ran, and
   its output.
2. `arranged` (lifted.py) puts the calls of all Requests into one list, sorted by data dependency,
   and renumbers `†results.N`. `keep_order` (order.py) adds `_after` where two calls from different
   Requests might have effects or write to the same path.
3. `aligned_run` (alike.py) reads each other run of the same task that a person names.
4. `explain_run` (explaining.py) goes through the calls in the order they were written. It
   lists the leaves (leaves.py): every part of the parameters and of the output. It looks up each
   literal (search.py) in the values that its author had seen (index.py): the input, the results
   before its Request, and the literals before it. The other runs remove the explanations that they
   contradict. If no explanation accounts for a part of a literal, that part is searched for inside
   longer strings (inside.py).
5. A literal in a call that only its constant explains becomes an optional parameter with a default;
   a literal that is followed becomes an optional parameter without a default (parameters.py).
6. `PlanDraft` (draft.py) is the result: a plan with references, explained literals, and parameters.

Invariants. Given the recorded results, the plan makes the recorded calls and returns the recorded
output (`PlanDraft.difference`). A run that nobody named does not remove any explanation. It is only
suggested as evidence. A reference that the author wrote is certain, unless it selects a position in
a list that the author had seen. In that case, the reference is explained in the same way as a
copied value.

Cost. The work is linear in the number of calls, and in the number of values in the input, the
results and the literals. The number of look-ups per literal is bounded, and so is the number of
places that each returns.
"""

from __future__ import annotations

from collections.abc import Iterable

from ideabridge.bridge.lifting.alike import aligned_run
from ideabridge.bridge.lifting.explaining import explain_run
from ideabridge.bridge.lifting.function import Function, read_function
from ideabridge.bridge.lifting.lifted import Lifted, arranged
from ideabridge.bridge.store.store import Store


def lift(store: Store, ref: str, caller: str, runs: Iterable[str] = ()) -> Lifted:
    """Lift a run, or an idea's run.

    Args:
        store: the store that contains the runs.
        ref: a reference that `find_idea` accepts.
        caller: the owner of the runs.
        runs: other runs of the same task.

    Raises:
        PublicationError: the run cannot be a plan. The message says why.
        UnknownRunError, UnknownIdeaError: this caller has no such run or idea.
    """
    return lift_function(read_function(store, ref, caller), store, caller, runs)


def lift_function(
    function: Function, store: Store, caller: str, runs: Iterable[str] = ()
) -> Lifted:
    """Lift a run that has already been read as a function; see `lift`."""
    lifted = arranged(function)
    lifted.others = [aligned_run(lifted, store, run, caller) for run in dict.fromkeys(runs)]
    if not lifted.function.instances:
        explain_run(lifted)
    return lifted
