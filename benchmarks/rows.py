"""Runs every benchmark and shows the rows of all of them in one table (`make bench`).

Each other script in this folder is a benchmark: it runs by itself, takes `--json`, prints one
object with `rows`, and exits 1 where a target is missed. A row has `what`, `ours`, `peer`, `floor`,
`ratio`, `target`, `met` (and more, which is not shown). A benchmark that lacks something to measure
prints no rows and `skipped`, the reason, which is shown. Benchmarks run one after the other: two at
once would measure each other.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

COLUMNS = ("what", "ours", "peer", "floor", "ratio", "target", "met")

Row = dict[str, Any]


def scripts(folder: Path) -> list[Path]:
    """The benchmarks, by name."""
    return [path for path in sorted(folder.glob("*.py")) if path.name != Path(__file__).name]


def rows_of(text: str) -> tuple[list[Row], str | None]:
    """The rows in what a benchmark printed, and why it measured nothing where it says so.

    Raises:
        ValueError: it is not one JSON object with `rows`.
    """
    printed: object = json.loads(text)
    if isinstance(printed, dict):
        told = cast("dict[str, object]", printed)
    else:
        told = {}

    rows = told.get("rows")
    skipped = told.get("skipped")
    if not isinstance(rows, list):
        raise ValueError('expected one JSON object with "rows"')

    found = [cast("Row", row) for row in cast("list[object]", rows) if isinstance(row, dict)]
    return found, skipped if isinstance(skipped, str) else None


def shown(value: object) -> str:
    """One value as the table shows it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def table(rows: list[Row]) -> str:
    """The rows as text, one line each, under the names of the columns."""
    lines = [COLUMNS, *(tuple(shown(row.get(column)) for column in COLUMNS) for row in rows)]
    widths = [max(len(line[number]) for line in lines) for number in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def run(script: Path) -> tuple[list[Row], str | None]:
    """Run one benchmark: its rows, and why it failed where it did."""
    print(f"{script.name} ...", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, str(script), "--json"], stdout=subprocess.PIPE, text=True, check=False
    )
    try:
        rows, skipped = rows_of(done.stdout)
    except ValueError as error:
        return (
            [],
            f"{script.name}: exit {done.returncode}, and what it printed cannot be read: {error}",
        )

    if skipped is not None:
        print(f"{script.name}: skipped: {skipped}", file=sys.stderr)

    missed = [str(row.get("what")) for row in rows if row.get("met") is False]
    if missed:
        return rows, f"{script.name}: missed {', '.join(missed)}"
    return rows, f"{script.name}: exit {done.returncode}" if done.returncode else None


def main() -> int:
    """Run them all; 1 where one failed or missed a target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "names", nargs="*", help="benchmarks by name, for example: ideas (default: all)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of a table"
    )
    options = parser.parse_args()
    names = cast("list[str]", options.names)
    found = scripts(Path(__file__).parent)
    unknown = sorted(set(names) - {path.stem for path in found})
    if unknown:
        parser.error(
            f"no benchmark {unknown[0]!r}; there are "
            f"{', '.join(path.stem for path in found) or 'none'}"
        )

    rows: list[Row] = []
    faults: list[str] = []
    for script in found:
        if names and script.stem not in names:
            continue
        measured, fault = run(script)
        rows.extend({**row, "script": script.stem} for row in measured)
        if fault is not None:
            faults.append(fault)

    print(
        json.dumps({"rows": rows, "faults": faults}, ensure_ascii=False)
        if options.json
        else table(rows)
    )
    for fault in faults:
        print(fault, file=sys.stderr)

    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
