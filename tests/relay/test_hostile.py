"""Broken and malicious input: only our own errors, in bounded time and memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from convoy import relay
from convoy.errors import ConvoyError

from .counting import counted
from .json_format.test_json import TEXT, old_file
from .mutation import check_many, corpus_sources, peak_memory
from .running import HEAD

DEEP = 4_000
# To read, print and save a text: an operator of a large network takes as many.
CALLS = 3_500 * DEEP
START = f"{HEAD}def @main(%x: float32, %c: bool) {{ "


def text(body: str) -> str:
    return f"{START}{body} }}"


NESTED: dict[str, str] = {
    "brackets": "(" * DEEP + "%x" + ")" * DEEP,
    "calls": "abs(" * DEEP + "%x" + ")" * DEEP,
    "tuples": "(" * DEEP + "%x" + ",)" * DEEP,
    "operators": "%x" + " + %x" * DEEP,
    "blocks": "{" * DEEP + "%x" + "}" * DEEP,
    "functions": "fn () { " * DEEP + "%x" + " }" * DEEP,
    "ifs": "if (%c) { " * DEEP + "%x" + " } else { %x }" * DEEP,
    "lets": "".join(f"let %a{i} = abs(%x); " for i in range(DEEP)) + "%x",
    "lets in values": "(let %a = " * DEEP + "%x" + "; %a)" * DEEP,
    "a chain": "%0 = abs(%x); "
    + "".join(f"%{i + 1} = add(%{i}, %{i}); " for i in range(DEEP))
    + f"%{DEEP}",
    "doubling tuples": "%0 = (%x, %x); "
    + "".join(f"%{i + 1} = (%{i}, %{i}); " for i in range(80))
    + "%80",
    "lists": "clip(%x, a_min=" + "[" * DEEP + "1" + "]" * DEEP + ", a_max=1f)",
    "open brackets": "(" * DEEP,
    "open comments": "/*" * DEEP,
    "empty calls": "%x" + "()" * DEEP,
    "a long number": "add(%x, " + "9" * 1_000_000 + ")",
    "a long float": "add(%x, " + "9" * 1_000_000 + "f)",
    "a long name": "%" + "a" * 1_000_000,
    "a long operator": "nn." + "a" * 1_000_000 + "(%x)",
    "many parts": "split(%x, indices_or_sections=2000000000)",
    "huge exponent": "add(%x, 1e99999999999f)",
    "backslashes": '"' * 9999,
}


@pytest.mark.parametrize("name", NESTED)
def test_nested(name: str) -> None:
    """Read, print, save and convert, or be refused."""
    before = peak_memory()
    with counted() as work:
        try:
            mod = relay.parse(text(NESTED[name]))
            for use in (relay.astext, relay.save_json):
                try:
                    use(mod)
                except ConvoyError as error:
                    assert "deep" in str(error)
        except ConvoyError as error:
            assert len(str(error)) < 10_000 or "aaaa" in str(error)
    assert peak_memory() - before < 2**30
    assert work.calls < CALLS


@pytest.mark.parametrize(
    "type_", ["(" * DEEP + "float32" + ",)" * DEEP, "fn () -> " * DEEP + "float32", "A[" * DEEP]
)
def test_nested_types(type_: str) -> None:
    with pytest.raises(ConvoyError):
        relay.parse(f"{HEAD}def @main(%x: {type_}) {{ %x }}")


def test_large_constants() -> None:
    """Tens of megabytes of weights in the metadata section take a few times their size."""
    value = relay.const(np.arange(3_000_000), "float64")
    mod = relay.transform.InferType()(relay.IRModule.from_expr(value))
    text = mod.astext()
    assert len(text) > 30_000_000
    before = peak_memory()
    again = relay.parse(text)
    assert peak_memory() - before < 12 * len(text)
    np.testing.assert_array_equal(again["main"].body.value, value.value)


PARTS = f"""{HEAD}def @f[A](%a: A) -> A {{ %a }}
def @main(%x: Tensor[(?, 4), float32], %t: (float32, bool), Primitive=1, name="n") -> float32 {{
  let %v: float32 = @f(%t.0); // comment
  %0 = if (%t.1) {{ %v }} else {{ %1 = -1e-3f; %1 * %v }}; /* a /* nested */ one */
  free_var %q: float32;
  %0 + (let %w = %v; %w)
}}
"""


SOURCES = [
    *[("text", source) for source in (TEXT, PARTS, relay.parse(TEXT).astext())],
    *[("json", source) for source in (relay.save_json(relay.parse(TEXT)), old_file())],
    ("params", relay.save_param_dict({"w": np.ones((2, 3), "float32"), "b": np.int64(3)})),
]


@pytest.mark.parametrize("block", range(4))
def test_mutated(block: int) -> None:
    tally = check_many(range(block * 300, (block + 1) * 300), SOURCES)
    assert not tally.bad
    assert tally.read.keys() == {"text", "json", "params"}  # not everything is broken by it,
    assert tally.refused.total() > tally.count / 4  # and much is


@pytest.mark.slow
def test_mutated_corpus(corpus: Path) -> None:
    """A part of what `python -m tests.relay.mutation` does."""
    tally = check_many(range(500), corpus_sources(corpus))
    assert not tally.bad
