"""Compiles the CUTLASS kernels of given workloads ahead of time, in parallel.

    python -m convoy.backends.kernels.build_all workloads.jsonl --jobs 16
    python -m convoy.backends.kernels.build_all workloads.jsonl --list

``workloads.jsonl`` has one workload a line, as :meth:`convoy.workload.Workload.to_json` writes it
(or objects with a ``workload`` field, such as plans' and records' lines). ``-`` reads stdin.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...errors import ConvoyError
from ...ir import workload_list
from ...ir.candidate import Decline
from ...ir.device import Device
from ...ir.workload import Workload
from ..cutlass import CutlassBackend, launch_of
from .compile import compile_many
from .kernel import KernelConfig


def kernels_of(
    workloads: Iterable[Workload], device: Device, backend: CutlassBackend | None = None
) -> tuple[list[KernelConfig], list[tuple[Workload, Decline]]]:
    """Distinct kernels of all candidates of the workloads, by name, and the declines."""
    backend = backend or CutlassBackend()
    configs: set[KernelConfig] = set()
    declined: list[tuple[Workload, Decline]] = []
    for workload in workloads:
        proposed = backend.propose(workload, device)
        if isinstance(proposed, Decline):
            declined.append((workload, proposed))
        else:
            configs |= {launch_of(candidate).config for candidate in proposed}
    return sorted(configs, key=lambda config: config.name), declined


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m convoy.backends.kernels.build_all",
        description="compile the CUTLASS kernels of given workloads",
    )
    parser.add_argument("workloads", help="JSON lines file of workloads, or - for stdin")
    parser.add_argument("--list", action="store_true", help="print the kernels, compile nothing")
    parser.add_argument("--jobs", type=int, help="builds to run at once (default: cores, memory)")
    parser.add_argument("--arch", type=int, default=90, help="compute capability times ten")
    options = parser.parse_args(arguments)
    if options.workloads == "-":
        workloads = workload_list.parse(sys.stdin, "standard input")
    else:
        workloads = workload_list.read(Path(options.workloads))
    configs, declined = kernels_of(workloads, Device(arch=options.arch))
    for workload, decline in declined:
        print(f"declined {workload.key}: {decline.reason}", file=sys.stderr)
    if options.list:
        print("\n".join(config.name for config in configs))
        return 0
    return _compile(configs, options.jobs)


def _compile(configs: Sequence[KernelConfig], jobs: int | None) -> int:
    started = time.monotonic()

    def show(done: int, total: int, config: KernelConfig, seconds: float) -> None:
        print(f"[{done}/{total}] {config.name} {seconds:.1f} s", flush=True)

    results = compile_many(configs, jobs=jobs, progress=show)
    failed = [result for result in results.values() if isinstance(result, ConvoyError)]
    for error in failed:
        print(error, file=sys.stderr)
    seconds = time.monotonic() - started
    print(f"{len(results) - len(failed)} of {len(results)} kernels ready in {seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
