"""The command ``convoy doctor``."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from ..options import Json
from ..output import say


def doctor(
    as_json: Json = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="Fail unless the GPU path works.")] = False,
) -> None:
    """Show installed and missing components, and the commands that install them.

    Exit code 0 when placing from records and running on the CPU work; with --gpu, when measuring
    and running on a GPU work as well.
    """
    from ...report import tables
    from . import probes

    checks = probes.examine()
    cpu_ready, gpu_ready = probes.ready(checks), probes.ready(checks, gpu=True)
    if as_json:
        found = [dataclasses.asdict(check) for check in checks]
        print(json.dumps({"checks": found, "cpu": cpu_ready, "gpu": gpu_ready}, indent=1))
    else:
        tables.show(probes.COLUMNS, checks, width=80)
        for check in checks:
            if check.remedy:  # a command to copy: not folded
                say(f"{check.name}: {check.remedy}")
        say(
            f"without a GPU: {'ready' if cpu_ready else 'NOT ready'}; "
            f"with a GPU: {'ready' if gpu_ready else 'not ready'}"
        )
    raise typer.Exit(0 if (gpu_ready if gpu else cpu_ready) else 1)
