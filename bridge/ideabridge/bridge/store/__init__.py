"""Ideas: saved triples (context, schema, solution), and the store of ideas, publications and runs."""

from ideabridge.bridge.store.idea import (
    Idea,
    IdeaHit,
    IdeaMeta,
    IdeaRecord,
    Page,
    Publication,
    RunRecord,
    StoredIdea,
    function_schemas,
)
from ideabridge.bridge.store.ideas import IdeaFilter
from ideabridge.bridge.store.store import Store

__all__ = [
    "Idea",
    "IdeaFilter",
    "IdeaHit",
    "IdeaMeta",
    "IdeaRecord",
    "Page",
    "Publication",
    "RunRecord",
    "Store",
    "StoredIdea",
    "function_schemas",
]
