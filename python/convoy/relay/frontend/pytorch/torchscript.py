"""The walk over a TorchScript graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from convoy.errors import InvalidModel, UnsupportedOp
from convoy.relay.ast import Expr, TupleGetItem, Var
from convoy.relay.builder import var
from convoy.relay.frontend.common import cast, dtype_of
from convoy.relay.frontend.pytorch.context import Context
from convoy.relay.frontend.pytorch.control_flow import branch, loop
from convoy.relay.frontend.pytorch.node import arguments_of, quantizes, where
from convoy.relay.frontend.pytorch.python_values import PYTHON_FUNCTIONS
from convoy.relay.frontend.pytorch.registry import Call, constant, to_numpy
from convoy.relay.frontend.pytorch.values import Opaque, Values, View, write_back
from convoy.relay.frontend.spans import mark


class Script:
    """The conversion of a ScriptModule or a ScriptFunction.

    Attributes:
        context: Converts calls.
        params: Arrays of the parameters that are used, by name.

    Args:
        rename: Takes the names of parameters in `state_dict()` to those in the module.
        scopes: Name spans by the modules of the network, not by operators.
    """

    def __init__(
        self, context: Context, module: Any, rename: Callable[[str], str], scopes: bool = False
    ) -> None:
        self.context, self.module, self._rename, self._scopes = context, module, rename, scopes
        self._counts: Counter[str] = Counter()
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
        if kind in PYTHON_FUNCTIONS:
            result = PYTHON_FUNCTIONS[kind](*inputs)
            if result is not NotImplemented:
                self.set(node, result)
                return
        if kind.startswith("prim::"):
            raise UnsupportedOp(f"TorchScript {kind}{where(node)}", "tensors and numbers")
        name, overload, args = arguments_of(node, inputs)
        try:
            result = self.context.convert(name, overload, args)
        except UnsupportedOp as error:
            raise UnsupportedOp(error.got + where(node), error.expected, error.remedy) from error
        mark(result, self._span(node, kind))
        self._store(node, name, args, result)

    def _span(self, node: Any, kind: str) -> str:
        """Return the module that a node belongs to, or its operator and a number."""
        if self._scopes and (scope := node.scopeName().rpartition("/")[2]):
            return str(scope).removeprefix("__module.")
        self._counts[kind] += 1
        return f"{kind}_{self._counts[kind] - 1}"

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
        self.set(node, result)
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

    def set(self, node: Any, result: Any) -> None:
        """Set the values of a node's outputs."""
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
            scale = value.numel() == 1 and quantizes(node.output())
            result: Any = constant(value) if scale else self._parameter(path, value)
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
        raise InvalidModel(f"a model that raises an exception{where(node)}: {message}")


_SPECIAL: dict[str, Callable[[Script, Any], None]] = {
    "prim::Constant": Script.constant,
    "prim::GetAttr": Script.attribute,
    "prim::If": branch,
    "prim::Loop": loop,
    "prim::ListConstruct": Script.listed,
    "prim::TupleConstruct": Script.listed,
    "prim::ListUnpack": Script.unpacked,
    "prim::TupleUnpack": Script.unpacked,
    "prim::DictConstruct": Script.dictionary,
    "prim::Uninitialized": lambda self, node: self.set(node, None),
    "prim::RaiseException": Script.raised,
    "prim::Print": lambda self, node: None,
    "prim::unchecked_cast": Script.same,
    "prim::annotate": Script.same,
}
