"""The complete workflow, from a Relay ResNet to a compiled module.

Places every convolution, compiles, runs on a picture, and checks the result against the original
network. With a GPU it measures and runs there; otherwise it places from recorded measurements of an
H200 and runs on the CPU.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import tvm

    from .ir.plan import Plan

LAYERS = 50
TOLERANCE = {"float32": 1e-4, "float16": 1e-2}


def picture(size: int) -> np.ndarray:
    """Return a picture as (1, 3, size, size) float32, normalized per channel.

    Sums 64 waves of random directions whose amplitude falls with their frequency, as in
    photographs.
    """
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:size, :size] / size
    image = np.zeros((3, size, size))
    for frequency in 0.5 * 1.08 ** np.arange(64):
        angle, phase = rng.uniform(0, 2 * np.pi, 2)
        wave = np.cos(2 * np.pi * frequency * (x * np.cos(angle) + y * np.sin(angle)) + phase)
        image += rng.uniform(0.5, 1, (3, 1, 1)) * wave / frequency
    mean, std = image.mean((1, 2), keepdims=True), image.std((1, 2), keepdims=True)
    return np.ascontiguousarray((image - mean) / std, np.float32)[None]


def network() -> tuple[tvm.IRModule, dict[str, np.ndarray]]:
    """Return a Relay ResNet, written as text and parsed again, and random parameters."""
    from . import relay

    module, params = relay.testing.resnet.get_workload(batch_size=1, num_layers=LAYERS)
    text = module.astext()
    print(f"Relay text of {len(text.splitlines())} lines, {len(params)} parameters")
    rng = np.random.default_rng(0)
    arrays = {}
    for name, value in params.items():
        array = np.asarray(value if isinstance(value, np.ndarray) else value.numpy())
        if name.endswith(("gamma", "var")):
            array = rng.uniform(0.5, 1.5, array.shape).astype(array.dtype)
        elif name.endswith(("beta", "mean", "bias")):
            array = rng.normal(0, 0.1, array.shape).astype(array.dtype)
        arrays[name] = array
    return relay.parse(text), arrays


def reference(mod: tvm.IRModule, x: np.ndarray) -> np.ndarray:
    """Run the original network, compiled by stock TVM for the CPU."""
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy()


def step(text: str) -> None:
    """Print the headline of a step."""
    print(f"== {text}", flush=True)


def show_placement(mod: tvm.IRModule) -> Plan:
    """Place the network and print the plan."""
    import convoy
    from convoy.pipeline import predict_schedule
    from convoy.placement import explain
    from convoy.report import tables

    placement = convoy.place(mod, precision="float16")
    schedule = predict_schedule(placement)
    table = explain.table(placement.plan, schedule)
    print(tables.plain(explain.COLUMNS, table.rows))
    print(*filter(None, [table.rest]), explain.summary(placement.plan, schedule), sep="\n")
    return placement.plan


def run(
    mod: tvm.IRModule, target: str, precision: str, x: np.ndarray, plan: Plan | None
) -> np.ndarray:
    """Compile as planned, export, load, run and time the network; return its output."""
    import convoy

    built = convoy.build(mod, target, precision=precision, plan=plan)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet.so"
        built.export_library(path)
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
        session = convoy.load(path).session()
        (y,) = session(x)
        times = session.time(repeat=5, number=20 if target == "cuda" else 1)
    print(f"{sorted(times)[2]:.2f} ms per inference on the {'GPU' if target == 'cuda' else 'CPU'}")
    return y


def main() -> int:
    """Run the demo; return 0 if the compiled module agrees with the original network."""
    from convoy.errors import NoGpu
    from convoy.relay.convert import to_relax
    from convoy.runtime import current_device

    started = time.perf_counter()
    step(f"a ResNet-{LAYERS} in Relay")
    module, params = network()
    mod = to_relax(module, params)
    try:
        step(f"placing on {current_device().name} by measured cost")
        target, precision = "cuda", "float16"
    except NoGpu as err:
        step(f"placing for an H200 from recorded measurements: no GPU here ({err.got})")
        target, precision = "llvm", "float32"
    plan = show_placement(mod)

    step(f"compiling for {target} in {precision}, exporting, loading")
    x = picture(224)
    y = run(mod, target, precision, x, plan if target == "cuda" else None)

    step("checking against the original network, compiled by stock TVM for the CPU")
    expected = reference(mod, x)
    error = float(np.linalg.norm(y - expected) / np.linalg.norm(expected))
    same = bool(y.argmax() == expected.argmax())
    good = error < TOLERANCE[precision] and same
    print(f"relative L2 error {error:.1e} (limit {TOLERANCE[precision]:.0e}), same class: {same}")
    if target == "llvm":
        print("The kernels of the plan were not run, since this needs a GPU.")
    print(f"{'done' if good else 'FAILED'} in {time.perf_counter() - started:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
