"""Two independent convolutions in every form: naive on two streams, prebuilt, and in CUDA graphs.

    python scripts/bench_streams.py --batches 1 8 --out streams.json

Two 3x3 convolutions of 14x14 with 256 channels in float16. The naive form (naive_pair.cc) has a
cuDNN handle for each stream and makes descriptors and workspace in every call. The others are
modules that Convoy compiled: on one stream and on two, called one by one and replayed as a CUDA
graph of one branch and of two, and as a build decides by itself, which may take kernels that are
better beside each other. With ``--depth 20`` a branch is a chain of 20 convolutions with
weights of their own, which are more than the L2 cache keeps warm, and times are divided by 20.
"latency" is that of a call with a synchronisation behind it, "sustained" of calls back to back.
Outputs are checked against float64 before anything is timed. Needs a GPU, cuDNN with its headers,
and nvcc.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench_tools import Bench, Row, median_us, spread_us

if TYPE_CHECKING:
    from convoy.runtime.session import Session

SIZE, CHANNELS = 14, 256
SOURCE = Path(__file__).with_name("naive_pair.cc")
# name -> options of convoy.build
FORMS = {
    "one stream": {"streams": 1, "cuda_graph": False},
    "two streams": {"streams": 2, "cuda_graph": False},
    "graph, one branch": {"streams": 1, "cuda_graph": True},
    "graph, two branches": {"streams": 2, "cuda_graph": True},
    "graph, as decided": {"streams": "auto", "cuda_graph": True},
}


def compile_naive(folder: Path) -> Path:
    """The naive form as a program. Raises LibraryMissing or CalledProcessError."""
    from convoy.backends.kernels.toolkit import find_toolkit
    from convoy.errors import LibraryMissing
    from convoy.runtime.library import locations

    cudnn = Path(locations()["cudnn"])
    include = cudnn.parent.parent / "include"
    if not (include / "cudnn.h").is_file():
        raise LibraryMissing(
            f"no cudnn.h beside {cudnn}", "cuDNN's wheel", 'pip install "tvm-convoy[cudnn]"'
        )
    program = folder / "naive_pair"
    command = [str(find_toolkit().nvcc), "-std=c++17", "-O2", str(SOURCE), f"-I{include}"]
    command += [f"-L{cudnn.parent}", f"-l:{cudnn.name}", "-Xlinker", f"-rpath={cudnn.parent}"]
    subprocess.run([*command, "-o", str(program)], check=True, capture_output=True, timeout=120)
    return program


def naive(program: Path, batch: int) -> list[Row]:
    """A row for each algorithm of the naive form."""
    command = [str(program), *map(str, (batch, CHANNELS, SIZE, CHANNELS))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(done.stderr[-1000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def weights(depth: int) -> list[list[np.ndarray]]:
    """Filters (OHWI) of two branches; scaled so that activations keep their size."""
    rng = np.random.default_rng(5)
    scale = (9 * CHANNELS) ** -0.5
    shape = (CHANNELS, 3, 3, CHANNELS)
    return [[rng.normal(0, scale, shape).astype("float16") for _ in range(depth)] for _ in "ab"]


def pairs(batch: int, depth: int) -> Any:
    """A Relax module of two branches, each a chain of ``depth`` convolutions of an input of its
    own, NHWC in float16; returns both ends."""
    from tvm import relax

    shape = (batch, SIZE, SIZE, CHANNELS)
    inputs = [relax.Var(name, relax.TensorType(shape, "float16")) for name in "ab"]
    builder = relax.BlockBuilder()
    chains = weights(depth)
    with builder.function("main", inputs):
        with builder.dataflow():
            ends = list(inputs)
            for level in range(depth):  # pair by pair, as a network has its branches
                for i, chain in enumerate(chains):
                    ends[i] = builder.emit(
                        relax.op.nn.conv2d(
                            ends[i],
                            relax.const(chain[level]),
                            padding=1,
                            data_layout="NHWC",
                            kernel_layout="OHWI",
                        )
                    )
            result = builder.emit_output(relax.Tuple(ends))
        builder.emit_func_output(result)
    return builder.get()


def exact(x: np.ndarray, chain: list[np.ndarray]) -> np.ndarray:
    """The end of a branch in float64, (n, 14, 14, 256)."""
    y = x.astype("float64")
    for w in chain:
        padded = np.pad(y, ((0, 0), (1, 1), (1, 1), (0, 0)))
        taps = [
            padded[:, r : r + SIZE, s : s + SIZE] @ w[:, r, s].astype("float64").T
            for r in range(3)
            for s in range(3)
        ]
        y = sum(taps)
    return y


def check(session: Session, batch: int, depth: int) -> float:
    """Largest relative error of a first run and a replay on fresh inputs."""
    worst = 0.0
    chains = weights(depth)
    rng = np.random.default_rng()
    for _ in range(2):
        inputs = [rng.normal(0, 1, (batch, SIZE, SIZE, CHANNELS)).astype("float16") for _ in "ab"]
        outputs = session(*inputs)
        for x, chain, y in zip(inputs, chains, outputs, strict=True):
            z = exact(x, chain)
            error = float(np.linalg.norm(y.astype("float64") - z) / np.linalg.norm(z))
            worst = max(worst, error)
    if not worst < 1e-2:
        raise AssertionError(f"relative error {worst:.2e}")
    return worst


def compiled(batch: int, depth: int, form: str, backends: list[str], records: str) -> Row:
    """Build, check and time one form."""
    import convoy

    built = convoy.build(
        pairs(batch, depth), "cuda", backends=backends, records=records, **FORMS[form]
    )
    session = built.session()
    row: Row = {"error": check(session, batch, depth)}
    latency = session.time(repeat=100, number=1)
    sustained = session.time(repeat=30, number=20)
    assert built.plan is not None
    kernels = sorted({choice.chosen.candidate.key for choice in built.plan.choices})
    return row | {
        "latency_us": median_us(latency) / depth,
        "sustained_us": median_us(sustained) / depth,
        "spread_us": spread_us(sustained) / depth,
        "kernels": kernels,
        "note": built.schedule.note if built.schedule else "",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--depth", nargs="+", type=int, default=[1, 20], help="pairs in a module")
    parser.add_argument("--forms", nargs="+", default=["naive", *FORMS], choices=["naive", *FORMS])
    parser.add_argument("--backends", default="cudnn,cutlass,tvm")
    parser.add_argument("--records", default="", help="record file, read and added to")
    parser.add_argument("--out", default="", help="JSON file to write")
    args = parser.parse_args()
    from convoy.report import tables

    bench = Bench("streams", args.out)
    backends = args.backends.split(",")
    with tempfile.TemporaryDirectory() as folder:
        records = args.records or str(Path(folder) / "records.jsonl")
        cases: list[tuple[Row, Callable[[], Row]]] = []
        for batch in args.batches:
            if "naive" in args.forms:
                cases += naive_cases(Path(folder), batch)
            for depth in args.depth:
                cases += [
                    (
                        {"n": batch, "form": form, "depth": depth},
                        lambda b=batch, d=depth, f=form: compiled(b, d, f, backends, records),
                    )
                    for form in FORMS
                    if form in args.forms
                ]
        bench.run(cases)
    show(bench.rows, tables.show)
    return 1 if bench.failures() else 0


def naive_cases(folder: Path, batch: int) -> list[tuple[Row, Callable[[], Row]]]:
    """The naive form once with each algorithm: compiled and run when the first is asked for."""
    found: dict[str, list[Row]] = {}

    def measured(index: int) -> Row:
        if "rows" not in found:
            program = folder / "naive_pair"
            found["rows"] = naive(program if program.exists() else compile_naive(folder), batch)
        return found["rows"][index]

    return [
        ({"n": batch, "form": f"naive, algorithm {i}", "depth": 1}, lambda i=i: measured(i))
        for i in range(2)
    ]


def show(rows: list[Row], table: Callable[..., None]) -> None:
    """A table for each batch, each form with its ratio to the slowest naive one."""
    columns = ("form", "pairs", "latency us", "sustained us", "+-", "naive is slower by", "error")
    for batch in dict.fromkeys(row["n"] for row in rows):
        mine = [row for row in rows if row["n"] == batch and "sustained_us" in row]
        base = max((r["sustained_us"] for r in mine if "algorithm" in r), default=None)
        cells = []
        for row in mine:
            ratio = f"{base / row['sustained_us']:.1f}x" if base else None
            form = row["form"]
            if "algorithm" in row:
                form = f"naive, {row['algorithm']}"
            error = f"{row['error']:.0e}" if "error" in row else None
            cells.append(
                (
                    form,
                    row["depth"],
                    row["latency_us"],
                    row["sustained_us"],
                    row.get("spread_us"),
                    ratio,
                    error,
                )
            )
        table(columns, cells, f"a pair of 3x3 convolutions, N={batch}, 14x14, 256 -> 256")


if __name__ == "__main__":
    raise SystemExit(main())
