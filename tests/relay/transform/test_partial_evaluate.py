"""PartialEvaluate, and what DeadCodeElimination keeps: programs compute the same as before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.relay import transform
from convoy.relay.prelude import Prelude
from convoy.relay.visit import free_vars, post_order

STEPS = [
    transform.PartialEvaluate(),
    transform.InferType(),
    transform.DeadCodeElimination(inline_once=True),
    transform.InferType(),
]


def program(body: str) -> relay.IRModule:
    return relay.parse(f'#[version = "0.0.5"]\n{body}')


def run(mod: relay.IRModule, *args: Any) -> np.ndarray:
    return relay.create_executor("debug", mod=mod).evaluate()(*args).numpy()


def reduced(mod: relay.IRModule) -> relay.IRModule:
    return transform.Sequential(STEPS)(mod)


PROGRAMS = {
    "write_between_read_and_use": """
        def @main(%x: float32, %c: bool) {
          let %r = ref(%x);
          let %before = ref_read(%r);
          let %w = ref_write(%r, 5f);
          (%before * 10f) + ref_read(%r)
        }""",
    "write_in_one_branch": """
        def @main(%x: float32, %c: bool) {
          let %r = ref(%x);
          let %w = if (%c) { ref_write(%r, %x + 1f) } else { () };
          ref_read(%r) * 2f
        }""",
    "write_by_a_function_that_is_not_known": """
        def @main(%x: float32, %c: bool) {
          let %r = ref(%x);
          let %set = fn () { ref_write(%r, ref_read(%r) + 3f) };
          let %skip = fn () { () };
          let %f = if (%c) { %set } else { %skip };
          let %u = %f();
          ref_read(%r)
        }""",
    "recursion_over_a_known_number": """
        def @power(%x: float32, %n: int32) -> float32 {
          if (%n == 0) { 1f } else { %x * @power(%x, %n - 1) }
        }
        def @main(%x: float32, %c: bool) { @power(%x, 5) }""",
    "recursion_over_an_input": """
        def @down(%x: float32) -> float32 {
          if (%x < 1f) { %x } else { @down(%x - 1f) }
        }
        def @main(%x: float32, %c: bool) { @down(%x) }""",
    "a_match_that_only_the_run_decides": """
        type Option2 { Some2(float32), None2 }
        def @get(%o: Option2, %d: float32) -> float32 {
          match (%o) { Some2(%v) => %v, None2 => %d }
        }
        def @main(%x: float32, %c: bool) {
          let %o = if (%c) { Some2(%x * 2f) } else { None2 };
          @get(%o, 7f) + @get(Some2(%x), 0f)
        }""",
    "one_function_in_another": """
        def @main(%x: float32, %c: bool) {
          let %twice = fn (%f: fn (float32) -> float32, %y: float32) { %f(%f(%y)) };
          let %g = fn (%y: float32) { if (%c) { %y * %x } else { %y + %x } };
          %twice(%g, 3f)
        }""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_stay(name: str) -> None:
    mod = reduced(program(PROGRAMS[name]))
    for x in (2.5, 4.0):
        for c in (True, False):
            args = np.float32(x), np.bool_(c)
            expected = run(program(PROGRAMS[name]), *args)
            np.testing.assert_allclose(run(mod, *args), expected, rtol=1e-6)


def test_known_recursion_is_unrolled() -> None:
    main = reduced(program(PROGRAMS["recursion_over_a_known_number"]))["main"]
    kinds = {type(n) for n in post_order(main)}
    assert not kinds & {relay.If, relay.GlobalVar}
    names = [n.op.name for n in post_order(main) if isinstance(n, relay.Call)]
    assert names == ["multiply"] * 5


def test_a_recursion_without_end_is_left() -> None:
    mod = program("def @loop(%x: int32) -> int32 { @loop(%x) }\ndef @main() { @loop(1) }")
    body = reduced(mod)["main"].body
    assert isinstance(body, relay.Call) and body.op.name_hint == "loop"


@pytest.mark.parametrize("normal_form", [False, True])
def test_the_whole_prelude(normal_form: bool) -> None:
    prelude = Prelude()
    mod = prelude.mod
    cons, nil = (mod.get_type("List")[i] for i in (1, 2))
    numbers = cons(relay.const(1.0), cons(relay.const(2.0), cons(relay.const(4.0), nil())))
    x = relay.var("x", shape=())
    y = relay.var("y", shape=())
    scaled = prelude.map(relay.Function([y], y * x), numbers)
    total = prelude.foldl(relay.Function([(a := relay.var("a", shape=())), y], a + y), x, scaled)
    mod["main"] = relay.Function([x], total)
    steps = [transform.ToANormalForm()] if normal_form else []
    mod = transform.Sequential([*steps, *STEPS])(mod)
    assert not any(free_vars(mod[name]) for name in mod)
    np.testing.assert_allclose(run(mod, np.float32(3)), 3 + 3 * 7)
    assert not any(isinstance(n, relay.Match) for n in post_order(mod["main"]))
