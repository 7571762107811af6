"""The command ``convoy``. Mistakes of the user give one line and exit code 1, no traceback."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import __version__
from ..errors import ConvoyError
from . import commands
from .tune import tune

if TYPE_CHECKING:
    from ..records.store import RecordStore

app = typer.Typer(
    name="convoy",
    help="Place every convolution of a network on cuDNN or CUTLASS by measured cost.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
records_app = typer.Typer(no_args_is_help=True, help="Look after files of measurements.")
app.add_typer(records_app, name="records")

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def main() -> None:
    """Entry point. ``CONVOY_TRACEBACK=1`` shows where an error was raised."""
    warnings.showwarning = _show_warning
    try:
        app()
    except ConvoyError as err:
        if os.environ.get("CONVOY_TRACEBACK"):
            raise
        print(f"convoy: {type(err).__name__}: {err}", file=sys.stderr)
        sys.exit(1)
    except OSError as err:
        if os.environ.get("CONVOY_TRACEBACK") or err.filename is None:
            raise
        print(f"convoy: {err.filename}: {err.strerror}", file=sys.stderr)  # a file of the user's
        sys.exit(1)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"convoy: warning: {message}", file=sys.stderr)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@app.command()
def doctor(
    as_json: Json = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="Fail unless all for a GPU is there.")] = False,
) -> None:
    """Say what is found, what is missing, and the command that installs it.

    Exit code 0 when placing from records and running on the CPU work; with --gpu, when measuring
    and running on a GPU work as well.
    """
    from ..report import tables
    from . import doctor as doctors

    checks = doctors.examine()
    cpu_ready, gpu_ready = doctors.ready(checks), doctors.ready(checks, gpu=True)
    if as_json:
        found = [dataclasses.asdict(check) for check in checks]
        print(json.dumps({"checks": found, "cpu": cpu_ready, "gpu": gpu_ready}, indent=1))
    else:
        tables.show(doctors.COLUMNS, checks)
        print(f"without a GPU: {'ready' if cpu_ready else 'NOT ready'}", end="; ")
        print(f"with a GPU: {'ready' if gpu_ready else 'not ready'}")
    raise typer.Exit(0 if (gpu_ready if gpu else cpu_ready) else 1)


for _command in (commands.place, commands.build, commands.run, commands.trace, tune):
    app.command()(_command)

FILES = Annotated[
    list[Path] | None,
    typer.Argument(help="Record files or folders; none: the shipped ones and your own."),
]


@records_app.command("show")
def records_show(
    files: FILES = None,
    contains: Annotated[str, typer.Option(help="Only workloads whose key contains this.")] = "",
    limit: Annotated[int, typer.Option(help="At most so many rows; 0 for all.")] = 50,
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
    print(f"{len(shown)} of {len(rows)} records; {listing.summary(rows)}")


@records_app.command("coverage")
def records_coverage(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(help="Workload lists (.jsonl) or models; none: the shipped lists."),
    ] = None,
    records: Annotated[
        list[Path] | None,
        typer.Option(help="Record file or folder; none: the shipped ones and your own."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say how many workloads have figures, of each backend, and name those that have none.

    What counts is what a placement on the GPU that is present, otherwise on an H200, would use.
    Exit code 1 where a workload has no figures at all.
    """
    from .. import paths
    from ..report import tables
    from . import coverage
    from .tune import find_workloads

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
        print(f"workloads without figures: {len(missing)}", *missing, sep="\n  ")
    raise typer.Exit(1 if missing else 0)


@records_app.command("merge")
def records_merge(
    target: Annotated[Path, typer.Argument(help="File to write; what it holds stays in it.")],
    sources: Annotated[list[Path], typer.Argument(help="Files or folders to take in.")],
) -> None:
    """Join record files into TARGET; of several measurements of one thing the latest stays."""
    from ..records import maintenance

    outcome = maintenance.merge(sources, target)
    print(
        f"{target}: {outcome.kept} records; {outcome.removed} superseded, "
        f"{outcome.skipped} unreadable lines left out"
    )


@records_app.command("prune")
def records_prune(
    file: Annotated[Path, typer.Argument(help="File to prune.")],
    failures: Annotated[bool, typer.Option(help="Also remove failed measurements.")] = False,
    gpu: Annotated[str, typer.Option(help="Keep this GPU's records only.")] = "",
    before: Annotated[str, typer.Option(help="Also remove older ones, e.g. 2026-01-31.")] = "",
    edited: Annotated[
        bool, typer.Option(help="Also remove those of other kernel sources than the present.")
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
    print(
        f"{file}: {outcome.kept} records kept, {outcome.removed} removed, "
        f"{outcome.skipped} unreadable lines removed{kept_aside}"
    )


@records_app.command("export")
def records_export(
    files: FILES = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; none: standard output."),
    ] = None,
) -> None:
    """Write measurements as CSV."""
    from ..records import maintenance

    store = _store(files)
    if out is None:
        maintenance.export_csv(store, sys.stdout)
        return
    with open(out, "w", encoding="utf-8", newline="") as stream:
        count = maintenance.export_csv(store, stream)
    print(f"{out}: {count} records")


def _store(files: list[Path] | None) -> RecordStore:
    from ..errors import InvalidOption
    from ..records.store import RecordStore

    for path in files or ():
        if not path.exists():
            raise InvalidOption(f"record file {path}, which does not exist", "an existing file")
    return RecordStore(files) if files else RecordStore.default()
