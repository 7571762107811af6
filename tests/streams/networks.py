"""Random networks of a few kernels that are compiled once, with their results by numpy.

A network is a list of nodes; every tensor has the same shape and type, so each kernel can follow
each other. Kernels keep values between -1 and 1, so that rounding does not pile up.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax, te

from convoy.lower.passes import call_passes
from convoy.tir import schedule_kernels

SHAPE = (1, 16, 16, 16)
SLOW_STEPS = 64  # of the kernel that runs longer than the others


@dataclass(frozen=True)
class Node:
    """A kernel, the nodes (negative: inputs) whose results it reads, and which results."""

    kernel: str
    reads: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Network:
    """``results`` are (node, result) pairs, in order."""

    inputs: int
    nodes: tuple[Node, ...]
    results: tuple[tuple[int, int], ...]


#: kernel -> (operands, results)
KERNELS = {
    "light": (1, 1),
    "slow": (1, 1),
    "turn": (1, 1),
    "blend": (2, 1),
    "gate": (3, 1),
    "twin": (2, 2),
}


def random_network(seed: int, size: int, external: Sequence[str] = ()) -> Network:
    """Forks, joins, diamonds, long skips, views and several results. ``external`` are functions
    of one operand besides the kernels."""
    rng = random.Random(seed)
    inputs = rng.choice([1, 1, 2, 3])
    made: list[tuple[int, int]] = [(-1 - i, 0) for i in range(inputs)]
    nodes: list[Node] = []
    names = [*KERNELS, "view", *external, *external]
    shape = rng.choice(["wide", "deep", "mixed"])
    for i in range(size):
        name = rng.choice(names)
        reach = {"wide": len(made), "deep": 2, "mixed": 5}[shape]
        recent = made[-reach:] if rng.random() < 0.85 else made  # else a long skip
        count, results = KERNELS.get(name, (1, 1))
        nodes.append(Node(name, tuple(rng.choice(recent) for _ in range(count))))
        made.extend((i, r) for r in range(results))
    own = [pair for pair in made if pair[0] >= 0 and nodes[pair[0]].kernel != "view"]
    own = own or made
    last = [pair for pair in made if pair[0] == size - 1]
    results = [*last, *(rng.choice(own) for _ in range(rng.choice([0, 0, 1, 3])))]
    return Network(inputs, tuple(nodes), tuple(dict.fromkeys(results)))


def kernels(dtype: str) -> dict[str, tvm.tirx.PrimFunc]:
    """The kernels as TIR, not scheduled. They compute in float32."""

    def wide(x: te.Tensor, *index: te.Var) -> tvm.tirx.Expr:
        return x(*index).astype("float32")

    def slow(x: te.Tensor) -> Callable[..., tvm.tirx.Expr]:
        step = te.reduce_axis((0, SLOW_STEPS), "step")
        share = tvm.tirx.const(1 / SLOW_STEPS, "float32")
        return lambda n, h, w, c: te.sum(te.tanh(wide(x, n, h, w, c) + step * share) * share, step)

    half, quarter = tvm.tirx.const(0.5, "float32"), tvm.tirx.const(0.25, "float32")
    bodies: dict[str, Callable[..., list[Callable[..., tvm.tirx.Expr]]]] = {
        "light": lambda x: [lambda *i: te.tanh(wide(x, *i))],
        "slow": lambda x: [slow(x)],
        "turn": lambda x: [lambda n, h, w, c: wide(x, n, w, c, h) * -half],
        "blend": lambda x, y: [lambda *i: wide(x, *i) * half - wide(y, *i) * quarter],
        "gate": lambda x, y, z: [lambda *i: wide(x, *i) * wide(y, *i) * half + wide(z, *i) * half],
        "twin": lambda x, y: [
            lambda *i: (wide(x, *i) + wide(y, *i)) * half,
            lambda *i: (wide(x, *i) - wide(y, *i)) * half,
        ],
    }
    found = {}
    for name, (count, _) in KERNELS.items():
        operands = [te.placeholder(SHAPE, dtype, f"x{i}") for i in range(count)]
        outputs = []
        for k, body in enumerate(bodies[name](*operands)):
            if name == "slow":  # a sum is a stage of its own
                total = te.compute(SHAPE, body, "total")
                body = _reading(total)
            outputs.append(te.compute(SHAPE, _rounded(body, dtype), f"y{k}"))
        found[name] = te.create_prim_func([*operands, *outputs])
    return found


def _reading(x: te.Tensor) -> Callable[..., tvm.tirx.Expr]:
    return lambda *i: x(*i)


def _rounded(body: Callable[..., tvm.tirx.Expr], dtype: str) -> Callable[..., tvm.tirx.Expr]:
    return lambda n, h, w, c: body(n, h, w, c).astype(dtype)


def by_numpy(
    network: Network,
    inputs: Sequence[np.ndarray],
    external: Mapping[str, Callable[[np.ndarray], np.ndarray]] | None = None,
) -> list[np.ndarray]:
    """Results in float32, each node's rounded to the type of the inputs."""
    dtype = inputs[0].dtype
    values: dict[tuple[int, int], np.ndarray] = {(-1 - i, 0): x for i, x in enumerate(inputs)}

    def slow(x: np.ndarray) -> np.ndarray:
        return sum((np.tanh(x + i / SLOW_STEPS) for i in range(SLOW_STEPS)), 0 * x) / SLOW_STEPS

    functions: dict[str, Callable[..., Sequence[np.ndarray]]] = {
        "light": lambda x: [np.tanh(x)],
        "slow": lambda x: [slow(x)],
        "turn": lambda x: [x.transpose(0, 3, 1, 2) * -0.5],
        "blend": lambda x, y: [x * 0.5 - y * 0.25],
        "gate": lambda x, y, z: [x * y * 0.5 + z * 0.5],
        "twin": lambda x, y: [(x + y) * 0.5, (x - y) * 0.5],
        "view": lambda x: [x],
        **{name: (lambda x, f=f: [f(x)]) for name, f in (external or {}).items()},
    }
    for i, node in enumerate(network.nodes):
        read = [values[pair].astype("float32") for pair in node.reads]
        for r, y in enumerate(functions[node.kernel](*read)):
            values[i, r] = np.asarray(y, "float32").astype(dtype)
    return [values[pair].astype("float32") for pair in network.results]


def to_calls(
    network: Network,
    target: tvm.target.Target,
    dtype: str,
    scheduled: Mapping[str, tvm.tirx.PrimFunc],
    external: Mapping[str, relax.Expr] | None = None,
) -> tvm.IRModule:
    """The network behind lowering to calls. ``external`` are functions of (x, weights, out) with
    their weights."""
    builder = relax.BlockBuilder()
    variables = {name: builder.add_func(func, name) for name, func in scheduled.items()}
    ty = relax.TensorType(SHAPE, dtype)
    params = [relax.Var(f"x{i}", ty) for i in range(network.inputs)]
    values: dict[tuple[int, int], relax.Expr] = {(-1 - i, 0): p for i, p in enumerate(params)}
    with builder.function("main", params):
        with builder.dataflow():
            for i, node in enumerate(network.nodes):
                read = [values[pair] for pair in node.reads]
                if node.kernel == "view":
                    flat = builder.emit(relax.op.reshape(read[0], (16, 256)))
                    values[i, 0] = builder.emit(relax.op.reshape(flat, SHAPE))
                elif node.kernel in variables:
                    count = KERNELS[node.kernel][1]
                    out = [ty] * count if count > 1 else ty
                    call = builder.emit(relax.call_tir(variables[node.kernel], read, out))
                    for r in range(count):
                        values[i, r] = (
                            builder.emit(relax.TupleGetItem(call, r)) if count > 1 else call
                        )
                else:
                    weights = (external or {})[node.kernel]
                    values[i, 0] = builder.emit(
                        relax.op.call_dps_packed(node.kernel, relax.Tuple([*read, weights]), ty)
                    )
            results = relax.Tuple([values[pair] for pair in network.results])
            output = builder.emit_output(results)
        builder.emit_func_output(output)
    with target:
        return tvm.transform.Sequential(call_passes())(builder.get())


def schedule_all(
    functions: Mapping[str, tvm.tirx.PrimFunc], target: tvm.target.Target
) -> dict[str, tvm.tirx.PrimFunc]:
    """Kernels bound to threads where the target is a GPU."""
    mod = tvm.IRModule(
        {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    )
    if target.kind.name == "cuda":
        with target:
            mod = schedule_kernels(target)(mod)
    return {gv.name_hint: func for gv, func in mod.functions.items()}
