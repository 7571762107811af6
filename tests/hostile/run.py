"""Read mutated records, plans, schedules, caches, journals and the like until the time is up.

Each batch runs in a process of its own with a new seed, so that a crash is found as well. What
goes wrong is printed and kept in a file, one JSON object a line: ``--again FILE`` tries it again.

    python tests/hostile/run.py --seconds 600 --jobs 8 --keep failures.jsonl
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import secrets
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.hostile.inputs import INPUTS, attempt

BATCH = 2000


def batch(kind: str, seed: str) -> list[tuple[str, str, str]]:
    """(kind, seed, what is wrong) of a batch."""
    found = []
    for number in range(BATCH):
        if wrong := attempt(kind, f"{seed} {number}"):
            found.append((kind, f"{seed} {number}", wrong))
    return found


def run(kind: str, seed: str) -> list[tuple[str, str, str]]:
    """As :func:`batch`, in a process that may crash."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(batch, kind, seed).result(timeout=600)
        except concurrent.futures.process.BrokenProcessPool:
            return [(kind, seed, "the process crashed")]
        except TimeoutError:
            return [(kind, seed, "no answer in 600 s")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kinds", nargs="*", default=list(INPUTS), choices=list(INPUTS))
    parser.add_argument("--keep", type=Path, default=Path("failures.jsonl"))
    parser.add_argument("--again", type=Path, help="a file of --keep")
    options = parser.parse_args()
    if options.again:
        cases = [json.loads(line) for line in options.again.read_text().splitlines()]
        wrong = [(case, found) for case in cases if (found := attempt(case["kind"], case["seed"]))]
        for case, found in wrong:
            print(case["kind"], case["seed"], found)
        return bool(wrong)
    end, done, failures = time.monotonic() + options.seconds, 0, 0
    seed = secrets.token_hex(4)
    print(f"seed {seed}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting: set[concurrent.futures.Future[list[tuple[str, str, str]]]] = set()
        number = 0
        while waiting or time.monotonic() < end:
            while len(waiting) < options.jobs and time.monotonic() < end:
                kind = options.kinds[number % len(options.kinds)]
                waiting.add(pool.submit(run, kind, f"{seed} {number}"))
                number += 1
            finished, waiting = concurrent.futures.wait(
                waiting, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for future in finished:
                done += BATCH
                for kind, its_seed, wrong in future.result():
                    failures += 1
                    print(kind, its_seed, wrong[:300], flush=True)
                    with options.keep.open("a") as file:
                        case = {"kind": kind, "seed": its_seed, "wrong": wrong}
                        file.write(json.dumps(case) + "\n")
    print(f"{done} inputs, {failures} wrong")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
