"""The steps of quantization: prepare, annotate, calibrate, realize."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from convoy.errors import InvalidOption
from convoy.relay import ast
from convoy.relay.ast import Call, Constant, Expr, Function, Var
from convoy.relay.attrs import Attrs
from convoy.relay.binding import bind_params_by_name
from convoy.relay.executor import create_executor
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule, as_module
from convoy.relay.quantize._annotate import Annotator, QAnnotateKind
from convoy.relay.quantize.config import QConfig, current_qconfig
from convoy.relay.quantize.conversions import partition_conversions
from convoy.relay.quantize.scales import activation_scale, weight_scale
from convoy.relay.transform import (
    CanonicalizeOps,
    FakeQuantizationToInteger,
    FoldConstant,
    FoldScaleAxis,
    SimplifyInference,
)
from convoy.relay.transform.rewriting import op_name
from convoy.relay.visit import bind, rewrite

Points = Mapping[Var, tuple[Expr, QAnnotateKind]]
Sample = Mapping[str, Any]


def quantize(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None = None,
    dataset: Iterable[Sample] | None = None,
) -> IRModule:
    """Return a network that computes in integers where the current settings ask for it.

    Args:
        mod: The network: a module, or its main function alone.
        params: Values of parameters, which become constants.
        dataset: Inputs by name, for the calibration modes "kl_divergence" and "percentile".

    Raises:
        InvalidOption: One of these modes without a dataset.
        NotIntegral: See `partition_conversions`.
    """
    config = current_qconfig()
    mod = prerequisite_optimize(as_module(mod), params)
    annotator = Annotator(config)
    annotated = mod.shallow_copy()
    annotated["main"] = annotate(mod["main"], annotator)
    scales = calibrate(mod, annotator.points, dataset, config)
    bound = bind(
        annotated["main"], {v: Constant(np.asarray(s, "float32")) for v, s in scales.items()}
    )
    assert isinstance(bound, Function)
    annotated["main"] = bound
    result = infer_module(annotated) if config.do_simulation else realize(annotated, config)
    if config.partition_conversions == "disabled":
        return result
    return partition_conversions(result, config.partition_conversions == "fully_integral")


def prerequisite_optimize(mod: IRModule, params: Mapping[str, Any] | None = None) -> IRModule:
    """Make parameters constants and write normalization as arithmetic, in weights if it can be."""
    result = mod.shallow_copy()
    if params:
        result["main"] = bind_params_by_name(result["main"], params)
    for step in (
        SimplifyInference(),
        FoldConstant(),
        FoldScaleAxis(),
        CanonicalizeOps(),
        FoldConstant(),
    ):
        result = step(result)
    return infer_module(result)


def annotate(function: Function, annotator: Annotator) -> Function:
    """Round the inputs of convolutions and GEMMs; the scales are free variables."""
    return annotator.annotated(function)


def calibrate(
    mod: IRModule, points: Points, dataset: Iterable[Sample] | None, config: QConfig
) -> dict[Var, float]:
    """Find the scale of each rounded tensor.

    Args:
        mod: The network before it was annotated.
        points: The tensors by scale.
        dataset: Inputs by name.
        config: The settings.
    """
    found: dict[Var, float] = {}
    measured: list[Var] = []
    for var, (expr, kind) in points.items():
        if kind is QAnnotateKind.WEIGHT:
            assert isinstance(expr, Constant)
            found[var] = weight_scale(expr.value, config.weight_scale, config.nbit_weight)
        elif config.calibrate_mode == "global_scale":
            found[var] = config.global_scale / 2 ** (config.nbit_input - 1)
        else:
            measured.append(var)
    if not measured:
        return found
    if dataset is None:
        raise InvalidOption(
            f"calibrate_mode='{config.calibrate_mode}' without a dataset",
            "dataset, a list of inputs by name",
            "Or set calibrate_mode='global_scale'",
        )
    samples = list(dataset)
    step = config.calibrate_chunk_by if config.calibrate_chunk_by > 0 else len(measured)
    for start in range(0, len(measured), step):
        chunk = measured[start : start + step]
        values = _run(mod["main"], [points[var][0] for var in chunk], samples)
        for var, column in zip(chunk, zip(*values, strict=True), strict=True):
            found[var] = activation_scale(column, config.calibrate_mode, config.nbit_input)
    return found


def _run(main: Function, exprs: list[Expr], samples: list[Sample]) -> list[list[np.ndarray]]:
    """Return the values of expressions for each sample."""
    function = Function(main.params, ast.Tuple(exprs), None, main.type_params)
    run = create_executor("graph", IRModule({"main": function}), target="llvm").evaluate()
    dtypes = [getattr(p.checked_type, "dtype", "float32") for p in main.params]
    results = []
    for sample in samples:
        missing = [p.name_hint for p in main.params if p.name_hint not in sample]
        if missing:
            raise InvalidOption(f"a sample without {', '.join(missing)}", "all inputs by name")
        args = [
            np.asarray(_numpy(sample[p.name_hint]), dtype)
            for p, dtype in zip(main.params, dtypes, strict=True)
        ]
        values = run(*args)
        results.append([_numpy(v) for v in values])
    return results


def _numpy(value: Any) -> np.ndarray:
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def realize(mod: IRModule, config: QConfig | None = None) -> IRModule:
    """Compute in integers what lies between roundings, and fold the integers of weights."""
    config = config or current_qconfig()
    result = FakeQuantizationToInteger(use_qat=True)(infer_module(mod))

    def with_rounding(node: Expr) -> Expr | None:
        if op_name(node) != "qnn.requantize" or not isinstance(node, Call):
            return None
        assert node.attrs is not None
        attrs = Attrs(node.attrs.cls, {**node.attrs, "rounding": config.rounding})
        return Call(node.op, node.args, attrs, span=node.span)

    for name in result:
        function = rewrite(result[name], with_rounding)
        assert isinstance(function, Function)
        result[name] = function
    return FoldConstant()(infer_module(result))
