"""Run the cases of check_networks.py in processes, and print a line for each."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from .rows import Row, environment, write

#: Fixed cells of a row, what makes the rest, and its arguments.
Case = tuple[Row, Callable[..., Row], tuple[Any, ...]]


def line(row: Row) -> str:
    head = f"{row['network']:22} {row['form']:14} {row['importer']:5}"
    if "failed" in row:
        return f"{head} FAILED in {row.get('step', 'its process')}: {row['failed'][:400]}"
    text = f"{head} {'WRONG' if row['wrong'] else 'right'}"
    if "error" in row:
        text += f" error {row['error']:.1e} (PyTorch {row['of_peer']:.1e})"
    if "offloaded" in row:
        taken = " ".join(f"{name}={n}" for name, n in row["offloaded"].items()) or "nothing"
        text += f"  {taken}, {row['streams']} streams, {sum(row['declined'].values())} declined"
    if row.get("rescheduled"):
        text += f", {len(row['rescheduled'])} with a simpler schedule"
    return f"{text}  {row['build_s']} s"


def run_all(cases: list[Case], jobs: int, out: str = "") -> list[Row]:
    """Run cases in ``jobs`` processes; a case is a row's fixed cells, a function and its arguments.

    What ran beside a process that died is tried again, in the end each by itself.
    """
    rows: list[Row] = []

    def done(row: Row) -> None:
        rows.append(row)
        print(line(row), flush=True)
        if out:
            write(out, benchmark="networks", environment=environment(), rows=rows)

    left, context = list(cases), multiprocessing.get_context("spawn")
    while left:
        died = set()
        with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
            futures = {pool.submit(case[1], *case[2]): i for i, case in enumerate(left)}
            for future in concurrent.futures.as_completed(futures):
                try:
                    done(left[futures[future]][0] | future.result())
                except BrokenProcessPool:
                    died.add(futures[future])
        again = [case for i, case in enumerate(left) if i in died]
        if jobs == 1 and again:  # with one process it is the first of them that killed it
            done(again.pop(0)[0] | {"failed": "the process died"})
        elif len(again) == len(left):
            jobs = 1
        left = again
    return rows
