"""The walk over a TorchScript graph."""

from __future__ import annotations

import math
import operator as py
from collections.abc import Callable, Sequence
from typing import Any

from convoy.errors import InvalidModel, RelayTypeError, UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import Expr, Tuple, TupleGetItem, Var
from convoy.relay.builder import var
from convoy.relay.frontend.common import cast, dims, dtype_of, infer_shape, rank, reshape, value_of
from convoy.relay.frontend.pytorch.arithmetic import as_bool
from convoy.relay.frontend.pytorch.context import Context
from convoy.relay.frontend.pytorch.registry import DTYPES, Call, constant, to_numpy
from convoy.relay.frontend.pytorch.values import Opaque, Quantized, Values, View, write_back

# Steps beyond these make a module that takes minutes to compile.
_MAX_STEPS = 10_000


class Script:
    """The conversion of a ScriptModule or a ScriptFunction.

    Attributes:
        context: Converts calls.
        params: Arrays of the parameters that are used, by name.
    """

    def __init__(self, context: Context, module: Any, rename: Callable[[str], str]) -> None:
        self.context, self.module, self._rename = context, module, rename
        self.values = Values()
        self.params: dict[str, Any] = {}
        self._vars: dict[str, Var] = {}
        self._in_place = False
        state: dict[str, Any] = getattr(module, "state_dict", dict)()
        self._state = {t.data_ptr(): n for n, t in state.items() if not t.is_quantized}
        self._names = set(state)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Convert the graph for given inputs; return its outputs.

        Raises:
            InvalidModel: Another number of inputs than the graph has.
        """
        import torch

        graph = self.module.graph.copy()
        torch._C._jit_pass_inline(graph)
        self._in_place = "_(" in str(graph)
        parameters = list(graph.inputs())
        if parameters and parameters[0].type().kind() == "ClassType":
            self.values[parameters.pop(0).debugName()] = Opaque(self.module)
        if len(parameters) != len(inputs):
            raise InvalidModel(
                f"{len(inputs)} input_infos for a graph of {len(parameters)} inputs",
                "one for each",
            )
        for parameter, value in zip(parameters, inputs, strict=True):
            self.values[parameter.debugName()] = value
        self.block(graph)
        return [self.values[o.debugName()] for o in graph.outputs()]

    def block(self, block: Any) -> None:
        """Convert the nodes of a block."""
        for node in block.nodes():
            self.node(node)

    def node(self, node: Any) -> None:
        """Convert a node; set the values of its outputs."""
        kind = node.kind()
        special = _SPECIAL.get(kind)
        if special is not None:
            special(self, node)
            return
        inputs = [self.values[i.debugName()] for i in node.inputs()]
        if kind in _PYTHON:
            result = _PYTHON[kind](*inputs)
            if result is not NotImplemented:
                self._set(node, result)
                return
        if kind.startswith("prim::"):
            raise UnsupportedOp(f"TorchScript {kind}{_where(node)}", "tensors and numbers")
        name, overload, args = _arguments(node, inputs)
        try:
            result = self.context.convert(name, overload, args)
        except UnsupportedOp as error:
            raise UnsupportedOp(error.got + _where(node), error.expected, error.remedy) from error
        self._store(node, name, args, result)

    def _store(self, node: Any, name: str, args: dict[str, Any], result: Any) -> None:
        outputs = list(node.outputs())
        first = next(iter(node.inputs()), None)
        if name.endswith("_") and not name.endswith("__") and first is not None:
            before = self.values[first.debugName()]
            if isinstance(before, Expr) and isinstance(result, Expr):
                result = cast(result, dtype_of(before))
            self.values.update(first.debugName(), result)
            if outputs:
                self.values.alias(outputs[0].debugName(), first.debugName())
            return
        self._set(node, result)
        if self._in_place and len(outputs) == 1 and isinstance(result, Expr):
            self._note_view(outputs[0], first, name, args)

    def _note_view(self, output: Any, first: Any, name: str, args: dict[str, Any]) -> None:
        key = next(iter(args), "")
        if not isinstance(args.get(key), Expr):
            return
        write = write_back(Call(name, args, self.context.default_dtype))
        if write is None:
            return

        def forward(base: Expr) -> Any:
            return self.context.convert(name, "", {**args, key: base})

        self.values.view(output.debugName(), View(first.debugName(), forward, write))

    def _set(self, node: Any, result: Any) -> None:
        outputs = list(node.outputs())
        if len(outputs) == 1:
            self.values[outputs[0].debugName()] = result
        elif outputs:
            for output, value in zip(outputs, result, strict=False):
                self.values[output.debugName()] = value

    # ---- nodes that are no operators

    def constant(self, node: Any) -> None:
        """Convert a constant."""
        import torch

        output = node.output()
        value = output.toIValue()
        if isinstance(value, torch.Tensor):
            value = constant(value)
        self.values[output.debugName()] = value

    def attribute(self, node: Any) -> None:
        """Read an attribute of a module: a submodule, a parameter or a Python value."""
        import torch

        owner = self.values[node.input().debugName()]
        name = node.s("name")
        value = getattr(owner.object, name)
        path = f"{owner.path}.{name}" if owner.path else name
        if isinstance(value, torch.Tensor):
            result: Any = self._parameter(path, value)
        elif isinstance(
            value, (torch.nn.Module, torch._C.ScriptObject, torch.jit.RecursiveScriptModule)
        ):
            result = Opaque(value, path)
        else:
            result = value
        self.values[node.output().debugName()] = result

    def _parameter(self, path: str, value: Any) -> Expr:
        """Return the variable of a parameter; one that state_dict() does not have is a constant."""
        name = path if path in self._names else self._state.get(value.data_ptr())
        if name is None or value.is_quantized:
            return constant(value.dequantize() if value.is_quantized else value)
        return self.parameter(self._rename(name), to_numpy(value))

    def parameter(self, name: str, array: Any) -> Var:
        """Return the variable of an array, which becomes a parameter."""
        if name not in self._vars:
            self.params[name] = array
            self._vars[name] = var(name, shape=array.shape, dtype=array.dtype.name)
        return self._vars[name]

    def branch(self, node: Any) -> None:
        """Convert the branch that is taken, or both where that depends on values."""
        condition = self.values[next(iter(node.inputs())).debugName()]
        blocks = list(node.blocks())
        value = value_of(condition) if isinstance(condition, Expr) else condition
        if value is not None:
            self._take(node, blocks[0 if bool(value) else 1])
            return
        raising = [any(n.kind() == "prim::RaiseException" for n in b.nodes()) for b in blocks]
        if any(raising):  # a check of values, which the compiled network leaves out
            self._take(node, blocks[raising.index(False)])
            return
        results = []
        for block in blocks:
            self.block(block)
            found = [self.values[o.debugName()] for o in block.outputs()]
            results.append([self._tensor(v, node) for v in found])
        if not results[0]:
            return
        scalar = reshape(condition, ())
        scalar = scalar if dtype_of(scalar) == "bool" else scalar.astype("bool")
        if len(results[0]) == 1:
            self._set(node, ast.If(scalar, results[0][0], results[1][0]))
            return
        both = ast.If(scalar, Tuple(results[0]), Tuple(results[1]))
        self._set(node, [TupleGetItem(both, i) for i in range(len(results[0]))])

    def _tensor(self, value: Any, node: Any) -> Expr:
        if value is None or isinstance(value, (list, tuple, str, Opaque)):
            raise UnsupportedOp(
                f"an if that depends on values and computes a {type(value).__name__}{_where(node)}",
                "tensors",
            )
        return Call("prim::If", {}, self.context.default_dtype).tensor(value)

    def _take(self, node: Any, block: Any) -> None:
        self.block(block)
        outputs = list(node.outputs())
        for output, inner in zip(outputs, block.outputs(), strict=True):
            self.values[output.debugName()] = self.values[inner.debugName()]

    def loop(self, node: Any) -> None:
        """Unroll a loop.

        Raises:
            UnsupportedOp: A number of steps, or a condition, that is computed at run time.
        """
        count, going, *carried = (self.values[i.debugName()] for i in node.inputs())
        block = next(iter(node.blocks()))
        number, *names = (i.debugName() for i in block.inputs())
        step = 0
        limit = _known(count, node)
        while _known(going, node) and step < limit:
            if step >= _MAX_STEPS:
                raise UnsupportedOp(f"a loop of over {_MAX_STEPS} steps{_where(node)}", "fewer")
            self.values[number] = step
            for name, value in zip(names, carried, strict=True):
                self.values[name] = value
            self.block(block)
            going, *carried = (self.values[o.debugName()] for o in block.outputs())
            step += 1
        for output, value in zip(node.outputs(), carried, strict=True):
            self.values[output.debugName()] = value

    def listed(self, node: Any) -> None:
        """Make a list or a tuple."""
        values = [self.values[i.debugName()] for i in node.inputs()]
        result = tuple(values) if node.kind() == "prim::TupleConstruct" else values
        self.values[node.output().debugName()] = result

    def unpacked(self, node: Any) -> None:
        """Unpack a list or a tuple."""
        value = self.values[node.input().debugName()]
        if isinstance(value, Expr):
            value = [TupleGetItem(value, i) for i in range(node.outputsSize())]
        for output, item in zip(node.outputs(), value, strict=True):
            self.values[output.debugName()] = item

    def dictionary(self, node: Any) -> None:
        """Make a dict."""
        values = [self.values[i.debugName()] for i in node.inputs()]
        pairs = dict(zip(values[::2], values[1::2], strict=True))
        self.values[node.output().debugName()] = pairs

    def same(self, node: Any) -> None:
        """Give an input a second name."""
        first = next(iter(node.inputs())).debugName()
        self.values[node.output().debugName()] = self.values[first]
        self.values.alias(node.output().debugName(), first)

    def raised(self, node: Any) -> None:
        """Refuse: the graph raises an exception for these inputs.

        Raises:
            InvalidModel: Always.
        """
        message = self.values[next(iter(node.inputs())).debugName()]
        raise InvalidModel(f"a model that raises an exception{_where(node)}: {message}")


def _arguments(node: Any, inputs: Sequence[Any]) -> tuple[str, str, dict[str, Any]]:
    """Return operator, overload and arguments by name of a node."""
    import torch

    try:
        schema = torch._C.parse_schema(node.schema())
    except RuntimeError:  # a custom operator that was not registered with a schema
        return node.kind(), "", {str(i): v for i, v in enumerate(inputs)}
    names = [a.name for a in schema.arguments]
    if len(names) != len(inputs):
        names = [str(i) for i in range(len(inputs))]
    return node.kind(), schema.overload_name, dict(zip(names, inputs, strict=True))


def _known(value: Any, node: Any) -> int:
    found = value_of(value) if isinstance(value, Expr) else value
    if found is None:
        raise UnsupportedOp(
            f"a loop whose number of steps depends on values{_where(node)}",
            "a number of steps that is known",
            "Trace the model (torch.jit.trace)",
        )
    return int(found)


def _where(node: Any) -> str:
    """Return where in the user's source a node comes from."""
    lines = [s.strip() for s in node.sourceRange().splitlines() if ".py" in s]
    return f" ({lines[0].lstrip('# ')})" if lines else ""


# ---- functions of Python's numbers, lists and strings


def _size(tensor: Any, axis: Any = None) -> Any:
    shape = infer_shape(_real(tensor)) if axis is None else dims(_real(tensor))
    if axis is None:
        return list(shape)
    size = shape[axis]
    return size if isinstance(size, int) else list(infer_shape(_real(tensor)))[axis]


def _real(tensor: Any) -> Expr:
    return tensor.expr if isinstance(tensor, Quantized) else tensor


def _number(value: Any, *_: Any) -> Any:
    if not isinstance(value, Expr):
        return value
    array = value_of(value)
    if array is None:
        raise UnsupportedOp(
            "a Python number of a tensor that is computed at run time", "a tensor throughout",
            "Leave out .item(), int() and float() in the model",
        )  # fmt: skip
    return array.item()


def _on_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that leaves tensors to the converters."""

    def run(*args: Any) -> Any:
        if any(isinstance(a, (Expr, Quantized)) for a in args):
            return NotImplemented
        return function(*args)

    return run


def _append(items: Any, item: Any) -> Any:
    items.append(item)
    return items


def _truth(value: Any) -> Any:
    if isinstance(value, Expr) and value_of(value) is None:
        return as_bool(reshape(value, ()))
    return bool(_number(value))


def _extend(items: Any, more: Any, *_: Any) -> Any:
    if not isinstance(items, list):
        return NotImplemented
    items.extend(more)
    return items


def _item(items: Any, index: Any) -> Any:
    if isinstance(items, Expr):
        return NotImplemented
    if isinstance(items, dict):
        return items[index]
    number = _number(index)
    if not -len(items) <= number < len(items):
        raise RelayTypeError(
            f"item {number} of {len(items)}", "the shapes of all items of an input"
        )
    return items[number]


def _set_item(items: Any, index: Any, value: Any) -> Any:
    items[index] = value
    return items


def _list_slice(items: Any, *bounds: Any) -> Any:
    return NotImplemented if isinstance(items, (Expr, Quantized)) else items[slice(*bounds)]


def _dtype_number(tensor: Any) -> int:
    return {name: number for number, name in reversed(DTYPES.items())}[dtype_of(_real(tensor))]


def _tensor_of(value: Any, *_: Any) -> Any:
    return Call("aten::tensor", {"v": value}, "float32")["v"]


_PYTHON: dict[str, Callable[..., Any]] = {
    "aten::size": _size,
    "aten::dim": lambda t: rank(_real(t)),
    "aten::len": lambda v: infer_shape(v)[0] if isinstance(v, Expr) else len(v),
    "aten::numel": lambda t: math.prod(infer_shape(_real(t))),
    "aten::Int": _number, "aten::IntImplicit": _number, "aten::ScalarImplicit": _number,
    "aten::item": _number,
    "aten::Float": lambda v: float(_number(v)), "aten::FloatImplicit": lambda v: float(_number(v)),
    "aten::Bool": _truth,
    "prim::NumToTensor": _tensor_of,
    "aten::__getitem__": _item, "aten::_set_item": _set_item, "aten::append": _append,
    "aten::add_": _extend, "aten::extend": _extend, "aten::pop": lambda items, at: items.pop(at),
    "aten::__range_length": lambda low, high, step: len(range(low, high, step)),
    "aten::__derive_index": lambda i, start, step: start + i * step, "aten::str": str,
    "aten::slice": _list_slice, "aten::list": lambda v: list(v),
    "aten::__is__": lambda a, b: a is b, "aten::__isnot__": lambda a, b: a is not b,
    "aten::__not__": _on_numbers(py.not_), "aten::__contains__": lambda items, i: i in items,
    "aten::keys": lambda d: list(d), "aten::values": lambda d: list(d.values()),
    "aten::items": lambda d: [tuple(i) for i in d.items()],
    "aten::is_floating_point": lambda t: dtype_of(_real(t)).startswith(("float", "bfloat")),
    "aten::is_complex": lambda t: False, "aten::format": lambda s, *v: s.format(*map(str, v)),
    "prim::dtype": _dtype_number, "prim::device": lambda t: "cpu", "prim::is_cuda": lambda t: False,
    "prim::layout": lambda t: 0, "prim::requires_grad": lambda t: False,
    "prim::is_quantized": lambda t: isinstance(t, Quantized), "prim::data": lambda t: t,
    "prim::shape": _size, "prim::unchecked_cast": lambda v: v,
    "prim::min": _on_numbers(min), "prim::max": _on_numbers(max),
    "aten::floordiv": _on_numbers(py.floordiv), "aten::ceil": _on_numbers(math.ceil),
    "aten::floor": _on_numbers(math.floor), "aten::add": _on_numbers(lambda a, b, *_: a + b),
    "aten::mul": _on_numbers(py.mul), "aten::sub": _on_numbers(lambda a, b, *_: a - b),
    "aten::eq": _on_numbers(py.eq), "aten::ne": _on_numbers(py.ne), "aten::lt": _on_numbers(py.lt),
    "aten::le": _on_numbers(py.le), "aten::gt": _on_numbers(py.gt), "aten::ge": _on_numbers(py.ge),
    "aten::div": _on_numbers(py.truediv), "aten::neg": _on_numbers(py.neg),
    "aten::remainder": _on_numbers(py.mod), "aten::pow": _on_numbers(py.pow),
    "aten::sqrt": _on_numbers(math.sqrt), "aten::__and__": _on_numbers(py.and_),
    "aten::__or__": _on_numbers(py.or_), "aten::warn": lambda *a: None,
}  # fmt: skip

_SPECIAL: dict[str, Callable[[Script, Any], None]] = {
    "prim::Constant": Script.constant,
    "prim::GetAttr": Script.attribute,
    "prim::If": Script.branch,
    "prim::Loop": Script.loop,
    "prim::ListConstruct": Script.listed,
    "prim::TupleConstruct": Script.listed,
    "prim::ListUnpack": Script.unpacked,
    "prim::TupleUnpack": Script.unpacked,
    "prim::DictConstruct": Script.dictionary,
    "prim::Uninitialized": lambda self, node: self._set(node, None),
    "prim::RaiseException": Script.raised,
    "prim::Print": lambda self, node: None,
    "prim::unchecked_cast": Script.same,
    "prim::annotate": Script.same,
}
