"""ONNX's own tests of nodes and of small models, through import, compilation for the CPU and a
session.

``python tests/frontend/onnx/node_cases.py`` runs all of them and prints what does not pass, by
operator; ``--relay`` imports them as Relay. ``--write`` replaces the list of those that must pass
by both importers, ``node_cases.txt``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

LIST = Path(__file__).with_name("node_cases.txt")
#: Of the tests that onnx has on disk: nodes, models of a few nodes, and modules of PyTorch.
KINDS = "node", "simple", "pytorch-converted", "pytorch-operator"
PASSED, DECLINED, WRONG, FAILED, CRASHED = "passed", "declined", "wrong", "failed", "crashed"


#: What rounding once or twice more may change, relative to a value.
_ROUNDING = {"float16": 2e-3, "bfloat16": 2e-2}


@dataclass(frozen=True)
class Outcome:
    """How a case ended: ``declined`` by an error of Convoy's, ``failed`` by another one.

    ``bound`` says that the inputs behind the first were given as constants, which a network whose
    shapes depend on them needs.
    """

    name: str
    operator: str
    kind: str
    bound: bool = False
    reason: str = ""


def all_cases() -> dict[str, Any]:
    """Test cases of the installed onnx by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    return {case.name: case if case.model else _read(case) for case in cases}


def _read(case: Any) -> Any:
    """A case with its model and data, which are files in its folder."""
    import onnx

    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = [
        tuple(
            [
                _tensor(path / f"{kind}_{i}.pb", values[i])
                for i in range(len(list(path.glob(f"{kind}_*.pb"))))
            ]
            for kind, values in (("input", model.graph.input), ("output", model.graph.output))
        )
        for path in sorted(folder.glob("test_data_set_*"))
    ]
    return replace(case, model=model, data_sets=sets)


def _tensor(path: Path, declared: Any) -> Any:
    """The value in a file: an array, or a sequence or optional value of them."""
    import onnx

    kind = declared.type.WhichOneof("value")
    if kind == "tensor_type":
        return onnx.TensorProto.FromString(path.read_bytes())
    proto, read = {
        "sequence_type": (onnx.SequenceProto, onnx.numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, onnx.numpy_helper.to_optional),
    }[kind]
    return read(proto.FromString(path.read_bytes()))


def operator_of(case: Any) -> str:
    """The operator that a case is about: of a model of one node, or of its name."""
    nodes = case.model.graph.node
    return nodes[0].op_type if len(nodes) == 1 else case.name.removeprefix("test_").split("_")[0]


def run_case(case: Any, relay: bool = False) -> Outcome:
    """Run a case as it is; where that is declined, with all inputs but the first as constants, and
    at last with all of them."""
    outcome = again = _run(case, None, relay)
    for free in (1, 0):
        if again.kind == DECLINED and len(case.model.graph.input) > free:
            again = _run(case, free, relay)
    return outcome if again.kind == DECLINED else again


def _run(case: Any, free: int | None, relay: bool) -> Outcome:
    from convoy.errors import ConvoyError

    def outcome(kind: str, reason: str = "") -> Outcome:
        return Outcome(case.name, operator_of(case), kind, free is not None, reason)

    try:
        for inputs, expected in case.data_sets:
            got = _compute(case.model, inputs, free, relay)
            if relay:  # where a sequence is a tuple, whose fields are results
                expected = [e for v in expected for e in (v if isinstance(v, list) else [v])]
            if complaint := _difference(got, expected, case.rtol, case.atol):
                return outcome(WRONG, complaint)
    except ConvoyError as err:
        return outcome(DECLINED, f"{type(err).__name__}: {err}")
    except Exception as err:
        return outcome(FAILED, f"{type(err).__name__}: {str(err)[-300:]}")
    return outcome(PASSED)


def _compute(model: Any, inputs: Sequence[Any], free: int | None, relay: bool) -> list[np.ndarray]:
    """Run a model of which the first ``free`` inputs stay inputs; None: all of them."""
    import onnx

    import convoy
    from convoy.frontend import model_file
    from convoy.relay.convert import to_relax
    from convoy.relay.frontend import from_onnx

    names = [value.name for value in model.graph.input]
    values = dict(zip(names, map(_array, inputs), strict=False))
    if free is not None:
        model = onnx.ModelProto.FromString(model.SerializeToString())
        for name in names[free:]:
            if isinstance(values[name], np.ndarray):
                tensor = onnx.numpy_helper.from_array(values.pop(name), name)
                model.graph.initializer.append(tensor)
    if relay:
        module = to_relax(*from_onnx(model, _shapes(values)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "case.onnx"
            path.write_bytes(model.SerializeToString())
            module = model_file.read(path, shapes=_shapes(values))
    session = convoy.build(module, "llvm").session()
    names = [name for name, _, _ in session.input_info]
    return session(*(values[name] for name in names))


def _shapes(values: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: value.shape for name, value in values.items() if isinstance(value, np.ndarray)}


def _array(value: Any) -> Any:
    """Arrays of tensors; sequences and optional values stay as they are."""
    import onnx

    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _difference(
    got: Sequence[np.ndarray], expected: Sequence[Any], rtol: float, atol: float
) -> str:
    """What is not as expected, empty for nothing."""
    if len(got) != len(expected):
        return f"{len(got)} outputs instead of {len(expected)}"
    for index, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        if isinstance(theirs, list):
            return f"output {index} is no sequence"
        theirs = np.asarray(_array(theirs))
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"output {index} is {ours.dtype}{ours.shape}, not {theirs.dtype}{theirs.shape}"
        if ours.dtype.kind in "fcV":
            rtol = max(rtol, _ROUNDING.get(str(ours.dtype), 0.0))
            # Sums of large numbers round, small results among them too.
            finite = np.abs(theirs[np.isfinite(theirs)].astype("float64"))
            atol = max(atol, 1e-6 * finite.max(initial=0.0))
            same = np.allclose(
                ours.astype("float64"), theirs.astype("float64"), rtol, atol, equal_nan=True
            )
        else:
            same = np.array_equal(ours, theirs)
        if not same:
            return f"output {index} differs"
    return ""


def run_all(cases: Sequence[Any], relay: bool = False, seconds: int = 120) -> Iterator[Outcome]:
    """Run cases in processes of their own, so that one that crashes or hangs ends alone."""
    # Once, not in each process.
    import convoy.frontend.onnx
    import convoy.relay.frontend  # noqa: F401

    rest = list(cases)
    while rest:
        done = 0
        for outcome in _in_child(rest[:50], relay, seconds):
            done += 1
            yield outcome
        if done < len(rest[:50]):
            lost = rest[done]
            yield Outcome(lost.name, operator_of(lost), CRASHED, reason="the process ended")
            done += 1
        rest = rest[done:]


def _in_child(cases: Sequence[Any], relay: bool, seconds: int) -> Iterator[Outcome]:
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reading)
        warnings.simplefilter("ignore")
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        with os.fdopen(writing, "w") as pipe:
            for case in cases:
                signal.alarm(seconds)
                print(json.dumps(run_case(case, relay).__dict__), file=pipe, flush=True)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        for line in pipe:
            yield Outcome(**json.loads(line))
    os.waitpid(child, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contains", nargs="*", help="only cases whose name contains one of these")
    parser.add_argument("--relay", action="store_true", help="import as Relay")
    parser.add_argument("--write", action="store_true", help=f"replace {LIST.name}")
    parser.add_argument("--json", type=Path, help="also write all outcomes to this file")
    options = parser.parse_args()
    cases = [
        case
        for name, case in all_cases().items()
        if not options.contains or any(part in name for part in options.contains)
    ]
    outcomes = []
    for outcome in run_all(cases, options.relay):
        outcomes.append(outcome)
        if outcome.kind in (WRONG, FAILED, CRASHED):
            print(f"{outcome.kind}: {outcome.name}: {outcome.reason[:200]}", flush=True)
    by_operator: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        if outcome.kind != PASSED:
            by_operator[outcome.operator][outcome.kind] += 1
    for operator, kinds in sorted(by_operator.items()):
        reason = next(o.reason for o in outcomes if o.operator == operator and o.kind != PASSED)
        print(f"{operator}: {dict(kinds)}: {reason[:160]}")
    total = Counter(outcome.kind for outcome in outcomes)
    as_shipped = sum(o.kind == PASSED and not o.bound for o in outcomes)
    print(f"{len(outcomes)} cases: {dict(total)}; {as_shipped} passed as shipped")
    if options.json:
        options.json.write_text(json.dumps([o.__dict__ for o in outcomes], indent=0))
    if options.write:
        passed = sorted(f"{o.name}{' bound' * o.bound}" for o in outcomes if o.kind == PASSED)
        LIST.write_text("".join(f"{name}\n" for name in passed))


if __name__ == "__main__":
    sys.exit(main())
