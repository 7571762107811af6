"""A pass does only what its operators need."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from tvm import relax, topi
from tvm.relax import op

from convoy.graph.expr import op_name, relax_ops, shape_of
from convoy.graph.function import calls_of
from convoy.graph.rewriter import Rewriter

CONV = frozenset({"relax.nn.conv2d"})


def network():
    """A convolution of an image, its halves added, and the channels of the sum."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 3, 8, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.nn.relu(x))
            y = builder.emit(op.nn.conv2d(y, relax.const(np.ones((4, 3, 3, 3), "float32"))))
            halves = builder.emit(op.split(y, 2, axis=1))
            y = builder.emit(op.add(halves[0], halves[1]))
            y = builder.emit_output(op.sum(y, axis=[2, 3]))
        builder.emit_func_output(y)
    return builder.get()


class Nothing(Rewriter):
    pass


class Halve(Rewriter):
    """Every rectified tensor becomes its upper half."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("nn.relu")

    def rewrite(self, call, old):
        return op.strided_slice(call, [2], [0], [shape_of(call)[2] // 2])


class Squared(Rewriter):
    ops: ClassVar[frozenset[str] | None] = relax_ops("power")


class Doubled(Rewriter):
    ops: ClassVar[frozenset[str] | None] = relax_ops("sum")

    def rewrite(self, call, old):
        return op.add(self.emit(call), call)


class Counted(Rewriter):
    """Tells only with its last call that it replaces it."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def rewrite(self, call, old):
        self.seen.append(op_name(call))
        return op.negative(call.args[0]) if len(self.seen) == 4 else None


def test_calls_whose_operands_keep_their_types_keep_theirs():
    mod = network()
    (old,), (new,) = (calls_of(m, CONV) for m in (mod, Doubled()(mod)))
    assert not new.same_as(old) and new.ty.same_as(old.ty), "inferred again"
    (changed,) = calls_of(Halve()(mod), CONV)
    assert shape_of(changed) == (1, 4, 2, 6)


def test_a_pass_that_changes_nothing_returns_its_module():
    mod = Doubled()(network())
    assert Nothing()(mod).same_as(mod)
    assert not Halve()(mod).same_as(mod)


def test_looking_for_changes_leaves_no_trace():
    counted = Counted()
    found = counted(Doubled()(network()))
    assert counted.seen[:4] == ["relax.nn.relu", "relax.nn.conv2d", "relax.split", "relax.add"]
    assert calls_of(found, relax_ops("negative"))


def test_a_pass_that_changes_nothing_removes_what_nothing_uses():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            builder.emit(op.nn.relu(x))
            y = builder.emit_output(op.exp(x))
        builder.emit_func_output(y)
    mod = builder.get()
    assert calls_of(mod, relax_ops("nn.relu")) and not calls_of(
        Nothing()(mod), relax_ops("nn.relu")
    )


def test_a_module_without_the_operators_of_a_pass_is_not_walked():
    mod = network()
    assert Squared()(mod).same_as(mod)
    assert not Halve()(mod).same_as(mod)
    names = [op_name(call) for call in calls_of(Nothing()(mod), relax_ops("nn.relu split"))]
    assert names == ["relax.nn.relu", "relax.split"]


class Powers(Rewriter):
    """Every rectifier becomes a kernel of a name that the module has."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("nn.relu")

    def rewrite(self, call, old):
        given = relax.BlockBuilder()
        with given.function("main", [x := relax.Var("x", call.args[0].ty)]):
            given.emit_func_output(given.emit_te(topi.sqrt, x, primfunc_name_hint="kernel"))
        callee = self.builder.add_func(given.get()["kernel"], "kernel")
        return op.call_tir(callee, [call.args[0]], call.args[0].ty)


def test_kernels_that_a_pass_adds_have_names_of_their_own():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_te(topi.exp, x, primfunc_name_hint="kernel")
            y = builder.emit_output(op.nn.relu(y))
        builder.emit_func_output(y)
    mod = Powers()(builder.get())
    called = [call.args[0].name_hint for call in calls_of(mod, relax_ops("call_tir"))]
    assert called == ["kernel", "kernel1"] and all(name in mod for name in called)
