"""Validate the options of a build before any long step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from . import paths
from .cost.model import CostModel
from .cost.sources import COSTS
from .errors import InvalidOption
from .ir import objective as objectives
from .ir.device import Device
from .ir.dtypes import PRECISIONS
from .ir.plan import Plan
from .placement.select import SEARCHES

KERNELS = ("shipped", "all")


def check_options(
    *,
    precision: str = "float16",
    objective: str = "graph",
    search: str = "exact",
    plan: Plan | None = None,
    kernels: str = "shipped",
    costs: str | CostModel | None = None,
    budget: float | None = None,
    seconds: float = 60.0,
    most_measured: int | None = None,
    device: Device | None = None,
    **others: object,
) -> None:
    """Check the options of ``convoy.build`` and ``convoy.place`` that have a range.

    Raises:
        InvalidOption: The first one that is outside of it.
    """
    objectives.check(objective)
    _one_of("precision", precision, PRECISIONS)
    _one_of("search", search, SEARCHES)
    _one_of("kernels", kernels, KERNELS)
    if not isinstance(costs, CostModel | None):
        _one_of("costs", costs, COSTS, "or a CostModel")
    if plan is not None and not isinstance(plan, Plan):
        raise InvalidOption(f"a plan of type {type(plan).__name__}", "a Plan: Plan.loads(text)")
    if device is not None and not isinstance(device, Device):
        raise InvalidOption(f"device {device!r}", "a convoy.Device")
    if budget is not None:
        _at_least("budget", budget, 0, "seconds of measuring, or None")
    _at_least("seconds", seconds, 0, "seconds")
    if most_measured is not None:
        _at_least("most_measured", most_measured, 1, "a number of candidates, or None")


def _one_of(name: str, value: object, known: Sequence[str], more: str = "") -> None:
    if not isinstance(value, str) or value not in known:
        raise InvalidOption(
            f"{name} {value!r}", f"one of {', '.join(known)}{', ' * bool(more)}{more}"
        )


def _at_least(name: str, value: object, least: int, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
        raise InvalidOption(f"{name}={value!r}", f"{what}, at least {least}")


def check_records(records: str | os.PathLike[str] | None) -> None:
    """Check that measurements can be added to a record file (None: the user's own).

    Raises:
        CacheUnwritable: Its folder cannot be written to.
    """
    paths.check_writable(Path(records) if records else paths.user_records_file(), make_folders=True)
