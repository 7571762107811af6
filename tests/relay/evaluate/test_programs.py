"""Programs with data types, references, recursion and closures, against Python."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy import relay
from convoy.errors import (
    InvalidOption,
    RelaySyntaxError,
    RelayTypeError,
    UnmatchedValue,
)
from convoy.relay.analysis import unmatched_cases
from convoy.relay.backend.interpreter import ConstructorValue
from convoy.relay.loops import while_loop
from convoy.relay.prelude import Prelude

MOD = relay.IRModule()
PRELUDE = Prelude(MOD)
LIST, CONS, NIL = MOD.get_type("List")
RUN = relay.create_executor(mod=MOD).evaluate

TREES = """#[version = "0.0.5"]
type Shape { Circle(float32), Box(float32, float32), Empty }
def @area(%s: Shape) -> float32 {
  match (%s) {
    Circle(%r) => %r * %r * 3f,
    Box(%a, %b) => { let %ab = %a * %b; %ab },
    Empty => 0f,
  }
}
def @main(%r: float32) -> float32 { @area(Circle(%r)) + @area(Box(%r, 2f)) + @area(Empty) }
"""


def as_list(values) -> relay.Expr:
    return reduce(lambda tail, v: CONS(relay.const(v), tail), reversed(values), NIL())


def to_python(value):
    if isinstance(value, ConstructorValue):
        out = []
        while value.constructor is CONS:
            out.append(to_python(value.fields[0]))
            value = value.fields[1]
        return out
    if isinstance(value, (tuple, list)):
        return tuple(map(to_python, value))
    return value.numpy().item()


def int_function(body, number: int = 1) -> relay.Function:
    params = [relay.var(f"v{i}", "int32") for i in range(number)]
    return relay.Function(params, body(*params))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-9, 9), max_size=6), st.integers(-9, 9))
def test_functions_on_lists(values: list[int], start: int) -> None:
    listed = as_list(values)
    p = PRELUDE
    minus = int_function(relay.subtract, 2)
    assert to_python(RUN(p.length(listed))) == len(values)
    assert to_python(RUN(p.sum(listed))) == sum(values)
    assert to_python(RUN(p.rev(listed))) == values[::-1]
    assert to_python(RUN(p.concat(listed, listed))) == values * 2
    assert to_python(RUN(p.map(int_function(relay.negative), listed))) == [-v for v in values]
    first = relay.const(start)
    assert to_python(RUN(p.foldl(minus, first, listed))) == start - sum(values)
    expected = reduce(lambda a, v: v - a, reversed(values), start)
    assert to_python(RUN(p.foldr(minus, first, listed))) == expected
    keep = int_function(lambda v: relay.less(v, first))
    assert to_python(RUN(p.filter(keep, listed))) == [v for v in values if v < start]
    pairs = p.zip(listed, p.tl(CONS(first, listed)))
    assert to_python(RUN(pairs)) == list(zip(values, values, strict=True))


def test_data_types_in_text_print_and_read_back() -> None:
    mod = relay.parse(TREES)
    assert mod["area"].checked_type.ret_type == relay.scalar_type("float32")
    text = mod.astext()
    assert relay.parse(text).astext() == text
    assert relay.structural_equal(relay.parse(text), mod)
    for r in (1.0, 2.5):
        got = relay.create_executor(mod=mod).evaluate()(np.float32(r)).numpy()
        assert np.isclose(got, 3 * r * r + 2 * r)


def test_a_loop_may_be_long() -> None:
    i, total = relay.var("i", "int32"), relay.var("total", "int32")
    loop = while_loop(
        lambda i, t: relay.less(i, relay.const(2000)),
        [i, total],
        lambda i, t: [relay.add(i, relay.const(1)), relay.add(t, i)],
    )
    function = relay.Function([i, total], loop(i, total))
    got = relay.create_executor("vm").evaluate(function)(np.int32(0), np.int32(0))
    assert to_python(got) == (2000, sum(range(2000)))


def test_recursion_in_text(tmp_path: Path) -> None:
    mod = relay.parse(
        '#[version = "0.0.5"]\n'
        "def @fib(%n: int32) -> int32 {\n"
        "  if (%n < 2) { %n } else { @fib(%n - 1) + @fib(%n - 2) }\n}\n"
        "def @main(%n: int32) -> int32 { @fib(%n) }\n"
    )
    relay.vm.compile(mod, "llvm").export_library(tmp_path / "fib.so")
    machine = relay.vm.VirtualMachine(relay.load_module(tmp_path / "fib.so"), tvm.cpu())
    assert machine.run(np.int32(12)).numpy() == 144
    assert machine.invoke("fib", np.int32(7)).numpy() == 13


def test_references_keep_the_last_value() -> None:
    x = relay.var("x", shape=(2,))
    cell, first, second, old = (relay.var(n) for n in ("cell", "first", "second", "old"))
    body = relay.Tuple([old, relay.RefRead(cell)])
    body = relay.Let(second, relay.RefWrite(cell, relay.exp(relay.RefRead(cell))), body)
    body = relay.Let(old, relay.RefRead(cell), body)
    body = relay.Let(first, relay.RefWrite(cell, relay.negative(x)), body)
    body = relay.Let(cell, relay.RefCreate(x), body)
    value = np.float32([1, 2])
    before, after = relay.create_executor().evaluate(relay.Function([x], body))(value)
    np.testing.assert_allclose(before.numpy(), -value)
    np.testing.assert_allclose(after.numpy(), np.exp(-value), rtol=1e-6)


def test_closures_keep_what_they_close_over() -> None:
    x, y = relay.var("x", "int32"), relay.var("y", "int32")
    adder = relay.Function([x], relay.Function([y], relay.add(x, y)))
    made, f = relay.var("made"), relay.var("f")
    seven = relay.Let(
        made, adder, relay.Let(f, made(relay.const(3)), relay.add(f(relay.const(4)), f(x)))
    )
    got = relay.create_executor().evaluate(relay.Function([x], seven))(np.int32(10))
    assert got.numpy() == 20


def test_types_of_polymorphic_programs_are_inferred() -> None:
    x = relay.var("x")
    call = PRELUDE.map(relay.Function([x], relay.add(x, relay.const(1.0))), as_list([1.0]))
    mod = MOD.shallow_copy()
    mod["main"] = relay.Function([], call)
    relay.transform.InferType()(mod)
    assert mod["main"].body.checked_type == LIST(relay.scalar_type("float32"))
    assert x.checked_type == relay.scalar_type("float32")


def test_programs_that_do_not_fit_are_refused() -> None:
    mod = MOD.shallow_copy()
    mod["main"] = relay.Function([], CONS(relay.const(1), CONS(relay.const(1.0), NIL())))
    with pytest.raises(RelayTypeError, match="float32"):
        relay.transform.InferType()(mod)
    v = relay.var("v", LIST(relay.scalar_type("int32")))
    partial = relay.Match(v, [relay.Clause(relay.PatternConstructor(NIL), relay.const(1))])
    mod["main"] = relay.Function([v], partial)
    with pytest.raises(RelayTypeError, match=r"no clause|without a clause for Cons\(_, _\)"):
        relay.transform.InferType()(mod)
    assert len(unmatched_cases(partial, mod)) == 1
    with pytest.raises(UnmatchedValue, match="Nil"):
        RUN(PRELUDE.hd(NIL()))
    with pytest.raises(RelaySyntaxError, match="Squared"):
        relay.parse(TREES.replace("Empty =>", "Squared(%a) =>"))
    with pytest.raises(RelayTypeError, match="type 'Shap'"):
        relay.parse(TREES.replace("%s: Shape", "%s: Shap"))
    with pytest.raises(InvalidOption, match="a function as the result"):
        RUN(PRELUDE.iterate(PRELUDE.id, relay.const(2)))


def test_trees() -> None:
    _, rose = MOD.get_type("Tree")
    leaf = rose(relay.const(1), NIL())
    tree = rose(relay.const(5), CONS(leaf, CONS(rose(relay.const(2), CONS(leaf, NIL())), NIL())))
    assert to_python(RUN(PRELUDE.size(tree))) == 4
    doubled = RUN(PRELUDE.tmap(int_function(lambda v: relay.add(v, v)), tree))
    assert doubled.fields[0].numpy() == 10


def test_recursion_without_a_written_result_type() -> None:
    mod = relay.IRModule()
    total = relay.GlobalVar("total")
    n, done = relay.var("n", "int32"), relay.var("done", "int32")
    again = total(relay.subtract(n, relay.const(1)), relay.add(done, n))
    mod[total] = relay.Function([n, done], relay.If(relay.equal(n, relay.const(0)), done, again))
    relay.transform.InferType()(mod)
    assert mod[total].checked_type.ret_type == relay.scalar_type("int32")
    # an int64 array is cast to the parameter's int32
    assert relay.create_executor("vm", mod=mod).evaluate(total)(np.int64(10), 0).numpy() == 55
