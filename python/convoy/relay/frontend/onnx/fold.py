"""Evaluation of nodes whose inputs are constants: shapes that are computed, weights that are cast.

ONNX's own reference evaluator runs them, one node at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from convoy.relay.ast import Constant, Expr
from convoy.relay.frontend.common import const, value_of

# Nodes with subgraphs are converted, so that their inside is folded; random numbers vary.
_NEVER = {
    "If", "Loop", "Scan", "SequenceMap", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout",
}  # fmt: skip


def fold(node: Any, inputs: list[Any], opsets: Mapping[str, int]) -> list[Expr] | None:
    """Evaluate a node.

    Args:
        node: The NodeProto.
        inputs: Its inputs as expressions.
        opsets: Versions by domain.

    Returns:
        Constants, or None where an input is no constant or the evaluator does not know the node.
    """
    from onnx.reference import ReferenceEvaluator

    if node.op_type in _NEVER or node.domain not in ("", "ai.onnx"):
        return None
    if not inputs or not all(i is None or isinstance(i, Constant) for i in inputs):
        return None
    feeds = {n: value_of(i) for n, i in zip(node.input, inputs, strict=True) if n}
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(node, opsets=dict(opsets)).run(None, feeds)
        arrays = [np.asarray(r) for r in results]
        if any(isinstance(r, (list, dict)) or r is None for r in results):
            return None
        return [const(a) for a in arrays]
    except Exception:  # the evaluator raises whatever numpy does; the converter has a say then
        return None
