"""The cost of launching short kernels: synchronized, asynchronously, and as one CUDA graph.

The experiment of NVIDIA's "Getting Started with CUDA Graphs" (Alan Gray, 2019) through modules that
Convoy compiled: 20 kernels, each multiplying 500,000 numbers. There, on a V100, a kernel of 2.9 us
cost 9.6 us with a synchronization behind each, 3.8 us launched asynchronously, and 3.4 us in a
graph. Here these are the runs of a module of 20 kernels, which TVM compiles and Convoy's session
runs; the first form runs a module of one kernel.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .rows import Bench, Row
from .timing import Run, Timing, half_spread, measure

if TYPE_CHECKING:
    from convoy.runtime.session import Session

ELEMENTS, KERNELS = 500_000, 20
FACTOR = 1.23
OPAQUE = 8  # TVM's pattern kind of kernels that fusion leaves alone
#: NVIDIA's times on a V100, in microseconds a kernel.
PRIMER = {"kernel only": 2.9, "synchronize each": 9.6, "asynchronous": 3.8, "graph": 3.4}


def chain(kernels: int, elements: int = ELEMENTS) -> Any:
    """A Relax module: ``kernels`` multiplications one after another, each a kernel of its own."""
    from tvm import relax, te, tirx

    def scaled(x: Any) -> Any:
        factor = tirx.const(FACTOR, "float32")
        return te.compute(x.shape, lambda i: x[i] * factor, name="scaled")

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((elements,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for _ in range(kernels):
                y = builder.emit_te(scaled, y, primfunc_name_hint="short_kernel")
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    module = builder.get()
    for name, function in list(module.functions.items()):
        if name.name_hint != "main":
            module.update_func(name, function.with_attr("op_pattern", OPAQUE))
    return module


def session_of(kernels: int, cuda_graph: bool, elements: int = ELEMENTS) -> Session:
    """A checked session of the chain; raises AssertionError if its result is wrong."""
    import convoy

    built = convoy.build(
        chain(kernels, elements), "cuda", precision="float32", cuda_graph=cuda_graph
    )
    session = built.session()
    x = np.random.default_rng().uniform(1, 2, elements).astype("float32")
    for _ in range(2):  # the second run is a replay
        (y,) = session(x)
    np.testing.assert_allclose(y, x.astype("float64") * FACTOR**kernels, rtol=1e-5)
    return session


def timed(session: Session) -> Timing:
    """Milliseconds of one run of a session."""
    return measure(Run(session.run, session.synchronize))


def each(samples_ms: Sequence[float], kernels: int) -> Row:
    """Microseconds a kernel of samples of a run of so many kernels."""
    us = [1e3 * ms / kernels for ms in samples_ms]
    return {"us": statistics.median(us), "spread_us": half_spread(us)}


def kernel_call(session: Session) -> tuple[Any, list[Any]]:
    """The compiled kernel as a function, and its arguments in a run of the session."""
    calls: list[tuple[Any, list[Any]]] = []

    def watch(function: Any, name: str, before: bool, _result: Any, *arguments: Any) -> None:
        if before and name.startswith("short_kernel"):
            calls.append((function, list(arguments)))

    session.observe(watch)
    try:
        session.run()
        session.synchronize()
    finally:
        session.observe(None)
    return calls[0]


def kernel_only(session: Session) -> Row:
    """Device time of one kernel by Convoy's protocol, with many launches in one graph so that the
    graph's own start does not count."""
    from convoy.runtime import function

    call, arguments = kernel_call(session)
    samples = list(function("measure.kernel_us")(call, arguments, 0, 1000, 30, 1e6))
    return {"us": statistics.median(samples), "spread_us": half_spread(samples)}


def kernel_profiled(session: Session) -> Row:
    """Device time of one kernel as CUPTI sees it, through PyTorch's profiler."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(50):
            session.run()
        session.synchronize()
        torch.cuda.synchronize()
    times = [
        event.device_time for event in profiler.events() if event.name.startswith("short_kernel")
    ]
    if not times:
        raise RuntimeError("the profiler saw no kernel: CUPTI is not usable here")
    return {"us": statistics.median(times), "spread_us": half_spread(times)}


def run(out: str = "") -> int:
    """Measure all forms, print the table and write it as JSON; returns the exit status."""
    from convoy.report import tables

    bench = Bench("launch", out)
    sessions: dict[tuple[int, bool], Session] = {}

    def session(kernels: int, graph: bool) -> Session:
        if (kernels, graph) not in sessions:
            sessions[kernels, graph] = session_of(kernels, graph)
        return sessions[kernels, graph]

    cases: list[tuple[str, Callable[[], Row]]] = [
        ("kernel only", lambda: kernel_only(session(KERNELS, False))),
        ("synchronize each", lambda: each(timed(session(1, False)).latency, 1)),
        ("asynchronous", lambda: each(timed(session(KERNELS, False)).samples(), KERNELS)),
        ("graph", lambda: each(timed(session(KERNELS, True)).samples(), KERNELS)),
        ("kernel only (CUPTI)", lambda: kernel_profiled(session(KERNELS, False))),
    ]
    bench.run([({"form": name}, case) for name, case in cases])
    by_form = {row["form"]: row for row in bench.rows if "us" in row}
    base = by_form.get("kernel only (CUPTI)", by_form.get("kernel only"))
    rows = []
    for row in by_form.values():
        row["over_kernel"] = row["us"] / base["us"] if base else None
        primer = PRIMER.get(row["form"])
        primer_ratio = primer / PRIMER["kernel only"] if primer else None
        rows.append(
            (row["form"], row["us"], row["spread_us"], row["over_kernel"], primer, primer_ratio)
        )
    columns = ("form", "us a kernel", "+-", "over kernel only", "V100 primer us", "its ratio")
    tables.show(columns, rows, f"{KERNELS} kernels on {ELEMENTS} numbers")
    bench.save()
    return 1 if bench.failures() else 0
