"""Systems that run one PyTorch model: built, compared and timed in turns in one process.

Systems are ``convoy`` (``convoy.compile`` as a user calls it), ``eager`` (PyTorch under a CUDA
graph), ``compile`` and ``autotune`` (``torch.compile``). Brackets make variants of Convoy: names in
capitals are environment variables of the build, others options of ``convoy.compile``, whose values
are Python literals or words: ``convoy[CONVOY_PROGRAMMATIC_LAUNCH=0]``, ``convoy[streams=1]``.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import math
import os
import re
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch.utils import _pytree as pytree

from . import models, torch_inference
from .prepared import caches_in
from .rows import Row
from .timing import Run, Timing, half_spread, measure_in_turns

Tensors = Sequence[torch.Tensor]
#: Modes of torch.compile, which capture CUDA graphs.
MODES = {"compile": "reduce-overhead", "autotune": "max-autotune"}
#: How systems are called in results.
LABELS = {"compile": "torch.compile", "autotune": "max-autotune"}
KINDS = ("convoy", "eager", *MODES)
#: A relative L2 error is wrong beyond this multiple of PyTorch's in the same precision, plus a
#: rounding error of results.
TIMES, ROUNDING = 3.0, {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-3}
#: Images that are computed at once in float64.
_EXACT = 4


class Overdue(BaseException):
    """A system is not built in time. Not an Exception, which compilers handle as their own."""


@dataclass(frozen=True)
class System:
    """A way to run a model; ``variables`` and ``options`` are those of a variant of Convoy."""

    kind: str
    label: str
    variables: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> System:
        """Raises ValueError for what is no system."""
        match = re.fullmatch(r"(\w+)(?:\[(.+)\])?", text)
        kind, settings = match.groups() if match else ("", None)
        if kind not in KINDS or (settings and kind != "convoy"):
            known = ", ".join(KINDS)
            raise ValueError(f"system {text!r}; expected one of {known}, convoy[NAME=VALUE,...]")
        variables, options = {}, {}
        for setting in re.split(r",(?=\w+=)", settings) if settings else []:
            name, equals, value = setting.partition("=")
            if not equals:
                raise ValueError(f"{setting!r} in system {text!r}; expected NAME=VALUE")
            if name.isupper():
                variables[name] = value
            else:
                options[name] = _literal(value)
        return cls(kind, LABELS.get(kind, text), variables, options)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


@dataclass
class Ready:
    """A system that is built, after its first run.

    Attributes:
        runs: What is timed, by the key of the time in the row.
        results: Of calls and replays on the same input, each the tensors of one.
        facts: Cells of its row.
        layers: Layers with their times, if known.
    """

    runs: dict[str, Run]
    results: list[Tensors] = field(default_factory=list)
    facts: Row = field(default_factory=dict)
    layers: Callable[[], list[Row]] = list


#: What builds and checks a system, and fills its row.
Make = Callable[[System, Row], Ready]


def work(
    model: str, batch: int, systems: Sequence[str], precision: str, device: str = "cuda",
    **turns: Any,
) -> list[Row]:  # fmt: skip
    """Build systems, compare their outputs with float64 and time them in turns: a row for each.

    Args:
        model: Name as in :mod:`models`.
        batch: Batch size.
        systems: As :meth:`System.parse` takes them.
        precision: Of weights and inputs: float16, bfloat16 or float32 (tf32 as PyTorch's default).
        device: cuda or cpu.
        turns: As for :func:`in_turns`.
    """
    asked = [System.parse(text) for text in systems]
    net, shape = models.make(model, device)
    x = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(1)).to(device)
    want = exact(net, x)
    peers = {p: error_of_pytorch(net, x, p, want) for p in precisions(asked, precision)}
    net, x = net.to(getattr(torch, precision)), x.to(getattr(torch, precision))
    if device == "cuda":
        torch.cuda.empty_cache()

    def make(system: System, row: Row) -> Ready:
        ready = build(system, net, x)
        row |= ready.facts
        errors = [relative_error(tensors, want) for tensors in ready.results]
        error = math.nan if any(map(math.isnan, errors)) else max(errors)
        if math.isfinite(error):
            row["error"] = float(f"{error:.2g}")
        check(error, [peers[p] for p in precisions([system], precision)])
        return ready

    with torch.no_grad():
        return in_turns(asked, make, **turns)


def in_turns(
    asked: Sequence[System], make: Make, seconds: float, limits: Mapping[str, float], caches: str,
    layers: bool = False, turn: str = "",
) -> list[Row]:  # fmt: skip
    """Build systems and time them in turns: a row for each.

    Args:
        make: Builds and checks a system, and fills its row.
        seconds: Of timing, for each system.
        limits: Seconds in which a system has to be built, by its kind.
        caches: Folder in which each system of Convoy has caches of its own.
        layers: Whether rows of Convoy get the times of its layers.
        turn: A file to lock, after PyTorch's systems are built, to have the GPU alone.
    """
    rows: dict[str, Row] = {system.label: {"system": system.label} for system in asked}
    built: dict[str, Ready] = {}  # kept: a graph replays in the memory of its model

    def prepare(system: System) -> None:
        row = rows[system.label]
        try:
            folder = Path(caches, str(asked.index(system)))
            own = caches_in(folder) if system.kind == "convoy" else {}
            with environment({**own, **system.variables}), limit(limits[system.kind]):
                built[system.label] = make(system, row)
        except (Exception, Overdue) as err:  # the others still have to be timed
            late = isinstance(err, Overdue) and system.kind == "autotune"  # it often is
            row["skipped" if late else "failed"] = f"{type(err).__name__}: {err}"[-1500:]

    for system in (one for one in asked if one.kind != "convoy"):
        prepare(system)
    with FileLock(turn) if turn else nullcontext():
        for system in (one for one in asked if one.kind == "convoy"):
            prepare(system)
        runs = {(label, key): run for label, one in built.items() for key, run in one.runs.items()}
        timings = measure_in_turns(runs, seconds)
        for (label, key), timing in timings.items():
            rows[label] |= cells(timing, key)
        for label, ready in built.items() if layers else []:
            rows[label]["layers"] = ready.layers()
    return list(rows.values())


def build(system: System, net: torch.nn.Module, x: torch.Tensor) -> Ready:
    """Build a system and run it; ``build_s`` is what a user waits for it."""
    if system.kind == "convoy":
        return convoy_door(net, x, system.options)
    net, x = copy.deepcopy(net), x.clone()
    facts: Row = {}
    if system.kind == "eager":
        net, complete = torch_inference.folded(net)
        facts = {} if complete else {"note": "batch norms not folded"}
    net = net.to(memory_format=torch.channels_last)
    if x.dim() == 4:
        x = x.to(memory_format=torch.channels_last)
    began = time.perf_counter()
    with torch.no_grad():
        if system.kind == "eager":
            run, y = torch_inference.captured(net, x)
        else:
            call = torch_inference.frozen(net, MODES[system.kind])
            for _ in range(4):  # compiles, captures, replays
                y = call(x)
            run = Run(lambda: call(x), synchronizer(x))
    run.synchronize()
    facts["build_s"] = round(time.perf_counter() - began, 2)
    return Ready({"ms": run}, [[y.clone() for y in leaves(y)]], facts)


def convoy_door(net: torch.nn.Module, x: torch.Tensor, options: Mapping[str, Any]) -> Ready:
    """What ``convoy.compile`` makes: its graph as it is replayed, ``call_ms`` of its calls."""
    import convoy
    from convoy.bench.layers import by_layer

    began = time.perf_counter()
    fast = convoy.compile(net, x, **options)
    facts: Row = {"build_s": round(time.perf_counter() - began, 2)}
    if fast.schedule is not None:
        total = fast.schedule.total
        facts |= {"predicted_ms": round(total.us / 1e3, 4), "kernels": total.kernels}
        facts["streams"] = fast.schedule.streams
    if fast.plan is not None:
        facts["backends"] = fast.plan.backends()
    session = fast.built.session()
    torch.from_dlpack(session.input(0)).copy_(x)
    synchronize = synchronizer(x)
    synchronize()
    for _ in range(3):  # calls, captures, replays
        session.run()
    session.synchronize()
    replayed = [torch.from_dlpack(y).clone() for y in session.outputs]
    runs = {"ms": Run(session.run, synchronize), "call_ms": Run(lambda: fast(x), synchronize)}

    def layers() -> list[Row]:
        return [dataclasses.asdict(layer) for layer in by_layer(fast.built, session)]

    return Ready(runs, [leaves(fast(x)), replayed], facts, layers)


def precisions(systems: Sequence[System], precision: str) -> set[str]:
    """The dtype of the model and those in which systems may compute, tf32 as float16."""
    asked = {str(system.options.get("precision", precision)) for system in systems}
    return {precision, *(name if name in ROUNDING else "float16" for name in asked)}


@torch.no_grad()
def error_of_pytorch(net: torch.nn.Module, x: torch.Tensor, precision: str, want: Tensors) -> Row:
    """PyTorch's relative error in a precision, and the largest one that is right."""
    dtype = getattr(torch, precision)
    error = relative_error(leaves(copy.deepcopy(net).to(dtype)(x.to(dtype))), want)
    return {"precision": precision, "error": error, "most": TIMES * error + ROUNDING[precision]}


def check(error: float, peers: Sequence[Row]) -> None:
    """Raise AssertionError for an error beyond that of PyTorch in all of these precisions."""
    if not any(error <= peer["most"] for peer in peers):
        known = ", ".join(f"{peer['error']:.2g} in {peer['precision']}" for peer in peers)
        raise AssertionError(f"relative L2 error {error:.2g}, of PyTorch {known}")


@torch.no_grad()
def exact(net: torch.nn.Module, x: torch.Tensor) -> Tensors:
    """The results in float64, a few images at a time."""
    double = copy.deepcopy(net).double()
    parts = [leaves(double(part.double())) for part in x.split(_EXACT)]
    return [torch.cat(part) for part in zip(*parts, strict=True)]


def leaves(result: Any) -> list[torch.Tensor]:
    """The tensors of a result in order."""
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def relative_error(found: Tensors, want: Tensors) -> float:
    """Largest relative L2 error of results; NaN where one has a NaN."""
    errors = [
        float(torch.linalg.vector_norm(y.double() - z) / torch.linalg.vector_norm(z))
        for y, z in zip(found, want, strict=True)
    ]
    return math.nan if any(map(math.isnan, errors)) else max(errors)


def cells(timing: Timing, key: str) -> Row:
    """Cells of a time: of the first one its spread, and whether the middle half of the samples is
    wider than 5% of it."""
    samples = timing.samples()
    median = statistics.median(samples)
    row: Row = {key: round(median, 4)}
    if key == "ms":
        row["spread"] = round(half_spread(samples), 4)
        low, _, high = statistics.quantiles(samples)
        if high - low > 0.05 * median:
            row["disturbed"] = True
    return row


def synchronizer(x: torch.Tensor) -> Callable[[], object]:
    """What waits for the device of a tensor."""
    return functools.partial(torch.cuda.synchronize, x.device) if x.is_cuda else lambda: None


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within a block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise Overdue in a block that takes longer; on the main thread."""

    def overdue(*_: object) -> None:
        raise Overdue(f"did not end within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, overdue)
    signal.setitimer(signal.ITIMER_REAL, seconds, 5.0)  # again, where it is handled
    try:
        yield
    except Overdue:
        signal.setitimer(signal.ITIMER_REAL, 0)
        with suppress(Exception):  # what still compiles would disturb the timing of others
            from torch._inductor.async_compile import shutdown_compile_workers

            shutdown_compile_workers()
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
