"""The backward pass of ResNet-50's convolutions on one stream and on several.

    python scripts/bench_backward.py --batches 8 32 --out backward.json

What each layer's wgrad computes nobody waits for, so it may run beside the dgrads of the layers in
front. Two forms, both in 16 bit, NHWC, replayed as CUDA graphs: ``chain`` is the whole pass, the
gradients of one layer read by the next, shortcuts added; ``pairs`` is each layer's dgrad beside its
own wgrad and nothing else, summed over all layers. The stem has no dgrad and is left out. Functions
are compiled side by side, in a process each, and timed one at a time.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_tools import Bench, Row
from prepared import Prepared, prepare, ready

DTYPE = "float16"
STAGES = ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3))  # size, width, blocks
COLUMNS = ("form", "N", "one stream us", "streams us", "gain", "streams", "arena MB", "one MB")


@dataclass(frozen=True)
class Layer:
    """A convolution by its forward sizes: input (size x size x channels), filter, stride."""

    size: int
    channels: int
    filters: int
    kernel: int
    stride: int = 1

    @property
    def out(self) -> int:
        return self.size // self.stride


def blocks() -> Iterator[tuple[Layer, Layer, Layer, Layer | None]]:
    """The bottlenecks in forward order: three convolutions and the projection, if any."""
    size, channels = 56, 64
    for out, width, count in STAGES:
        for block in range(count):
            stride = size // out
            project = Layer(size, channels, 4 * width, 1, stride) if block == 0 else None
            yield (
                Layer(size, channels, width, 1),
                Layer(size, width, width, 3, stride),
                Layer(out, width, 4 * width, 1),
                project,
            )
            size, channels = out, 4 * width


class Function:
    """Builds a function of convolution gradients: the activations and incoming gradients that it
    needs are inputs, filters constants, all gradients of filters results."""

    def __init__(self, batch: int, seed: int = 1) -> None:
        from tvm import relax

        self.relax, self.batch = relax, batch
        self.builder = relax.BlockBuilder()
        self.results: list[Any] = []
        self.rng = np.random.default_rng(seed)

    def tensor(self, size: int, channels: int, name: str) -> Any:
        ty = self.relax.TensorType((self.batch, size, size, channels), DTYPE)
        return self.relax.Var(name, ty)

    def backward(self, layer: Layer, dy: Any, x: Any) -> Any:
        """dx of a layer; its dw becomes a result."""
        from convoy.ops.conv2d_backward import conv2d_dgrad, conv2d_wgrad

        shape = (layer.filters, layer.kernel, layer.kernel, layer.channels)
        scale = (layer.kernel**2 * layer.filters) ** -0.5
        w = self.relax.const((self.rng.standard_normal(shape) * scale).astype(DTYPE))
        sizes: dict[str, Any] = {"strides": layer.stride, "padding": layer.kernel // 2}
        kernel = (layer.kernel, layer.kernel)
        self.results.append(self.builder.emit(conv2d_wgrad(dy, x, kernel, **sizes)))
        return self.builder.emit(conv2d_dgrad(dy, w, (layer.size, layer.size), **sizes))

    def finish(self, params: list[Any], body: Callable[[], Any]) -> Any:
        with self.builder.function("main", params):
            with self.builder.dataflow():
                last = body()
                output = self.builder.emit_output(self.relax.Tuple([last, *self.results]))
            self.builder.emit_func_output(output)
        return self.builder.get()


def chain(batch: int) -> Any:
    """The whole pass, from the last block to the first."""
    function = Function(batch)
    order = list(blocks())[::-1]
    layers = [layer for block in order for layer in (block[3], *block[2::-1]) if layer]
    inputs = [function.tensor(c.size, c.channels, f"x{i}") for i, c in enumerate(layers)]
    first = function.tensor(order[0][2].out, order[0][2].filters, "dy")

    def body() -> Any:
        gradient, x = first, iter(inputs)
        for one, two, three, project in order:
            shortcut = function.backward(project, gradient, next(x)) if project else gradient
            inner = gradient
            for layer in (three, two, one):
                inner = function.backward(layer, inner, next(x))
            gradient = function.builder.emit(function.relax.op.add(inner, shortcut))
        return gradient

    return function.finish([first, *inputs], body)


def pair(batch: int, layer: Layer) -> Any:
    """dgrad and wgrad of one layer."""
    function = Function(batch)
    dy = function.tensor(layer.out, layer.filters, "dy")
    x = function.tensor(layer.size, layer.channels, "x")
    return function.finish([dy, x], lambda: function.backward(layer, dy, x))


def measure(module: Any, options: dict[str, Any], compare: bool) -> Row:
    """Times of one and of several streams, taken in turns when it is this process's turn; with
    ``compare`` also the largest relative difference between their results."""
    import convoy

    placed = convoy.place(module, precision=DTYPE, **options)
    kept = {"plan": placed.plan, "backends": options["backends"], "precision": DTYPE}
    built = [convoy.build(module, "cuda", streams=s, **kept) for s in (1, "auto")]
    sessions = [b.session() for b in built]
    rng = np.random.default_rng(3)
    for i, (_, shape, dtype) in enumerate(sessions[0].input_info):
        value = rng.standard_normal(shape).astype(dtype)
        for session in sessions:
            session.set_input(i, value)
    for session in sessions:
        session.time(repeat=2, number=2)
    ready()
    found: list[list[float]] = [[], []]
    for _ in range(7):
        for session, times in zip(sessions, found, strict=True):
            times.extend(1e3 * t for t in session.time(repeat=5, number=10))
    one, many = (float(np.median(times)) for times in found)
    schedule = built[1].schedule
    row: Row = {
        "single_us": one, "multi_us": many, "streams": schedule.streams, "note": schedule.note,
        "arena": schedule.memory.peak_bytes, "single_arena": schedule.memory.single_stream_bytes,
    }  # fmt: skip
    if compare:
        outputs = [[s.output(i).numpy() for i in range(s.num_outputs)] for s in sessions]
        row["difference"] = max(
            float(np.linalg.norm((a - b).astype("f8")) / np.linalg.norm(a.astype("f8")))
            for a, b in zip(*outputs, strict=True)
        )
    return row


def worker(batch: int, layer: Layer | None, options: dict[str, Any]) -> Prepared:
    """The process that measures a layer's pair, or the chain of all layers for None."""
    what = {"batch": batch, "layer": dataclasses.asdict(layer) if layer else None}
    command = [sys.executable, __file__, "--worker", json.dumps({**what, "options": options})]
    return Prepared(command)


def work(batch: int, layer: dict[str, int] | None, options: dict[str, Any]) -> Row:
    """What such a process does."""
    if layer is None:
        return measure(chain(batch), options, compare=True)
    return measure(pair(batch, Layer(**layer)), options, compare=False)


def summed(rows: dict[Any, Row]) -> Row:
    """Sums over all layers of the network; equal layers are measured once."""
    every = [layer for block in blocks() for layer in block if layer]
    total: Row = {"single_us": 0.0, "multi_us": 0.0, "streams": 0, "arena": 0, "single_arena": 0}
    for layer, row in rows.items():
        for key in ("single_us", "multi_us"):
            total[key] += row[key] * every.count(layer)
        for key in ("streams", "arena", "single_arena"):
            total[key] = max(total[key], row[key])
    layers = [
        {**dataclasses.asdict(layer), "times": every.count(layer), **row}
        for layer, row in rows.items()
    ]
    return {**total, "layers": layers}


def table_row(row: Row) -> tuple[Any, ...]:
    if "failed" in row:
        return (row["form"], row["batch"], row["failed"][-60:], *[""] * 5)
    return (
        row["form"], row["batch"], round(row["single_us"], 1), round(row["multi_us"], 1),
        f"{row['single_us'] / row['multi_us']:.2f}x", row["streams"],
        round(row["arena"] / 1e6, 1), round(row["single_arena"] / 1e6, 1),
    )  # fmt: skip


def main() -> int:
    from convoy.report import tables

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, nargs="+", default=[8])
    parser.add_argument("--forms", nargs="+", choices=["chain", "pairs"], default=["chain"])
    parser.add_argument("--backends", nargs="+", default=["cudnn", "cutlass", "hopper", "tvm"])
    parser.add_argument("--records", default=None, help="file of measurements to use and extend")
    parser.add_argument("--most", type=int, help="candidates of each backend to measure")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compiled at once")
    parser.add_argument("--timeout", type=float, default=600, help="seconds to compile all")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    parser.add_argument("--out", default="")
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(work(**json.loads(args.worker))))
        return 0
    options = {"backends": args.backends, "records": args.records, "most_measured": args.most}
    bench = Bench("backward pass of ResNet-50", args.out)
    layers = list(dict.fromkeys(layer for block in blocks() for layer in block if layer))
    parts: dict[str, list[Layer | None]] = {"chain": [None], "pairs": [*layers]}
    for batch in args.batches:
        workers = {
            (form, layer): worker(batch, layer, options)
            for form in args.forms
            for layer in parts[form]
        }
        prepare(list(workers.values()), args.jobs, args.timeout)
        for form in args.forms:
            mine = {layer: w for (of, layer), w in workers.items() if of == form}
            bench.run_many({"form": form, "batch": batch}, lambda m=mine: [_row(m)])
    tables.show(COLUMNS, [table_row(row) for row in bench.rows], "dgrad beside wgrad")
    return 1 if bench.failures() else 0


def _row(workers: dict[Layer | None, Prepared]) -> Row:
    """The row of a form: the chain's, or the sum of all pairs."""
    rows: dict[Layer | None, Row] = {}
    for layer, process in workers.items():
        row = rows[layer] = process.go()
        shown = {key: row[key] for key in ("single_us", "multi_us", "note")}
        print(layer or "chain", shown, file=sys.stderr, flush=True)
    return rows[None] if None in rows else summed(rows)


if __name__ == "__main__":
    raise SystemExit(main())
