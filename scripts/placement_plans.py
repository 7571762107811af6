"""The plans that bench_placement.py compares: for one network every variant under every objective,
from records, in a process of its own."""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from networks import network
from placement_cases import GREEDY_SINGLES, MODES, PLACED, SINGLES

STREAMS = 4
EVOLVED = 2  # finalists of the second level that are compiled
TVM_MOST_BATCH = 8  # larger ones take TVM's kernels seconds


BACKENDS = ("cudnn", "cutlass", "hopper")


def is_compiled(listed: Collection[Any] = ()) -> Callable[[Any], bool]:
    """Whether a candidate of any backend can be built without compiling a CUTLASS kernel; those
    ``listed`` are taken for compiled."""
    from convoy.backends.kernels.cache import KernelCache
    from convoy.backends.kernels.compile import cache_key
    from convoy.backends.kernels.cutlass.family import cutlass_backend
    from convoy.backends.kernels.toolkit import find_toolkit

    cache, toolkit, known = KernelCache(), find_toolkit(), dict.fromkeys(listed, True)

    def compiled(candidate: Any) -> bool:
        if candidate.backend != "cutlass":
            return True
        config = cutlass_backend().launch_of(candidate).kernel
        if config not in known:
            known[config] = cache.get(cache_key(config, toolkit)) is not None
        return bool(known[config])

    return compiled


def compiled_backend(listed: Collection[Any] = ()) -> Any:
    """The CUTLASS backend with those candidates whose kernel is in the cache or ``listed``."""
    from convoy.backends.kernels.backend import KernelBackend
    from convoy.backends.kernels.cutlass.config import KernelConfig
    from convoy.backends.kernels.cutlass.family import cutlass_backend
    from convoy.ir.candidate import Candidate, Decline
    from convoy.ir.device import Device
    from convoy.ir.workload import Workload

    compiled = is_compiled(listed)

    class Compiled(KernelBackend[KernelConfig]):
        def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
            answer = super().propose(workload, device)
            if isinstance(answer, Decline):
                return answer
            kept = [candidate for candidate in answer if compiled(candidate)]
            return kept or Decline(self.name, "none of its kernels is compiled", "--compile")

    return Compiled(cutlass_backend().family, limit=200)


def backends_of(args: argparse.Namespace, listed: Collection[Any] = ()) -> list[Any]:
    """The backends of the benchmark: of CUTLASS without ``args.compile`` only what is compiled or
    ``listed``."""
    from convoy.placement import api as placing

    backends = placing.find_backends(args.backends)
    return [
        compiled_backend(listed) if b.name == "cutlass" and not args.compile else b
        for b in backends
    ]


def placer(args: argparse.Namespace, name: str, batch: int) -> Any:
    """The placer of one network from records."""
    from convoy.cost.host import HostTimes
    from convoy.cost.sources import cost_model
    from convoy.ir.device import Device
    from convoy.placement import placer as placers
    from convoy.records import environment as environments

    backends, device = backends_of(args), Device(**args.device)
    forms = placers.normal_forms(network(name, batch), None, args.precision)
    costs, environment = cost_model(backends, device, args.records, measure=False)
    boot = environments.current().boot
    costs.hosts = HostTimes.from_json(args.hosts, boot)  # type: ignore[attr-defined]
    if not args.compile:
        compiled, known = is_compiled(), costs.candidates
        costs.candidates = lambda workload: [c for c in known(workload) if compiled(c)]  # type: ignore[method-assign]
    return placers.Placer(forms, backends, device, costs, environment)


def plans_of(job: tuple[argparse.Namespace, str, int]) -> dict[str, Any]:
    """Plans by ``variant/objective``, from records; variants that cannot be placed have a reason
    instead."""
    warnings.simplefilter("ignore")
    args, name, batch = job
    network_placer = placer(args, name, batch)
    found: dict[str, Any] = {}
    for objective in args.modes:
        for variant in variants_of(objective):
            search = "greedy" if variant.endswith("greedy") else PLACED
            used = {**SINGLES, **GREEDY_SINGLES}.get(variant, ())
            started = time.perf_counter()
            try:
                placed = network_placer.place(objective, search, used)
            except Exception as err:  # a backend that declines all of it
                found[f"{variant}/{objective}"] = {"failed": f"{type(err).__name__}: {err}"[-800:]}
                continue
            found[f"{variant}/{objective}"] = described(placed.plan, started)
            found[f"{variant}/{objective}"]["left_to_tvm"] = len(placed.native)
    if "graph" not in args.modes:
        return found
    started = time.perf_counter()
    try:
        for i, (plan, us) in enumerate(network_placer.finalists("graph", EVOLVED)):
            found[f"evolved{i + 1}/graph"] = {**described(plan, started), "simulated_us": us}
    except Exception as err:
        found["evolved1/graph"] = {"failed": f"{type(err).__name__}: {err}"[-800:]}
    if batch <= TVM_MOST_BATCH and not args.skip_tvm:
        found["tvm/any"] = {"plan": None, "backends": {}, "cost_us": {}}
    return found


def variants_of(mode: str) -> list[str]:
    """What is placed for a mode."""
    found = [*SINGLES, "greedy", PLACED]
    return [*found, *GREEDY_SINGLES] if mode == "graph" else found


def described(plan: Any, started: float) -> dict[str, Any]:
    return {
        "plan": plan.to_json(),
        "backends": plan.backends(),
        "search_s": round(time.perf_counter() - started, 2),
        "cost_us": {o: plan.total_us(o) for o in MODES},
    }


def needed(plans: dict[str, Any], mode: str) -> list[tuple[str, int]]:
    """(plan, streams) of what is run in a mode: the plans made for it, and the exact cover of
    another objective, which shows what the wrong metric loses."""
    wanted = [(f"{variant}/{mode}", 1) for variant in variants_of(mode)]
    if mode == "graph":
        wanted.append((f"{PLACED}/sync", 1))
        streamed = [*SINGLES, PLACED, *(f"evolved{i + 1}" for i in range(EVOLVED))]
        wanted += [(f"{variant}/graph", STREAMS) for variant in streamed]
    else:
        wanted.append((f"{PLACED}/graph", 1))
    wanted.append(("tvm/any", 1))
    return [(n, s) for n, s in wanted if n in plans and "failed" not in plans[n]]


def signature(plan: dict[str, Any] | None) -> str:
    """Equal for plans that compile to the same module."""
    if plan is None:
        return "tvm"
    choices = [
        (c["region"], c["chosen"]["candidate"]["backend"], c["chosen"]["candidate"]["kernel"])
        for c in plan["choices"]
    ]
    return json.dumps([plan["choices"] and plan["choices"][0]["workload"], sorted(choices)])


def workloads_of(job: tuple[str, int, str]) -> list[Any]:
    """The workloads that figures are asked for when a network is placed."""
    from convoy.placement import api as placing

    name, batch, precision = job
    return placing.workloads_of(network(name, batch), precision=precision, search=PLACED)
