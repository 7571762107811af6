"""Networks of relay.testing through relay.build and GraphModule, against TVM 0.18's own outputs.

    python scripts/check_relay_models.py corpus/models --target cuda --precisions float32 float16

The folder holds `NAME.npz` with what TVM 0.18 computed from seed-0 parameters and the input of
generator seed 7: `out_0`, the probabilities, and `out_1`, what went into the last softmax (the
probabilities of random weights are nearly equal, so that they say little). Where it holds
`NAME.relay` and `NAME.json` as well, these are read and must equal what the builder makes.

With --weights he the parameters are scaled such that every layer keeps the size of its input, and
the outputs are compared with convoy's own on the CPU in float32: seed-0 logits of mobilenet are
1e-19, which 16 bits do not hold.

Logits that the precision cannot hold are not compared. Prints a table, and with --out writes it as
JSON. Ends with 1 if an error is beyond the limit.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from convoy import graph_executor, relay
from convoy.relay import testing
from convoy.report import tables

NETWORKS: dict[str, Callable[[], Any]] = {
    "resnet50": lambda: testing.resnet.get_workload(num_layers=50),
    "resnet50_nhwc": lambda: testing.resnet.get_workload(
        num_layers=50, image_shape=(224, 224, 3), layout="NHWC"
    ),
    "resnet18": testing.resnet.get_workload,
    "squeezenet_v1_1": lambda: testing.squeezenet.get_workload(version="1.1"),
    "mobilenet": testing.mobilenet.get_workload,
    "mlp": lambda: testing.mlp.get_workload(1),
}
#: Largest deviation relative to the largest value.
LIMITS = {"float32": 1e-4, "tf32": 1e-2, "float16": 1e-2, "bfloat16": 5e-2}
COLUMNS = (
    "network", "weights", "precision", "error", "of logits", "limit", "top-1", "ran on", "build s",
    "run ms",
)  # fmt: skip


def comparable(want: np.ndarray, precision: str) -> bool:
    """Whether a precision can hold an output at all: 1e-19 is zero in 16 bits."""
    half = {"float16": 6e-5, "bfloat16": 0.0}.get(precision, 0.0)
    return bool(np.abs(want).max() >= half)


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """Largest difference relative to the largest value."""
    return float(np.abs(got.astype("float64") - want).max() / np.abs(want).max())


def module_of(name: str, folder: Path) -> tuple[relay.IRModule, dict[str, Any]]:
    """The network, read from its text where that is at hand, and its parameters."""
    built, params = NETWORKS[name]()
    mod = built
    text, saved = folder / f"{name}.relay", folder / f"{name}.json"
    if text.exists():
        mod = relay.parse(text.read_text(), text.name)
        if not relay.structural_equal(mod, built):
            raise SystemExit(f"{text} is not what relay.testing builds")
    if saved.exists() and not relay.structural_equal(mod, relay.load_json(saved.read_text())):
        raise SystemExit(f"{saved} is not what {text} says")
    return mod, params


def with_logits(mod: relay.IRModule) -> relay.IRModule:
    """The network with a second output, the input of its last softmax."""
    main = mod["main"]
    assert isinstance(main.body, relay.Call) and main.body.op.name == "nn.softmax"
    both = relay.Tuple([main.body, main.body.args[0]])
    return relay.IRModule.from_expr(relay.Function(main.params, both))


def he_weights(params: dict[str, Any], layout: str) -> dict[str, np.ndarray]:
    """Normal weights of variance 2 / fan-in (He et al. 2015), the rest as it is."""
    rng = np.random.default_rng(0)
    found = {}
    for name, value in params.items():
        array = value.numpy()
        if name.endswith("weight"):
            kept = array.shape[-1] if layout == "NHWC" and array.ndim == 4 else array.shape[0]
            fan_in = array.size / kept
            array = rng.normal(0, np.sqrt(2 / fan_in), array.shape).astype("float32")
        found[name] = array
    return found


def run(library: Any, device: Any, data: np.ndarray) -> Any:
    """An executor that has run three times: eagerly, captured, replayed."""
    module = graph_executor.GraphModule(library["default"](device))
    for _ in range(3):
        module.set_input("data", data)
        module.run()
    return module


def outputs(module: Any) -> list[np.ndarray]:
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


def check(name: str, precision: str, args: argparse.Namespace) -> dict[str, Any]:
    """Build, run and compare one network; the row of the table."""
    mod, params = module_of(name, args.folder)
    mod = with_logits(mod)
    if args.weights == "he":
        params = he_weights(params, "NHWC" if name.endswith("_nhwc") else "NCHW")
    shape = mod["main"].params[0].checked_type.concrete_shape
    data = np.random.default_rng(7).uniform(-1, 1, shape).astype("float32")
    oracle = args.folder / f"{name}.npz"
    if args.weights == "seed" and oracle.exists():
        found = np.load(oracle)
        want = [found["out_0"], found["out_1"]]
    else:
        on_cpu = relay.build(mod, target="llvm", params=params)
        want = outputs(run(on_cpu, tvm.cpu(0), data))
    options: dict[str, Any] = {"precision": precision}
    if args.target == "cuda":
        options["measure"] = args.measure
        if args.streams:
            options["streams"] = args.streams
        if args.records:
            options["records"] = args.records
    started = time.perf_counter()
    library = relay.build(mod, target=args.target, params=params, **options)
    seconds = time.perf_counter() - started
    device = tvm.cuda(0) if args.target == "cuda" else tvm.cpu(0)
    module = run(library, device, data)
    got = outputs(module)
    seen = comparable(want[1], precision)
    plan = library.module.plan
    counts = plan.backends() if plan else {}
    return {
        "network": name,
        "weights": args.weights,
        "precision": precision,
        "error": relative_error(got[0], want[0]),
        "logit_error": relative_error(got[1], want[1]) if seen else None,
        "limit": LIMITS[precision],
        "top1": bool((got[1].argmax(-1) == want[1].argmax(-1)).all()) if seen else None,
        "ran_on": ", ".join(f"{count} {backend}" for backend, count in counts.items()) or "TVM",
        "build_s": seconds,
        "run_ms": module.benchmark(device, repeat=5, number=args.number).median * 1e3,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--precisions", nargs="+", choices=LIMITS, default=["float32", "float16"])
    parser.add_argument("--target", choices=("cuda", "llvm"), default="cuda")
    parser.add_argument("--measure", action="store_true", help="time candidates; else the first")
    parser.add_argument("--weights", choices=("seed", "he"), default="seed")
    parser.add_argument("--streams", type=int, help="streams (default: as many as pay)")
    parser.add_argument("--number", type=int, default=10, help="runs for one figure of time")
    parser.add_argument("--records", help="file of records")
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    args = parser.parse_args()
    rows = []
    for name in args.networks:
        for precision in args.precisions:
            rows.append(check(name, precision, args))
            print(json.dumps(rows[-1]), flush=True)
            if args.out:
                args.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    cells = [
        (
            row["network"],
            row["weights"],
            row["precision"],
            f"{row['error']:.1e}",
            "" if row["logit_error"] is None else f"{row['logit_error']:.1e}",
            f"{row['limit']:.0e}",
            {True: "same", False: "other", None: ""}[row["top1"]],
            row["ran_on"],
            f"{row['build_s']:.1f}",
            f"{row['run_ms']:.3f}",
        )
        for row in rows
    ]
    print(tables.plain(COLUMNS, cells))
    worst = [max(row["error"], row["logit_error"] or 0.0) / row["limit"] for row in rows]
    return int(any(not share <= 1 for share in worst))


if __name__ == "__main__":
    sys.exit(main())
