"""The command ``convoy``. Mistakes of the user give one line and exit code 1, no traceback."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated, Any

import typer

from ..errors import ConvoyError
from . import records
from .bench import bench
from .build import build
from .config import config
from .doctor.command import doctor
from .output import say
from .place import place
from .run import run
from .sign import sign
from .trace import trace
from .tune import tune

app = typer.Typer(
    name="convoy",
    help="Select a kernel for each operator of a network by cost, and compile it.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _command in (doctor, place, build, bench, run, sign, trace, tune, config):
    app.command()(_command)
app.add_typer(records.app, name="records")


#: Of click, or of the copy of it that newer versions of typer have.
_UsageError: Any = typer.BadParameter.__mro__[1]


def main() -> None:
    """Run the command. ``CONVOY_TRACEBACK=1`` shows where an error was raised."""
    warnings.showwarning = _show_warning
    try:
        sys.exit(app(standalone_mode=False, prog_name="convoy"))
    except _UsageError as err:
        command = err.ctx.command_path if err.ctx else "convoy"
        message = " ".join(err.format_message().split())
        end = "" if message.endswith((".", "?")) else "."
        say(f"convoy: {message}{end} See {command} --help.", to_stderr=True)
        sys.exit(err.exit_code)
    except typer.Abort:
        sys.exit(130)
    except ConvoyError as err:
        if os.environ.get("CONVOY_TRACEBACK"):
            raise
        say(f"convoy: {type(err).__name__}: {err}", to_stderr=True)
        sys.exit(1)
    except OSError as err:
        if os.environ.get("CONVOY_TRACEBACK") or err.filename is None:
            raise
        say(f"convoy: {err.filename}: {err.strerror}", to_stderr=True)  # a file of the user's
        sys.exit(1)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    say(f"convoy: warning: {message}", to_stderr=True)


@app.callback(invoke_without_command=True)
def _version(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the versions of convoy and its libraries.")
    ] = False,
) -> None:
    if version:
        from .version import versions

        say(*(f"{name} {number}" for name, number in versions()))
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
