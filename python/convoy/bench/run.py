"""Build a model, run it alternating with its peers, and measure."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import __version__, pipeline
from ..errors import InvalidOption
from ..measure import network
from ..measure.gpu_lock import gpu_lock
from ..progress import Progress, stages
from ..runtime import present_device
from ..runtime.compiled import CompiledModule, load
from ..wheels import version_of
from . import models, systems
from .layers import by_layer
from .memory import used_bytes
from .result import Result, Row
from .systems import Skipped, System

if TYPE_CHECKING:
    from ..runtime.session import Session

ROUNDS = 5


def bench(
    path: Path,
    batches: Sequence[int | None] = (None,),
    *,
    target: str = "",
    precision: str | None = None,
    against: Sequence[str] = (),
    params: Path | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    outputs: Sequence[str] | None = None,
    constants: Mapping[str, Any] | None = None,
    seconds: float = 2.0,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Result:
    """Benchmark a model at several batch sizes, and other systems with the same model beside it.

    All systems run in this process and take turns, on the same random inputs, which are in place on
    the device before the clock starts.

    Args:
        path: A model file, a program of ``torch.export.save`` or a compiled module.
        batches: Batch sizes; None is the model's own.
        target: "cuda" or "llvm"; empty: cuda if there is a GPU. A compiled module has its own.
        precision: As in :func:`convoy.build`.
        against: Peers, of :data:`convoy.bench.systems.PEERS`.
        params: Parameters of a Relay model; none: random ones.
        shapes: Shapes of inputs by name, for those that a model leaves open.
        outputs: Names of tensors to end an ONNX model at, instead of its own outputs.
        constants: Values of inputs of an ONNX model by name, which become constants.
        seconds: Of timing, for each system and batch size.
        options: More keyword arguments of :func:`convoy.build`.

    Raises:
        InvalidOption: An unknown peer, no time to measure in, or a batch size or precision
            other than a compiled module's; and the errors of reading and of building.
    """
    if unknown := [name for name in against if name not in systems.PEERS]:
        raise InvalidOption(f"--against {unknown[0]}", f"some of {', '.join(systems.PEERS)}")
    if not 0 < seconds < math.inf:
        raise InvalidOption(f"seconds={seconds}", "seconds of timing, more than 0")
    asked = {"--shape": shapes, "--end": outputs, "--constant": constants}
    report = stages(progress)
    target = target or ("cuda" if present_device() else "llvm")
    rows: list[Row] = []
    for batch in batches:
        before, started = used_bytes(target), time.perf_counter()
        with report.stage("load" if path.suffix == models.COMPILED else "build"):
            if path.suffix == models.COMPILED:
                compiled = _loaded(path, batch, precision, asked)
            else:
                mod = models.read(path, params, batch, shapes, outputs, constants)
                more = {**(options or {}), "progress": report} if target == "cuda" else {}
                compiled = pipeline.build(mod, target, precision=precision, **more)
        build_s, target = time.perf_counter() - started, compiled.meta.target
        with report.stage("measure"):
            found = _measure(compiled, path, against, seconds, before, report)
        rows += [dataclasses.replace(found[0], build_s=build_s), *found[1:]]
    device = present_device() if target == "cuda" else None
    return Result(path.stem, target, device.name if device else "CPU", tuple(rows), _about())


def _loaded(
    path: Path,
    batch: int | None,
    precision: str | None,
    asked: Mapping[str, Any],
) -> CompiledModule:
    """A compiled module. Raises InvalidOption for what it was not built with."""
    if named := [option for option, value in asked.items() if value]:
        raise InvalidOption(f"{named[0]} for a module that is compiled", "a model")
    compiled = load(path)
    own = _batch(compiled)
    if batch not in (None, own):
        raise InvalidOption(f"--batch {batch} for a module built for {own}", f"--batch {own}")
    if precision not in (None, compiled.meta.precision):
        raise InvalidOption(
            f"--precision {precision} for a module of {compiled.meta.precision}", "none"
        )
    return compiled


def _batch(compiled: CompiledModule) -> int:
    shapes = [info.shape for info in compiled.meta.inputs if info.shape]
    return shapes[0][0] if shapes else 1


def _measure(
    compiled: CompiledModule,
    path: Path,
    against: Sequence[str],
    seconds: float,
    before: int,
    progress: Progress,
) -> list[Row]:
    """A row for Convoy and for each peer."""
    target, batch = compiled.meta.target, _batch(compiled)
    session = compiled.session()
    network.fill_inputs(session)
    inputs = {name: session.input(name).numpy() for name, _, _ in session.input_info}
    own = systems.convoy(session)
    own.run()
    own.run()  # captures the graph
    own.synchronize()
    memory: list[int | None] = [used_bytes(target) - before]
    running, skipped = [own], []
    for name in against:
        before = used_bytes(target)
        try:
            running.append(systems.peer(name, path, inputs, target, compiled.meta.precision))
            memory.append(used_bytes(target) - before)
        except Skipped as why:
            skipped.append(Row(name, batch, skipped=str(why)))
    lock = gpu_lock if target == "cuda" else _no_lock
    latency, throughput = _times(running, seconds, lock)
    expected = own.outputs()
    rows = [
        Row(
            system.name, batch, system.precision,
            p50_ms=_percentile(alone, 50), p99_ms=_percentile(alone, 99),
            per_s=1e6 * batch / many.median_us, memory_bytes=used, samples=len(alone.us),
            error=None if system is own else systems.relative_error(expected, system.outputs()),
        )
        for system, alone, many, used in zip(running, latency, throughput, memory, strict=True)
    ]  # fmt: skip
    schedule = compiled.schedule if target == "cuda" else None
    rows[0] = dataclasses.replace(
        rows[0],
        predicted_ms=schedule.total.us / 1e3 if schedule is not None else None,
        device_ms=_device_ms(compiled, session, lock) if target == "cuda" else None,
        layers=tuple(by_layer(compiled, session, progress=progress)),
    )
    return [*rows, *skipped]


def _times(
    running: Sequence[System],
    seconds: float,
    lock: Callable[[], AbstractContextManager[object]],
) -> tuple[list[network.Samples], list[network.Samples]]:
    """Times of synchronized calls and of bursts, with the systems alternating."""
    rough = [_rough_us(system) for system in running]
    count = max(3, min(400, int(0.5e6 * seconds / ROUNDS / max(rough))))
    alone = [network.bursts(s.run, s.synchronize, 1) for s in running]
    latency = network.time_networks(alone, ROUNDS, count, lock=lock)
    many = [
        network.bursts(s.run, s.synchronize, network.runs_per_burst(us))
        for s, us in zip(running, rough, strict=True)
    ]
    number = max(network.runs_per_burst(us) * us for us in rough)
    count = max(2, min(40, int(0.5e6 * seconds / ROUNDS / number)))
    return latency, network.time_networks(many, ROUNDS, count, lock=lock)


def _rough_us(system: System) -> float:
    """Microseconds of one run, the least of three."""
    sample = network.bursts(system.run, system.synchronize, 1)
    return max(1.0, min(sample(3)))


def _device_ms(
    compiled: CompiledModule,
    session: Session,
    lock: Callable[[], AbstractContextManager[object]],
) -> float:
    """Median time of the network's CUDA graph on the device."""
    from tvm.runtime.vm import VirtualMachine

    main = VirtualMachine(compiled.module, session.device)["main"]
    inputs = [session.input(i) for i in range(len(session.input_info))]
    replays = network.graph_replays(main, inputs, session.device.index)
    (samples,) = network.time_networks([replays], lock=lock)
    return samples.median_us / 1e3


def _percentile(samples: network.Samples, percent: float) -> float:
    return float(np.percentile(samples.us, percent)) / 1e3


@contextlib.contextmanager
def _no_lock() -> Iterator[None]:
    """Processes on a CPU do not wait for each other."""
    yield


def _about() -> dict[str, str]:
    names = ("apache-tvm", "torch", "onnxruntime", "onnxruntime-gpu")
    found = {name: version_of(name) for name in names}
    return {"convoy": __version__, **{name: text for name, text in found.items() if text}}
