"""Decompose each distinct operator call of a program once.

``ExportedProgram.run_decompositions`` traces every node of a graph twice. Calls of one operator
with tensors of equal types and equal other arguments decompose alike: PyTorch decomposes a program
that has each of them once, and the parts of the result are copied to every place.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node, map_arg
from torch.utils import _pytree as pytree

from .core_calls import CoreCall, core_call
from .memory import Memory, Whole

Table = dict[Any, Callable[..., Any]]
_aten = torch.ops.aten
_CHECK = _aten._assert_tensor_metadata.default
#: Operators that write to arguments, the statistics of batches, though their schemas do not say so.
_STATISTICS = {_aten.batch_norm.default, _aten.instance_norm.default}
#: What a program does to an input of each kind that it writes to.
_WRITES = {
    InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
    InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
}


def decompose(program: ExportedProgram, table: Table) -> ExportedProgram:
    """Decompose operators by ``table``, as ``program.run_decompositions`` does.

    PyTorch takes programs whole that have values other than dense tensors of known sizes, functions
    as arguments, or writes to memory that several values share.
    """
    if not all(map(_is_plain, program.graph.nodes)):
        return program.run_decompositions(table)
    try:
        return _like(program, *_copy(program.graph, _pieces(program, table)))
    except Whole:
        return program.run_decompositions(table)


@dataclass(frozen=True)
class _Piece:
    """What a call decomposes into.

    Attributes:
        inputs: Placeholders, one for each tensor argument in order.
        nodes: All others, in order.
        results: One for each tensor of the result.
        written: What the call leaves in inputs, by their positions.
    """

    inputs: Sequence[Node]
    nodes: Sequence[Node]
    results: Sequence[Node]
    written: dict[int, Node]

    def paste(self, call: Node, inputs: Sequence[Node], graph: Graph, memory: Memory) -> list[Node]:
        """Append the piece to a graph in the place of a call, and return its results."""
        copies = dict(zip(self.inputs, inputs, strict=True))
        for node in self.nodes:
            copy = copies[node] = graph.node_copy(node, copies.__getitem__)
            copy.meta = {**call.meta, "val": node.meta["val"]}
            memory.define(copy)
        for position, value in self.written.items():
            memory.write(call, inputs[position], copies[value], graph)
        results = [copies[node] for node in self.results]
        if not self.written:
            memory.check_views(call, inputs, results)
        return results


def _is_plain(node: Node) -> bool:
    if node.op in ("placeholder", "output"):
        return node.op == "output" or _is_dense(node.meta.get("val"))
    if node.op != "call_function":
        return False
    if node.target is operator.getitem or node.target is _CHECK:
        return True
    values = pytree.tree_leaves(node.meta.get("val"))
    return isinstance(node.target, OpOverload) and bool(values) and all(map(_is_dense, values))


def _is_dense(value: object) -> bool:
    return (
        isinstance(value, FakeTensor)  # no subclass, such as weights that are quantized
        and value.layout == torch.strided
        and not value.is_complex()
        and all(type(size) is int for size in (*value.shape, *value.stride()))
    )


def _calls(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if isinstance(node.target, OpOverload)]


def _key(call: Node) -> str:
    """Equal only for calls that decompose alike."""
    args = map_arg(
        (call.args, tuple(call.kwargs.items())), lambda node: _Type(_type_of(node.meta["val"]))
    )
    return f"{call.target} {args}"


@dataclass(frozen=True)
class _Type:
    """A tensor argument in the text of a key."""

    text: str


def _type_of(value: torch.Tensor) -> str:
    return f"{value.dtype} {tuple(value.shape)} {value.stride()} {value.device}"


def _inputs(call: Node) -> list[Node]:
    """Tensor arguments in order, one that is given twice twice."""
    found: list[Node] = []
    map_arg((call.args, call.kwargs), found.append)
    return found


def _pieces(program: ExportedProgram, table: Table) -> dict[str, _Piece]:
    """What the calls of a program decompose into, by their keys."""
    pieces, others = {}, {}
    for call in _calls(program.graph):
        if call.target is _CHECK or (key := _key(call)) in pieces or key in others:
            continue
        if (core := core_call(call, table)) is not None:
            pieces[key] = _core_piece(call, core)
        else:
            others[key] = call
    if others:
        pieces |= _decomposed(program, table, others)
    if any(_reads_memory(node) for piece in pieces.values() for node in piece.nodes):
        raise Whole
    return pieces


def _core_piece(call: Node, core: CoreCall) -> _Piece:
    graph = Graph()
    inputs = [graph.placeholder(f"given_{i}") for i in range(len(_inputs(call)))]
    node = _call(graph, core.target, (core.args, dict(core.kwargs)), inputs)
    node.meta["val"] = core.value
    results = _results(graph, node)[:1]
    nodes = list(dict.fromkeys([node, *results]))
    return _Piece(inputs, nodes, results, {0: node} if core.writes else {})


def _call(graph: Graph, target: OpOverload, args: Any, inputs: Sequence[Node]) -> Node:
    """Append a call to a graph; ``inputs`` take the places of its tensors in order."""
    left = iter(inputs)
    return graph.call_function(target, *map_arg(args, lambda _: next(left)))


def _decomposed(
    program: ExportedProgram, table: Table, distinct: dict[str, Node]
) -> dict[str, _Piece]:
    """What PyTorch decomposes calls of a program into, all of them at once."""
    graph, outputs = Graph(), []
    given = _given(graph, distinct)
    if len(graph.nodes) + len(distinct) > len(program.graph.nodes):
        raise Whole
    for key, call in distinct.items():
        copy = _call(graph, call.target, (call.args, call.kwargs), given[key])
        copy.meta = dict(call.meta)
        outputs.append(_results(graph, copy))
    graph.output(tuple(node for results in outputs for node in results))
    done = _program(graph, program).run_decompositions(table)
    before, after = (one.find_nodes(op="placeholder") for one in (graph, done.graph))
    if len(before) != len(after):
        raise Whole  # constants, or a token of effects
    inputs = dict(zip(before, after, strict=True))
    results = iter(done.graph.output_node().args[0])  # first what is written
    written = {name: next(results) for name in done.graph_signature.user_inputs_to_mutate.values()}
    pieces = {}
    for (key, call), made in zip(distinct.items(), outputs, strict=True):
        own = [inputs[node] for node in given[key]]
        values = [next(results) for _ in made]
        kept = {i: written[node.name] for i, node in enumerate(own) if node.name in written}
        if kept and not _writes(call):
            raise Whole
        pieces[key] = _Piece(own, _between(own, [*values, *kept.values()]), values, kept)
    return pieces


def _writes(call: Node) -> bool:
    """Whether a call may write to its arguments."""
    return call.target._schema.is_mutable or call.target in _STATISTICS


def _given(graph: Graph, calls: dict[str, Node]) -> dict[str, list[Node]]:
    """Add inputs for calls to a graph, which share those that they do not write to."""
    known: dict[tuple[str, str, int], Node] = {}
    given: dict[str, list[Node]] = {}
    for key, call in calls.items():
        types: list[str] = []
        given[key] = []
        for like in _inputs(call):
            types.append(_type_of(like.meta["val"]))
            place = (key if _writes(call) else "", types[-1], types.count(types[-1]))
            if place not in known:
                known[place] = _placeholder(graph, like)
            given[key].append(known[place])
    return given


def _placeholder(graph: Graph, like: Node) -> Node:
    """An input of the type of a value, in memory of its own."""
    node, value = graph.placeholder(f"given_{len(graph.nodes)}"), like.meta["val"]
    with value.fake_mode:
        node.meta["val"] = torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        )
    return node


def _results(graph: Graph, call: Node) -> list[Node]:
    """The tensors of a call's result."""
    value = call.meta["val"]
    if isinstance(value, torch.Tensor):
        return [call]
    found = []
    for i, one in enumerate(value):
        found.append(graph.call_function(operator.getitem, (call, i)))
        found[-1].meta["val"] = one
    return found


def _between(inputs: Sequence[Node], results: Sequence[Node]) -> list[Node]:
    """The nodes that results are computed by, in order."""
    seen, todo = set(inputs), list(results)
    found = []
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            found.append(node)
            todo.extend(node.all_input_nodes)
    if any(node.op != "call_function" for node in found):
        raise Whole  # a constant
    return sorted(found)


def _program(graph: Graph, like: ExportedProgram) -> ExportedProgram:
    """A program without parameters."""
    inputs = graph.find_nodes(op="placeholder")
    outputs = graph.output_node().args[0]
    entry, *_ = like.module_call_graph
    signature = type(entry.signature)(
        inputs=[],  # names, of which those of values that are not computed would be missed
        outputs=[],
        in_spec=pytree.tree_structure(((0,) * len(inputs), {})),
        out_spec=pytree.tree_structure((0,) * len(outputs)),
    )
    return ExportedProgram(
        GraphModule({}, graph),
        graph,
        ExportGraphSignature(
            [InputSpec(InputKind.USER_INPUT, TensorArgument(n.name), None) for n in inputs],
            [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(n.name), None) for n in outputs],
        ),
        {},
        {},
        [type(entry)("", signature)],
        verifiers=like.verifiers,
    )


def _copy(graph: Graph, pieces: dict[str, _Piece]) -> tuple[Graph, list[Node]]:
    """A graph with pieces in the place of calls, and its inputs that it writes to: their new values
    are its first outputs."""
    made, memory, moved = Graph(), Memory(graph), False
    written: list[Node] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            copy = made.node_copy(node)
            copy.name = node.name  # which may be one that a graph gives to nothing else, as "input"
            memory.add_input(node, copy)
        elif node.op == "output":
            written = [one for one in memory.inputs if memory.value(one) is not memory.inputs[one]]
            results = [memory.value(one) for one in (*written, *node.args[0])]
            made.output(tuple(results)).meta.update(node.meta)
        elif node.target is operator.getitem:
            memory.values[node] = [memory.values[node.args[0]][node.args[1]]]
        elif node.target is not _CHECK:
            inputs = [memory.value(one) for one in _inputs(node)]
            memory.values[node] = pieces[_key(node)].paste(node, inputs, made, memory)
            moved |= _moved(node, memory.values[node])
    if moved:
        for view in made.find_nodes(op="call_function", target=_aten.view.default):
            view.target = _aten.reshape.default
    made.eliminate_dead_code()
    return made, written


def _moved(call: Node, results: Sequence[Node]) -> bool:
    """Whether the results of a piece have other strides than those of the call, which further calls
    were traced with."""
    moved = False
    for result, like in zip(results, pytree.tree_leaves(call.meta["val"]), strict=True):
        value = result.meta["val"]
        if (value.dtype, value.shape) != (like.dtype, like.shape):
            raise Whole
        moved |= value.stride() != like.stride()
    return moved


def _reads_memory(node: Node) -> bool:
    """Whether a node depends on where PyTorch has a tensor that comes from outside of a piece."""
    if node.target is not _aten.as_strided.default:
        return False
    (base, *_) = node.args
    returns = base.target._schema.returns if isinstance(base.target, OpOverload) else ()
    return not returns or any(one.alias_info is not None for one in returns)


def _written_as(spec: InputSpec) -> tuple[OutputKind, str]:
    """(kind, target) of the output that has the new value of an input. Raises Whole for an input
    that no output can be for."""
    if spec.kind not in _WRITES:
        raise Whole
    return _WRITES[spec.kind], spec.target or spec.arg.name


def _like(program: ExportedProgram, graph: Graph, written: Sequence[Node]) -> ExportedProgram:
    """A program with another graph, of the same inputs, outputs and parameters, that writes to some
    inputs."""
    results = [TensorArgument(node.name) for node in graph.output_node().args[0]]
    signature, (entry, *_) = program.graph_signature, program.module_call_graph
    inputs = {spec.arg.name: spec for spec in signature.input_specs}
    kept = [(spec.kind, spec.target) for spec in signature.output_specs]
    kinds = [*(_written_as(inputs[node.name]) for node in written), *kept]
    outputs = [
        OutputSpec(kind, result, target)
        for (kind, target), result in zip(kinds, results, strict=True)
    ]
    called = dataclasses.replace(entry.signature, outputs=results[len(written) :])
    return ExportedProgram(
        GraphModule(program.graph_module, graph),
        graph,
        ExportGraphSignature(list(signature.input_specs), outputs),
        program.state_dict,
        program.range_constraints,
        [dataclasses.replace(entry, signature=called)],
        program.example_inputs,
        program.constants,
    )
