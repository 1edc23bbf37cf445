"""Values for the tests of ideas."""

from hypothesis import strategies as st

from ideabridge.bridge.store.idea import Idea, NewPublication, Publication
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
VALUES: st.SearchStrategy[JSON] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


def said(text: str) -> JSON:
    """A text message."""
    return {"role": "user", "content": text}


MESSAGES = VALUES | st.builds(said, st.text(max_size=40))
BYTES = st.integers(0, 2**31 - 1)
SHOWN = st.none() | st.fixed_dictionaries({"value": BYTES, "request": BYTES})
IDEAS = st.builds(Idea, st.lists(MESSAGES, max_size=6), VALUES, VALUES, SHOWN)


def idea_of(text: str, output: JSON = None) -> Idea:
    """An idea whose task is `text`."""
    schema: JSON = {"type": "object", "properties": {"calls": {}, "output": {}}}
    return Idea([said(text)], schema, {"calls": [], "output": output})


def publish(
    store: Store,
    name: str,
    idea_id: str,
    owner: str | None = None,
    description: str = "",
    recorded: JSON = None,
) -> Publication:
    """Publish an idea that is answered by solving."""
    return store.publications.publish(
        NewPublication(
            name=name,
            idea_id=idea_id,
            description=description,
            answer="solve",
            input_schema=None,
            output_schema=None,
            annotations={},
            recorded=recorded,
            owner=owner,
        )
    )
