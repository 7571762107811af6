"""Check small networks of many kinds against PyTorch in float64.

    python scripts/check_networks.py --target llvm                        # no GPU needed
    python scripts/check_networks.py --forms cudnn cutlass --jobs 8 --out networks.json
    python scripts/check_networks.py --networks unet yolo --importer onnx
    python scripts/check_networks.py --target emulated    # the code for a GPU, on the CPU

Every network of tests/zoo is imported from torch.export or ONNX, built in each form and run three
times on fresh inputs, of which the first run is eager, the second captures a CUDA graph and the
third replays it; forms of gradients do so with a training step. The error is relative to the
reference's norm; the limit is a few times the error of PyTorch in the same precision. Convolutions
that no library took are listed with the reason. Kernels are chosen without measuring. Networks run
in processes of their own: one that kills its process is a line of the table.
"""

from __future__ import annotations

import argparse
import collections
import functools
import os
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for tests.zoo
sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness.network_cases import Case, run_all
from harness.rows import Row

Array = np.ndarray[Any, Any]
RUNS = 3
FLOORS = {"float32": 1e-5, "tf32": 3e-3, "float16": 3e-3, "bfloat16": 2e-2}
FACTOR = 4.0


@dataclass(frozen=True)
class Form:
    """One way to build a network: precision, batch size, and options of convoy.build."""

    precision: str
    batch: int
    backends: tuple[str, ...] = ()
    streams: int = 1
    cuda_graph: bool = True
    gradients: bool = False


FORMS = {
    "cudnn": Form("float16", 3, ("cudnn", "tvm"), 4),
    "cutlass": Form("float16", 1, ("cutlass", "hopper", "tvm")),
    "strict": Form("float32", 3, ("cudnn", "cutlass", "hopper", "tvm"), 4),
    "tvm": Form("float16", 1, ("tvm",), 3),
    "tf32": Form("tf32", 1, ("cudnn", "cutlass", "tvm"), 2, False),
    "bfloat16": Form("bfloat16", 3, ("cudnn", "cutlass", "hopper", "tvm"), 2),
    "gradients": Form("float32", 2, ("cudnn", "tvm"), 3, gradients=True),
    "half gradients": Form("float16", 2, ("cudnn", "hopper", "tvm"), gradients=True),
}
ON_CPU = {
    "llvm": Form("float32", 1),
    "llvm3": Form("float32", 3),
    "half": Form("float16", 2),
    "gradients": Form("float32", 2, gradients=True),
}
FORMS_OF = {
    "cuda": FORMS,
    "emulated": {name: form for name, form in FORMS.items() if not form.gradients},
    "llvm": ON_CPU,
}


def imported(network: Any, inputs: list[Any], importer: str) -> Any:
    """A Relax module of a PyTorch module, its parameters bound."""
    if importer == "torch":
        from convoy.pytorch.importer import to_relax, trace
        from convoy.pytorch.structure import flatten

        tensors, structure = flatten((tuple(inputs), {}))
        return to_relax(trace(network, structure, tensors).program)
    import torch

    from convoy import from_onnx

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "network.onnx")
        torch.onnx.export(network, tuple(inputs), path, dynamo=True, verbose=False)
        return from_onnx(path)


def outputs_of(network: Any, inputs: list[Any]) -> list[Array]:
    """Flattened outputs in float64."""
    result = network(*inputs)
    results = result if isinstance(result, (list, tuple)) else [result]
    return [y.double().numpy() for y in results]


def errors(got: list[Array], want: list[Array]) -> float:
    """Largest relative L2 error of the outputs; infinite where one is not finite."""
    found = 0.0
    for y, z in zip(got, want, strict=True):
        if y.shape != z.shape:
            raise AssertionError(f"an output of shape {y.shape} for {z.shape}")
        error = float(np.linalg.norm(y.astype("float64") - z) / (np.linalg.norm(z) or 1.0))
        found = max(found, error if np.isfinite(error) else np.inf)
    return found


def peer_error(network: Any, inputs: list[Any], precision: str, want: list[Array]) -> float:
    """Error of PyTorch itself on the CPU; zero where it has no kernel for the precision."""
    import torch

    dtype = getattr(torch, {"tf32": "float32"}.get(precision, precision))
    try:
        half = [x.to(dtype) for x in inputs]
        return errors(outputs_of(network.to(dtype), half), want)
    except (RuntimeError, NotImplementedError):
        return 0.0


def check_gradients(name: str, data: list[list[Any]], form: Form, target: str) -> Row:
    """Check the gradients of a training step in one form."""
    import torch
    from tests.zoo import gradients

    from convoy.training import TrainingSession

    step, values, names = gradients.training_step(name, data[0])
    built, row = compiled(step.module, form, target)
    session = TrainingSession(built, step, values, learning_rate=0.0)
    for key in session.step_info.inputs:
        if key in values:  # carried by the network, not trained
            session.session.set_input(key, values[key])
    got = gradients.of_convoy(session, step, names, data)
    want = gradients.of_peer(name, data, torch.float64)
    try:
        peer = gradients.of_peer(name, data, getattr(torch, form.precision))
    except (RuntimeError, NotImplementedError):
        peer = want
    return row | {
        "error": gradients.error(got, want),
        "of_peer": gradients.error({key: peer[key] for key in got}, want),
    }


def compiled(module: Any, form: Form, target: str) -> tuple[Any, Row]:
    """The compiled module, and cells: offloaded operations, declined ones with the reasons."""
    import convoy
    from convoy.pipeline import compile_placement

    if target == "llvm":
        return convoy.build(module, "llvm", precision=form.precision), {}
    placed = convoy.place(
        module, precision=form.precision, backends=form.backends, measure=False, device=None
    )
    declined = collections.Counter(map(str, placed.native))
    row: Row = {"offloaded": placed.plan.backends(), "declined": dict(declined)}
    if target == "emulated":
        from tests.emulation.network import Emulation

        emulation = Emulation(placed, form.streams)
        return functools.partial(emulation, seed=form.batch), row | {
            "streams": emulation.schedule.streams,
            "rescheduled": list(map(str, emulation.rescheduled)),
        }
    built = compile_placement(
        placed, "cuda", form.precision, backends=form.backends, cuda_graph=form.cuda_graph,
        streams=form.streams,
    )  # fmt: skip
    streams = built.schedule.streams if built.schedule else None
    return built, row | {"streams": streams, "rescheduled": list(built.meta.rescheduled)}


def check(name: str, form: Form, target: str, importer: str) -> Row:
    """One network in one form; a row with its error, or why it failed."""
    row: Row = {"wrong": False}
    started, step = time.perf_counter(), "import"
    try:
        import torch
        from tests import zoo

        torch.set_num_threads(1)
        network = zoo.make(name)
        shapes = [(form.batch, *shape) for shape in zoo.NETWORKS[name].inputs]
        generator = torch.Generator().manual_seed(form.batch)
        data = [[torch.randn(s, generator=generator) for s in shapes] for _ in range(RUNS)]
        with torch.no_grad():
            if form.gradients:
                step = "gradients"
                row |= check_gradients(name, data, form, target)
                return judged(row, form, started)
            module = imported(network, data[0], importer)
            step = "build"
            built, found = compiled(module, form, target)
            row |= found
            row["build_s"] = round(time.perf_counter() - started, 1)
            exact = zoo.make(name).double()
            wants = [outputs_of(exact, [x.double() for x in inputs]) for inputs in data]
            step = "run"
            session = built if target == "emulated" else built.session()
            gots = [session(*[x.numpy() for x in inputs]) for inputs in data]
            row["error"] = max(errors(g, w) for g, w in zip(gots, wants, strict=True))
            row["of_peer"] = peer_error(network, data[0], form.precision, wants[0])
        return judged(row, form, started)
    except Exception as err:  # the other networks still have to be checked
        where = traceback.extract_tb(err.__traceback__)[-1]
        row |= {"failed": f"{type(err).__name__}: {str(err)[-600:]}", "step": step}
        row["where"] = f"{where.filename}:{where.lineno}"
    return row


def judged(row: Row, form: Form, started: float) -> Row:
    row.setdefault("build_s", round(time.perf_counter() - started, 1))
    row["allowed"] = max(FLOORS[form.precision], FACTOR * row["of_peer"])
    row["wrong"] = not row["error"] <= row["allowed"]
    return row


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--target", choices=list(FORMS_OF), default="cuda")
    made.add_argument("--networks", nargs="*", default=[], help="default: all")
    made.add_argument("--forms", nargs="*", default=[], help=f"of {', '.join(FORMS)}")
    made.add_argument("--importer", nargs="+", choices=["torch", "onnx"], default=["torch"])
    made.add_argument("--jobs", type=int, default=min(16, os.cpu_count() or 1))
    made.add_argument("--out", default="", help="JSON file, written after every case")
    return made


def main() -> int:
    args = parser().parse_args()
    from tests import zoo

    forms = FORMS_OF[args.target]
    asked = (("network", args.networks, zoo.NETWORKS), ("form", args.forms, forms))
    for kind, names, known in asked:
        if unknown := [name for name in names if name not in known]:
            parser().error(f"{kind} {', '.join(unknown)}; known are {', '.join(known)}")
    cases: list[Case] = [
        (
            {"network": name, "form": form, "importer": importer},
            check,
            (name, forms[form], args.target, importer),
        )
        for importer in args.importer
        for form in args.forms or forms
        for name in args.networks or zoo.NETWORKS
    ]
    started = time.perf_counter()
    rows = run_all(cases, args.jobs, args.out)
    bad = [row for row in rows if "failed" in row or row["wrong"]]
    print(f"{len(rows) - len(bad)} of {len(rows)} right in {time.perf_counter() - started:.0f} s")
    reasons = collections.Counter(r for row in rows for r in row.get("declined", ()))
    for reason, count in reasons.most_common():
        print(f"{count:4d}  {reason[:200]}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
