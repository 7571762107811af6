"""Modules whose sizes are known only with their inputs, or depend on values.

Each combination of input sizes is compiled when it first occurs, as a network of fixed sizes. Where
a size or a branch depends on values, the code up to there runs first (`relay.tracing`): argwhere,
a slice with computed bounds, an `if` that grows a tensor, a recursion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import convoy
from convoy.errors import InvalidOption
from convoy.relay import ast
from convoy.relay.ast import Call, Constant, Expr, Function, Var, dtype_name
from convoy.relay.attrs import Attrs
from convoy.relay.convert import to_relax
from convoy.relay.convert.signature import bound_params, unique
from convoy.relay.infer import infer_module
from convoy.relay.lazy import tvm
from convoy.relay.module import IRModule
from convoy.relay.shapes import compatible
from convoy.relay.tracing import Known, Trace, Value, leaves, parameter, typed
from convoy.relay.types import TensorType, TupleType, Type
from convoy.relay.visit import bind, children

# Compiled graphs that one module keeps; the oldest goes.
_KEPT = 256
# Constants up to so many bytes are told apart by content, others by identity.
_SMALL = 1024


class Specialized:
    """A module of which each combination of sizes is compiled when it first occurs.

    Attributes:
        input_names: The inputs of `main`, in order; a tuple counts as its fields.

    Args:
        mod: A module with inferred types.
        params: Values by name, which become constants.
        kind: The kind of target, "cuda" or "llvm".
        options: Options of `convoy.build`.
    """

    def __init__(
        self, mod: IRModule, params: Mapping[str, Any] | None, kind: str, options: Mapping[str, Any]
    ) -> None:
        main = mod["main"]
        binds = {v: Constant(a) for v, a in bound_params(main, params or {}).items()}
        self.mod = mod.shallow_copy()
        self.mod["main"] = bind(main, binds)
        infer_module(self.mod)
        self.kind, self.options = kind, dict(options)
        self.graphs: dict[Any, _Compiled] = {}
        names = unique([p.name_hint for p in self.main.params])
        self.input_types: list[tuple[str, TensorType]] = []
        for name, param in zip(names, self.main.params, strict=True):
            found: dict[Var, Type] = {}
            parameter(name, param.checked_type, found)
            self.input_types += [(v.name_hint, t) for v, t in found.items()]  # type: ignore[misc]
        self.input_names = [name for name, _ in self.input_types]

    @property
    def main(self) -> Function:
        """The function that is run."""
        return self.mod["main"]

    def run(self, arrays: Sequence[np.ndarray], device: Any) -> Any:
        """Run with numpy inputs; return TVM tensors, tuples of them as tuples.

        Raises:
            InvalidOption: Inputs that do not have the types of the parameters.
            RelayTypeError, DynamicShape, UnsupportedOp: Sizes that do not fit, or code that cannot
                be compiled.
        """
        machine = _Values(self, device)
        todo = []
        for (name, wanted), array in zip(self.input_types, arrays, strict=True):
            got = TensorType(array.shape, dtype_name(array.dtype))
            if not compatible(got, wanted):
                raise InvalidOption(f"{got} for input '{name}'", str(wanted))
            todo.append(machine.leaf(array))
        todo.reverse()
        args = [_nested(p.checked_type, todo) for p in self.main.params]
        result = Trace(self.mod, machine).function(self.main, args)
        outputs = iter(machine.tensors(list(leaves(result))))
        return _like(result, outputs)


def _nested(type_: Type, rest: list[Expr]) -> Value:
    """Group leaves, taken from the end of `rest`, as a parameter's type does."""
    if isinstance(type_, TupleType):
        return tuple(_nested(f, rest) for f in type_.fields)
    return rest.pop()


def _like(value: Value, outputs: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_like(v, outputs) for v in value)
    return next(outputs)


class _Values:
    """Values of one run: inputs, and what was computed on the way."""

    def __init__(self, module: Specialized, device: Any) -> None:
        self.module, self.device = module, device
        self.found: dict[Expr, Any] = {}  # TVM tensors or arrays

    def leaf(self, array: np.ndarray) -> Expr:
        type_ = TensorType(array.shape, dtype_name(array.dtype))
        var = typed(Var(f"v{len(self.found)}", type_), type_)
        self.found[var] = array
        return var

    def compute(self, exprs: Sequence[Expr]) -> list[np.ndarray]:
        return [v if isinstance(v, np.ndarray) else v.numpy() for v in self._need(exprs)]

    def tensors(self, exprs: Sequence[Expr]) -> list[Any]:
        """Return the values of expressions as TVM tensors."""
        return [
            tvm.runtime.tensor(v, self.device) if isinstance(v, np.ndarray) else v
            for v in self._need(exprs)
        ]

    def _need(self, exprs: Sequence[Expr]) -> list[Any]:
        missing = [
            e for e in dict.fromkeys(exprs) if not isinstance(e, Constant) and e not in self.found
        ]
        if missing:
            graph = _Graph(missing, self.found)
            graphs = self.module.graphs
            if graph.key not in graphs:
                if len(graphs) >= _KEPT:
                    del graphs[next(iter(graphs))]
                graphs[graph.key] = _Compiled(graph, self.module.kind, self.module.options)
            inputs = [self.found[leaf] for leaf in graph.leaves]
            results = graphs[graph.key].run(inputs, self.device)
            self.found.update(zip(missing, results, strict=True))
        return [e.value if isinstance(e, Constant) else self.found[e] for e in exprs]


class _Graph:
    """The part of a traced program between known values and some results.

    Attributes:
        leaves: The known expressions that it starts from.
        key: Equal for graphs that compute the same from leaves of the same types.
        constants: Those that the key names by identity, which must stay alive with it.
    """

    def __init__(self, results: Sequence[Expr], found: Mapping[Expr, Any]) -> None:
        self.results = results
        self.leaves: list[Expr] = []
        self.constants: list[np.ndarray] = []
        self.nodes: list[Expr] = []
        place: dict[Expr, int] = {}
        key: list[Any] = []
        stack = [(e, False) for e in reversed(results)]
        while stack:
            node, ready = stack.pop()
            if node in place or isinstance(node, ast.Op):
                continue
            if node in found:
                self.leaves.append(node)
                key.append(("leaf", str(node.checked_type)))
            elif not ready and not isinstance(node, Constant):
                stack.append((node, True))
                stack.extend((child, False) for child in reversed(children(node)))
                continue
            else:
                key.append((*self._describe(node), *(place[c] for c in _parts(node))))
            place[node] = len(place)
            self.nodes.append(node)
        self.key = (tuple(key), tuple(place[e] for e in results))

    def _describe(self, node: Expr) -> tuple[Any, ...]:
        if isinstance(node, Constant):
            if node.value.nbytes <= _SMALL:
                return ("const", str(node.tensor_type), node.value.tobytes())
            self.constants.append(node.value)
            return ("const", id(node.value))
        if isinstance(node, Call):
            assert isinstance(node.op, ast.Op)
            return (node.op.name, _attrs_key(node.attrs))
        return (type(node).__name__, getattr(node, "index", None))

    def function(self) -> Function:
        """Return the graph as a function of its leaves."""
        memo: dict[Expr, Expr] = {}
        params: list[Var] = []
        known = set(self.leaves)
        for node in self.nodes:
            if node in known:
                params.append(Var(f"p{len(params)}", node.checked_type))
                memo[node] = params[-1]
            elif isinstance(node, Call):
                args = [memo[a] for a in node.args]
                memo[node] = Call(node.op, args, node.attrs, node.type_args, span=node.span)
            elif isinstance(node, ast.Tuple):
                memo[node] = ast.Tuple([memo[f] for f in node.fields], span=node.span)
            elif isinstance(node, ast.TupleGetItem):
                memo[node] = ast.TupleGetItem(memo[node.tuple_value], node.index, span=node.span)
            else:
                memo[node] = node
        return Function(params, ast.Tuple([memo[e] for e in self.results]))


def _parts(node: Expr) -> Sequence[Expr]:
    return [c for c in children(node) if not isinstance(c, ast.Op)]


def _attrs_key(attrs: Attrs | None) -> Any:
    """Return the attributes as text; expressions among them repeat the arguments."""
    if attrs is None:
        return ""
    return repr([(k, v) for k, v in attrs.items() if not isinstance(v, Expr)])


class _Compiled:
    """A compiled graph, with its session on the device that it last ran on."""

    def __init__(self, graph: _Graph, kind: str, options: Mapping[str, Any]) -> None:
        self._constants = graph.constants
        self._compiled = convoy.build(to_relax(graph.function()), target=kind, **options)
        self._session: Any = None
        self._device: Any = None

    def run(self, inputs: Sequence[Any], device: Any) -> list[Any]:
        """Return the results as tensors of their own."""
        if self._session is None or str(self._device) != str(device):
            self._session, self._device = self._compiled.session(device), device
        for index, value in enumerate(inputs):
            self._session.set_input(index, value)
        self._session.run()
        outputs = (self._session.output(i) for i in range(self._session.num_outputs))
        return [
            tvm.runtime.empty(tensor.shape, tensor.dtype, device).copyfrom(tensor)
            for tensor in outputs
        ]


def evaluate_constants(exprs: Sequence[Expr]) -> list[np.ndarray]:
    """Compute expressions of constants, on the CPU."""
    graph = _Graph(exprs, {})
    compiled = _Compiled(graph, "llvm", {"precision": "float32"})
    return [tensor.numpy() for tensor in compiled.run([], tvm.cpu(0))]


def with_static_shapes(mod: IRModule) -> IRModule:
    """Replace shapes that are computed from constants, and inline what stands around them.

    Args:
        mod: A module with inferred types.

    Returns:
        A module of one function, `main`; a parameter that is a tuple becomes its fields.

    Raises:
        UnsupportedOp: A shape or a condition that depends on inputs.
        DynamicShape: A size that nothing determines.
    """
    main = mod["main"]
    found: dict[Var, Type] = {}
    args = [parameter(p.name_hint, p.checked_type, found) for p in main.params]
    result = Trace(mod, Known(evaluate_constants)).function(main, args)
    function = Function(tuple(found), _tuple(result), attrs=main.attrs)
    return infer_module(IRModule.from_expr(function))


def _tuple(value: Value) -> Expr:
    return ast.Tuple([_tuple(v) for v in value]) if isinstance(value, tuple) else value
