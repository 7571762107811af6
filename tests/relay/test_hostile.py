"""Broken and malicious input: only our own errors, in bounded time and memory."""

from __future__ import annotations

import json
import random
import re
import resource
import time
from collections.abc import Callable
from typing import Any

import pytest

from convoy import relay
from convoy.errors import ConvoyError

from .running import HEAD
from .test_json import TEXT, old_file

DEEP = 10_000
# On a machine that is not busy all of these take well under a second each.
SECONDS = 10
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
    start, before = time.perf_counter(), peak_memory()
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
    assert time.perf_counter() - start < SECONDS


def peak_memory() -> int:
    """The most bytes that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize(
    "type_", ["(" * DEEP + "float32" + ",)" * DEEP, "fn () -> " * DEEP + "float32", "A[" * DEEP]
)
def test_nested_types(type_: str) -> None:
    with pytest.raises(ConvoyError):
        relay.parse(f"{HEAD}def @main(%x: {type_}) {{ %x }}")


_TOKEN = re.compile(r'"[^"]*"|[%@]?[\w./]+|\s+|.')
_SPECIAL = [
    "-1", "99999999999999999999999", "0", "1e999f", "(", ")", "{", "}", "[", "]", ",", "%0", "%x",
    "nn.conv2d", "let", "fn", "if", '"', "/*", "//", "?", "_", "meta[relay.Constant][0]", "None",
    "-", ".", ";", "=", "float32", "Tensor", "#[metadata]", "\x00", "é", "%", "@main", "True",
    "65537", "2000000000", "-2147483648",
]  # fmt: skip


def mutated_text(rng: random.Random, source: str) -> str | bytes:
    """Bytes flipped, or tokens dropped, replaced, inserted and swapped."""
    if rng.random() < 0.25:
        raw = bytearray(source.encode())
        for _ in range(rng.randint(1, 6)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        return bytes(raw) if rng.random() < 0.3 else raw.decode("utf-8", "replace")
    tokens = _TOKEN.findall(source)
    for _ in range(rng.randint(1, 4)):
        at, kind = rng.randrange(len(tokens)), rng.random()
        if kind < 0.3:
            del tokens[at : at + rng.randint(1, 3)]
        elif kind < 0.6:
            tokens[at] = rng.choice(_SPECIAL)
        elif kind < 0.8:
            tokens.insert(at, rng.choice(_SPECIAL))
        else:
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        tokens = tokens or [""]
    return "".join(tokens)


def mutated_json(rng: random.Random, source: str) -> str | bytes:
    """References, fields and types of nodes changed."""
    if rng.random() < 0.2:
        return mutated_text(rng, source)
    data = json.loads(source)
    nodes: list[dict[str, Any]] = data["nodes"]
    values = ["0", "1", "-1", str(10**30), "abc", "", "NCHW", "1e400", "nan", "float99", 5, None]
    for _ in range(rng.randint(1, 4)):
        node, kind = rng.choice(nodes), rng.random()
        if kind < 0.4 and node.get("attrs"):
            field = rng.choice(list(node["attrs"]))
            node["attrs"][field] = rng.choice([*values, str(rng.randrange(len(nodes)))])
        elif kind < 0.65 and node.get("data"):
            at = rng.randrange(len(node["data"]))
            node["data"][at] = rng.choice([0, rng.randrange(len(nodes)), -1, 10**9, "x", None])
        elif kind < 0.8:
            node["type_key"] = rng.choice([*(n["type_key"] for n in nodes), "foo", 7, None])
        elif kind < 0.9 and node.get("attrs"):
            del node["attrs"][rng.choice(list(node["attrs"]))]
        else:
            data["root"] = rng.choice([0, -1, 10**9, "1", None, rng.randrange(len(nodes))])
    return json.dumps(data)


def survives(read: Callable[[Any], Any], source: str | bytes) -> bool:
    """Whether it can be read; anything but our own errors fails the test."""
    start = time.perf_counter()
    try:
        node = read(source)
        relay.astext(node)
        relay.save_json(node)
        return True
    except ConvoyError as error:
        assert str(error)
        return False
    finally:
        assert time.perf_counter() - start < SECONDS


PARTS = f"""{HEAD}def @f[A](%a: A) -> A {{ %a }}
def @main(%x: Tensor[(?, 4), float32], %t: (float32, bool), Primitive=1, name="n") -> float32 {{
  let %v: float32 = @f(%t.0); // comment
  %0 = if (%t.1) {{ %v }} else {{ %1 = -1e-3f; %1 * %v }}; /* a /* nested */ one */
  free_var %q: float32;
  %0 + (let %w = %v; %w)
}}
"""


@pytest.mark.parametrize("seed", range(4))
def test_mutated_texts(seed: int) -> None:
    rng = random.Random(seed)
    sources = [TEXT, PARTS, relay.parse(TEXT).astext()]
    read = [survives(relay.parse, mutated_text(rng, rng.choice(sources))) for _ in range(150)]
    assert any(read)  # not everything is broken by a mutation,
    assert not all(read)  # and most is


@pytest.mark.parametrize("seed", range(4))
def test_mutated_json(seed: int) -> None:
    rng = random.Random(seed)
    sources = [relay.save_json(relay.parse(TEXT)), old_file()]
    read = [survives(relay.load_json, mutated_json(rng, rng.choice(sources))) for _ in range(150)]
    assert any(read)
    assert not all(read)
