"""The demo's plan: nine calls over two MCP servers and a file of Python tools, wired by references."""

from __future__ import annotations

from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject

NAME: Final = "git_activity"
RECORDED_NAME: Final = "git_activity_recorded"
DESCRIPTION: Final = "Who committed to a git repository and when, told for a time zone, with the newest change."

CALLS: Final[list[JSON]] = [
    {
        "_tool": "git_log",
        "_module": "git",
        "repo_path": "†input.repo",
        "max_count": "†input.count",
        "_outputPath": "log",
    },
    {"_tool": "get_current_time", "_module": "time", "timezone": "†input.timezone", "_outputPath": "now"},
    {"_tool": "git_status", "_module": "git", "repo_path": "†input.repo", "_outputPath": "status"},
    {"_tool": "parse_git_log", "log": "†state.log", "_outputPath": "commits"},
    {
        "_tool": "summarise_commits",
        "commits": "†state.commits",
        "timezone": "†input.timezone",
        "_outputPath": "summary",
    },
    {
        "_tool": "git_show",
        "_module": "git",
        "repo_path": "†input.repo",
        "revision": "†state.commits.0.sha",
        # In a shallow clone the patch cannot be made: then the reason stands beside it, and the plan goes on.
        "_outputPath": "†state.patch || †state.no_patch",
    },
    {"_tool": "measure_patch", "patch": "†state.patch", "_outputPath": "change"},
    {
        "_tool": "convert_time",
        "_module": "time",
        "source_timezone": "†state.commits.0.timezone",
        "time": "†state.commits.0.time",
        "target_timezone": "†input.timezone",
        "_outputPath": "there",
    },
    {
        "_tool": "activity_report",
        "summary": "†state.summary",
        "newest": "†state.commits.0",
        "newest_there": "†state.there.target.datetime",
        "now": "†state.now.datetime",
        "status": "†state.status",
        "change": "†state.change || †state.no_patch",
        "_outputPath": "report",
    },
]
"""The calls. Every parameter is a reference: the plan may become a tool as it is."""

OUTPUT: Final[JSONObject] = {
    "report": "†state.report",
    "commits": "†state.summary.commits",
    "authors": "†state.summary.authors",
    "weekdays": "†state.summary.weekdays",
    "newest": "†state.commits.0.sha",
    "newest_there": "†state.there.target.datetime",
    "change": "†state.change || †state.no_patch",
}


def plan(repo: str, count: int, timezone: str) -> JSONObject:
    """The arguments of `run_plan`."""
    given: JSONObject = {"repo": repo, "count": count, "timezone": timezone}
    return {"calls": CALLS, "input": given, "output": OUTPUT}
