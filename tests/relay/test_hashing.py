"""structural_hash agrees with structural_equal."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np

from convoy import relay
from convoy.relay import tvm018 as tvm
from convoy.relay.testing import mlp


def expressions() -> list[Any]:
    def net(name: str, size: int, factor: float, shared: bool) -> relay.Function:
        x = relay.var(name, shape=(size,))
        y = relay.exp(x)
        other = y if shared else relay.exp(x)
        return relay.Function([x], (y + other) * relay.const(factor))

    return [
        net("x", 2, 1.0, True), net("y", 2, 1.0, True), net("x", 3, 1.0, True),
        net("x", 2, 2.0, True), net("x", 2, 1.0, False),
        relay.const(np.ones(2, "float32")), relay.const(np.ones(2), "float64"),
        relay.Tuple([relay.const(1), relay.const(2)]), relay.const(1),
    ]  # fmt: skip


def test_equal_iff_hashes_are() -> None:
    found = expressions()
    for a in found:
        for b in found:
            same = tvm.ir.structural_hash(a) == tvm.ir.structural_hash(b)
            assert same == tvm.ir.structural_equal(a, b)


def test_free_variables_are_mapped_on_request_only() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    wide = relay.var("wide", shape=(3,))
    pairs = [(x + x, x + x, True, True), (x + x, y + y, False, True), (x + y, y + x, False, True),
             (x + x, x + y, False, False), (x + x, wide + wide, False, False)]  # fmt: skip
    for a, b, same, mapped in pairs:
        for map_free_vars, expected in ((False, same), (True, mapped)):
            assert tvm.ir.structural_equal(a, b, map_free_vars) == expected
            hashes = [tvm.ir.structural_hash(e, map_free_vars) for e in (a, b)]
            assert (hashes[0] == hashes[1]) == expected


def test_names_of_type_parameters_do_not_count() -> None:
    def identity(name: str, size: int) -> relay.Function:
        a = relay.TypeVar(name)
        x, y = relay.Var("x", a), relay.var("y", shape=(size,))
        return relay.Function([x, y], x, a, [a])

    one, other, wide = identity("A", 2), identity("B", 2), identity("A", 3)
    assert tvm.ir.structural_equal(one, other)
    assert tvm.ir.structural_hash(one) == tvm.ir.structural_hash(other)
    assert not tvm.ir.structural_equal(one, wide)


def test_types_and_modules() -> None:
    a, b = (relay.TensorType((2, relay.Any()), dtype) for dtype in ("float32", "int8"))
    assert tvm.ir.structural_hash(a) != tvm.ir.structural_hash(b)
    assert tvm.ir.structural_hash(relay.TupleType([a, b])) == tvm.ir.structural_hash(
        relay.TupleType([a, b])
    )
    one, other = mlp.get_workload(1)[0], mlp.get_workload(1)[0]
    assert tvm.ir.structural_hash(one) == tvm.ir.structural_hash(other)
    assert tvm.ir.structural_hash(one) != tvm.ir.structural_hash(mlp.get_workload(2)[0])


def test_every_process_has_the_same() -> None:
    code = (
        "from convoy.relay import tvm018 as tvm; from convoy.relay.testing import mlp;"
        "print(tvm.ir.structural_hash(mlp.get_workload(1)[0]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(out.stdout) == tvm.ir.structural_hash(mlp.get_workload(1)[0])
