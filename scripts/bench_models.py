"""Time whole networks: Convoy with one backend, Convoy placed, and the peers, in one run.

    python scripts/bench_models.py resnet50.relay --manifest manifest.json --batches 1 8 256 \\
        --peers eager compile xla --out results.json
    python scripts/bench_models.py --networks inception_v3 googlenet --batches 1 8 32 128 \\
        --peers eager compile --out streams.json

With a model file, backends against each other: every Convoy module is exported, then loaded and
timed in a fresh process, and its output is checked against a float64 evaluation of the same
network where one is known (ResNet-50 v2), or against the float32 module otherwise.

With ``--networks``: the placed network on one stream and on several, asynchronously and as one
CUDA graph (see model_streams.py); ``all`` stands for every network that networks.py knows.

Prints a table and writes JSON with the environment.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

# Relay's resnet50 is the pre-activation network that the peers call resnet50_v2.
LABELS = {"resnet50": "resnet50_v2", "resnet50_nhwc": "resnet50_v2_nhwc"}

VARIANTS = {
    "cudnn": ("cudnn", "tvm"),
    "cutlass": ("cutlass", "tvm"),
    "placed": ("cudnn", "cutlass", "hopper", "tvm"),
}


def xavier_params(entry: dict[str, Any]) -> dict[str, np.ndarray]:
    """Parameters as Relay's model collection initialises them with seed 0 (Xavier, uniform)."""
    rng = np.random.RandomState(0)
    params = {}
    for name, shape, dtype in entry["params"]:
        if name == "data":
            continue
        if name.endswith("weight"):
            window = float(np.prod(shape[2:])) if len(shape) > 2 else 1.0
            factor = (shape[0] + shape[1]) * window / 2.0
            bound = np.sqrt(3.0 / (window if "depthwise" in name else factor))
            value = rng.uniform(-bound, bound, size=shape)
        else:
            value = np.full(shape, 1.0 if name.endswith(("gamma", "var")) else 0.0)
        params[name] = value.astype(dtype)
    return params


def reference(name: str, params: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray | None:
    """Output in float64 through an independent implementation, where there is one."""
    if not name.startswith("resnet50"):
        return None
    import torch

    from peers.pytorch import resnet50_v2_from

    params = {
        n: p.transpose(3, 2, 0, 1).copy() if name.endswith("nhwc") and p.ndim == 4 else p
        for n, p in params.items()
    }
    model = resnet50_v2_from(params, torch.float64)
    nchw = np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if name.endswith("nhwc") else x
    with torch.no_grad():
        parts = [
            model(torch.from_numpy(p).double().cuda())
            for p in np.array_split(nchw, max(1, len(x) // 8))
        ]
        return torch.cat(parts).cpu().numpy()


def relative_error(y: np.ndarray, reference: np.ndarray) -> float:
    """Relative L2 error; NaN anywhere gives NaN."""
    y = y.astype(np.float64)
    return float(np.linalg.norm(y - reference) / np.linalg.norm(reference))


def logit_error(y: np.ndarray, reference: np.ndarray) -> float:
    """Relative L2 error of what went into the last softmax, up to its free constant: networks with
    random weights give nearly equal probabilities, whose own error says little."""
    logs = [np.log(p.astype(np.float64)) for p in (y, reference)]
    mine, exact = (v - v.mean(axis=-1, keepdims=True) for v in logs)
    return float(np.linalg.norm(mine - exact) / np.linalg.norm(exact))


def in_fresh_process(module: Path, inputs: Path, outputs: Path) -> dict[str, Any]:
    """Load, run and time a module with ``convoy run`` in a process of its own."""
    command = [sys.executable, "-m", "convoy", "run", str(module)]
    command += ["--inputs", str(inputs), "--outputs", str(outputs), "--time", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:] or done.stdout[-2000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def bench_convoy(args: argparse.Namespace, batch: int, rows: list[dict[str, Any]]) -> None:
    import convoy
    from convoy import relay
    from convoy.placement import explain
    from convoy.relay.batch import with_batch
    from convoy.relay.convert import to_relax
    from convoy.report import tables

    path = Path(args.model)
    name = path.stem
    entry = json.loads(Path(args.manifest).read_text())[name]
    params = xavier_params(entry)
    module = with_batch(relay.parse(path.read_text(), str(path)), batch)
    shape = (batch, *entry["params"][0][1][1:])
    x = np.random.default_rng(7).uniform(-1, 1, shape).astype("float32")
    expected = reference(name, params, x)
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "x.npz"
        np.savez(inputs, data=x)
        for variant in args.variants:
            label = LABELS.get(name, name)
            row: dict[str, Any] = {"system": f"convoy {variant}", "model": label, "batch": batch}
            started = time.perf_counter()
            try:
                built = convoy.build(
                    to_relax(module, params),
                    "cuda",
                    precision=args.precision,
                    objective=args.objective,
                    backends=VARIANTS[variant],
                    records=args.records or None,
                )
                row["build_s"] = time.perf_counter() - started
                so = Path(folder) / f"{variant}.so"
                built.export_library(so)
                row["bytes"] = so.stat().st_size
                outputs = Path(folder) / f"{variant}.npz"
                row.update(in_fresh_process(so, inputs, outputs))
                if expected is not None:
                    y = np.load(outputs)["output_0"]
                    row["error"] = relative_error(y, expected)
                    row["logit_error"] = logit_error(y, expected)
                row["backends"] = built.plan.backends()
                row["predicted_ms"] = built.plan.total_us() / 1e3
                if args.plans:
                    out = Path(args.plans) / f"plan_{name}_n{batch}_{variant}.json"
                    out.write_text(built.plan.dumps())
                if args.tables:
                    print(tables.plain(explain.COLUMNS, explain.rows(built.plan)))
                    print(explain.summary(built.plan), flush=True)
            except Exception as err:  # one variant that fails must not end the comparison
                row["failed"] = f"{type(err).__name__}: {err}"[-1500:]
            rows.append(row)
            print(row, flush=True)
            save(args, rows)


def bench_peers(args: argparse.Namespace, batch: int, rows: list[dict[str, Any]]) -> None:
    from bench_peers import time_peer

    for model in args.peer_models:
        for system in args.peers:
            rows.append(time_peer(system, model, batch))
            print(rows[-1], flush=True)
            save(args, rows)


def bench_streams(args: argparse.Namespace) -> int:
    """Every network on one stream and on several, and PyTorch; returns the exit code."""
    import model_streams as streams
    from bench_tools import Bench
    from convoy.report import tables
    from networks import NETWORKS
    from prepared import prepare

    names = list(NETWORKS) if args.networks == ["all"] else args.networks
    options: dict[str, Any] = {
        "precision": args.precision,
        "objective": args.objective,
        "backends": args.backends.split(","),
        "records": args.records or None,
        "search": args.search,
        "most_measured": args.most,
    }
    if args.no_measure:
        options["measure"] = False
    bench = Bench("inference", args.out)
    for batch in args.batches:
        with tempfile.TemporaryDirectory() as folder:
            workers = {}
            for name in names:
                own = Path(folder) / name
                own.mkdir()
                mine = ("convoy", own, name, batch, json.dumps(options))
                workers["convoy", name] = streams.worker(*mine)
            for peer in args.peers:
                compiled = peer == "compile" and args.compile_networks is not None
                for name in args.compile_networks if compiled else names:
                    if name in names:
                        workers[peer, name] = streams.worker(peer, name, batch)
            took = prepare(list(workers.values()), args.jobs, args.timeout)
            print(f"N={batch}: ready after {took:.0f} s", file=sys.stderr, flush=True)
            for (system, name), worker in workers.items():
                key = {"system": system, "model": name, "batch": batch}
                bench.run_many(key, lambda w=worker: _rows(w.go()))
                schedule = Path(folder) / name / "schedule.json"
                if args.schedules and system == "convoy" and schedule.is_file():
                    shutil.copy(schedule, Path(args.schedules) / f"{name}-n{batch}.json")
    tables.show(streams.COLUMNS, streams.table_rows(bench.rows), "one stream against several")
    return 1 if bench.failures() else 0


def _rows(found: Any) -> list[dict[str, Any]]:
    return found if isinstance(found, list) else [found]


def save(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    if not args.out:
        return
    from convoy.records import environment

    result = {"environment": environment.current().to_json(), "rows": rows}
    Path(args.out).write_text(json.dumps(result, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="Relay text of the network")
    parser.add_argument("--manifest", help="JSON with the parameters' shapes")
    parser.add_argument("--networks", nargs="+", default=[], help="names, or all: compare streams")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 256])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--peers", nargs="*", default=["eager", "compile", "xla"])
    parser.add_argument("--peer-models", nargs="+", default=["resnet50", "resnet50_v2"])
    parser.add_argument("--precision", default="float16")
    parser.add_argument("--objective", default="graph")
    parser.add_argument("--backends", default="cudnn,cutlass,hopper,tvm", help="with --networks")
    parser.add_argument("--search", default="greedy", help="with --networks")
    parser.add_argument("--no-measure", action="store_true", help="place from records alone")
    parser.add_argument("--schedules", default="", help="folder for the schedules' JSON")
    parser.add_argument("--most", type=int, help="candidates of each backend to measure")
    parser.add_argument(
        "--timeout", type=float, default=600, help="seconds to get all networks of a batch ready"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="networks compiled at once"
    )
    parser.add_argument(
        "--compile-networks", nargs="*", help="networks for the peer compile, which is slow"
    )
    parser.add_argument("--records", default="")
    parser.add_argument("--plans", default="", help="folder for the plans' JSON")
    parser.add_argument("--tables", action="store_true", help="print the plan tables")
    parser.add_argument("--out", default="")
    args = parser.parse_args()
    if args.networks:
        return bench_streams(args)
    if not (args.model and args.manifest):
        parser.error("a model with its --manifest, or --networks")
    rows: list[dict[str, Any]] = []
    for batch in args.batches:
        bench_convoy(args, batch, rows)
        bench_peers(args, batch, rows)
    for row in rows:
        ms = row.get("ms")
        text = f"{ms:8.3f} ms" if ms else row.get("failed", row.get("skipped", "?"))[:60]
        error = ""
        if "error" in row:
            error = f"  error {row['error']:.1e}, of the logits {row['logit_error']:.1e}"
        print(f"{row['model']:14s} N={row['batch']:<4d} {row['system']:16s} {text}{error}")
    timed = sum("ms" in row for row in rows)
    print(f"{timed} timed, {len(rows) - timed} not")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
