"""The commands ``convoy records``: look after files of measurements."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidOption
from .options import Json
from .output import say

if TYPE_CHECKING:
    from ..records.store import RecordStore

app = typer.Typer(help="Maintain files of measurements.")

Files = Annotated[
    list[Path] | None,
    typer.Argument(help="Record files or folders; default: shipped and your own."),
]


@app.command("show")
def show(
    files: Files = None,
    contains: Annotated[str, typer.Option(help="Only workloads whose key contains this.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="Maximum number of rows; 0: all.")] = 50,
    as_json: Json = False,
) -> None:
    """List measurements, the fastest candidate of each workload first."""
    from ..report import tables
    from . import listing

    rows = listing.rows(_store(files), contains)
    shown = rows[:limit] if limit else rows
    if as_json:
        print(json.dumps([listing.as_json(record) for record in shown], indent=1))
        return
    tables.show(listing.COLUMNS, shown)
    say(f"{len(shown)} of {len(rows)} records; {listing.summary(rows)}")


@app.command("coverage")
def show_coverage(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(help="Workload lists (.jsonl) or models; default: the shipped lists."),
    ] = None,
    records: Annotated[
        list[Path] | None,
        typer.Option(help="Record file or folder; default: shipped and your own."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the measured workloads of each backend, and list those without a measurement.

    What counts is what a placement on the GPU that is present, otherwise on an H200, would use.
    Exit code 1 if a workload has no measurement at all.
    """
    from .. import paths
    from ..report import tables
    from . import coverage
    from .workloads import find_workloads

    sources = sources or sorted(paths.workloads_dir().glob("*.jsonl"))
    found = coverage.of_lists(
        {source.stem: find_workloads([source], None, None, "float16") for source in sources},
        _store(records),
    )
    missing = [workload.key for row in found for workload in row.missing]
    if as_json:
        print(json.dumps([row.to_json() for row in found], indent=1))
    else:
        tables.show(coverage.COLUMNS, found)
        say(f"workloads without measurements: {len(missing)}", *(f"  {key}" for key in missing))
    raise typer.Exit(1 if missing else 0)


@app.command("merge")
def merge(
    target: Annotated[Path, typer.Argument(help="File to write; its records are kept.")],
    sources: Annotated[list[Path], typer.Argument(help="Files or folders to merge.")],
) -> None:
    """Merge record files into TARGET; the latest of several measurements of one kernel stays."""
    from ..records import maintenance

    outcome = maintenance.merge(sources, target)
    say(
        f"{target}: {outcome.kept} records; {outcome.removed} superseded, "
        f"{outcome.skipped} unreadable lines left out"
    )


@app.command("prune")
def prune(
    file: Annotated[Path, typer.Argument(help="File to prune.")],
    failures: Annotated[bool, typer.Option(help="Also remove failed measurements.")] = False,
    gpu: Annotated[str, typer.Option(help="Keep only records of this GPU.")] = "",
    before: Annotated[
        str, typer.Option(help="Also remove records older than this, e.g. 2026-01-31.")
    ] = "",
    edited: Annotated[
        bool, typer.Option(help="Also remove records of outdated kernel sources.")
    ] = False,
) -> None:
    """Remove superseded and unreadable lines, and others on request."""
    from ..records import environment, maintenance

    outcome = maintenance.prune(
        file,
        failures=failures,
        gpu=gpu or None,
        before=before or None,
        superseded_kernels=environment.kernel_hashes() if edited else None,
    )
    kept_aside = f" (kept in {outcome.backup})" if outcome.backup else ""
    say(
        f"{file}: {outcome.kept} records kept, {outcome.removed} removed, "
        f"{outcome.skipped} unreadable lines removed{kept_aside}"
    )


@app.command("export")
def export(
    files: Files = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; default: standard output."),
    ] = None,
) -> None:
    """Write measurements as CSV."""
    from ..records.spreadsheet import export_csv

    store = _store(files)
    if out is None:
        export_csv(store, sys.stdout)
        return
    with open(out, "w", encoding="utf-8", newline="") as stream:
        count = export_csv(store, stream)
    say(f"{out}: {count} records")


def _store(files: list[Path] | None) -> RecordStore:
    from ..records.store import RecordStore

    for path in files or ():
        if not path.exists():
            raise InvalidOption(f"record file {path}, which does not exist", "an existing file")
    return RecordStore(files) if files else RecordStore.default()
