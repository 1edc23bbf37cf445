"""What holds for the project as a whole: layout, directions of import, what is committed,
what is shipped.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PARTS = ("tools", "bridge", "server")
MAY_IMPORT = {
    "tools": {"tools"},
    "bridge": {"tools", "bridge"},
    "server": {"tools", "bridge", "server"},
}


def modules(part: str) -> list[Path]:
    return sorted((ROOT / part).rglob("*.py"))


@dataclass(frozen=True)
class Outline:
    """What the tests read of one module. It is parsed once: that takes the most of their time."""

    imported: tuple[tuple[int, str], ...]
    """(line, module) of every import, also those inside functions."""
    imported_when_run: frozenset[str]
    """The top packages that the module imports when it runs: not those under
    `if TYPE_CHECKING:`."""
    defined: tuple[str, ...]
    """The classes and functions at the top of the module."""


@cache
def outline(path: Path) -> Outline:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported: list[tuple[int, str]] = []
    imported_when_run: set[str] = set()
    nodes: list[tuple[ast.AST, bool]] = [(tree, True)]
    while nodes:
        node, is_run = nodes.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = names_imported(node)
            imported.extend((node.lineno, name) for name in names)
            if is_run:
                imported_when_run.update(name.partition(".")[0] for name in names)
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            nodes.extend((child, False) for child in node.body)
            nodes.extend((child, is_run) for child in node.orelse)
        elif not isinstance(node, ast.expr):
            # No expression holds an import, and most nodes are expressions.
            nodes.extend((child, is_run) for child in ast.iter_child_nodes(node))

    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    defined = tuple(node.name for node in tree.body if isinstance(node, definitions))
    return Outline(tuple(sorted(imported)), frozenset(imported_when_run), defined)


def names_imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    module = "." * node.level + (node.module or "")
    # `from ideabridge import server` names the part here.
    return [module, *(f"{module}.{name.name}" for name in node.names)]


def committed() -> list[Path]:
    """The files of the repository; outside one, everything that a clone would hold."""
    try:
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode()
        found = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found: list[Path] = []
        for folder, below, names in os.walk(ROOT):
            below[:] = [
                name for name in below if name == ".ci" or not name.startswith((".", "__pycache__"))
            ]
            found.extend(Path(folder, name) for name in names)
    return [path for path in found if path.is_file()]


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


# -- layout ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", PARTS)
def test_imports_point_one_way(part: str) -> None:
    assert modules(part), f"{part}/ holds no modules"
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules(part)
        for line, name in outline(path).imported
        if name.startswith("ideabridge.") and name.split(".")[1] not in MAY_IMPORT[part]
    ]
    assert wrong == []


@pytest.mark.parametrize("part", PARTS)
def test_imports_are_absolute(part: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in modules(part)
        for line, name in outline(path).imported
        if name.startswith(".")
    ]
    assert wrong == []


def test_the_namespace_stays_open() -> None:
    # An __init__.py here would hide the other two parts from an editable install (PEP 420).
    assert [str(path) for part in PARTS for path in (ROOT / part).glob("__init__.py")] == []
    assert [
        str(path) for part in PARTS for path in (ROOT / part / "ideabridge").glob("__init__.py")
    ] == []
    for part in PARTS:
        package = ROOT / part / "ideabridge" / part
        assert (package / "__init__.py").is_file()
        assert (package / "py.typed").is_file()
        assert [path.name for path in package.parent.iterdir() if path.name != "__pycache__"] == [
            part
        ]


# -- the rooms of the house ------------------------------------------------------------------------

LAYERS = (
    ("command_line", "errors", "keyring", "limits", "secrets", "server_entry"),
    ("data_files", "file_content", "masking"),
    ("trust_snapshot",),
    ("recognising", "trust"),
    ("stored_secrets",),
    ("context",),
    ("store",),
    ("modules", "minds"),
    ("settings_check",),
    ("configuration",),
    ("configuration_change",),
    ("loop",),
    ("plan", "profiles", "screen", "programs", "standing_rules"),
    ("arguments", "checking", "reading"),
    ("driving",),
    ("offer",),
    ("runs",),
    ("lifting", "history"),
    ("publishing",),
    ("bridge",),
    ("sync",),
)
"""The folders and modules of `ideabridge.bridge`, the lowest first. Each imports of those
before it only."""
RANKS = {name: rank for rank, names in enumerate(LAYERS) for name in names}
PURE = {
    "anyio",
    "asyncio",
    "time",
    "datetime",
    "random",
    "sqlite3",
    "os",
    "pathlib",
    "mcp",
    "httpx",
    "pydantic_ai",
}
"""What the loop does without: its machine has no clock, no task, no file and no network."""


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT / path.relative_to(ROOT).parts[0]).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path): path for part in PARTS for path in modules(part)}


def imports_of(path: Path) -> set[str]:
    """The modules of ours that one imports, anywhere in it: at its head, in functions and under
    `TYPE_CHECKING`.
    """
    return {name for _, name in outline(path).imported if name in NAMES} - {name_of(path)}


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts of more than one module, after Tarjan."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        numbers[name] = lowest[name] = len(numbers)
        path.append(name)
        for other in sorted(graph[name]):
            if other not in numbers:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in path:
                lowest[name] = min(lowest[name], numbers[other])

        if lowest[name] == numbers[name]:
            part = path[path.index(name) :]
            del path[path.index(name) :]
            if len(part) > 1:
                found.append(sorted(part))

    for name in sorted(graph):
        if name not in numbers:
            visit(name)

    return found


def test_imports_make_no_cycle() -> None:
    # For type checkers alone, a package's list of public names imports everything below it.
    lists = {name for name, path in NAMES.items() if path.name == "__init__.py"}
    graph = {name: imports_of(path) - lists for name, path in NAMES.items() if name not in lists}
    assert cycles(graph) == []


def test_the_folders_of_the_bridge_import_one_way() -> None:
    wrong: list[str] = []
    for name, path in NAMES.items():
        here = name.split(".")[2:3]
        if name.split(".")[1] != "bridge" or not here:
            continue
        for other in imports_of(path):
            there = other.split(".")[2:3]
            if (
                other.split(".")[1] == "bridge"
                and there
                and there != here
                and RANKS[there[0]] >= RANKS[here[0]]
            ):
                wrong.append(f"{name} imports {other}")

    assert wrong == []


BEHIND_THE_PROTOCOL = {
    "copied",
    "earlier",
    "explanations",
    "items",
    "plan_literals",
    "removed",
    "seen",
    "steps",
}
"""The modules of `context` that compute literals; the loop knows `context/computed.py`, and
who reads a plan."""


def test_the_loop_knows_computed_literals_by_one_protocol() -> None:
    known = [
        (
            f"{name.removeprefix('ideabridge.bridge.')} imports "
            f"{other.removeprefix('ideabridge.bridge.context.')}"
        )
        for name, path in NAMES.items()
        if name.startswith("ideabridge.bridge.loop.")
        for other in sorted(imports_of(path))
        if other.startswith("ideabridge.bridge.context.")
        and other.split(".")[3] in BEHIND_THE_PROTOCOL
    ]
    assert known == ["loop.graph imports plan_literals"]


def test_the_loop_is_pure() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules("bridge")
        if "loop" in path.relative_to(ROOT).parts
        for line, name in outline(path).imported
        if name.split(".")[0] in PURE
    ]
    assert wrong == []


SHARED_NAMES = {
    "main": "the function that a process begins with",
    "folders": "history: each host's reader says where its logs are",
    "read_log": "history: each host's reader reads one log",
}
"""The names that several modules define, because whoever uses them chooses the module."""


def test_public_classes_and_functions_have_names_of_their_own() -> None:
    modules_by_name: dict[str, set[str]] = {}
    for module, path in NAMES.items():
        if module == "ideabridge.bridge.sync":
            # The bridge for scripts uses the names of what it waits for.
            continue
        for name in outline(path).defined:
            if not name.startswith("_") and name not in SHARED_NAMES:
                modules_by_name.setdefault(name, set()).add(module)

    defined_twice = {name: modules for name, modules in modules_by_name.items() if len(modules) > 1}
    assert defined_twice == {}


# -- what is committed -----------------------------------------------------------------------------

HERE = [re.escape(str(path)) for path in (ROOT, Path.home()) if len(path.parts) > 1]
FOREIGN = {
    "a path of somebody's machine": re.compile(
        rf"(?<![\w.$}}~-])(?:{'|'.join([*HERE, '/work', '/root'])})/[\w.-]+"
    ),
    "a host of a package registry": re.compile(
        r"pypi\.org/simple|files\.pythonhosted\.org|index-url|find-links", re.I
    ),
}
FOREIGN_ALLOWED = {"tests/test_project.py"}
"""Files that must name what they look for."""


@pytest.mark.parametrize("what", FOREIGN)
def test_nothing_of_one_machine_is_committed(what: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in committed()
        if str(path.relative_to(ROOT)) not in FOREIGN_ALLOWED
        for match in FOREIGN[what].finditer(text_of(path))
    ]
    assert wrong == []


def test_nothing_made_is_committed() -> None:
    made = re.compile(r"(^|/)(__pycache__|\.venv|dist|build)/|\.(pyc|sqlite(-wal|-shm)?)$")
    assert [
        name for path in committed() if made.search(name := path.relative_to(ROOT).as_posix())
    ] == []


def test_ci_runs_the_command_of_the_readme() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [
        line for line in script.read_text(encoding="utf-8").splitlines() if line.startswith("make ")
    ]
    # pytest's closing line comes at the end of the output.
    assert commands[-1].endswith(" test")
    assert "make test" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_long_tests_are_left_out_unless_they_are_asked_for() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^test-long: .* ## .*\n\t.* -m long ", makefile, re.M)
    options = project()["tool"]["pytest"]["ini_options"]
    assert "-m 'not long'" in options["addopts"]
    assert any(marker.startswith("long:") for marker in options["markers"])


# -- dependencies ----------------------------------------------------------------------------------


STANDS_ON = ("mcp", "pydantic", "jsonschema", "anyio", "httpx", "sqlite-utils")
"""The packages that the product is built on."""

NPM = ("constraints-npm.txt", "constraints-hosts.txt")
CONSTRAINTS = sorted({path.name for path in ROOT.glob("constraints*.txt")} - set(NPM))


def pins(file: str) -> list[Requirement]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("package", STANDS_ON)
def test_the_product_runs_on_the_packages_that_it_is_built_on(package: str) -> None:
    required = {
        canonicalize_name(Requirement(text).name) for text in project()["project"]["dependencies"]
    }
    assert package in required
    name = package.replace("-", "_")
    users = [
        path for part in PARTS for path in modules(part) if name in outline(path).imported_when_run
    ]
    assert users, f"no module of the product imports {name}"


def test_httpx2_is_used_only_where_the_client_is_that_of_a_library() -> None:
    users = {name for name, path in NAMES.items() if "httpx2" in outline(path).imported_when_run}
    foreign = {
        name
        for name in users
        if outline(NAMES[name]).imported_when_run & {"mcp", "mcp_types", "pydantic_ai"}
    }
    assert users - foreign == set(), (
        "httpx is our HTTP client; httpx2 is that of mcp and of pydantic-ai"
    )


def test_only_the_command_line_queries_the_store_by_sql_of_somebody() -> None:
    query = "ideabridge.bridge.store.sqlite.query"
    assert {name for name, path in NAMES.items() if query in imports_of(path)} == {
        "ideabridge.server.cli.stores"
    }


@pytest.mark.parametrize("file", CONSTRAINTS)
def test_constraints_are_exact_and_name_each_package_once(file: str) -> None:
    names = [canonicalize_name(pin.name) for pin in pins(file)]
    assert sorted(set(names)) == sorted(names)
    for pin in pins(file):
        assert re.fullmatch(r"==[0-9][^*,\s]*", str(pin.specifier)), f"{pin}: expected ==VERSION"
        assert pin.url is None


def test_constraints_name_every_dependency_of_the_project() -> None:
    meta = project()["project"]
    optional = dict(meta.get("optional-dependencies", {}))
    peers = {canonicalize_name(Requirement(text).name) for text in optional.pop("bench")}
    extras = [text for texts in optional.values() for text in texts]
    build = project()["build-system"]["requires"]
    pinned = {canonicalize_name(pin.name): pin for pin in pins("constraints.txt")}
    own = canonicalize_name(meta["name"])
    # Peers are measured as their users install them. A peer that one of our extras needs is pinned
    # like any other dependency.
    needed = {canonicalize_name(Requirement(text).name) for text in extras}
    assert not (peers - needed) & pinned.keys()
    for text in [*meta["dependencies"], *extras, *build]:
        wanted = Requirement(text)
        name = canonicalize_name(wanted.name)
        if name == own:
            continue
        assert name in pinned, f"{name} is a dependency, and constraints.txt does not name it"
        version = str(pinned[name].specifier).removeprefix("==")
        assert wanted.specifier.contains(version, prereleases=True), (
            f"{name}: {version} does not satisfy {wanted}"
        )


@pytest.mark.parametrize("file", CONSTRAINTS)
def test_make_pins_resolves_every_file_of_constraints(file: str) -> None:
    assert f'"{file}"' in (ROOT / "packaging" / "pins.py").read_text(encoding="utf-8")
    assert "make --no-print-directory pins\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", NPM)
def test_packages_of_npm_are_exact(file: str) -> None:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pinned = [line for line in lines if line.strip() and not line.startswith("#")]
    assert pinned
    for line in pinned:
        exact = r"(@[a-z-]+/)?[a-z-]+@[0-9]+\.[0-9]+\.[0-9]+(-alpha\.[0-9]+)?"
        assert re.fullmatch(exact, line), f"{line}: expected NAME@VERSION"


# -- what is shipped -------------------------------------------------------------------------------


def test_the_wheel_holds_the_three_packages(tmp_path: Path) -> None:
    copy = tmp_path / "project"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)

    for part in (*PARTS, "examples", "docs"):
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))

    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        str(tmp_path / "dist"),
    ]
    built = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry_points = archive.read(
            next(name for name in names if name.endswith("entry_points.txt"))
        ).decode()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()

    here = {
        path.relative_to(ROOT / part).as_posix()
        for part in PARTS
        for path in (ROOT / part / "ideabridge").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    wheel_options = project()["tool"]["hatch"]["build"]["targets"]["wheel"]
    here.update(wheel_options.get("force-include", {}).values())
    shipped = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    assert sorted(shipped) == sorted(here)
    assert "ideabridge = ideabridge.server.main:main" in entry_points
    # The page of the package shows the README, so the README's links must lead to the repository.
    targets = re.findall(r"\]\(([^)\s]+)\)", metadata)
    assert len(targets) > 20
    assert [one for one in targets if not one.startswith("https://")] == []
    assert "Project-URL: Changelog, https://" in metadata
