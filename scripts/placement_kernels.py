"""Which CUTLASS kernels are worth compiling for a benchmark: few, and good for many workloads."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

FIGURES = ("kernel_us", "e2e_us")
#: Candidates of a workload without records that are predicted.
PROPOSED = 200

#: A workload, a kernel configuration, and the measurement of a candidate that uses it.
Known = tuple[Any, Any, Any]


def recorded(records: Iterable[Any], workloads: Collection[Any]) -> Iterator[Known]:
    """What records say of CUTLASS kernels for these workloads."""
    from convoy.backends.kernels.cutlass.family import cutlass_backend

    launch_of = cutlass_backend().launch_of
    for record in records:
        if record.candidate.backend == "cutlass" and record.workload in workloads:
            yield record.workload, launch_of(record.candidate).kernel, record.measurement


def predicted(model: Any, workloads: Iterable[Any], device: Any) -> Iterator[Known]:
    """The same from a cost model that predicts, for workloads of which no record speaks."""
    from convoy.backends.kernels.cutlass.family import cutlass_backend
    from convoy.ir.candidate import Decline

    backend = cutlass_backend(limit=PROPOSED)
    for workload in workloads:
        proposed = backend.propose(workload, device)
        if isinstance(proposed, Decline):
            continue
        figures = model.figures(workload, proposed)
        for candidate, figure in zip(proposed, figures, strict=True):
            yield workload, backend.launch_of(candidate).kernel, figure


def worth_compiling(known: Iterable[Known], most: int) -> list[Any]:
    """At most ``most`` kernel configurations, best first.

    Each next one saves most over all workloads and both figures, given those before it: the greedy
    rule for facility location, within 1 - 1/e of the best set (Nemhauser, Wolsey, Fisher, 1978).
    A workload that no kernel serves yet costs twice its slowest candidate; every batch size weighs
    the same.
    """
    saved: dict[tuple[Any, str], dict[Any, float]] = {}
    for workload, config, measurement in known:
        for figure in FIGURES:
            us = getattr(measurement, figure)
            if measurement.ok and us:
                by_config = saved.setdefault((workload, figure), {})
                by_config[config] = min(us, by_config.get(config, us))
    current = {key: 2.0 * max(by_config.values()) for key, by_config in saved.items()}
    whole: dict[tuple[int, str], float] = {}
    for (workload, figure), us in current.items():
        whole[workload.n, figure] = whole.get((workload.n, figure), 0.0) + us
    by_kernel: dict[Any, list[tuple[tuple[Any, str], float]]] = {}
    for key, by_config in saved.items():
        for config, us in by_config.items():
            by_kernel.setdefault(config, []).append((key, us))
    configs = sorted(by_kernel, key=lambda c: str(c.name))
    chosen: list[Any] = []
    while len(chosen) < most:
        gains = {
            config: sum(
                max(0.0, current[key] - us) / whole[key[0].n, key[1]]
                for key, us in by_kernel[config]
            )
            for config in configs
            if config not in chosen
        }
        best = max(gains, key=gains.__getitem__, default=None)
        if best is None or gains[best] <= 0.0:
            break
        chosen.append(best)
        for key, us in by_kernel[best]:
            current[key] = min(current[key], us)
    return chosen


def keep(path: Path, configs: Iterable[Any]) -> None:
    path.write_text(json.dumps([config.to_json() for config in configs]))


def kept(path: Path) -> list[Any]:
    """Configurations that :func:`keep` wrote; none where it did not."""
    from convoy.backends.kernels.cutlass.config import KernelConfig

    found = json.loads(path.read_text()) if path.is_file() else []
    return [KernelConfig.from_json(config) for config in found]


def compile_in_time(configs: Iterable[Any], seconds: float) -> int:
    """Compile kernels in the order given, as many at once as the machine allows, and start none
    after so many seconds. How many are in the cache at the end."""
    import concurrent.futures
    import time

    from convoy.backends.kernels.compile import compile_kernel, default_jobs
    from convoy.errors import ConvoyError

    ends = time.monotonic() + seconds

    def one(config: Any) -> bool:
        if time.monotonic() > ends:
            return False
        started = time.monotonic()
        try:
            compile_kernel(config)
        except ConvoyError as err:
            print(f"  {config.name}: {err}"[:300], flush=True)
            return False
        if time.monotonic() - started > 2:
            print(f"  {config.name}: {time.monotonic() - started:.0f} s", flush=True)
        return True

    with concurrent.futures.ThreadPoolExecutor(default_jobs()) as pool:
        return sum(pool.map(one, list(configs)))
