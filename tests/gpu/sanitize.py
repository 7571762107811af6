"""Small problems for compute-sanitizer: own kernels of every family, and whole networks.

    compute-sanitizer --tool memcheck python tests/gpu/sanitize.py kernels
    python tests/gpu/sanitize.py build FOLDER --networks unet resnet
    compute-sanitizer --tool memcheck python tests/gpu/sanitize.py networks FOLDER

``kernels`` launches up to ``--most`` kernels of each family and direction, those that ship compiled
first, split-K among them, and compares them with float64; ``--prepare`` compiles them. ``networks``
runs what ``build`` made three times: as calls, captured and replayed. Each prints a line for what
is wrong and one in the end.
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from convoy.backends import registry
from convoy.backends.load import load_candidate
from convoy.errors import ConvoyError
from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload

BACKENDS = ("cutlass", "hopper", "depthwise", "attention")
BASE: dict[str, Any] = {"n": 2, "h": 9, "w": 13, "c": 64, "k": 64, "r": 3, "s": 3}
STEM: dict[str, Any] = {"n": 2, "h": 17, "w": 24, "c": 4, "k": 64, "r": 7, "s": 7}
STEM |= {"stride": (2, 2), "padding": (3, 3, 3, 3)}
CONVOLUTIONS: list[dict[str, Any]] = [
    {"padding": (1, 1, 1, 1)},
    {"padding": (1, 1, 1, 1), "epilogue": Epilogue(bias=True, activation="relu")},
    {"stride": (2, 2), "padding": (1, 1, 1, 1), "c": 136, "k": 72},
    {"r": 1, "s": 1, "c": 512, "k": 128},
    {"r": 1, "s": 1, "c": 64, "k": 256},
    {"r": 1, "s": 1, "c": 2048, "k": 64, "h": 7, "w": 7},
    {"padding": (1, 1, 1, 1), "c": 33, "k": 36},
    {"padding": (2, 1, 0, 1), "c": 136, "k": 200},
    {"stride": (2, 2), "padding": (0, 1, 2, 1), "c": 136, "k": 72},
    {"stride": (3, 3), "r": 1, "s": 1},
    {"stride": (3, 2), "padding": (0, 1, 2, 1), "r": 4, "s": 5, "c": 4, "k": 72, "w": 46},
    STEM,
    STEM | {"c": 3},
    STEM | {"epilogue": Epilogue(bias=True, activation="relu")},
]


def workloads() -> Iterator[Workload]:
    from tests.attention import cases as attention
    from tests.depthwise import cases as depthwise
    from tests.sm90 import bottleneck_cases, expansion_cases, squeeze_excite_cases, stem_cases

    for op in ("fprop", "dgrad", "wgrad"):
        for change in CONVOLUTIONS:
            if op == "fprop" or "epilogue" not in change:
                yield Workload(op, **BASE | change)
    for cases in (bottleneck_cases.taken_cases, expansion_cases.taken_cases):
        yield from (w for w in cases(30, 13) if w.flops < 1e8)
    for cases in (squeeze_excite_cases.taken_cases, stem_cases.cases):
        yield from (w for w in cases(30, 14) if w.flops < 1e8)
    for dtype in ("float16", "bfloat16"):
        yield from (w for w in depthwise.cases(40, 11, (dtype,)) if w.flops < 3e7)
        yield from (w for w in depthwise.grouped_cases(20, 12, (dtype,)) if w.flops < 1e8)
        for dim in (32, 64, 128):
            yield attention.workload(1, 2, 50, dim=dim, dtype=dtype)
            yield attention.workload(1, 2, 33, dim=dim, dtype=dtype, causal=True)
        yield attention.workload(2, 2, 49, dim=32, layout="packed", bias=(1, 1, 2, 49), dtype=dtype)
        yield attention.workload(1, 2, 1, 300, 64, dtype=dtype)


def chosen(
    device: Device, most: int, families: Sequence[str] = ()
) -> Iterator[tuple[Any, Workload, Candidate]]:
    """Kernels of each family and direction, or of some families; others than compiled ones only of
    a family without any."""
    backends = {name: registry.get(name) for name in BACKENDS}
    seen: collections.Counter[str] = collections.Counter()
    used: set[tuple[str, str]] = set()
    for compiled in (True, False):
        had = set(seen)
        for workload in workloads():
            for backend in backends.values():
                (found,) = backend.propose_all([workload], device, compiled)
                for candidate in found if isinstance(found, (list, tuple)) else ():
                    kind = kind_of(workload, candidate)
                    if families and kind.split()[0] not in families:
                        continue
                    keys = {(kind, candidate.kernel), (kind, workload.key)}
                    limit = most if compiled else 1
                    if (not compiled and kind in had) or seen[kind] >= limit or keys & used:
                        continue
                    seen[kind] += 1
                    used |= keys
                    yield backend, workload, candidate


def kind_of(workload: Workload, candidate: Candidate) -> str:
    options: Any = candidate.options()
    split = " split-K" if options.get("split_k", 1) > 1 else ""
    return f"{options['kernel'].get('family', '?')} {workload.op}{split}"


def prepare(most: int, families: Sequence[str]) -> int:
    """Compile those that do not ship."""
    jobs = collections.defaultdict(list)
    for backend, workload, candidate in chosen(Device(), most, families):
        print(kind_of(workload, candidate), workload.key[:60], candidate.kernel)
        jobs[backend].append((workload, candidate))
    failed = {}
    for backend, wanted in jobs.items():
        failed |= backend.prepare(wanted, Device())
    print("compiled;", len(failed), "failed", *map(str, failed.values()), flush=True)
    return len(failed)


def kernels(most: int, families: Sequence[str], part: int, parts: int) -> int:
    """Launch those of one part of ``parts``; returns how many are wrong."""
    from convoy.measure.problem import error_of, make_problem, tolerance
    from convoy.runtime import current_device

    device = current_device()
    wrong, done = 0, collections.Counter()
    for backend, workload, candidate in list(chosen(device, most, families))[part::parts]:
        done[kind_of(workload, candidate)] += 1
        problem = make_problem(workload, np.random.default_rng(1))
        try:
            call = load_candidate(backend, workload, candidate, device)
            error = error_of(problem, call)
        except (ConvoyError, RuntimeError) as failure:
            print(f"FAILED {workload.key} {candidate.key}: {str(failure)[:200]}", flush=True)
            wrong += 1
            continue
        if not error <= tolerance(workload):
            print(f"WRONG {error:.1e} {workload.key} {candidate.key}", flush=True)
            wrong += 1
    print(f"{sum(done.values())} kernels, {wrong} wrong:", dict(done), flush=True)
    return wrong


def build(folder: Path, names: list[str]) -> int:
    """Modules, inputs and PyTorch's outputs of networks of the zoo."""
    import torch
    from tests import zoo

    import convoy

    device = "cuda" if torch.cuda.is_available() else "cpu"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        torch.manual_seed(len(name))
        net, shapes = zoo.make(name), zoo.NETWORKS[name].inputs
        inputs = [torch.randn(2, *shape) for shape in shapes]
        with torch.no_grad():
            result = net.double()(*[x.double() for x in inputs])
        results = result if isinstance(result, (list, tuple)) else [result]
        half = [x.to(device, torch.float16) for x in inputs]
        module = convoy.compile(zoo.make(name).to(device).half(), half, measure=False)
        module.export(folder / f"{name}.so")
        arrays = {f"x{i}": x.cpu().numpy() for i, x in enumerate(half)}
        np.savez(folder / f"{name}.npz", **arrays, **{f"y{i}": y for i, y in enumerate(results)})
        print(name, module.plan.backends() if module.plan else "llvm", flush=True)
    return 0


def networks(folder: Path) -> int:
    import convoy

    wrong, count = 0, 0
    for path in sorted(folder.glob("*.so")):
        arrays = np.load(path.with_suffix(".npz"))
        inputs = [arrays[f"x{i}"] for i in range(sum(n[0] == "x" for n in arrays.files))]
        session, worst = convoy.load(path).session(), 0.0
        for _ in range(3):
            for i, got in enumerate(session(*inputs)):
                want = arrays[f"y{i}"]
                error = np.linalg.norm(got.astype("float64") - want) / (np.linalg.norm(want) or 1)
                worst = max(worst, float(error))
        count += 1
        if not worst < 2e-2:
            wrong += 1
            print(f"WRONG {path.stem}: {worst:.1e}", flush=True)
    print(f"{count} networks, {wrong} wrong", flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("kernels").add_argument
    add("--most", type=int, default=3, help="of each family and direction")
    add("--families", nargs="+", default=(), help="of kernels: image_conv, bottleneck, ...")
    add("--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="every Nth from I")
    add("--prepare", action="store_true", help="only compile those that do not ship")
    command = commands.add_parser("build")
    command.add_argument("folder", type=Path)
    command.add_argument("--networks", nargs="+", required=True)
    commands.add_parser("networks").add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.command == "kernels":
        if options.prepare:
            return bool(prepare(options.most, options.families))
        return bool(kernels(options.most, options.families, *options.part))
    if options.command == "build":
        return build(options.folder, options.networks)
    return bool(networks(options.folder))


if __name__ == "__main__":
    sys.exit(main())
