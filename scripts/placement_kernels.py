"""Which CUTLASS kernels are worth compiling for a benchmark: few, and good for many workloads."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

FIGURES = ("kernel_us", "e2e_us")


def worth_compiling(records: Iterable[Any], workloads: Collection[Any], most: int) -> list[Any]:
    """At most ``most`` kernel configurations, best first.

    Each next one saves most over all workloads and both figures, given those before it: the greedy
    rule for facility location, within 1 - 1/e of the best set (Nemhauser, Wolsey, Fisher, 1978).
    A workload that no kernel serves yet costs twice its slowest candidate.
    """
    from convoy.backends.cutlass import launch_of

    saved: dict[tuple[Any, str], dict[Any, float]] = {}
    for record in records:
        if record.candidate.backend != "cutlass" or record.workload not in workloads:
            continue
        config = launch_of(record.candidate).config
        for figure in FIGURES:
            us = getattr(record.measurement, figure)
            if record.measurement.ok and us:
                by_config = saved.setdefault((record.workload, figure), {})
                by_config[config] = min(us, by_config.get(config, us))
    current = {key: 2.0 * max(by_config.values()) for key, by_config in saved.items()}
    whole = {f: sum(us for (_, figure), us in current.items() if figure == f) for f in FIGURES}
    configs = sorted({c for by_config in saved.values() for c in by_config}, key=lambda c: c.name)
    chosen: list[Any] = []
    while len(chosen) < most:
        gains = {
            config: sum(
                max(0.0, current[key] - by_config.get(config, current[key])) / whole[key[1]]
                for key, by_config in saved.items()
            )
            for config in configs
            if config not in chosen
        }
        best = max(gains, key=gains.__getitem__, default=None)
        if best is None or gains[best] <= 0.0:
            break
        chosen.append(best)
        for key, by_config in saved.items():
            current[key] = min(current[key], by_config.get(best, current[key]))
    return chosen


def compile_in_time(configs: Iterable[Any], seconds: float) -> int:
    """Compile kernels in the order given, as many at once as the machine allows, and start none
    after so many seconds. How many are in the cache at the end."""
    import concurrent.futures
    import time

    from convoy.codegen.compile import compile_kernel, default_jobs
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

    with concurrent.futures.ThreadPoolExecutor(default_jobs(sm90=True)) as pool:
        return sum(pool.map(one, list(configs)))
