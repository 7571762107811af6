"""Operators of Relax one at a time, with small data: for tests that each of them compiles and
computes on a GPU what it computes on a CPU."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

_DTYPES = {
    "f": "float32", "p": "float32", "h": "float16", "b": "bfloat16", "d": "float64",
    "i": "int64", "j": "int32", "c": "int8", "u": "uint8", "t": "bool",
}  # fmt: skip


#: Operators on two bools that become logical ones.
BOOL_PAIRS = (
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "add", "multiply", "maximum", "minimum",
)  # fmt: skip


@dataclass(frozen=True)
class Data:
    """Shape, dtype and values of an input: ``"f:2,3"`` is normal float32 of shape (2, 3), ``"p"``
    lies between 0.1 and 0.9, ``"i:4<7"`` is int64 below 7, ``"i:4=1,0,2,3"`` is as given. Letters
    are f and p (float32), h and b (float16, bfloat16), d (float64), i and j (int64, int32), c and u
    (int8, uint8) and t (bool)."""

    shape: tuple[int, ...]
    letter: str
    below: int = 0
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, text: str) -> Data:
        letter, shape, below, values = re.fullmatch(
            r"(\w):([\d,]*)(?:<(\d+))?(?:=(.*))?", text
        ).groups()  # type: ignore[union-attr]
        sizes = tuple(int(d) for d in shape.split(",") if d)
        given = tuple(float(v) for v in values.split(",")) if values else ()
        return cls(sizes, letter, int(below or 5), given)

    @property
    def dtype(self) -> str:
        return _DTYPES[self.letter]

    def array(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        dtype = ml_dtypes.bfloat16 if self.dtype == "bfloat16" else np.dtype(self.dtype)
        if self.values:
            return np.array(self.values).astype(dtype).reshape(self.shape)
        if self.letter == "t":
            return rng.integers(0, 2, self.shape).astype(dtype)
        if self.letter in "ijcu":
            return rng.integers(0, self.below, self.shape).astype(dtype)
        if self.letter == "p":
            return rng.uniform(0.1, 0.9, self.shape).astype(dtype)
        return rng.standard_normal(self.shape).astype(dtype)


@dataclass(frozen=True)
class Operator:
    """``build`` maps (emit, inputs) to the result: a tensor, or a tuple of some."""

    name: str
    inputs: tuple[Data, ...]
    build: Callable[..., Any]

    def module(self) -> tvm.IRModule:
        return together([self])[0]

    @property
    def half(self) -> bool:
        """Whether it has inputs in 16 bit."""
        return any(data.letter in "hb" for data in self.inputs)

    def arrays(self, seed: int = 0) -> list[np.ndarray[Any, Any]]:
        rng = np.random.default_rng(seed)
        return [data.array(rng) for data in self.inputs]


def together(operators: Sequence[Operator]) -> tuple[tvm.IRModule, list[Operator]]:
    """A network of operators side by side, and the operator that each result is of."""
    owners: list[Operator] = []
    builder = relax.BlockBuilder()
    params = [
        [relax.Var(f"p{i}_{j}", relax.TensorType(d.shape, d.dtype)) for j, d in enumerate(o.inputs)]
        for i, o in enumerate(operators)
    ]
    with builder.function("main", [param for some in params for param in some]):
        with builder.dataflow():
            results: list[relax.Expr] = []
            for operator, some in zip(operators, params, strict=True):
                result = builder.emit(operator.build(builder.emit, *some))
                several = isinstance(result.ty, tvm.ir.TupleType)
                count = len(result.ty.fields) if several else 1
                owners += [operator] * count
                results += (
                    [builder.emit(relax.TupleGetItem(result, i)) for i in range(count)]
                    if several
                    else [result]
                )
            one = len(operators) == 1 and not several
            output = builder.emit_output(result if one else relax.Tuple(results))
        builder.emit_func_output(output)
    return builder.get(), owners


def check_equal(
    got: Sequence[np.ndarray[Any, Any]], want: Sequence[np.ndarray[Any, Any]], half: bool
) -> None:
    """Compare results of one operator: integers exactly; ``half``: of 16-bit inputs."""
    for y, expected in zip(got, want, strict=True):
        assert y.dtype == expected.dtype and y.shape == expected.shape
        if y.dtype.kind in "biu":
            np.testing.assert_array_equal(y, expected)
            continue
        loose = half or y.dtype.itemsize == 2
        y, expected = y.astype("float64"), expected.astype("float64")
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
        np.testing.assert_allclose(y, expected, atol=scale * (2e-2 if loose else 5e-5))


def _unary() -> dict[str, Operator]:
    found = {}
    anywhere = "abs negative sign round floor ceil trunc exp sin cos tan sinh cosh tanh atan asinh "
    anywhere += "erf sigmoid square isnan isinf isfinite"
    for kind, names in (("f", anywhere), ("p", "log sqrt rsqrt acos asin atanh")):
        for name in names.split():
            found[name] = _one(name, [f"{kind}:3,5,7"], getattr(op, name))
    found["acosh"] = _one("acosh", ["p:3,5"], lambda x: op.acosh(op.add(x, relax.const(1.0))))
    for name in ["relu", "relu6", "gelu", "gelu_tanh", "selu", "silu", "softplus", "leakyrelu"]:
        found[f"nn_{name}"] = _one(f"nn_{name}", ["f:3,5,7"], getattr(op.nn, name))
    return found


def _binary() -> dict[str, Operator]:
    found = {}
    for name in [
        "add",
        "subtract",
        "multiply",
        "divide",
        "maximum",
        "minimum",
        "atan2",
        "log_add_exp",
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
        "floor_divide",
        "floor_mod",
        "mod",
    ]:
        found[name] = _one(name, ["f:3,5,7", "f:5,1"], getattr(op, name))
    for name in [
        "add",
        "subtract",
        "multiply",
        "maximum",
        "minimum",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
    ]:
        found[f"{name}_int64"] = _one(f"{name}_int64", ["i:3,5", "i:5"], getattr(op, name))
    for name in BOOL_PAIRS:
        found[f"{name}_bool"] = _one(f"{name}_bool", ["t:3,5", "t:5"], getattr(op, name))
    for name in ["left_shift", "right_shift"]:
        found[name] = _one(name, ["j:3,5<50", "j:3,5<4"], getattr(op, name))
    for name in ["floor_divide", "floor_mod", "mod"]:
        func = functools.partial(_by_one_more, getattr(op, name))
        found[f"{name}_int32"] = _one(f"{name}_int32", ["j:3,5<99", "j:3,5"], func)
    for name in ["logical_and", "logical_or", "logical_xor"]:
        found[name] = _one(name, ["t:3,5", "t:3,5"], getattr(op, name))
    found["power"] = _one("power", ["p:3,5,7", "f:5,1"], op.power)
    name, signs = "power_of_negatives", ["f:3,5,7", "f:5,1=-2,0,1,2,3"]
    found[name] = _one(name, signs, op.power)
    found["square_by_power"] = _one(
        "square_by_power", ["f:3,5"], lambda x: op.power(x, relax.const(2.0))
    )
    return found


def _by_one_more(func: Callable[..., Any], x: Any, y: Any) -> Any:
    return func(x, op.add(y, relax.const(1, "int32")))


def _one(name: str, inputs: list[str], func: Callable[..., Any]) -> Operator:
    """An operator that is one call."""
    return Operator(name, tuple(map(Data.of, inputs)), lambda emit, *values: emit(func(*values)))


_POOL = {"pool_size": (3, 2), "strides": (2, 2), "padding": (1, 0)}
_DETECTIONS = ",".join(
    str(v) for i in range(8) for v in (i % 2, 0.9 - 0.1 * i, i % 3, i % 4, i % 3 + 2.5, i % 4 + 3.5)
)  # class, score, left, top, right, bottom

_TABLE: dict[str, tuple[list[str], Callable[..., Any]]] = {
    # Types and tiny extents.
    "scalar": (["f:"], lambda x: op.exp(x)),
    "scalar_add_bfloat16": (["b:", "b:"], op.add),
    "one_element": (["f:1,1,1"], op.tanh),
    "no_element": (["f:0,4"], op.exp),
    "exp_float16": (["h:3,5,8"], op.exp),
    "exp_bfloat16": (["b:3,5,8"], op.exp),
    "exp_float64": (["d:3,5"], op.exp),
    "add_int8": (["c:3,16", "c:3,16"], op.add),
    "add_uint8": (["u:3,16", "u:3,16"], op.add),
    "logical_not": (["t:3,16"], op.logical_not),
    "bitwise_not": (["j:3,16"], op.bitwise_not),
    "wide": (["f:3000000"], op.exp),
    "long": (["f:200000,3"], lambda x: op.sum(x, 1)),
    "rank_7": (["f:2,2,2,2,2,2,3"], lambda x: op.permute_dims(x, [6, 2, 3, 4, 5, 1, 0])),
    **{
        f"astype_{a}_{b}": ([f"{a}:3,8"], functools.partial(op.astype, dtype=_DTYPES[b]))
        for a, b in ("fh", "fb", "bh", "hb", "fi", "ft", "tf", "if", "ij", "fc", "uf", "df", "tb")
    },
    **{
        f"{name}_{letter}": ([f"{letter}:5=0.1,-0.5,0.9,0.3,-0.8"], getattr(op, name))
        for name in (
            "acos", "asin", "atan", "asinh", "atanh", "cosh", "round", "sinh", "isfinite", "isinf",
            "isnan",
        )
        for letter in "hb"
    },
    **{
        f"{name}_{letter}": (
            [f"{letter}:3=0.7,-0.5,0.9", f"{letter}:3=0.3,0.25,-0.6"], getattr(op, name)
        )
        for name in ("atan2", "mod", "log_add_exp")
        for letter in "hb"
    },
    "clip": (["f:3,5"], lambda x: op.clip(x, -0.5, 0.5)),
    "where": (["t:3,5", "f:3,5", "f:1,5"], op.where),
    "where_bfloat16": (["t:3,8", "b:3,8", "b:3,8"], op.where),
    "masked_fill": (["f:3,5", "t:3,5"], lambda x, m: op.masked_fill(x, m, relax.const(-1.0))),
    # Made of nothing.
    "full": (["f:2"], lambda x: op.add(x, op.full((3, 2), relax.const(2.0)))),
    "arange": (["i:7"], lambda x: op.add(x, op.arange(0, 7, 1, "int64"))),
    "eye": (["f:4,5"], lambda x: op.add(x, op.eye(4, 5, 1))),
    "hamming": (["f:9"], lambda x: op.add(x, op.hamming_window(9, True, 0.54, 0.46, "float32"))),
    "zeros_like": (["f:3"], op.zeros_like),
    "ones_like": (["f:3"], op.ones_like),
    "full_like": (["f:3"], lambda x: op.full_like(x, relax.const(3.0))),
    "full_like_nan": (["f:3"], lambda x: op.full_like(x, relax.const(np.nan), "float16")),
    "eye_like": (["f:3,4"], op.eye_like),
    # Moving.
    "reshape": (["f:3,4"], lambda x: op.reshape(x, (2, 6))),
    "flatten": (["f:3,4"], op.flatten),
    "expand_dims": (["f:3,4"], lambda x: op.expand_dims(x, [0, 2])),
    "squeeze": (["f:3,1,4"], lambda x: op.squeeze(x, 1)),
    "permute": (["f:3,4,5"], lambda x: op.permute_dims(x, [2, 0, 1])),
    "broadcast_to": (["f:3,1"], lambda x: op.broadcast_to(x, (2, 3, 4))),
    "tile": (["f:3,4"], lambda x: op.tile(x, (2, 1, 3))),
    "repeat": (["f:3,4"], lambda x: op.repeat(x, 3, 1)),
    "repeat_flat": (["f:3,4"], lambda x: op.repeat(x, 3)),
    "flip": (["f:3,4"], lambda x: op.flip(x, 1)),
    "concat": (["f:3,4", "f:2,4"], lambda a, b: op.concat([a, b], 0)),
    "stack": (["f:3,4", "f:3,4"], lambda a, b: op.stack([a, b], 1)),
    "split": (["f:3,6"], lambda x: op.split(x, [2, 3], 1)),
    "split_int64": (["i:3,6"], lambda x: op.split(x, 3, 1)),
    "strided_slice": (["f:9,8"], lambda x: op.strided_slice(x, [0, 1], [8, 1], [0, 7], [-3, 2])),
    "dynamic_strided_slice": (
        ["f:9,8"],
        lambda x: op.dynamic_strided_slice(
            x, *(relax.const(np.array(v, "int64"), "int64") for v in ([1, 0], [7, 8], [2, 1]))
        ),
    ),
    "slice_scatter": (["f:8,8", "f:2,8"], lambda a, b: op.slice_scatter(a, b, 2, 6, 2, 0)),
    "layout_transform": (
        ["f:3,8"], lambda x: op.layout_transform(x, lambda i, j: (j // 4, i, j % 4)),
    ),
    "meshgrid": (["f:3", "f:4"], lambda a, b: op.meshgrid([a, b])),
    "tril": (["f:2,5,5"], lambda x: op.tril(x, 1)),
    "triu": (["f:2,5,5"], lambda x: op.triu(x, -1)),
    "reverse_sequence": (["f:3,6", "i:3=2,6,0"], op.reverse_sequence),
    "pad_reflect": (["f:1,2,5,5"], lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 2, 2, 1], "reflect")),
    "pad_edge": (["f:1,2,5,5"], lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 2, 2, 1], "replicate")),
    "pad_circular": (["f:1,2,5,5"], lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 2, 2, 1], "circular")),
    "pixel_shuffle": (["f:1,8,3,3"], lambda x: op.nn.pixel_shuffle(x, 2)),
    "collapse_sum_to": (["f:3,4,5"], lambda x: op.collapse_sum_to(x, (4, 1))),
    "collapse_sum_like": (["f:3,4,5", "f:1,5"], op.collapse_sum_like),
    # Gathering and scattering.
    "take": (["f:9,4", "i:3,2<9"], lambda x, i: op.take(x, i, 0)),
    "take_last": (["f:4,9", "j:3<9"], lambda x, i: op.take(x, i, 1)),
    "take_flat": (["f:36", "j:3<36"], op.take),
    "take_scalar": (["f:4,9", "i:<9"], lambda x, i: op.take(x, i, 1)),
    "take_clip": (["f:4", "i:3<9"], lambda x, i: op.take(x, i, 0, "clip")),
    "take_wrap": (["f:4", "i:3<9"], lambda x, i: op.take(x, i, 0, "wrap")),
    "gather_elements": (["f:3,4", "i:3,2<4"], lambda x, i: op.gather_elements(x, i, 1)),
    "gather_nd": (["f:3,4,5", "i:2,2<3"], lambda x, i: op.gather_nd(x, i)),
    "gather_nd_batch": (["f:3,4,5", "i:3,2,1<4"], lambda x, i: op.gather_nd(x, i, 1)),
    "index_tensor": (["f:4,4,5", "i:3<4", "i:3<4"], lambda x, i, j: op.index_tensor(x, [i, j])),
    "index_put": (
        ["f:6,6", "i:3=1,5,2", "i:3=0,3,2", "f:3"],
        lambda x, i, j, v: op.index_put(x, (i, j), v),
    ),
    "index_put_sum": (
        ["f:6,6", "i:3=1,1,2", "i:3=3,3,2", "f:3"],
        lambda x, i, j, v: op.index_put(x, (i, j), v, accumulate=True),
    ),
    "scatter_elements": (
        ["f:4,5", "i:2,5=0,1,2,3,0,1,2,3,0,1", "f:2,5"], op.scatter_elements
    ),
    "scatter_elements_1": (
        ["f:4,5", "i:4,2=0,1,2,3,0,1,2,3", "f:4,2"], lambda x, i, u: op.scatter_elements(x, i, u, 1)
    ),
    **{
        f"scatter_elements_{r}": (
            ["f:4,5", "i:3,5<4", "f:3,5"],
            functools.partial(op.scatter_elements, reduction=r),
        )
        for r in ("add", "mul", "max", "min", "mean")
    },
    "scatter_elements_add_half": (
        ["h:4,5", "i:3,5<4", "h:3,5"], functools.partial(op.scatter_elements, reduction="add"),
    ),
    **{
        f"scatter_nd_{r}": (
            ["f:5,4", "i:3,1=4,0,2", "f:3,4"], functools.partial(op.scatter_nd, reduction=r)
        )
        for r in ("update", "add", "mul", "max", "min")
    },
    "one_hot": (["i:3,4<6"], lambda x: op.one_hot(x, 1.0, 0.0, 6)),
    "one_hot_front": (
        ["j:3,4<6"], lambda x: op.one_hot(x, 2.0, -1.0, 6, 0)
    ),
    # Reductions and scans.
    **{
        f"{name}_{label}": ([shape], functools.partial(getattr(op, name), axis=axis, keepdims=keep))
        for name in ("sum", "max", "min", "mean", "prod", "variance", "std")
        for label, shape, axis, keep in (
            ("all", "f:3,5,7", None, False),
            ("middle", "f:3,5,7", [1], True),
            ("last", "f:6,300", [-1], False),
            ("outer", "f:3,5,7,11", [0, 2], False),
        )
    },
    "sum_int64": (["i:7,300"], lambda x: op.sum(x, 1)),
    "sum_half": (["h:7,300"], lambda x: op.sum(x, 1)),
    "sum_bfloat16": (["b:7,304"], lambda x: op.sum(x, 0)),
    "sum_scalar": (["f:"], op.sum),
    "sum_of_one": (["f:4,1"], lambda x: op.sum(x, 1)),
    "max_int8": (["c:7,300"], lambda x: op.max(x, 1)),
    "max_bool": (["t:7,30"], lambda x: op.max(x, 1)),
    "min_bool": (["t:7,2"], lambda x: op.min(x, 1)),
    "argmax": (["f:3,5,7"], lambda x: op.argmax(x, 1)),
    "argmax_all": (["f:3,5,7"], op.argmax),
    "argmin": (["f:3,5,7"], lambda x: op.argmin(x, -1, True)),
    "argmax_channels": (["f:2,9,40,40"], lambda x: op.argmax(x, 1)),
    "argmax_half": (["h:3,64"], lambda x: op.argmax(x, 1)),
    "median": (["f:3,7"], lambda x: op.median(x, [1])),
    "median_first": (["f:8,3"], lambda x: op.median(x, [0], True)),
    "median_all": (["f:3,7"], op.median),
    **{
        f"{name}_{label}": ([data], functools.partial(getattr(op, name), **attrs))
        for name in ("cumsum", "cumprod")
        for label, data, attrs in (
            ("last", "f:3,50", {"axis": 1}),
            ("middle", "f:3,9,7", {"axis": 1}),
            ("first", "f:9,7", {"axis": 0}),
            ("flat", "f:3,9", {}),
            ("exclusive", "f:3,50", {"axis": -1, "exclusive": True}),
            ("int64", "i:3,50<3", {"axis": 1}),
            ("bool", "t:3,50", {"axis": 1, "dtype": "int64"}),
            ("half", "h:3,50", {"axis": 1}),
            ("long", "p:2,70000", {"axis": 1}),
        )
    },
    "cumsum_negative_axis": (["f:3,9,7"], lambda x: op.cumsum(x, -2)),
    "cumsum_one": (["f:3,1"], lambda x: op.cumsum(x, 1)),
    # Sorting and searching.
    "sort": (["f:3,50"], op.sort),
    "sort_first": (["f:50,3"], lambda x: op.sort(x, 0, True)),
    "sort_int64": (["i:3,50<1000"], op.sort),
    "sort_half": (["h:3,50"], op.sort),
    "sort_long": (["f:2,5000"], op.sort),
    "argsort": (["f:3,50"], op.argsort),
    "argsort_int64": (["f:3,50"], lambda x: op.argsort(x, 1, True, "int64")),
    "argsort_first": (["f:50,3"], lambda x: op.argsort(x, 0)),
    "topk": (["f:3,50"], lambda x: op.topk(x, 5)),
    "topk_values": (["f:3,50"], lambda x: op.topk(x, 5, -1, "values")),
    "topk_indices": (["f:3,50"], lambda x: op.topk(x, 5, -1, "indices", False, "int64")),
    "topk_first": (["f:50,3"], lambda x: op.topk(x, 5, 0)),
    "topk_half": (["h:3,50"], lambda x: op.topk(x, 1)),
    "bucketize": (["f:3,5", "f:4=-1,0,0.5,1"], op.bucketize),
    "multinomial": (
        ["p:2,4", "p:3,1", "i:3,1<2"],
        lambda p, u, i: op.multinomial_from_uniform(p, u, i),
    ),
    # Products.
    "matmul": (["f:5,16", "f:16,7"], op.matmul),
    "matmul_vectors": (["f:16", "f:16"], op.matmul),
    "matmul_batch": (["f:2,3,5,16", "f:16,7"], op.matmul),
    "matmul_int8": (["c:5,16", "c:16,8"], lambda a, b: op.matmul(a, b, "int32")),
    "einsum": (["f:3,4,5", "f:3,5,6"], lambda a, b: op.einsum((a, b), "bij,bjk->bik")),
    "einsum_trace": (["f:4,4"], lambda a: op.einsum((a,), "ii->i")),
    "outer": (["f:4", "f:5"], op.outer),
    "linear": (["f:3,8", "f:5,8", "f:5"], op.linear),
    # Quantization.
    "quantize": (["f:3,8", "p:", "c:"], lambda x, s, z: op.quantize(x, s, z)),
    "dequantize": (["c:3,8", "p:8", "c:8"], lambda x, s, z: op.dequantize(x, s, z)),
    # Networks.
    "attention": (["f:2,6,4,8"] * 3, op.nn.attention),
    "attention_bias": (["f:2,6,4,8"] * 3 + ["f:2,4,6,6"], op.nn.attention_bias),
    "attention_causal": (
        ["f:2,6,4,8"] * 3, lambda q, k, v: op.nn.attention(q, k, v, causal_mask="TopLeft"),
    ),
    "conv1d": (["f:2,4,9", "f:6,4,3"], lambda x, w: op.nn.conv1d(x, w, 2, 1)),
    "conv1d_groups": (["f:2,4,9", "f:4,2,3"], lambda x, w: op.nn.conv1d(x, w, groups=2)),
    "conv1d_transpose": (["f:2,4,9", "f:4,6,3"], lambda x, w: op.nn.conv1d_transpose(x, w, 2)),
    "conv2d": (["f:1,4,9,9", "f:6,4,3,3"], lambda x, w: op.nn.conv2d(x, w, padding=1)),
    "conv2d_groups": (["f:1,4,9,9", "f:6,2,3,3"], lambda x, w: op.nn.conv2d(x, w, groups=2)),
    "conv2d_int8": (
        ["c:1,4,9,9", "c:6,4,3,3"], lambda x, w: op.nn.conv2d(x, w, out_dtype="int32")
    ),
    "conv2d_transpose": (
        ["f:1,4,5,5", "f:4,6,3,3"], lambda x, w: op.nn.conv2d_transpose(x, w, 2, 1, 1)
    ),
    "conv2d_transpose_groups": (
        ["f:1,4,5,5", "f:4,3,3,3"], lambda x, w: op.nn.conv2d_transpose(x, w, 2, groups=2)
    ),
    "conv3d": (["f:1,3,5,6,7", "f:4,3,2,3,3"], lambda x, w: op.nn.conv3d(x, w, padding=1)),
    "conv3d_transpose": (
        ["f:1,3,3,4,4", "f:3,4,2,2,2"], lambda x, w: op.nn.conv3d_transpose(x, w, 2)
    ),
    **{
        f"{name}1d": (
            ["f:2,5,9"],
            functools.partial(getattr(op.nn, f"{name}1d"), pool_size=3, strides=2, padding=1),
        )
        for name in ("max_pool", "avg_pool")
    },
    **{
        f"{name}2d": (["f:2,5,9,8"], functools.partial(getattr(op.nn, f"{name}2d"), **_POOL))
        for name in ("max_pool", "avg_pool")
    },
    "max_pool2d_dilated": (
        ["f:2,5,9,8"], lambda x: op.nn.max_pool2d(x, **_POOL, dilation=(2, 2))
    ),
    "max_pool2d_int8": (["c:2,5,9,8"], lambda x: op.nn.max_pool2d(x, **_POOL)),
    "max_pool3d": (["f:2,3,6,6,6"], lambda x: op.nn.max_pool3d(x, (2, 3, 2), (2, 2, 2))),
    "avg_pool3d": (["f:2,3,6,6,6"], lambda x: op.nn.avg_pool3d(x, (2, 3, 2), (2, 2, 2))),
    "adaptive_avg_pool1d": (["f:2,3,7"], lambda x: op.nn.adaptive_avg_pool1d(x, 3)),
    "adaptive_avg_pool2d": (["f:2,3,7,9"], lambda x: op.nn.adaptive_avg_pool2d(x, (3, 4))),
    "adaptive_avg_pool3d": (["f:2,3,7,9,5"], lambda x: op.nn.adaptive_avg_pool3d(x, (3, 4, 2))),
    "softmax": (["f:3,5,7"], lambda x: op.nn.softmax(x, 1)),
    "softmax_last": (["f:3,1001"], op.nn.softmax),
    "softmax_one": (["f:3,1"], op.nn.softmax),
    "log_softmax": (["f:3,5,7"], lambda x: op.nn.log_softmax(x, 0)),
    "batch_norm": (
        ["f:2,6,5,5", "f:6", "f:6", "f:6", "p:6"],
        lambda x, *v: op.nn.batch_norm(x, *v, axis=1, training=False),
    ),
    "layer_norm": (["f:3,5,40", "f:40", "f:40"], lambda x, g, b: op.nn.layer_norm(x, g, b, -1)),
    "layer_norm_2": (
        ["f:3,5,7", "f:5,7", "f:5,7"], lambda x, g, b: op.nn.layer_norm(x, g, b, [1, 2])
    ),
    "group_norm": (
        ["f:2,6,5,5", "f:6", "f:6"], lambda x, g, b: op.nn.group_norm(x, g, b, 3, 1, [2, 3])
    ),
    "instance_norm": (
        ["f:2,6,5,5", "f:6", "f:6"], lambda x, g, b: op.nn.instance_norm(x, g, b, 1, [2, 3])
    ),
    "rms_norm": (["f:3,40", "f:40"], lambda x, g: op.nn.rms_norm(x, g)),
    "prelu": (["f:2,6,5", "f:6"], lambda x, a: op.nn.prelu(x, a, 1)),
    "dropout": (["f:3,5"], op.nn.dropout),
    "cross_entropy": (["f:3,5", "p:3,5"], op.nn.cross_entropy_with_logits),
    "nll_loss": (["f:6,5", "i:6<5"], op.nn.nll_loss),
    "nll_loss_weighted": (["f:6,5", "i:6<5", "p:5"], op.nn.nll_loss),
    "nll_loss_pixels": (["f:2,5,4,4", "i:2,4,4<5", "p:5"], op.nn.nll_loss),
    "nll_loss_none": (
        ["f:6,5", "i:6<5", "p:5"], lambda x, t, w: op.nn.nll_loss(x, t, w, "none")
    ),
    "batch_flatten": (["f:2,3,4"], op.nn.batch_flatten),
    # Images and detection.
    **{
        f"resize2d_{method}_{mode}": (
            ["f:1,3,6,7"],
            functools.partial(
                op.image.resize2d, size=(9, 5), method=method, coordinate_transformation_mode=mode
            ),
        )
        for method, mode in (
            ("nearest_neighbor", "asymmetric"),
            ("linear", "half_pixel"),
            ("linear", "align_corners"),
            ("cubic", "half_pixel"),
        )
    },
    "resize3d": (["f:1,2,3,4,5"], lambda x: op.image.resize3d(x, (5, 4, 3))),
    "grid_sample": (["f:1,3,6,7", "f:1,2,4,5"], op.image.grid_sample),
    "grid_sample_3d": (
        ["f:1,2,3,6,7", "f:1,3,2,4,5"],
        lambda x, g: op.image.grid_sample(x, g, layout="NCDHW"),
    ),
    "grid_sample_nearest": (
        ["f:1,3,6,7", "f:1,2,4,5"],
        lambda x, g: op.image.grid_sample(x, g, "nearest", padding_mode="border"),
    ),
    "affine_grid": (["f:2,2,3"], lambda x: op.image.affine_grid(x, (4, 5))),
    "roi_align": (
        ["f:1,3,8,8", "f:2,5=0,1,1,5,6,0,0,2,7,7"],
        lambda x, r: op.vision.roi_align(x, r, (3, 3), 1.0, 2),
    ),
    "roi_align_adaptive": (
        ["f:1,3,8,8", "f:2,5=0,1,1,5,6,0,0,2,7,7"],
        lambda x, r: op.vision.roi_align(x, r, (3, 3), 1.0, 0, True),
    ),
    "roi_pool": (
        ["f:1,3,8,8", "f:2,5=0,1,1,5,6,0,0,2,7,7"],
        lambda x, r: op.vision.roi_pool(x, r, (3, 3), 1.0),
    ),
    "get_valid_counts": (
        [f"f:1,8,6={_DETECTIONS}"], lambda x: op.vision.get_valid_counts(x, 0.3)
    ),
    "non_max_suppression": (
        [f"f:1,8,6={_DETECTIONS}", "j:1=8", "j:1,8=0,1,2,3,4,5,6,7"],
        lambda x, n, i: op.vision.non_max_suppression(x, n, i, return_indices=False),
    ),
    "non_max_suppression_indices": (
        [f"f:1,8,6={_DETECTIONS}", "j:1=8", "j:1,8=0,1,2,3,4,5,6,7"],
        lambda x, n, i: op.vision.non_max_suppression(x, n, i),
    ),
    "all_class_non_max_suppression": (
        ["p:1,8,4", "p:1,2,8"],
        lambda b, s: op.vision.all_class_non_max_suppression(
            b, s, relax.const(3, "int64"), relax.const(0.5, "float32"), relax.const(0.1, "float32")
        ),
    ),
    "multibox_transform_loc": (
        ["f:1,3,8", "f:1,32", "p:1,8,4"], lambda c, b, a: op.vision.multibox_transform_loc(c, b, a)
    ),
    # Gradients, inspection.
    "max_pool2d_backward": (
        ["f:2,5,4,4", "f:2,5,8,8"],
        lambda g, x: op.grad.max_pool2d_backward(g, x, (2, 2), (2, 2)),
    ),
    "avg_pool2d_backward": (
        ["f:2,5,4,4", "f:2,5,8,8"],
        lambda g, x: op.grad.avg_pool2d_backward(g, x, (2, 2), (2, 2)),
    ),
    "nll_loss_backward": (
        ["f:", "f:6,5", "i:6<5", "p:5"], lambda g, x, t, w: op.grad.nll_loss_backward(g, x, t, w)
    ),
    "take_backward": (
        ["f:3,4", "f:9,4", "i:3<9"], lambda g, x, i: op.grad.take_backward(g, x, i, 0)
    ),
    "size": (["f:3,4"], op.size),
    "shape_to_tensor": (["f:3,4"], lambda x: op.shape_to_tensor(op.shape_of(x))),
    "ewise_fma": (["f:3,4"] * 3, op.ewise_fma),
    "nonzero": (["f:3,4"], op.nonzero),
    "unique": (["i:9"], op.unique),
}  # fmt: skip


def all_operators() -> dict[str, Operator]:
    """Every case by name."""
    return {
        **_unary(),
        **_binary(),
        **{name: _one(name, inputs, func) for name, (inputs, func) in _TABLE.items()},
    }
