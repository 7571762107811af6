"""Build random networks for the GPU and compare them with numpy, until a time is over.

    python tests/gpu/random_builds.py --networks 10000 --seconds 200 --out FOLDER

Processes build ``TOGETHER`` networks at a time into one module, from shipped records and estimates,
on one stream and on several, and run each with and without capture, ``RUNS`` times on new inputs.
Prints counts while it runs, and each seed that is wrong or that could not be built or run; FOLDER
gets ``random.json``. Ends at once if the first network of every process fails in the same way.
``--first SEED --networks 1`` repeats one; ``--target emulated`` runs the code for a GPU on the CPU,
and ``--target llvm`` builds for the CPU.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import gc
import json
import multiprocessing
import os
import queue
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import tvm
from tests.helpers.evaluate import evaluate
from tests.helpers.growing import shape
from tests.helpers.random_graphs import random_module

import convoy
from convoy.backends import registry
from convoy.ir.defaults import BACKENDS
from convoy.ir.device import Device
from convoy.lower.describe import describe
from convoy.lower.target import with_arch
from convoy.pipeline import find_backends, place
from convoy.pipeline.lowering import lower
from convoy.runtime.compiled import CompiledModule
from convoy.runtime.session import Session
from convoy.streams.link import Part, link
from convoy.streams.schedule import schedule

TOGETHER, RUNS, STREAMS = 64, 3, 4
TOLERANCE = {"cuda": 1e-2, "emulated": 1e-2, "llvm": 1e-4}
#: Of what it makes to round every value to float16: some networks make more of rounding.
OF_ROUNDING = 2.0
#: From inputs in float32 to results.
Run = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
#: Networks that were checked, what is wrong by seed, and the errors of those that did not run.
Outcome = tuple[int, dict[int, list[str]], dict[int, str]]


def runs(mod: tvm.IRModule, target: str) -> Iterator[tuple[str, Run]]:
    """The module as it is built for a target, in each way that it is run."""
    if target == "emulated":
        from tests.emulation.network import Emulation

        placement = place(mod, measure=False, device=Device(), streams=1)
        for streams in (1, STREAMS):
            yield f"{streams} streams", functools.partial(emulate, Emulation(placement, streams))
        return
    for name, module in modules(mod, target):
        yield name, functools.partial(run_session, module.session())


def modules(mod: tvm.IRModule, target: str) -> Iterator[tuple[str, CompiledModule]]:
    """The module built on one and on several streams, captured and not."""
    if target == "llvm":
        yield "llvm", convoy.build(mod, "llvm", cache=False)
        return
    device = present()
    placement = place(mod, measure=False, device=device, streams=1)
    plan, backends = placement.plan, find_backends(BACKENDS)
    lowered = lower(placement, with_arch(target, device), backends)
    meta = describe(placement.module, target, "float16", plan)
    for streams in (1, STREAMS):
        timing = schedule(lowered, plan, streams, on_gpu=False, cuda_graph=True)
        executable = link([Part(lowered, timing.program, timing.schedule)])
        for graph in (False, True):
            own = dataclasses.replace(meta, schedule=timing.schedule.to_json(), cuda_graph=graph)
            used = timing.schedule.streams
            yield f"{used} streams{' captured' * graph}", CompiledModule(executable, own)


def present() -> Device:
    from convoy.runtime import present_device

    return present_device() or Device()


def distance(got: np.ndarray, want: np.ndarray) -> float:
    """Relative L2 error; differences of equals, which are nothing but rounding, count less."""
    wide = want.astype("float64")
    floor = 1e-2 * wide.size**0.5
    return float(np.linalg.norm(got.astype("float64") - wide) / max(np.linalg.norm(wide), floor))


def run_session(session: Session, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    types = [dtype for _, _, dtype in session.input_info]
    return session(*(x.astype(dtype) for x, dtype in zip(inputs, types, strict=True)))


def emulate(emulation: Any, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    return emulation(*inputs)


def check(seeds: Sequence[int], target: str) -> dict[int, list[str]]:
    """What is wrong with the networks of the seeds, built together."""
    mod, owners = random_module(list(seeds))
    rng = np.random.default_rng(seeds[0])
    sizes = [shape(x) for x in mod["main"].params]
    inputs = [[rng.standard_normal(s).astype("float32") for s in sizes] for _ in range(RUNS)]
    wanted = [evaluate(mod, xs) for xs in inputs]
    limits = np.full(len(owners), TOLERANCE[target])
    if target != "llvm":
        limits = np.maximum(limits, OF_ROUNDING * rounding_of(mod, inputs, wanted))
    wrong: dict[int, list[str]] = collections.defaultdict(list)
    for name, run in runs(mod, target):
        for i, (xs, want) in enumerate(zip(inputs, wanted, strict=True)):
            errors = np.array([distance(g, w) for g, w in zip(run(xs), want, strict=True)])
            for result in np.flatnonzero(~(errors < limits) & ~np.isinf(limits)):
                line = f"{name}, run {i}, result {result}: {errors[result]:.1e}"
                wrong[seeds[owners[result]]].append(line)
    return dict(wrong)


def rounding_of(
    mod: tvm.IRModule,
    inputs: Sequence[Sequence[np.ndarray]],
    wanted: Sequence[Sequence[np.ndarray]],
) -> np.ndarray:
    """The largest distance of each result where every value is rounded to float16; infinite where
    a value is too large for float16, as in 6 of the first 10,000 networks."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        halves = [evaluate(mod, xs, rounded_to="float16") for xs in inputs]
        rows = [
            [distance(*xy) for xy in zip(*pair, strict=True)]
            for pair in zip(halves, wanted, strict=True)
        ]
    return np.nan_to_num(np.max(rows, axis=0), nan=np.inf, posinf=np.inf)


def outcomes(seeds: Sequence[int], target: str) -> Iterator[Outcome]:
    """Of a block at once; of one that fails as a whole, of each half."""
    try:
        wrong = check(seeds, target)
    except Exception as error:
        if len(seeds) == 1:
            yield 1, {}, {seeds[0]: f"{type(error).__name__}: {error}"[:600]}
        else:
            half = len(seeds) // 2
            yield from outcomes(seeds[:half], target)
            yield from outcomes(seeds[half:], target)
    else:
        yield len(seeds), wrong, {}


def work(name: int, todo: Any, found: Any, target: str, end: float) -> None:
    """Check blocks of seeds as they come."""
    cudnn = registry.get("cudnn")  # its heuristics, 30 ms a workload, for a workload once
    cudnn.propose = functools.cache(cudnn.propose)  # type: ignore[method-assign]
    gc.disable()  # a tenth of the time: hardly anything but TVM's own counted references
    began = time.process_time()
    while time.time() < end:
        gc.collect()
        try:
            seeds = todo.get(timeout=1)
        except queue.Empty:
            return
        for outcome in outcomes(seeds, target):
            found.put((name, outcome, time.process_time() - began))
            began = time.process_time()
            if time.time() > end:
                break


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--networks", type=int, default=10000)
    made.add_argument("--first", type=int, default=0)
    made.add_argument("--seconds", type=float, default=200)
    made.add_argument("--workers", type=int, default=os.cpu_count())
    made.add_argument("--together", type=int, default=TOGETHER)
    made.add_argument("--target", choices=TOLERANCE, default="cuda")
    made.add_argument("--out", type=Path)
    return made


def main() -> int:
    options = parser().parse_args()
    began, last = time.time(), options.first + options.networks
    end = began + options.seconds
    for library in ("TVM", "OPENBLAS"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    # Not forked: to import TVM beside PyTorch starts CUDA, which a fork then cannot use.
    context = multiprocessing.get_context("spawn")
    blocks = [
        range(i, min(i + options.together, last))
        for i in range(options.first, last, options.together)
    ]
    share = -(-len(blocks) // options.workers)  # neighbours to one process, which knows their sizes
    shares = [blocks[i : i + share] for i in range(0, len(blocks), share)]
    found, queues, workers = context.Queue(), [context.Queue() for _ in shares], []
    for i, (todo, own) in enumerate(zip(queues, shares, strict=True)):
        for block in own:
            todo.put(list(block))
        arguments = (i, todo, found, options.target, end)
        workers.append(context.Process(target=work, args=arguments, daemon=True))
        workers[-1].start()
    done, cpu, said = 0, 0.0, time.time()
    wrong: dict[int, list[str]] = {}
    failed: dict[int, str] = {}
    first: dict[int, str] = {}  # how the first network of each process failed
    while any(worker.is_alive() for worker in workers) or not found.empty():
        try:
            name, (count, problems, failures), seconds = found.get(timeout=1)
            done, cpu, wrong, failed = (
                done + count,
                cpu + seconds,
                wrong | problems,
                failed | failures,
            )
            first.setdefault(name, next(iter(failures.values()), ""))
            for seed, lines in problems.items():
                print(f"seed {seed}: {len(lines)} wrong: {lines[0]}", flush=True)
            for seed, failure in failures.items():
                print(f"seed {seed} failed: {failure}", flush=True)
        except queue.Empty:
            pass
        if len(first) == len(workers) and len(how := set(first.values())) == 1 and all(how):
            print(f"ended: all {len(workers)} processes begin with {how.pop()}", flush=True)
            break
        if time.time() > end + 30:
            print("cut off:", sum(w.is_alive() for w in workers), "processes", flush=True)
            break
        if time.time() - said > 10:
            said = time.time()
            counts = f"{done} networks, {len(wrong)} wrong, {len(failed)} failed"
            print(f"{said - began:4.0f} s: {counts}", flush=True)
    codes = collections.Counter(worker.exitcode for worker in workers)
    summary = {
        "networks": done, "of": options.networks, "wrong": {str(k): v for k, v in wrong.items()},
        "failed": {str(k): v for k, v in failed.items()},
        "seconds": round(time.time() - began, 1), "cpu_s": round(cpu, 1),
        "exit_codes": {str(k): v for k, v in codes.items()},
    }  # fmt: skip
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "random.json").write_text(json.dumps(summary, indent=1))
    print(json.dumps({**summary, "wrong": len(wrong), "failed": len(failed)}), flush=True)
    return bool(wrong or failed) or any(code not in (0, None) for code in codes)


if __name__ == "__main__":
    sys.exit(main())
