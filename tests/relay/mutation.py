"""Damaged texts, JSON files and parameter files, and what reading them may do: succeed, or raise
one of convoy's own errors, with a bounded number of calls and in one GiB.

    PYTHONPATH=python:. python -m tests.relay.mutation --count 20000 --corpus relay_corpus
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import multiprocessing
import random
import re
import resource
import signal
import struct
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from convoy import relay
from convoy.errors import ConvoyError
from convoy.relay.schema import op_names

from .counting import counted

OPERATORS = op_names()
CALLS = 4_000_000
BYTES = 2**30
#: After which an input counts as one that hangs.
SECONDS = 60

_TOKEN = re.compile(r'"[^"]*"|[%@]?[\w./]+|\s+|.')
_SPECIAL = [
    "-1", "99999999999999999999999", "0", "1e999f", "(", ")", "{", "}", "[", "]", ",", "%0", "%x",
    "nn.conv2d", "let", "fn", "if", '"', "/*", "//", "?", "_", "meta[relay.Constant][0]", "None",
    "-", ".", ";", "=", "float32", "Tensor", "#[metadata]", "\x00", "é", "%", "@main", "True",
    "65537", "2000000000", "-2147483648", "inff", "nanf", "1e-45f", "3i8", "9" * 5000, "match",
    "ref", "type", "->", "/", "%a.b", "i64", "(((((((((((((((((", "))))))))))))))))", "+ +", "--1",
    "\r\n",
]  # fmt: skip


_NUMBER = re.compile(r"(?<![\w%@.])-?\d+(?![\w.])")
_NUMBERS = [0, 1, 2, 3, 5, 7, -1, -2, -3, -4, 64, 65537, 2**31 - 1, 2**31, -(2**31), 2**62, 10**25]
_DTYPES = ["float32", "float16", "int8", "uint8", "int32", "int64", "float64", "bool", "bfloat16"]
_VALUES = ("IntImm", "FloatImm", "runtime.String", "relay.TensorType", "Op", "runtime.BoxInt")
_LAYOUTS = ["NCHW", "NHWC", "OIHW", "HWIO", "OHWI", "NCHW4c", "OIHW4i4o", "NCDHW", "NC", ""]

# ---- what is done to a source


def other_values(rng: random.Random, source: str) -> str:
    """A program that parses, with other sizes, dtypes and layouts in it."""
    head, mark, metadata = source.partition("#[metadata]")
    for _ in range(rng.randint(1, 3)):
        kind = rng.random()
        if kind < 0.6:
            found = list(_NUMBER.finditer(head))
            new = str(rng.choice(_NUMBERS))
        elif kind < 0.8:
            found = list(re.finditer("|".join(_DTYPES), head))
            new = rng.choice(_DTYPES)
        else:
            found = list(re.finditer('"[A-Z0-9a-z]*"', head))
            new = f'"{rng.choice(_LAYOUTS)}"'
        if found:
            match = rng.choice(found)
            head = head[: match.start()] + new + head[match.end() :]
    return head + mark + metadata


def mutated_text(rng: random.Random, source: str) -> str | bytes:
    """Bytes flipped, or tokens dropped, replaced, inserted, swapped and repeated; or a program of
    other sizes, dtypes and layouts."""
    kind = rng.random()
    if kind < 0.4:
        return other_values(rng, source)
    if kind < 0.6:
        raw = bytearray(source.encode())
        for _ in range(rng.randint(1, 6)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        return bytes(raw) if rng.random() < 0.3 else raw.decode("utf-8", "replace")
    tokens = _TOKEN.findall(source)
    for _ in range(rng.randint(1, 4)):
        at, kind = rng.randrange(len(tokens)), rng.random()
        if kind < 0.3:
            del tokens[at : at + rng.randint(1, 3)]
        elif kind < 0.55:
            tokens[at] = rng.choice(_SPECIAL)
        elif kind < 0.75:
            tokens.insert(at, rng.choice(_SPECIAL))
        elif kind < 0.8:
            tokens[at] = tokens[at] * rng.choice((2, 100, 10_000))
        else:
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        tokens = tokens or [""]
    return "".join(tokens)


def mutated_json(rng: random.Random, source: str) -> str | bytes:
    """References, fields, types and tensors of nodes changed."""
    if rng.random() < 0.2:
        return mutated_text(rng, source)
    data = json.loads(source)
    nodes: list[dict[str, Any]] = data["nodes"]
    values = [
        "0", "1", "-1", str(10**30), "abc", "", "NCHW", "1e400", "nan", "float99", 5, None,
        str(2**31), str(-(2**63)), "9" * 5000, [], {}, True, "é", "\x00",
    ]  # fmt: skip
    for _ in range(rng.randint(1, 4)):
        index, kind = rng.randrange(len(nodes)), rng.random()
        node = nodes[index]
        if kind < 0.25:  # a number, a dtype or a text that reads as one
            node = rng.choice([n for n in nodes if n["type_key"] in _VALUES] or nodes)
            if "repr_str" in node:
                names = OPERATORS if node["type_key"] == "Op" else [*_LAYOUTS, "7"]
                node["repr_str"] = rng.choice(names)
            elif node.get("attrs"):
                name = rng.choice(list(node["attrs"]))
                node["attrs"][name] = str(rng.choice([*_NUMBERS, *_DTYPES]))
        elif kind < 0.35 and node.get("attrs"):
            name = rng.choice(list(node["attrs"]))
            node["attrs"][name] = rng.choice([*values, str(rng.randrange(len(nodes)))])
        elif kind < 0.45 and node.get("attrs"):  # a node that refers to itself
            node["attrs"][rng.choice(list(node["attrs"]))] = str(index)
        elif kind < 0.65 and node.get("data"):
            at = rng.randrange(len(node["data"]))
            new = [0, index, rng.randrange(len(nodes)), -1, 10**9, "x", None, 1.5]
            node["data"][at] = rng.choice(new)
        elif kind < 0.75:
            node["type_key"] = rng.choice([*(n["type_key"] for n in nodes), "foo", 7, None])
        elif kind < 0.82 and node.get("attrs"):
            del node["attrs"][rng.choice(list(node["attrs"]))]
        elif kind < 0.92 and data.get("b64ndarrays"):
            at = rng.randrange(len(data["b64ndarrays"]))
            data["b64ndarrays"][at] = mutated_tensor(rng, data["b64ndarrays"][at])
        elif kind < 0.96:
            data["nodes"] = nodes = rng.sample(nodes, len(nodes))
        else:
            data["root"] = rng.choice([0, -1, 10**9, "1", None, rng.randrange(len(nodes))])
    return json.dumps(data)


def mutated_tensor(rng: random.Random, text: str) -> str:
    """Base64 of the wrong length, of other letters, or of a header that lies about its size."""
    kind = rng.random()
    if kind < 0.3:
        return text[: rng.randrange(len(text) + 1)]
    if kind < 0.4:
        return text + rng.choice(["=", "A", "AAAA", "!", "é"])
    try:
        raw = bytearray(base64.b64decode(text))
    except ValueError:  # mutated before
        return text
    if kind < 0.7 and raw:
        raw[rng.randrange(min(len(raw), 64))] ^= 1 << rng.randrange(8)
    else:
        at = rng.choice([24, 28, 32, 40])
        raw[at : at + 8] = struct.pack("<q", rng.choice([2**62, -1, 2**31, 0, 2**40]))
    return base64.b64encode(bytes(raw)).decode()


def mutated_bytes(rng: random.Random, source: bytes) -> bytes:
    """Bytes flipped, cut off, or a count made large."""
    raw = bytearray(source)
    kind = rng.random()
    if kind < 0.3:
        del raw[rng.randrange(len(raw)) :]
    elif kind < 0.7:
        for _ in range(rng.randint(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
    else:
        at = rng.randrange(0, max(1, len(raw) - 8))
        raw[at : at + 8] = struct.pack("<q", rng.choice([2**62, -1, 2**31, 2**40]))
    return bytes(raw)


# ---- what reading it may do


def use(node: Any) -> None:
    """What a reader does with a module, each of which may refuse it in convoy's words."""
    for step in (relay.astext, relay.save_json, relay.to_relax):
        with contextlib.suppress(ConvoyError):
            step(node)


READERS: dict[str, tuple[Callable[[random.Random, Any], Any], Callable[[Any], Any]]] = {
    "text": (mutated_text, relay.parse),
    "json": (mutated_json, relay.load_json),
    "params": (mutated_bytes, relay.load_param_dict),
}


@dataclass
class Tally:
    """What became of mutated inputs. ``bad`` are those that broke a promise, with how."""

    read: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    grown: int = 0
    bad: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.read += other.read
        self.refused += other.refused
        self.calls = max(self.calls, other.calls)
        self.grown = max(self.grown, other.grown)
        self.bad += other.bad

    @property
    def count(self) -> int:
        return self.read.total() + self.refused.total()


def check(seed: int, sources: Sequence[tuple[str, Any]], tally: Tally) -> None:
    """Mutate one source and read it; the seed says which and how, so that it can be repeated."""
    rng = random.Random(seed)
    kind, source = rng.choice(sources)
    mutate, read = READERS[kind]
    mutated = mutate(rng, source)
    try:
        with counted() as work:
            node = read(mutated)
            if kind != "params":
                use(node)
        tally.read[kind] += 1
    except ConvoyError as error:
        tally.refused[type(error).__name__] += 1
        if not str(error) or "Traceback" in str(error):
            tally.bad.append(f"seed {seed}: an error that says nothing")
    except BaseException as error:  # also an alarm
        tally.refused["NOT OURS"] += 1
        tally.bad.append(f"seed {seed}: {type(error).__name__}: {str(error)[:200]}")
    tally.calls = max(tally.calls, work.calls)
    if work.calls > CALLS:
        tally.bad.append(f"seed {seed}: {work.calls} calls")


def peak_memory() -> int:
    """The most bytes that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _alarm(*_: Any) -> None:
    raise TimeoutError("hangs")


def check_many(seeds: range, sources: Sequence[tuple[str, Any]]) -> Tally:
    """Mutate and read in this process, with an alarm against what hangs.

    TVM is loaded first, so that neither its calls nor its memory counts.
    """
    relay.to_relax(relay.parse('#[version = "0.0.5"]\ndef @main(%x: float32) { exp(%x) }'))
    tally, before = Tally(), peak_memory()
    old = signal.signal(signal.SIGALRM, _alarm)
    try:
        for seed in seeds:
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            check(seed, sources, tally)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    tally.grown = peak_memory() - before
    if tally.grown > BYTES:
        tally.bad.append(f"seeds {seeds.start} to {seeds.stop}: {tally.grown / 2**20:.0f} MiB more")
    return tally


def corpus_sources(corpus: Path) -> list[tuple[str, Any]]:
    """Every text, JSON and parameter file of a corpus; large ones as often as small ones."""
    found: list[tuple[str, Any]] = []
    for path in sorted(corpus.glob("*/*")):
        if path.suffix == ".relay":
            found.append(("text", path.read_text()))
        elif path.suffix == ".json" and path.parent.name != "parse":
            found.append(("json", path.read_text()))
        elif path.suffix == ".params":
            found.append(("params", path.read_bytes()))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Read mutated Relay texts and files.")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--corpus", type=Path, required=True)
    args = parser.parse_args()
    sources = corpus_sources(args.corpus)
    kinds = Counter(kind for kind, _ in sources)
    print(f"{len(sources)} sources: {dict(kinds)}")
    total, step = Tally(), 500
    last = args.first + args.count
    seeds = [range(at, min(at + step, last)) for at in range(args.first, last, step)]
    # A process of its own for every few hundred: one that crashes ends the pool with an error.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=4) as pool:
        for done in (pool.apply_async(check_many, (s, sources)) for s in seeds):
            total.add(done.get(timeout=600))
            print(
                f"{total.count} done, {len(total.bad)} bad, {total.calls} calls at most, "
                f"{total.grown / 2**20:.0f} MiB more at most",
                flush=True,
            )
    print(f"read: {dict(total.read)}; refused: {dict(total.refused)}")
    for line in total.bad:
        print(line)
    return int(bool(total.bad))


if __name__ == "__main__":
    sys.exit(main())
