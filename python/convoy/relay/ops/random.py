"""Random numbers of Threefry, a counter-based generator.

Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3"; the key schedule is Skein's.
The state is ten words of 64 bits: a key of 4, a counter of 4 whose first two words are the path of
splits, and a bit that marks the end of the path.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from convoy.relay.ast import Call, Constant, Expr, Tuple, TupleGetItem, op_call
from convoy.relay.builder import const as constant
from convoy.relay.lazy import te, tirx
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.expansion_call import attrs_of, const, plain, type_of
from convoy.relay.ops.registry import builder, converter, expansion, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import TensorType, TupleType, Type

_KEY = TensorType((10,), "uint64")
_ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
_PARITY = 0x1BD11BDAA9FC1A22
_FULL = 2**64 - 1


@builder("random.threefry_key")
def threefry_key(seed: int) -> Constant:
    """Make a generator's state of a seed."""
    key = np.frombuffer(int(seed).to_bytes(32, sys.byteorder), "uint64")
    return constant(np.concatenate([key, np.array([0, 0, 0, 0, 1 << 63, 0], "uint64")]))


@builder("random.threefry_generate")
def threefry_generate(key: Expr, shape: Sequence[int]) -> Call:
    """Return the next state, and words of 64 random bits."""
    return make_call("random.threefry_generate", key, out_shape=tuple(shape))


@builder("random.threefry_split")
def threefry_split(key: Expr) -> Call:
    """Return two states that are independent of each other."""
    return make_call("random.threefry_split", key)


@builder("random.uniform")
def uniform(
    key: Expr, shape: Sequence[int], dtype: str = "float32", low: Any = 0.0, high: Any = 1.0
) -> Call:
    """Return the next state, and numbers from `low` up to, not including, `high`."""
    bounds = [v if isinstance(v, Expr) else constant(v, dtype) for v in (low, high)]
    return make_call("random.uniform", key, *bounds, out_shape=tuple(shape), out_dtype=dtype)


@builder("random.normal")
def normal(
    key: Expr, shape: Sequence[int], dtype: str = "float32", mean: Any = 0.0, scale: Any = 1.0
) -> Call:
    """Return the next state, and numbers of a normal distribution (Box and Muller)."""
    numbers = [v if isinstance(v, Expr) else constant(v, dtype) for v in (mean, scale)]
    return make_call("random.normal", key, *numbers, out_shape=tuple(shape), out_dtype=dtype)


@builder("random.multinomial")
def multinomial(key: Expr, probs: Expr, num_samples: int) -> Call:
    """Return the next state, and `num_samples` indices drawn with the weights of the last axis."""
    return make_call("random.multinomial", key, probs, num_samples=num_samples)


def _check_key(call: Inputs) -> None:
    found = call.tensor(0)
    if found.shape != _KEY.shape or found.dtype != _KEY.dtype:
        raise call.error(f"a state of type {found}", str(_KEY))


@type_rule("random.threefry_generate")
def infer_generate(call: Inputs) -> Type:
    call.count(1)
    _check_key(call)
    return TupleType([_KEY, TensorType(call.shape("out_shape"), "uint64")])


@type_rule("random.threefry_split")
def infer_split(call: Inputs) -> Type:
    call.count(1)
    _check_key(call)
    return TupleType([_KEY, _KEY])


@type_rule("random.uniform", "random.normal")
def infer_distribution(call: Inputs) -> Type:
    call.count(3)
    _check_key(call)
    dtype = call.attrs["out_dtype"]
    if dtype not in ("float32", "float64"):
        raise call.error(f"dtype '{dtype}'", "'float32' or 'float64'")
    for index in (1, 2):
        if call.tensor(index).shape or call.tensor(index).dtype != dtype:
            raise call.error(f"argument {index} is {call.tensor(index)}", f"a scalar {dtype}")
    return TupleType([_KEY, TensorType(call.shape("out_shape"), dtype)])


@type_rule("random.multinomial")
def infer_multinomial(call: Inputs) -> Type:
    call.count(2)
    _check_key(call)
    weights = call.tensor(1)
    if not weights.shape:
        raise call.error(f"argument 1 is {weights}", "at least a vector")
    shape = (*weights.shape[:-1], call.attrs.get_int("num_samples"))
    return TupleType([_KEY, TensorType(shape, "int64")])


# ---- the generator


@converter("random.threefry_generate")
def convert_generate(op: OpCall) -> RelaxExpr:
    shape = [int(s) for s in op.attrs["out_shape"]]
    count = math.prod(shape)
    state = op.te(lambda gen: _with_room(gen, count), op.args[0])
    words = op.te(lambda gen: _words(gen, count), state)
    following = op.te(lambda gen: _advanced(gen, count), state)
    return op.tuple(following, op.reshape(words, shape))


@converter("random.threefry_split")
def convert_split(op: OpCall) -> RelaxExpr:
    return op.tuple(*(op.te(lambda gen, r=right: _split(gen, r), op.args[0]) for right in (0, 1)))


def _word(value: int) -> Any:
    return tirx.const(value, "uint64")


def _threefry(key: Any, counters: Any, blocks: int) -> Any:
    """Encrypt counters (blocks, 4) with a key, of which the first 4 words count: 20 rounds."""

    def key_word(place: int) -> Any:
        if place < 4:
            return key[place]
        return _word(_PARITY) ^ key[0] ^ key[1] ^ key[2] ^ key[3]

    def chosen(j: Any, values: Sequence[Any]) -> Any:
        result = values[3]
        for place in (2, 1, 0):
            result = tirx.Select(j == place, values[place], result)
        return result

    def round_of(state: Any, turn: int) -> Any:
        def at(row: Any, j: Any) -> Any:
            found = [state[row, place] for place in range(4)]
            if turn % 4 == 0:
                found = [w + key_word((turn // 4 + place) % 5) for place, w in enumerate(found)]
                found[3] = found[3] + _word(turn // 4)
            a, b, c, d = found
            sums = (a + b, c + d)
            turned = [
                s ^ ((w << _word(r)) | (w >> _word(64 - r)))
                for s, w, r in zip(sums, (b, d), _ROTATIONS[turn % 8], strict=True)
            ]
            return chosen(j, (sums[0], turned[1], sums[1], turned[0]))

        return te.compute((blocks, 4), at, name=f"round{turn}")

    state = counters
    for turn in range(20):
        state = round_of(state, turn)
    return state


def _with_room(gen: Any, count: int) -> Any:
    """Return the state, with a new path or key where its counter has no room for `count` words."""
    ones = te.compute((1, 4), lambda i, j: _word(_FULL), name="ones")
    fresh = _threefry(gen, ones, 1)
    end = _shifted(gen)

    def at(i: Any) -> Any:
        path = tirx.Select(i < 6, gen[i] | gen[tirx.min(i + 4, 9)], _word(0))
        path = tirx.Select(i < 4, gen[i], path)
        path = tirx.Select(i >= 8, tirx.Select(i == 8, end[0], end[1]), path)
        new = tirx.Select(i < 4, fresh[0, tirx.min(i, 3)], _word(0))
        new = tirx.Select(i == 8, _word(1 << 63), new)
        full = tirx.all(gen[8] == _word(0), gen[9] == _word(0))
        room = gen[7] < _word(_FULL - count)
        return tirx.Select(room, gen[i], tirx.Select(full, new, path))

    return te.compute((10,), at, name="state")


def _shifted(gen: Any) -> tuple[Any, Any]:
    """Return the two words that mark the end of the path, moved by one place."""
    a, b = gen[8], gen[9]
    first = tirx.Select(a == _word(1), _word(0), a >> _word(1))
    second = tirx.Select(a == _word(0), b >> _word(1), _word(0))
    return first, tirx.Select(a == _word(1), _word(1 << 63), second)


def _words(gen: Any, count: int) -> Any:
    whole, blocks = count // 4, -(-count // 4)

    def counter(row: Any, j: Any) -> Any:
        last = tirx.Select(j == 3, _word(whole * 4), _word(0))
        return gen[j + 4] + tirx.Select(row < whole, row.astype("uint64"), last)

    found = _threefry(gen, te.compute((blocks, 4), counter, name="counters"), blocks)
    return te.compute((count,), lambda i: found[i // 4, i % 4], name="words")


def _advanced(gen: Any, count: int) -> Any:
    step = count if count % 4 == 0 else count // 4 * 4 + 4

    def at(i: Any) -> Any:
        kept = tirx.Select(i == 6, _word(0), gen[i])
        return tirx.Select(i == 7, gen[7] + _word(step), kept)

    return te.compute((10,), at, name="advanced")


def _split(gen: Any, right: int) -> Any:
    """Append a bit to the path; a path without room becomes a new key."""
    counters = te.compute((1, 4), lambda i, j: gen[j + 4], name="counters")
    fresh = _threefry(gen, counters, 1)
    end = _shifted(gen)

    def at(i: Any) -> Any:
        longer = gen[i]
        if right:
            longer = tirx.Select(tirx.all(i >= 4, i < 6), gen[i] | gen[tirx.min(i + 4, 9)], longer)
        longer = tirx.Select(i >= 8, tirx.Select(i == 8, end[0], end[1]), longer)
        new = tirx.Select(i < 4, fresh[0, tirx.min(i, 3)], _word(0))
        new = tirx.Select(i == 8, _word(1 << 62), new)
        if right:
            new = tirx.Select(i == 4, _word(1 << 63), new)
        full = tirx.all(gen[8] == _word(0), gen[9] == _word(0))
        return tirx.Select(full, new, longer)

    return te.compute((10,), at, name="right" if right else "left")


# ---- distributions


def _uniform(key: Expr, shape: Sequence[int], dtype: str) -> tuple[Expr, Expr]:
    """Return the next state and numbers in [0, 1): the upper bits are those of a fraction."""
    generated = op_call("random.threefry_generate", [key], out_shape=tuple(shape))
    bits = TupleGetItem(generated, 1)
    words, shift, one = ("uint32", 9, 127 << 23) if dtype == "float32" else ("uint64", 12, 0)
    if dtype == "float64":
        one = 1023 << 52
    narrow = plain("cast", bits, dtype=words)
    fraction = plain("right_shift", narrow, const(shift, words))
    real = plain("reinterpret", plain("bitwise_or", fraction, const(one, words)), dtype=dtype)
    return TupleGetItem(generated, 0), plain("subtract", real, const(1, dtype))


@expansion("random.uniform")
def expand_uniform(call: Call, args: Sequence[Expr]) -> Expr:
    key, low, high = args
    attrs = attrs_of(call)
    following, numbers = _uniform(key, attrs["out_shape"], attrs["out_dtype"])
    scaled = plain("multiply", numbers, plain("subtract", high, low))
    return Tuple([following, plain("add", scaled, low)])


@expansion("random.normal")
def expand_normal(call: Call, args: Sequence[Expr]) -> Expr:
    key, mean, scale = args
    shape, dtype = attrs_of(call)["out_shape"], attrs_of(call)["out_dtype"]
    following, numbers = _uniform(key, (2, *shape), dtype)
    first, second = (plain("take", numbers, const(i, "int32"), axis=0) for i in (0, 1))
    logarithm = plain("log", plain("subtract", const(1, dtype), first))
    radius = plain("sqrt", plain("multiply", logarithm, const(-2, dtype)))
    sine = plain("sin", plain("multiply", second, const(2 * math.pi, dtype)))
    scaled = plain("multiply", plain("multiply", radius, sine), scale)
    return Tuple([following, plain("add", scaled, mean)])


@expansion("random.multinomial")
def expand_multinomial(call: Call, args: Sequence[Expr]) -> Expr:
    """Find the first index whose cumulative weight exceeds a uniform number."""
    weights = plain("maximum", plain("cast", args[1], dtype="float32"), const(0, "float32"))
    total = plain("sum", weights, axis=(-1,), keepdims=True)
    cumulative = plain("cumsum", plain("divide", weights, total), axis=-1)
    count = attrs_of(call).get_int("num_samples")
    shape = (*type_of(call, 1).concrete_shape[:-1], count)
    following, numbers = _uniform(args[0], shape, "float32")
    beyond = plain(
        "greater",
        plain("expand_dims", cumulative, axis=-1),
        plain("expand_dims", numbers, axis=-2),
    )
    # The first of the largest values, which is the first one that is beyond.
    found = plain("argmax", plain("cast", beyond, dtype="int32"), axis=(-2,))
    return Tuple([following, plain("cast", found, dtype="int64")])
