"""Build random networks for the GPU and compare them with TVM on the CPU, until a time is over.

    python tests/gpu/random_builds.py --networks 10000 --seconds 200 --out FOLDER

Processes build ``TOGETHER`` networks at a time into one module, from shipped records and estimates,
on one stream and on several, and run each with and without capture, ``RUNS`` times on new inputs.
Prints counts while it runs, and each seed that is wrong or that could not be built or run; FOLDER
gets ``random.json``. Ends at once if the first network of every process fails in the same way.
``--first SEED --networks 1`` repeats one; ``--target llvm`` needs no GPU.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import json
import multiprocessing
import os
import queue
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import tvm
from tests.helpers.random_graphs import compile_with_tvm, random_module, shape

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

TOGETHER, RUNS, STREAMS = 32, 3, 4
TOLERANCE = {"cuda": 1e-2, "llvm": 1e-4}
#: Of float16's distance from float32 by llvm: rounding that a network makes more of.
OF_ROUNDING = 2.0
#: Networks that were checked, what is wrong by seed, and the errors of those that did not run.
Outcome = tuple[int, dict[int, list[str]], dict[int, str]]


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


def as_taken(session: Session, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Inputs in the types of the session."""
    types = [dtype for _, _, dtype in session.input_info]
    return [x.astype(dtype) for x, dtype in zip(inputs, types, strict=True)]


def check(seeds: Sequence[int], target: str) -> dict[int, list[str]]:
    """What is wrong with the networks of the seeds, built together."""
    mod, owners = random_module(list(seeds))
    rng = np.random.default_rng(seeds[0])
    sizes = [shape(x) for x in mod["main"].params]
    inputs = [[rng.standard_normal(s).astype("float32") for s in sizes] for _ in range(RUNS)]
    reference = compile_with_tvm(mod)
    wanted = [reference(*xs) for xs in inputs]
    bounds = np.full(len(owners), TOLERANCE[target])
    rounding: np.ndarray | None = None
    wrong: dict[int, list[str]] = collections.defaultdict(list)
    for name, module in modules(mod, target):
        session = module.session()
        for run, (xs, want) in enumerate(zip(inputs, wanted, strict=True)):
            got = session(
                *(x.astype(t) for x, (_, _, t) in zip(xs, session.input_info, strict=True))
            )
            errors = np.array([distance(g, w) for g, w in zip(got, want, strict=True)])
            if target == "cuda" and rounding is None and not (errors < bounds).all():
                rounding = OF_ROUNDING * rounding_of(mod, inputs)
                bounds = np.maximum(bounds, rounding)
            for i in np.flatnonzero(~(errors < bounds)):
                wrong[seeds[owners[i]]].append(f"{name}, run {run}, result {i}: {errors[i]:.1e}")
    return dict(wrong)


def rounding_of(mod: tvm.IRModule, inputs: list[list[np.ndarray]]) -> np.ndarray:
    """The largest distance of each result in float16 from that in float32, both by llvm."""
    half, single = (
        convoy.build(mod, "llvm", precision=precision, cache=False).session()
        for precision in ("float16", "float32")
    )
    rows = []
    for xs in inputs:
        pairs = zip(half(*as_taken(half, xs)), single(*as_taken(single, xs)), strict=True)
        rows.append([distance(h, s) for h, s in pairs])
    return np.max(rows, axis=0)


def outcomes(seeds: Sequence[int], target: str) -> Iterator[Outcome]:
    """Of a block at once; of one that fails as a whole, seed by seed."""
    try:
        wrong = check(seeds, target)
    except Exception as error:
        if len(seeds) == 1:
            yield 1, {}, {seeds[0]: f"{type(error).__name__}: {error}"[:600]}
        else:
            for seed in seeds:
                yield from outcomes([seed], target)
    else:
        yield len(seeds), wrong, {}


def work(name: int, todo: Any, found: Any, target: str, end: float) -> None:
    """Check blocks of seeds as they come."""
    cudnn = registry.get("cudnn")  # its heuristics, 30 ms a workload, for a workload once
    cudnn.propose = functools.cache(cudnn.propose)  # type: ignore[method-assign]
    began = time.process_time()
    while time.time() < end:
        try:
            seeds = todo.get(timeout=1)
        except queue.Empty:
            return
        for outcome in outcomes(seeds, target):
            found.put((name, outcome, time.process_time() - began))
            began = time.process_time()
            if time.time() > end:
                break


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, default=10000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--together", type=int, default=TOGETHER)
    parser.add_argument("--target", choices=TOLERANCE, default="cuda")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    began, last = time.time(), options.first + options.networks
    end = began + options.seconds
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
