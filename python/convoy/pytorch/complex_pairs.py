"""Complex numbers as pairs of real tensors, since Relax has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree

from ..errors import UnsupportedOp
from . import fourier
from .refusal import EXPECTED, PARTS, called

_aten = torch.ops.aten


class Pair(NamedTuple):
    """Real and imaginary parts."""

    re: Any
    im: Any


def has_complex(program: ExportedProgram) -> bool:
    return any(_is_complex(node.meta.get("val")) for node in program.graph.nodes)


class RealModule(torch.nn.Module):
    """A decomposed program whose complex values inside are pairs, to be exported again."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        signature, values = program.graph_signature, {n.name: n.meta for n in program.graph.nodes}
        for names, what, function in (
            (signature.user_inputs, "inputs", "view_as_complex"),
            (signature.user_outputs, "results", "view_as_real"),
        ):
            if any(_is_complex(values[str(name)].get("val")) for name in names):
                raise UnsupportedOp(f"a module with complex {what}", f"real ones: {function}")
        self.graph_module = program.module(check_guards=False)
        self.parts = torch.nn.ParameterDict()
        for path in {node.target for node in self.graph_module.graph.find_nodes(op="get_attr")}:
            folder, _, name = path.rpartition(".")
            owner = self.graph_module.get_submodule(folder)
            if _is_complex(held := getattr(owner, name)):
                delattr(owner, name)
                parts = torch.view_as_real(held.detach().resolve_conj()).unbind(-1)
                for side, part in zip(Pair._fields, parts, strict=True):
                    self.parts[_key(path, side)] = part.contiguous()

    def forward(self, *tensors: torch.Tensor) -> Any:
        return _Interpreter(self).run(*tensors)


class _Interpreter(torch.fx.Interpreter):
    def __init__(self, module: RealModule) -> None:
        super().__init__(module.graph_module)
        self.extra_traceback = False  # in the message of what a rule raises
        self._parts = module.parts

    def run_node(self, node: torch.fx.Node) -> Any:
        if node.op == "get_attr" and _key(node.target, "re") in self._parts:
            return Pair(*(self._parts[_key(node.target, side)] for side in Pair._fields))
        if node.op != "call_function":
            return super().run_node(node)
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        given = _pytree.tree_leaves((args, kwargs), is_leaf=_is_pair)
        if not _is_complex(node.meta.get("val")) and not any(map(_is_pair, given)):
            return super().run_node(node)
        packet = getattr(node.target, "overloadpacket", None)
        rule = _RULES.get(packet.__name__ if packet is not None else node.target.__name__)
        if rule is None:
            got = f"complex numbers in {called(node)}"
            raise UnsupportedOp(got, EXPECTED, PARTS)
        if kwargs.get("dtype") is not None:
            kwargs = {**kwargs, "dtype": torch.float32}
        result = rule(node.target, *args, **kwargs)
        real = isinstance(result, Pair) and not _is_complex(node.meta.get("val"))
        return result.re if real else result


def _key(path: str, side: str) -> str:
    """The name of one part of a complex attribute."""
    return f"{path.replace('.', '_')}_{side}"


def _is_complex(value: Any) -> bool:
    values = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(v, torch.Tensor) and v.is_complex() for v in values)


def _is_pair(value: Any) -> bool:
    return isinstance(value, Pair)


def _pair(value: Any) -> Pair:
    if isinstance(value, Pair):
        return value
    if isinstance(value, torch.Tensor):
        return Pair(value, torch.zeros_like(value))
    return Pair(complex(value).real, complex(value).imag)


def _each(target: Any, *args: Any, **kwargs: Any) -> Any:
    """The same operator for both parts; where it splits, a list of pairs."""
    re, im = (target(*_side(args, side), **kwargs) for side in Pair._fields)
    return list(map(Pair, re, im)) if isinstance(re, list | tuple) else Pair(re, im)


def _side(values: Any, side: str) -> Any:
    """One part of all pairs in nested values."""

    def part(value: Any) -> Any:
        return getattr(value, side) if isinstance(value, Pair) else value

    return _pytree.tree_map(part, values, is_leaf=_is_pair)


def _both_pairs(target: Any, a: Any, b: Any) -> Pair:
    a, b = _pair(a), _pair(b)
    return Pair(target(a.re, b.re), target(a.im, b.im))


def _joined(target: Any, tensors: Sequence[Any], *rest: Any) -> Any:
    return _each(target, list(map(_pair, tensors)), *rest)


def _chosen(target: Any, condition: Any, a: Any, b: Any) -> Any:
    return _each(target, condition, _pair(a), _pair(b))


def _product(target: Any, a: Any, b: Any) -> Pair:
    """Of numbers or of matrices."""
    if not isinstance(a, Pair) and isinstance(a, torch.Tensor):
        return Pair(target(a, _pair(b).re), target(a, _pair(b).im))
    if not isinstance(b, Pair | complex):
        return Pair(target(a.re, b), target(a.im, b))
    a, b = _pair(a), _pair(b)
    return Pair(target(a.re, b.re) - target(a.im, b.im), target(a.re, b.im) + target(a.im, b.re))


def _linear(target: Any, x: Any, weight: Any, bias: Any = None) -> Pair:
    turned = Pair(weight.re.mT, weight.im.mT) if isinstance(weight, Pair) else weight.mT
    y = _product(torch.matmul, x, turned)
    return y if bias is None else _both_pairs(torch.add, y, bias)


def _added_product(target: Any, x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Pair:
    return _both_pairs(
        torch.add,
        _product(torch.mul, _pair(x), beta),
        _product(torch.mul, _product(torch.matmul, a, b), alpha),
    )


def _power(target: Any, x: Any, exponent: Any) -> Pair:
    if exponent in (2, 3, 4):
        found = x
        for _ in range(exponent - 1):
            found = _product(torch.mul, found, x)
        return found
    x = _pair(x)
    if isinstance(exponent, int | float):
        return _polar(target, _size(target, x) ** exponent, _angle(target, x) * exponent)
    power = _product(torch.mul, exponent, _logarithm(target, x))
    return _polar(target, torch.exp(power.re), power.im)


def _logarithm(target: Any, x: Pair) -> Pair:
    return Pair(torch.log(_size(target, x)), _angle(target, x))


def _quotient(target: Any, a: Any, b: Any) -> Pair:
    if not isinstance(b, Pair | complex):
        return Pair(target(a.re, b), target(a.im, b))
    b = _pair(b)
    top = _product(_aten.mul.Tensor, _pair(a), Pair(b.re, -b.im))
    size = b.re * b.re + b.im * b.im
    return Pair(top.re / size, top.im / size)


def _polar(target: Any, size: Any, angle: Any) -> Pair:
    return Pair(size * torch.cos(angle), size * torch.sin(angle))


def _size(target: Any, x: Pair) -> Any:
    return torch.sqrt(x.re * x.re + x.im * x.im)


def _angle(target: Any, x: Pair) -> Any:
    return torch.atan2(x.im, x.re)


def _filled(target: Any, shape: Any, value: Any, **kwargs: Any) -> Pair:
    whole = _pair(value)
    return Pair(*(target(shape, part, **kwargs) for part in whole))


def _like(target: Any, x: Any, value: Any, **kwargs: Any) -> Pair:
    return _filled(target, _pair(x).re, value, **kwargs)


def _padded(target: Any, x: Pair, pads: Any, mode: Any = "constant", value: Any = None) -> Pair:
    if mode != "constant":
        return _each(target, x, pads, mode)
    whole = _pair(value or 0)
    return Pair(*(_aten.constant_pad_nd(part, pads, v) for part, v in zip(x, whole, strict=True)))


def _copied(target: Any, x: Any, **kwargs: Any) -> Pair:
    return Pair(*(target(part, **kwargs) for part in _pair(x)))


_ALIKE = (
    "alias", "clone", "cumsum", "detach", "diagonal", "expand", "flip", "gather", "getitem",
    "index", "index_select", "lift_fresh_copy", "mean", "neg", "permute", "repeat", "reshape",
    "roll", "select", "slice", "split", "split_with_sizes", "squeeze", "sum", "transpose", "tril",
    "triu", "unbind", "unfold", "unsqueeze", "view",
)  # fmt: skip

_RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_ALIKE, _each),
    **dict.fromkeys(("add", "sub"), _both_pairs),
    **dict.fromkeys(("mul", "mm", "bmm", "matmul"), _product),
    **dict.fromkeys(("slice_scatter", "select_scatter"), lambda target, x, source, *rest: _each(
        target, _pair(x), _pair(source), *rest)),
    "index_put": lambda target, x, indices, values, *rest: _each(
        target, _pair(x), indices, _pair(values), *rest),
    "pad": _padded,
    "constant_pad_nd": lambda target, x, pads, value=0: _padded(target, x, pads, value=value),
    "linear": _linear,
    **dict.fromkeys(("addmm", "baddbmm"), _added_product),
    "pow": _power,
    "sqrt": lambda target, x: _power(target, x, 0.5),
    "eq": lambda target, a, b: torch.logical_and(*_both_pairs(target, a, b)),
    "ne": lambda target, a, b: torch.logical_or(*_both_pairs(target, a, b)),
    "var": lambda target, x, *rest, **kwargs: torch.add(*_each(target, x, *rest, **kwargs)),
    "linalg_vector_norm": lambda target, x, *rest, **kwargs: target(
        _size(target, x), *rest, **kwargs),
    "scalar_tensor": lambda target, value, **kwargs: _each(target, _pair(value), **kwargs),
    "full_like": _like,
    "getitem": lambda target, items, i: items[i],
    "cat": _joined,
    "where": _chosen,
    "copy": lambda target, x, source: _each(target, _pair(x), _pair(source)),
    "div": _quotient,
    "reciprocal": lambda target, x: _quotient(_aten.div.Tensor, 1.0, x),
    "full": _filled,
    "_to_copy": _copied,
    "complex": lambda target, re, im: Pair(re, im),
    "view_as_complex": lambda target, x: Pair(*x.unbind(-1)),
    "view_as_real": lambda target, x: torch.stack(x, -1),
    **dict.fromkeys(("_conj", "_conj_physical"), lambda target, x: Pair(x.re, -x.im)),
    "polar": _polar,
    "exp": lambda target, x: _polar(target, torch.exp(x.re), x.im),
    "log": _logarithm,
    "abs": _size,
    "angle": _angle,
    "_fft_r2c": lambda target, *args: Pair(*fourier.real_to_complex(*args)),
    "_fft_c2c": lambda target, *args: Pair(*fourier.complex_to_complex(*args)),
    "_fft_c2r": lambda target, *args: fourier.complex_to_real(*args),
}  # fmt: skip
