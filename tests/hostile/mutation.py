"""Change JSON and bytes as damage and malice do."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

#: Values of every JSON type, near limits and far beyond them.
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 64, 2**31 - 1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308),
    *(
        float("nan"),
        float("inf"),
        "",
        "x",
        "fprop",
        "../../x",
        "1\n#include <x>\n//",
        "\x1b]0;x",
    ),
    *("\ud800", [], [1], [[]], [None], [1, 2], [1, 2, 3], {}, {"a": 1}, {"": []}, "float16"),
)


def mutated_json(value: Any, rng: random.Random) -> Any:
    """A copy with one to three places replaced, removed, doubled or nested."""
    root = [json.loads(json.dumps(value))]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = [(root, 0), *_places(root[0])]
        holder, key = rng.choice(places)
        kind = rng.randrange(8)
        if kind == 0 and len(places) > 1:
            holder, key = rng.choice(places[1:])
            del holder[key]
        elif kind == 1:
            holder[key] = [holder[key], holder[key]]
        elif kind == 2 and isinstance(holder[key], dict):
            holder[key][rng.choice(("x", "format", "n", "kernel", ""))] = copy.deepcopy(
                rng.choice(VALUES)
            )
        elif kind == 3:
            other, name = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[name]))
        elif kind == 4 and isinstance(holder[key], (int, float)):
            holder[key] = holder[key] * rng.choice((-1, 0.5, 2, 10**9)) + rng.choice((-1, 0, 1))
        else:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
    return root[0]


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    if not isinstance(value, (dict, list)):
        return found
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        found.append((value, key))
        found += _places(inner)
    return found


def mutated_bytes(data: bytes, rng: random.Random) -> bytes:
    """A copy that is cut, or with bytes changed, removed, inserted or repeated."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0:
            del data[at:]
        elif kind == 1:
            del data[at : at + rng.randrange(1, 20)]
        elif kind == 2:
            data[at:at] = rng.randbytes(rng.randrange(1, 8))
        elif kind == 3:
            data[at:at] = rng.choice((b"[", b"{", b'"', b"\\", b"\n", b"\0", b"\xff", b"9")) * (
                10 ** rng.randrange(5)
            )
        elif kind == 4:
            data[at:at] = data[: rng.randrange(len(data) + 1)]
        elif at < len(data):
            data[at] ^= 1 << rng.randrange(8)
    return bytes(data)


def mutated_text(value: Any, rng: random.Random) -> bytes:
    """JSON text: of a mutated value mostly, or mutated text."""
    if rng.random() < 0.75:
        value = mutated_json(value, rng)
    text = json.dumps(value).encode()
    return text if rng.random() < 0.7 else mutated_bytes(text, rng)
