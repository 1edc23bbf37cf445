"""Examples: one or two real command lines for each command, shown in its help."""

from __future__ import annotations

from typing import Final

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "": (
        "ideabridge demo",
        "ideabridge modules import claude-code --write",
        "ideabridge install claude-code --write",
        "ideabridge run plan.json -i repo=.",
    ),
    "serve": ("ideabridge serve", "ideabridge serve --http 127.0.0.1:8787 --model openai:gpt-5-mini"),
    "run": ("ideabridge run plan.json -i repo=. -i count=20", "ideabridge run - --json < plan.json"),
    "solve": (
        'ideabridge solve "Which names stand twice?" -i @names.json --tool count',
        'ideabridge solve "Summarise the week" --model openai:gpt-5-mini',
    ),
    "resume": ("ideabridge resume run_1f0c9a3b5d7e2468", "ideabridge resume last"),
    "approvals": ("ideabridge approvals list", "ideabridge approvals decide approve run_1f0c9a3b5d7e2468"),
    "approvals list": ("ideabridge approvals list", "ideabridge approvals list last --json"),
    "approvals decide": (
        "ideabridge approvals decide",
        'ideabridge approvals decide deny a2-9c4cc4fa1c30 --reason "not before Monday"',
        "ideabridge approvals decide retry run_1f0c9a3b5d7e2468",
    ),
    "install": ("ideabridge install claude-code", "ideabridge install cursor --scope user --write"),
    "trust": ("ideabridge trust", "ideabridge trust --show", "ideabridge trust --env TICKETS_TOKEN"),
    "doctor": ("ideabridge doctor", "ideabridge doctor --json"),
    "demo": ("ideabridge demo", "ideabridge demo --repo ~/src/project"),
    "runs": ("ideabridge runs list --status needs_approval", "ideabridge runs show run_1f0c9a3b5d7e2468"),
    "runs direct": ("ideabridge runs direct", "ideabridge runs direct --json --limit 100"),
    "runs list": ("ideabridge runs list -n 5", "ideabridge runs list --status needs_approval --json"),
    "runs cancel": ("ideabridge runs cancel run_1f0c9a3b5d7e2468", "ideabridge runs cancel 1f0c 7d2e"),
    "runs show": (
        "ideabridge runs show last",
        "ideabridge runs show run_1f0c9a3b5d7e2468 --at 7",
    ),
    "runs fork": (
        "ideabridge runs fork run_1f0c9a3b5d7e2468 --at 7",
        "ideabridge runs fork run_1f0c9a3b5d7e2468 --at 7 --input name=other",
    ),
    "ideas": ("ideabridge ideas search weekly report", "ideabridge ideas call weekly_report -i week=3"),
    "ideas list": ("ideabridge ideas list --tool git_log --since 3d", "ideabridge ideas list --published"),
    "ideas search": ("ideabridge ideas search weekly report", "ideabridge ideas search report --module git -n 5"),
    "ideas show": ("ideabridge ideas show weekly_report", "ideabridge ideas show 3fa94c"),
    "ideas lift": (
        "ideabridge ideas lift run_1f0c9a3b5d7e2468",
        "ideabridge ideas lift run_1f0c9a3b5d7e2468 --accept all --live",
    ),
    "ideas verify": ("ideabridge ideas verify", "ideabridge ideas verify weekly_report --no-live"),
    "ideas publish": (
        "ideabridge ideas publish run_1f0c9a3b5d7e2468 weekly_report",
        "ideabridge ideas publish 3fa94c weekly_report --answer plan",
    ),
    "ideas share": (
        "ideabridge ideas share weekly_report --to alice,bob",
        "ideabridge ideas share weekly_report --to all",
    ),
    "ideas unpublish": ("ideabridge ideas unpublish weekly_report",),
    "ideas call": (
        "ideabridge ideas call weekly_report -i week=3",
        "ideabridge ideas call weekly_report@2 -i @week.json",
    ),
    "ideas history": ("ideabridge ideas history weekly_report",),
    "ideas diff": ("ideabridge ideas diff weekly_report@1 weekly_report@2",),
    "ideas pin": ("ideabridge ideas pin weekly_report@1",),
    "ideas unpin": ("ideabridge ideas unpin weekly_report",),
    "ideas rollback": ("ideabridge ideas rollback weekly_report@1",),
    "ideas tag": ("ideabridge ideas tag weekly_report kept", "ideabridge ideas tag 3fa94c --remove kept"),
    "ideas suggest": ("ideabridge ideas suggest", "ideabridge ideas suggest --least 5 -n 3"),
    "ideas prune": (
        "ideabridge ideas prune --older-than 90d --dry-run",
        "ideabridge ideas prune --older-than 90d --yes",
    ),
    "ideas export": (
        "ideabridge ideas export weekly_report --output weekly_report.json",
        "ideabridge ideas export --published --folder shared",
    ),
    "ideas import": ("ideabridge ideas import weekly_report.json", "ideabridge ideas import shared --publish"),
    "users": ("ideabridge users add alice", "ideabridge users token add alice --expires 90d"),
    "users add": ("ideabridge users add alice", "ideabridge users add bob --role admin --expires 90d"),
    "users list": ("ideabridge users list", "ideabridge users list --json"),
    "users disable": ("ideabridge users disable alice",),
    "users enable": ("ideabridge users enable alice",),
    "users remove": ("ideabridge users remove alice",),
    "users role": ("ideabridge users role alice admin",),
    "users token": ("ideabridge users token list alice", "ideabridge users token revoke 1f0c9a3b5d7e"),
    "users token add": ("ideabridge users token add alice --label laptop --expires 90d",),
    "users token list": ("ideabridge users token list", "ideabridge users token list alice --json"),
    "users token revoke": ("ideabridge users token revoke 1f0c9a3b5d7e",),
    "store": ("ideabridge store backup ideas-2026-11-22.sqlite",),
    "store backup": ("ideabridge store backup ideas-2026-11-22.sqlite",),
    "store vacuum": ("ideabridge store vacuum",),
    "modules": ("ideabridge modules list", "ideabridge modules test git git_log -i repo_path=."),
    "modules list": ("ideabridge modules list", "ideabridge modules list --json"),
    "modules test": (
        "ideabridge modules test git",
        "ideabridge modules test git git_log -i repo_path=. -i max_count=3",
    ),
    "modules accept": ("ideabridge modules accept git", "ideabridge modules accept --own --yes"),
    "modules import": ("ideabridge modules import claude-code", "ideabridge modules import vscode github --move"),
    "tools": ("ideabridge tools list", "ideabridge tools list git log"),
    "tools list": ("ideabridge tools list git log", "ideabridge tools list --schemas"),
}
"""By the command, without the program's name; each command line is one that can be typed."""
