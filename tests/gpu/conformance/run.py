"""Building and running cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm

import convoy
from convoy import graph_executor, relay
from convoy.pipeline import find_backends, place
from convoy.relay.convert import to_relax
from convoy.relay.op.contrib.cudnn import partition_for_cudnn
from convoy.relay.op.contrib.cutlass import partition_for_cutlass

from .case import Case, Outcome, excess

_PARTITION = {"cutlass": partition_for_cutlass, "cudnn": partition_for_cudnn}
# Without measuring, a backend's first candidate is taken; all that a kernel could fuse is fused.
_FIRST: dict[str, Any] = {"measure": False, "kernels": "all"}


def run_case(case: Case, target: str = "cuda") -> Outcome:
    """Build and run a case on fresh random inputs, and on whole numbers where these are exact."""
    rng = np.random.default_rng(len(case.id))
    values = {name: tensor.random(rng) for name, tensor in case.inputs.items()}
    worst, ran_on, declined = _check(case, target, values, case.tolerance)
    if case.exact:
        whole = {name: tensor.whole(rng) for name, tensor in case.inputs.items()}
        worst = max(worst, _check(case, target, whole, 1e-5)[0], key=_nan_last)
    return Outcome(
        case.suite, case.test, case.name, case.tolerance, worst, ran_on, case.declined or declined
    )


def _nan_last(value: float) -> float:
    return float("inf") if np.isnan(value) else value


def _check(
    case: Case, target: str, values: dict[str, np.ndarray], tolerance: float
) -> tuple[float, str, str]:
    bound = {name: values[name] for name, tensor in case.inputs.items() if tensor.bound}
    free = {name: value for name, value in values.items() if name not in bound}
    wide = {name: value.astype("float64") for name, value in values.items()}
    got, ran_on, declined = _outputs(case, target, free, bound)
    want = case.reference(**wide)
    wanted = want if isinstance(want, (list, tuple)) else [want]
    assert len(got) == len(wanted)
    errors = [
        excess(g, np.asarray(w), tolerance, case.rounded) for g, w in zip(got, wanted, strict=True)
    ]
    return max(errors, key=_nan_last), ran_on, declined


def _outputs(
    case: Case, target: str, free: dict[str, np.ndarray], bound: dict[str, np.ndarray]
) -> tuple[list[np.ndarray], str, str]:
    module = case.module()
    device = tvm.cuda(0) if target == "cuda" else tvm.cpu(0)
    if case.machine:
        compiled = relay.vm.compile(module, target=target, params=bound)
        machine = relay.vm.VirtualMachine(compiled, device)
        result = machine.invoke("main", **free)
        results = result if isinstance(result, list) else [result]
        return [r.numpy() for r in results], "TVM", ""
    if isinstance(module, relay.IRModule):
        options = dict(_FIRST) if target == "cuda" else {}
        if case.precision:
            options["precision"] = case.precision
        parted = _PARTITION[case.backend](module)
        library = relay.build(parted, target=target, params=bound, **options)
        executor = graph_executor.GraphModule(library["default"](device))
        for name, value in free.items():
            executor.set_input(name, value)
        executor.run()
        count = executor.get_num_outputs()
        results = [executor.get_output(i) for i in range(count)]
        built, converted = library.module, to_relax(module, bound)
    else:
        options = _relax_options(case) if target == "cuda" else {}
        built = convoy.build(module, target, bound, **options)
        session = built.session()
        session.run(free)
        results = [session.output(i) for i in range(session.num_outputs)]
        converted = module
    if built.plan is None:
        return [r.numpy() for r in results], "TVM", "on the CPU"
    chosen = [c.chosen.candidate.key for c in built.plan.choices]
    ran_on = ", ".join(dict.fromkeys(chosen)) or "TVM"
    declined = "" if chosen else reasons(converted, built.meta.precision, case.backend)
    return [r.numpy() for r in results], ran_on, declined


def _relax_options(case: Case) -> dict[str, Any]:
    precision = case.precision or "float16"
    return {"backends": (case.backend, "tvm"), "precision": precision, **_FIRST}


def reasons(module: Any, precision: str, backend: str) -> str:
    """Why a library takes nothing of a module: what it says of each product in it."""
    placed = place(module, precision=precision, backends=(backend, "tvm"), **_FIRST)
    (asked,) = find_backends([backend])
    found = []
    for native in placed.native:
        answer = asked.propose(native.workload, placed.plan.device)
        found.append(getattr(answer, "reason", "every candidate failed"))
    return "; ".join(dict.fromkeys(found))
