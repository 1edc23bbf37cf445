"""Everyday tasks with files and git repositories."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

from benchmarks.lifting.everyday_task import CallFailedError, Hand, Scene, Task
from benchmarks.lifting.everyday_world import Commit, Expectation, Repository, Value

PROJECTS = {"A": "atlas", "B": "borealis", "C": "cedar"}


def _listed(text: str, kind: str = "FILE") -> list[str]:
    """The names in an answer of `list_directory`."""
    return re.findall(rf"^\[{kind}\] (.+)$", text, re.MULTILINE)


def _logged(text: str) -> list[tuple[str, str]]:
    """The hash and the message of each commit in an answer of `git_log`, newest first."""
    return re.findall(r"^Commit: (\w+)\n.*\n.*\nMessage: (.+)$", text, re.MULTILINE)


def _numbered(messages: Sequence[str], month: int = 3) -> list[Commit]:
    """Commits on one day after the other that each write a file of their own."""
    return [
        Commit(message, f"2026-{month:02}-{number + 1:02}", {f"part{number}.txt": f"{message}\n"})
        for number, message in enumerate(messages)
    ]


class ChangelogSinceTag(Task):
    """Writes CHANGELOG.md of a repository: one line for each commit since a tag, newest first."""

    name = "changelog_since_tag"
    _tags: ClassVar = {"A": "v1.2", "B": "v2.0", "C": "release-7"}
    _before: ClassVar = {
        "A": ["Start", "Add a door"],
        "B": ["Begin"],
        "C": ["First", "Second", "Third", "Fourth"],
    }
    _since: ClassVar = {
        "A": ["Fix the lock", "Add a window", "Paint the wall"],
        "B": ["Add search", "Fix search", "Speed up", "Rename the menu", "Drop the old menu"],
        "C": ["Correct a typo"],
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {"repo_path": scene.world.path(scene.pick(PROJECTS)), "tag": scene.pick(self._tags)}

    def prepare(self, scene: Scene) -> None:
        before = scene.pick(self._before)
        commits = _numbered([*before, *scene.pick(self._since)])
        scene.world.repository(
            scene.pick(PROJECTS), commits, tag=(scene.pick(self._tags), before[-1])
        )

    async def do(self, hand: Hand, scene: Scene) -> None:
        repo = scene.world.path(scene.pick(PROJECTS))
        shown = await hand.call("git_show", repo_path=repo, revision=scene.pick(self._tags))
        tagged = shown.split()[1]
        commits = _logged(await hand.call("git_log", repo_path=repo, max_count=20))
        hashes = [commit for commit, _ in commits]
        messages = [message for _, message in commits[: hashes.index(tagged)]]
        text = "# Changes\n\n" + "".join(f"- {message}\n" for message in messages)
        await hand.call("write_file", path=f"{repo}/CHANGELOG.md", content=text)

    def expected(self, scene: Scene) -> Expectation:
        project = scene.pick(PROJECTS)
        lines = [f"- {message}" for message in reversed(scene.pick(self._since))]
        commits = (*scene.pick(self._before), *scene.pick(self._since))
        return Expectation(
            files={f"{project}/CHANGELOG.md": "\n".join(["# Changes", "", *lines])},
            repositories={
                project: Repository({"main": commits[::-1]}, "main", ("?? CHANGELOG.md",))
            },
        )


class CountChangesByFile(Task):
    """Counts how often each file changed in the last commits, and writes the counts to
    hot.txt, largest first.
    """

    name = "count_changes_by_file"
    _count: ClassVar = {"A": 3, "B": 5, "C": 2}
    _files: ClassVar = {
        "A": [["old.py"], ["app.py", "web.py"], ["app.py"], ["app.py", "web.py", "log.py"]],
        "B": [["x.c"], ["y.c"], ["x.c", "y.c"], ["y.c"], ["z.c", "y.c", "x.c"]],
        "C": [["one.js", "two.js"], ["one.js"], ["one.js", "three.js"], ["one.js"]],
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {
            "repo_path": scene.world.path(scene.pick(PROJECTS)),
            "count": scene.pick(self._count),
        }

    def prepare(self, scene: Scene) -> None:
        commits = [
            Commit(
                f"Change {number}", f"2026-04-{number + 1:02}", dict.fromkeys(names, f"{number}\n")
            )
            for number, names in enumerate(scene.pick(self._files))
        ]
        scene.world.repository(scene.pick(PROJECTS), commits)

    async def do(self, hand: Hand, scene: Scene) -> None:
        repo = scene.world.path(scene.pick(PROJECTS))
        log = await hand.call("git_log", repo_path=repo, max_count=scene.pick(self._count))
        counts: Counter[str] = Counter()
        for commit, _ in _logged(log):
            shown = await hand.call("git_show", repo_path=repo, revision=commit)
            counts.update(re.findall(r"^\+\+\+ b/(.+)$", shown, re.MULTILINE))

        await hand.call("write_file", path=f"{repo}/hot.txt", content=self._report(counts))

    def _report(self, counts: Mapping[str, int]) -> str:
        ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        return "\n".join(f"{name}: {count}" for name, count in ordered)

    def expected(self, scene: Scene) -> Expectation:
        project = scene.pick(PROJECTS)
        files = scene.pick(self._files)
        counts = Counter(name for names in files[-scene.pick(self._count) :] for name in names)
        messages = tuple(f"Change {number}" for number in reversed(range(len(files))))
        return Expectation(
            files={f"{project}/hot.txt": self._report(counts)},
            repositories={project: Repository({"main": messages}, "main", ("?? hot.txt",))},
        )


class RenameSet(Task):
    """Renames all files of a folder that have one ending to another ending."""

    name = "rename_set"
    _endings: ClassVar = {"A": (".txt", ".md"), "B": (".jpeg", ".jpg"), "C": (".htm", ".html")}
    _names: ClassVar = {
        "A": ["intro", "plan", "sums"],
        "B": ["ann", "bob", "cat", "dog", "eve"],
        "C": ["index"],
    }
    _others: ClassVar = {"A": ["logo.png"], "B": ["list.csv", "notes.txt"], "C": ["style.css"]}

    def inputs(self, scene: Scene) -> dict[str, Value]:
        old, new = scene.pick(self._endings)
        return {
            "folder": scene.world.path(scene.pick(PROJECTS)),
            "old_ending": old,
            "new_ending": new,
        }

    def prepare(self, scene: Scene) -> None:
        project = scene.pick(PROJECTS)
        old, _ = scene.pick(self._endings)
        for name in [
            *(f"{name}{old}" for name in scene.pick(self._names)),
            *scene.pick(self._others),
        ]:
            scene.world.write(f"{project}/{name}", f"This is {name}")

    async def do(self, hand: Hand, scene: Scene) -> None:
        folder = scene.world.path(scene.pick(PROJECTS))
        old, new = scene.pick(self._endings)
        for name in _listed(await hand.call("list_directory", path=folder)):
            if name.endswith(old):
                renamed = name.removesuffix(old) + new
                await hand.call(
                    "move_file", source=f"{folder}/{name}", destination=f"{folder}/{renamed}"
                )

    def expected(self, scene: Scene) -> Expectation:
        project = scene.pick(PROJECTS)
        old, new = scene.pick(self._endings)
        files: dict[str, str | None] = {}
        for name in scene.pick(self._names):
            files[f"{project}/{name}{old}"] = None
            files[f"{project}/{name}{new}"] = f"This is {name}{old}"

        return Expectation(files=files)


class SumByGroup(Task):
    """Sums the amounts of a CSV file by category, and writes the sums to a Markdown file, by
    name of category.
    """

    name = "sum_by_group"
    _lines: ClassVar = {
        "A": [("travel", 120), ("food", 30), ("travel", 80), ("rent", 700), ("food", 12)],
        "B": [
            ("ink", 4),
            ("paper", 25),
            ("ink", 6),
            ("desk", 310),
            ("lamp", 45),
            ("paper", 5),
            ("desk", 90),
        ],
        "C": [("bus", 3), ("bus", 3)],
    }
    _sources: ClassVar = {"A": "expenses.csv", "B": "office.csv", "C": "tickets.csv"}

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {"file": self._source(scene), "summary": self._target(scene)}

    def _source(self, scene: Scene) -> str:
        return scene.world.path(scene.pick(PROJECTS), scene.pick(self._sources))

    def _target(self, scene: Scene) -> str:
        return scene.world.path(scene.pick(PROJECTS), "summary.md")

    def prepare(self, scene: Scene) -> None:
        lines = "".join(f"{category},{amount}\n" for category, amount in scene.pick(self._lines))
        scene.world.write(
            f"{scene.pick(PROJECTS)}/{scene.pick(self._sources)}", f"category,amount\n{lines}"
        )

    async def do(self, hand: Hand, scene: Scene) -> None:
        sums: Counter[str] = Counter()
        for line in (await hand.call("read_text_file", path=self._source(scene))).splitlines()[1:]:
            category, amount = line.split(",")
            sums[category] += int(amount)
        text = "\n".join(f"- {category}: {amount}" for category, amount in sorted(sums.items()))
        await hand.call("write_file", path=self._target(scene), content=text)

    def expected(self, scene: Scene) -> Expectation:
        sums: Counter[str] = Counter()
        for category, amount in scene.pick(self._lines):
            sums[category] += amount
        text = "\n".join(f"- {category}: {sums[category]}" for category in sorted(sums))
        return Expectation(files={f"{scene.pick(PROJECTS)}/summary.md": text})


class RetryAfterError(Task):
    """Saves the minutes of a meeting as TITLE.md in the folder minutes of a project, and makes the
    folder if needed.
    """

    name = "save_minutes"
    _titles: ClassVar = {"A": "kickoff", "B": "review", "C": "retro"}
    _texts: ClassVar = {
        "A": "We begin in May.",
        "B": "Ann will fix the form, and Bob the mail.",
        "C": "More coffee.",
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        project = scene.world.path(scene.pick(PROJECTS))
        return {
            "project": project,
            "title": scene.pick(self._titles),
            "text": scene.pick(self._texts),
        }

    def prepare(self, scene: Scene) -> None:
        scene.world.write(f"{scene.pick(PROJECTS)}/readme.md", "A project")
        if scene.variant == "B":
            scene.world.write(f"{scene.pick(PROJECTS)}/minutes/old.md", "Older minutes")

    async def do(self, hand: Hand, scene: Scene) -> None:
        folder = scene.world.path(scene.pick(PROJECTS), "minutes")
        path = f"{folder}/{scene.pick(self._titles)}.md"
        try:
            await hand.call("write_file", path=path, content=scene.pick(self._texts))
        except CallFailedError:
            await hand.call("create_directory", path=folder)
            await hand.call("write_file", path=path, content=scene.pick(self._texts))

    def expected(self, scene: Scene) -> Expectation:
        path = f"{scene.pick(PROJECTS)}/minutes/{scene.pick(self._titles)}.md"
        return Expectation(files={path: scene.pick(self._texts)})


class WeekBefore(Task):
    """The commits of a repository in the seven days before a day."""

    name = "week_before"
    _days: ClassVar = {"A": "2026-03-20", "B": "2026-06-02", "C": "2026-09-30"}
    _starts: ClassVar = {"A": "2026-03-13", "B": "2026-05-26", "C": "2026-09-23"}
    _inside: ClassVar = {"A": "2026-03-15", "B": "2026-05-28", "C": "2026-09-29"}
    _outside: ClassVar = {"A": "2026-03-02", "B": "2026-05-03", "C": "2026-09-04"}

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {"repo_path": scene.world.path(scene.pick(PROJECTS)), "day": scene.pick(self._days)}

    def prepare(self, scene: Scene) -> None:
        project = scene.pick(PROJECTS)
        commits = [
            Commit(f"Older work on {project}", scene.pick(self._outside), {"a.txt": "1"}),
            Commit(f"Newer work on {project}", scene.pick(self._inside), {"a.txt": "2"}),
            Commit(f"Last work on {project}", "2026-11-01", {"a.txt": "3"}),
        ]
        scene.world.repository(project, commits)

    async def do(self, hand: Hand, scene: Scene) -> None:
        await hand.call(
            "git_log",
            repo_path=scene.world.path(scene.pick(PROJECTS)),
            start_timestamp=scene.pick(self._starts),
            end_timestamp=scene.pick(self._days),
        )

    def expected(self, scene: Scene) -> Expectation:
        project = scene.pick(PROJECTS)
        return Expectation(
            answer=(f"Newer work on {project}",), forbidden=("Older work", "Last work")
        )


class NewestFile(Task):
    """Reads the file of a folder that changed last."""

    name = "newest_file"
    _times: ClassVar = {
        "A": {"a.txt": "2026-02-01", "b.txt": "2026-04-01", "c.txt": "2026-03-01"},
        "B": {
            "one.md": "2026-06-01",
            "two.md": "2026-01-01",
            "three.md": "2026-05-01",
            "zero.md": "2026-02-01",
        },
        "C": {"x.log": "2025-12-30", "y.log": "2025-12-31"},
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {"folder": scene.world.path(scene.pick(PROJECTS))}

    def prepare(self, scene: Scene) -> None:
        for name, day in scene.pick(self._times).items():
            scene.world.write(
                f"{scene.pick(PROJECTS)}/{name}", f"Text of {name}", f"{day}T08:00:00"
            )

    async def do(self, hand: Hand, scene: Scene) -> None:
        folder = scene.world.path(scene.pick(PROJECTS))
        times: dict[str, str] = {}
        for name in _listed(await hand.call("list_directory", path=folder)):
            shown = await hand.call("get_file_info", path=f"{folder}/{name}")
            month, day, year = re.findall(r"modified: \w+ (\w+) (\d+) (\d+)", shown)[0]
            months = [
                "Jan",
                "Feb",
                "Mar",
                "Apr",
                "May",
                "Jun",
                "Jul",
                "Aug",
                "Sep",
                "Oct",
                "Nov",
                "Dec",
            ]
            times[name] = f"{year}-{months.index(month) + 1:02}-{day}"

        newest = max(times, key=lambda name: times[name])
        await hand.call("read_text_file", path=f"{folder}/{newest}")

    def expected(self, scene: Scene) -> Expectation:
        times = scene.pick(self._times)
        newest = max(times, key=lambda name: times[name])
        others = tuple(f"Text of {name}" for name in times if name != newest)
        return Expectation(answer=(f"Text of {newest}",), forbidden=others)


class MoveNotes(Task):
    """Moves the notes whose names begin with a project's name to a folder of that name
    in the archive.
    """

    name = "archive_notes"
    _notes: ClassVar = {
        "A": ["atlas-1.md", "atlas-2.md"],
        "B": ["borealis-idea.md", "borealis-plan.md", "borealis-z.md"],
        "C": ["cedar.md"],
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {"notes": scene.world.path("notes"), "project": scene.pick(PROJECTS)}

    def prepare(self, scene: Scene) -> None:
        for name in [name for names in self._notes.values() for name in names]:
            scene.world.write(f"notes/{name}", f"Note {name}")
        scene.world.write("notes/archive/readme.md", "Old notes")

    async def do(self, hand: Hand, scene: Scene) -> None:
        notes = scene.world.path("notes")
        project = scene.pick(PROJECTS)
        names = _listed(await hand.call("list_directory", path=notes))
        await hand.call("create_directory", path=f"{notes}/archive/{project}")
        for name in names:
            if name.startswith(project):
                await hand.call(
                    "move_file",
                    source=f"{notes}/{name}",
                    destination=f"{notes}/archive/{project}/{name}",
                )

    def expected(self, scene: Scene) -> Expectation:
        files: dict[str, str | None] = {}
        for name in scene.pick(self._notes):
            files[f"notes/{name}"] = None
            files[f"notes/archive/{scene.pick(PROJECTS)}/{name}"] = f"Note {name}"
        return Expectation(files=files)


class CompareBranches(Task):
    """Lists in changed.txt which files a branch changed in comparison with main, by name."""

    name = "compare_branches"
    _branches: ClassVar = {"A": "login", "B": "new-search", "C": "spike"}
    _changes: ClassVar = {
        "A": ["form.py", "user.py"],
        "B": ["index.c", "menu.c", "query.c"],
        "C": ["try.js"],
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {
            "repo_path": scene.world.path(scene.pick(PROJECTS)),
            "branch": scene.pick(self._branches),
        }

    def prepare(self, scene: Scene) -> None:
        project = scene.pick(PROJECTS)
        scene.world.repository(project, [Commit("Start", "2026-01-05", {"readme.md": "Hello\n"})])
        files = {name: f"{name}\n" for name in scene.pick(self._changes)}
        scene.world.branch(
            project, scene.pick(self._branches), [Commit("Work", "2026-01-06", files)]
        )

    async def do(self, hand: Hand, scene: Scene) -> None:
        repo = scene.world.path(scene.pick(PROJECTS))
        diff = await hand.call("git_diff", repo_path=repo, target=scene.pick(self._branches))
        names = sorted(re.findall(r"^diff --git a/(\S+) b/", diff, re.MULTILINE))
        await hand.call("write_file", path=f"{repo}/changed.txt", content="\n".join(names))

    def expected(self, scene: Scene) -> Expectation:
        project = scene.pick(PROJECTS)
        branches = {"main": ("Start",), scene.pick(self._branches): ("Work", "Start")}
        return Expectation(
            files={f"{project}/changed.txt": "\n".join(sorted(scene.pick(self._changes)))},
            repositories={project: Repository(branches, "main", ("?? changed.txt",))},
        )


class ArchiveDone(Task):
    """Moves the done items of todo.md in a folder to the end of done.md."""

    name = "archive_done"
    _items: ClassVar = {
        "A": ["[x] call Ann", "[ ] buy paper", "[x] fix the lamp", "[ ] write to Bob"],
        "B": ["[ ] plan the trip", "[x] book the hotel"],
        "C": ["[x] one", "[x] two", "[x] three", "[ ] four", "[ ] five", "[ ] six"],
    }
    _done: ClassVar = {
        "A": ["[x] older"],
        "B": ["[x] ask for leave", "[x] renew the passport"],
        "C": ["[x] zero"],
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {"folder": scene.world.path(scene.pick(PROJECTS))}

    def prepare(self, scene: Scene) -> None:
        project = scene.pick(PROJECTS)
        scene.world.write(
            f"{project}/todo.md", "".join(f"- {item}\n" for item in scene.pick(self._items))
        )
        scene.world.write(
            f"{project}/done.md", "".join(f"- {item}\n" for item in scene.pick(self._done))
        )

    async def do(self, hand: Hand, scene: Scene) -> None:
        folder = scene.world.path(scene.pick(PROJECTS))
        lines = (await hand.call("read_text_file", path=f"{folder}/todo.md")).splitlines()
        done = (await hand.call("read_text_file", path=f"{folder}/done.md")).splitlines()
        done += [line for line in lines if line.startswith("- [x]")]
        rest = [line for line in lines if line.startswith("- [ ]")]
        await hand.call(
            "write_file", path=f"{folder}/done.md", content="".join(f"{line}\n" for line in done)
        )
        await hand.call(
            "write_file", path=f"{folder}/todo.md", content="".join(f"{line}\n" for line in rest)
        )

    def expected(self, scene: Scene) -> Expectation:
        project = scene.pick(PROJECTS)
        items = scene.pick(self._items)
        done = [*scene.pick(self._done), *(item for item in items if "[x]" in item)]
        return Expectation(
            files={
                f"{project}/done.md": "\n".join(f"- {item}" for item in done),
                f"{project}/todo.md": "\n".join(f"- {item}" for item in items if "[ ]" in item),
            }
        )


class MergeLists(Task):
    """Writes the lines of two files, each once and in alphabetical order, to a third."""

    name = "merge_lists"
    _pairs: ClassVar = {
        "A": (["milk", "bread", "apples"], ["bread", "salt"]),
        "B": (["zoe", "adam"], ["bea", "adam", "zoe", "carl", "dora"]),
        "C": (["red"], ["blue"]),
    }
    _names: ClassVar = {
        "A": ("home.txt", "work.txt"),
        "B": ("team1.txt", "team2.txt"),
        "C": ("left.txt", "right.txt"),
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        first, second = scene.pick(self._names)
        project = scene.pick(PROJECTS)
        return {
            "first_file": scene.world.path(project, first),
            "second_file": scene.world.path(project, second),
            "merged_file": scene.world.path(project, "merged.txt"),
        }

    def prepare(self, scene: Scene) -> None:
        for name, lines in zip(scene.pick(self._names), scene.pick(self._pairs), strict=True):
            scene.world.write(
                f"{scene.pick(PROJECTS)}/{name}", "".join(f"{line}\n" for line in lines)
            )

    async def do(self, hand: Hand, scene: Scene) -> None:
        inputs = self.inputs(scene)
        lines = (await hand.call("read_text_file", path=inputs["first_file"])).splitlines()
        lines += (await hand.call("read_text_file", path=inputs["second_file"])).splitlines()
        text = "".join(f"{line}\n" for line in sorted(set(lines)))
        await hand.call("write_file", path=inputs["merged_file"], content=text)

    def expected(self, scene: Scene) -> Expectation:
        first, second = scene.pick(self._pairs)
        return Expectation(
            files={f"{scene.pick(PROJECTS)}/merged.txt": "\n".join(sorted({*first, *second}))}
        )


class FindMention(Task):
    """Reads the files of a folder by name until one mentions a name, and gives the
    text of that file.
    """

    name = "find_mention"
    _people: ClassVar = {"A": "Carla", "B": "Otto", "C": "Mia"}
    _mentions: ClassVar = {
        "A": [False, False, True, False],
        "B": [True, False],
        "C": [False, True, False],
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {"folder": scene.world.path(scene.pick(PROJECTS)), "name": scene.pick(self._people)}

    def prepare(self, scene: Scene) -> None:
        for number, is_mentioned in enumerate(scene.pick(self._mentions)):
            name = scene.pick(self._people) if is_mentioned else "nobody"
            scene.world.write(
                f"{scene.pick(PROJECTS)}/letter{number}.txt", f"Letter {number} is about {name}."
            )

    async def do(self, hand: Hand, scene: Scene) -> None:
        folder = scene.world.path(scene.pick(PROJECTS))
        for name in sorted(_listed(await hand.call("list_directory", path=folder))):
            if scene.pick(self._people) in await hand.call(
                "read_text_file", path=f"{folder}/{name}"
            ):
                return

    def expected(self, scene: Scene) -> Expectation:
        number = scene.pick(self._mentions).index(True)
        return Expectation(
            answer=(f"Letter {number} is about {scene.pick(self._people)}.",), forbidden=("nobody",)
        )


class BumpVersion(Task):
    """Raises the last number of the version in version.txt of a repository, and commits that as
    Release VERSION.
    """

    name = "bump_version"
    _versions: ClassVar = {"A": "1.4.2", "B": "3.0.9", "C": "0.2.0"}
    _next: ClassVar = {"A": "1.4.3", "B": "3.0.10", "C": "0.2.1"}

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {"repo_path": scene.world.path(scene.pick(PROJECTS))}

    def prepare(self, scene: Scene) -> None:
        text = f"{scene.pick(self._versions)}\n"
        scene.world.repository(
            scene.pick(PROJECTS), [Commit("Start", "2026-02-02", {"version.txt": text})]
        )

    async def do(self, hand: Hand, scene: Scene) -> None:
        repo = scene.world.path(scene.pick(PROJECTS))
        version = (await hand.call("read_text_file", path=f"{repo}/version.txt")).strip()
        front, last = version.rsplit(".", 1)
        version = f"{front}.{int(last) + 1}"
        await hand.call("write_file", path=f"{repo}/version.txt", content=f"{version}\n")
        await hand.call("git_add", repo_path=repo, files=["version.txt"])
        await hand.call("git_commit", repo_path=repo, message=f"Release {version}")

    def expected(self, scene: Scene) -> Expectation:
        project = scene.pick(PROJECTS)
        version = scene.pick(self._next)
        return Expectation(
            files={f"{project}/version.txt": version},
            repositories={project: Repository({"main": (f"Release {version}", "Start")}, "main")},
        )


class FillTemplate(Task):
    """Writes a letter from template.txt of a folder: NAME becomes a name, ROLE a role."""

    name = "welcome_letter"
    _people: ClassVar = {
        "A": ("Ann", "designer"),
        "B": ("Bernadette", "head of sales"),
        "C": ("Cho", "cook"),
    }
    _templates: ClassVar = {
        "A": "Dear NAME,\nwelcome! You are our new ROLE.\n",
        "B": "Hello NAME, NAME!\n\nROLE is a fine thing to be.\nThe team\n",
        "C": "NAME: ROLE",
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        name, role = scene.pick(self._people)
        return {"folder": scene.world.path(scene.pick(PROJECTS)), "name": name, "role": role}

    def prepare(self, scene: Scene) -> None:
        scene.world.write(f"{scene.pick(PROJECTS)}/template.txt", scene.pick(self._templates))

    async def do(self, hand: Hand, scene: Scene) -> None:
        folder = scene.world.path(scene.pick(PROJECTS))
        name, role = scene.pick(self._people)
        template = await hand.call("read_text_file", path=f"{folder}/template.txt")
        text = template.replace("NAME", name).replace("ROLE", role)
        await hand.call("write_file", path=f"{folder}/{name}.txt", content=text)

    def expected(self, scene: Scene) -> Expectation:
        name, role = scene.pick(self._people)
        pieces = [
            piece.replace("ROLE", role) for piece in scene.pick(self._templates).split("NAME")
        ]
        return Expectation(files={f"{scene.pick(PROJECTS)}/{name}.txt": name.join(pieces)})


class AppendLog(Task):
    """Appends a line DAY: TEXT to log.md of a folder."""

    name = "append_log"
    _lines: ClassVar = {
        "A": ("2026-05-04", "The pump runs again."),
        "B": ("2026-07-01", "Nobody came."),
        "C": ("2026-12-24", "We close at noon; Eve has the key."),
    }
    _logs: ClassVar = {
        "A": "# Log\n2026-05-01: The pump is broken.\n",
        "B": "",
        "C": "# Diary\n\n2026-12-22: Snow.\n2026-12-23: Ice.\n",
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        day, text = scene.pick(self._lines)
        return {"folder": scene.world.path(scene.pick(PROJECTS)), "day": day, "text": text}

    def prepare(self, scene: Scene) -> None:
        scene.world.write(f"{scene.pick(PROJECTS)}/log.md", scene.pick(self._logs))

    async def do(self, hand: Hand, scene: Scene) -> None:
        path = scene.world.path(scene.pick(PROJECTS), "log.md")
        day, text = scene.pick(self._lines)
        log = await hand.call("read_text_file", path=path)
        await hand.call("write_file", path=path, content=f"{log}{day}: {text}\n")

    def expected(self, scene: Scene) -> Expectation:
        day, text = scene.pick(self._lines)
        return Expectation(
            files={f"{scene.pick(PROJECTS)}/log.md": f"{scene.pick(self._logs)}{day}: {text}"}
        )


class StartBranch(Task):
    """Makes a branch from main in a repository, and switches to it."""

    name = "start_branch"
    _branches: ClassVar = {"A": "fix-login", "B": "ann/new-menu", "C": "try"}

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {
            "repo_path": scene.world.path(scene.pick(PROJECTS)),
            "branch": scene.pick(self._branches),
        }

    def prepare(self, scene: Scene) -> None:
        scene.world.repository(
            scene.pick(PROJECTS), [Commit("Start", "2026-02-02", {"readme.md": "Hello"})]
        )

    async def do(self, hand: Hand, scene: Scene) -> None:
        repo = scene.world.path(scene.pick(PROJECTS))
        branch = scene.pick(self._branches)
        await hand.call("git_create_branch", repo_path=repo, branch_name=branch, base_branch="main")
        await hand.call("git_checkout", repo_path=repo, branch_name=branch)

    def expected(self, scene: Scene) -> Expectation:
        branch = scene.pick(self._branches)
        branches = {"main": ("Start",), branch: ("Start",)}
        return Expectation(repositories={scene.pick(PROJECTS): Repository(branches, branch)})


class CommitNew(Task):
    """Commits all new files of a repository with a message."""

    name = "commit_new"
    _files: ClassVar = {"A": ["list.txt", "plan.txt"], "B": ["a.c", "b.c", "c.c"], "C": ["only.md"]}
    _messages: ClassVar = {
        "A": "Add the plan",
        "B": "Add the three parts of the reader",
        "C": "Notes",
    }

    def inputs(self, scene: Scene) -> dict[str, Value]:
        return {
            "repo_path": scene.world.path(scene.pick(PROJECTS)),
            "message": scene.pick(self._messages),
        }

    def prepare(self, scene: Scene) -> None:
        project = scene.pick(PROJECTS)
        scene.world.repository(project, [Commit("Start", "2026-02-02", {"readme.md": "Hello"})])
        for name in scene.pick(self._files):
            scene.world.write(f"{project}/{name}", f"Text of {name}")

    async def do(self, hand: Hand, scene: Scene) -> None:
        repo = scene.world.path(scene.pick(PROJECTS))
        status = await hand.call("git_status", repo_path=repo)
        await hand.call(
            "git_add", repo_path=repo, files=re.findall(r"^\t(.+)$", status, re.MULTILINE)
        )
        await hand.call("git_commit", repo_path=repo, message=scene.pick(self._messages))

    def expected(self, scene: Scene) -> Expectation:
        messages = (scene.pick(self._messages), "Start")
        return Expectation(
            repositories={scene.pick(PROJECTS): Repository({"main": messages}, "main")}
        )


def tasks() -> list[Task]:
    """The tasks of this file."""
    return [
        ChangelogSinceTag(),
        CountChangesByFile(),
        RenameSet(),
        SumByGroup(),
        RetryAfterError(),
        WeekBefore(),
        NewestFile(),
        MoveNotes(),
        CompareBranches(),
        ArchiveDone(),
        MergeLists(),
        FindMention(),
        BumpVersion(),
        FillTemplate(),
        AppendLog(),
        StartBranch(),
        CommitNew(),
    ]
