"""Attention is found however a network writes it, with its views, and nothing else is."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from convoy import relay
from convoy.ir.attention import RowView

from ..attention.graphs import attentions, check, normal

RNG = np.random.default_rng(0)


def normals(*shape):
    return RNG.standard_normal(shape).astype("float32")


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def heads_of(x, heads):
    """(B, S, H*D) to (B, H, S, D) in NumPy."""
    b, s, c = x.shape
    return x.reshape(b, s, heads, c // heads).transpose(0, 2, 1, 3)


class Graph:
    """A network of one input (B, S, C) behind a linear layer to (B, S, 3C)."""

    B, S, H, D = 2, 11, 4, 16

    def __init__(self):
        c = self.H * self.D
        self.x, self.weight = normals(self.B, self.S, c), normals(c, 3 * c) / math.sqrt(c)
        self.qkv = self.x.reshape(-1, c) @ self.weight
        parts = np.split(self.qkv.reshape(self.B, self.S, 3 * c), 3, -1)
        self.q, self.k, self.v = (heads_of(part, self.H) for part in parts)

    def scores(self):
        return self.q @ self.k.transpose(0, 1, 3, 2) / math.sqrt(self.D)

    def result(self, weights):
        return (weights @ self.v).transpose(0, 2, 1, 3).reshape(self.x.shape)

    def module(self, body):
        """``body(bb, q, k, v)`` of (B, H, S, D) to an output, or several."""
        bb = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType(self.x.shape, "float32"))
        with bb.function("main", [x]):
            out = self._outputs(bb, x, body)
            bb.emit_func_output(out)
        return bb.get()

    def _outputs(self, bb, x, body):
        with bb.dataflow():
            flat = bb.emit(op.reshape(x, (self.B * self.S, self.H * self.D)))
            qkv = bb.emit(op.matmul(flat, relax.const(self.weight)))
            qkv = bb.emit(op.reshape(qkv, (self.B, self.S, 3, self.H, self.D)))
            parts = bb.emit(op.split(qkv, 3, axis=2))
            parts = [bb.emit(relax.TupleGetItem(parts, i)) for i in range(3)]
            parts = [bb.emit(op.squeeze(part, [2])) for part in parts]
            q, k, v = (bb.emit(op.permute_dims(part, [0, 2, 1, 3])) for part in parts)
            out = body(bb, q, k, v)
            return bb.emit_output(relax.Tuple(out) if isinstance(out, list) else out)

    def merged(self, bb, o):
        o = bb.emit(op.permute_dims(o, [0, 2, 1, 3]))
        return bb.emit(op.reshape(o, self.x.shape))

    def transposed(self, bb, k):
        return bb.emit(op.permute_dims(k, [0, 1, 3, 2]))


@pytest.fixture
def graph():
    return Graph()


def number(value):
    return relax.const(np.float32(value))


@pytest.mark.parametrize("place", ["q", "k", "scores", "both", "divided"])
def test_scale_anywhere_and_views_of_one_product(graph, place):
    def body(bb, q, k, v):
        scale = 1 / math.sqrt(graph.D)
        half = number(math.sqrt(scale))
        if place in ("q", "both"):
            q = bb.emit(op.multiply(q, number(scale) if place == "q" else half))
        kt = graph.transposed(bb, k)
        if place in ("k", "both"):
            kt = bb.emit(op.multiply(half if place == "both" else number(scale), kt))
        s = bb.emit(op.matmul(q, kt))
        if place == "scores":
            s = bb.emit(op.multiply(s, number(scale)))
        if place == "divided":
            s = bb.emit(op.divide(s, number(1 / scale)))
        return graph.merged(bb, bb.emit(op.matmul(bb.emit(op.nn.softmax(s)), v)))

    module = graph.module(body)
    if place != "scores":  # the others differ in a number alone
        (subgraph,) = attentions(normal(module))
        found = [subgraph.require_workload()]
    else:
        found = check(module, [graph.x], graph.result(softmax(graph.scores())))
    a = found[0].attention
    c = graph.H * graph.D
    strides = (0, graph.S * 3 * c, graph.D, 3 * c)
    shape = (graph.B * graph.S, 3 * c)
    assert [a.q, a.k, a.v] == [RowView(shape, i * c, strides) for i in range(3)]
    assert a.o == RowView(graph.x.shape, 0, (0, graph.S * c, graph.D, c))
    assert a.scale == pytest.approx(0.25, rel=1e-3)


def test_heads_in_one_batch_axis(graph):
    """(B*H, S, D), as batched products of other frameworks have it."""
    shape = (graph.B * graph.H, graph.S, graph.D)

    def body(bb, q, k, v):
        q, k, v = (bb.emit(op.reshape(part, shape)) for part in (q, k, v))
        s = bb.emit(op.matmul(q, bb.emit(op.permute_dims(k, [0, 2, 1]))))
        s = bb.emit(op.multiply(s, number(0.25)))
        o = bb.emit(op.matmul(bb.emit(op.nn.softmax(s, axis=2)), v))
        return graph.merged(bb, bb.emit(op.reshape(o, (graph.B, graph.H, graph.S, graph.D))))

    (found,) = check(graph.module(body), [graph.x], graph.result(softmax(graph.scores())))
    assert (found.n, found.groups, found.h, found.w) == (graph.B, graph.H, graph.S, graph.S)


def test_masks_and_biases(graph):
    """A constant bias for each head, and one for each batch that the network computes."""
    bias = normals(graph.H, graph.S, graph.S)
    fill = np.tril(np.ones((graph.S, graph.S), bool), 3)

    def body(bb, q, k, v):
        s = bb.emit(op.matmul(q, graph.transposed(bb, k)))
        s = bb.emit(op.add(relax.const(bias), bb.emit(op.multiply(s, number(0.25)))))
        s = bb.emit(op.where(relax.const(fill), s, number(-1e9)))
        return graph.merged(bb, bb.emit(op.matmul(bb.emit(op.nn.softmax(s)), v)))

    wanted = np.where(fill, graph.scores() + bias, -1e9)
    (found,) = check(graph.module(body), [graph.x], graph.result(softmax(wanted)))
    assert found.attention.bias.shape == (1, graph.H, graph.S, graph.S)
    assert not found.attention.causal


def test_a_causal_mask_is_no_tensor(graph):
    hidden = np.triu(np.full((graph.S, graph.S), -np.inf, "float32"), 1)

    def body(bb, q, k, v):
        s = bb.emit(op.multiply(bb.emit(op.matmul(q, graph.transposed(bb, k))), number(0.25)))
        s = bb.emit(op.add(s, relax.const(hidden)))
        return graph.merged(bb, bb.emit(op.matmul(bb.emit(op.nn.softmax(s)), v)))

    (found,) = check(graph.module(body), [graph.x], graph.result(softmax(graph.scores() + hidden)))
    assert found.attention.causal and found.attention.bias == RowView()


def _plain(graph, change=lambda bb, s: s, after=lambda bb, w: w, axis=-1, more=()):
    def body(bb, q, k, v):
        s = bb.emit(op.matmul(q, graph.transposed(bb, k)))
        s = change(bb, s)
        w = bb.emit(op.nn.softmax(s, axis=axis))
        o = bb.emit(op.matmul(after(bb, w), v))
        found = {"scores": s, "weights": w}
        return [o, *(found[name] for name in more)] if more else o

    return graph.module(body)


def test_what_is_no_attention(graph):
    def dropped(bb, w):
        return bb.emit(op.multiply(w, relax.const((normals(graph.S, graph.S) > 0) * 2.0)))

    def rescaled(bb, s):
        return bb.emit(op.multiply(s, relax.const(normals(graph.S))))

    def boosted(bb, s):
        mask = relax.const(np.eye(graph.S, dtype=bool))
        return bb.emit(op.where(mask, number(7.0), s))

    def sine(bb, s):
        return bb.emit(op.sin(s))

    cases = {
        "softmax over queries": _plain(graph, axis=2),
        "softmax over heads": _plain(graph, axis=1),
        "weights are returned": _plain(graph, more=["weights"]),
        "scores are returned": _plain(graph, more=["scores"]),
        "weights are dropped": _plain(graph, after=dropped),
        "scores times a vector": _plain(graph, rescaled),
        "scores replaced by a number": _plain(graph, boosted),
        "a function of the scores": _plain(graph, sine),
    }
    found = {name: attentions(normal(module)) for name, module in cases.items()}
    assert not any(found.values()), found
    assert len(attentions(normal(_plain(graph)))) == 1


def test_queries_that_others_read_stay(graph):
    """Views before the attention are needed elsewhere: they are read and not covered."""

    def body(bb, q, k, v):
        s = bb.emit(op.matmul(q, graph.transposed(bb, k)))
        o = bb.emit(op.matmul(bb.emit(op.nn.softmax(s)), v))
        return bb.emit(op.add(o, q))

    wanted = softmax(4 * graph.scores()) @ graph.v + graph.q
    check(graph.module(body), [graph.x], wanted)


def test_onnx_chain():
    onnx = pytest.importorskip("onnx")
    from convoy import from_onnx

    graph, make = Graph(), onnx.helper.make_node
    c, rows = graph.H * graph.D, [graph.B, graph.S, graph.H, graph.D]
    weights = {
        "w": graph.weight,
        "shape": np.array(rows, np.int64),
        "back": np.array([graph.B, graph.S, c], np.int64),
        "root": np.float32(math.sqrt(graph.D)),
        "mask": np.where(np.arange(graph.S) < 9, 0, -np.inf).astype("float32"),
    }
    nodes = [make("MatMul", ["x", "w"], ["qkv"]), make("Split", ["qkv"], ["a", "b", "c"], axis=2)]
    for name, perm in (("a", [0, 2, 1, 3]), ("b", [0, 2, 3, 1]), ("c", [0, 2, 1, 3])):
        nodes.append(make("Reshape", [name, "shape"], [f"{name}4"]))
        nodes.append(make("Transpose", [f"{name}4"], [f"{name}t"], perm=perm))
    nodes += [
        make("MatMul", ["at", "bt"], ["s"]),
        make("Div", ["s", "root"], ["scaled"]),
        make("Add", ["scaled", "mask"], ["masked"]),
        make("Softmax", ["masked"], ["p"], axis=-1),
        make("MatMul", ["p", "ct"], ["o"]),
        make("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
        make("Reshape", ["ot", "back"], ["y"]),
    ]
    floats, shape = onnx.TensorProto.FLOAT, [graph.B, graph.S, c]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            nodes,
            "attention",
            [onnx.helper.make_tensor_value_info("x", floats, shape)],
            [onnx.helper.make_tensor_value_info("y", floats, shape)],
            [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 13)],
    )
    wanted = graph.result(softmax(graph.scores() + weights["mask"]))
    (found,) = check(from_onnx(model), [graph.x], wanted)
    assert found.attention.q.shape == found.attention.v.shape


def test_relay_batch_matmul():
    q, k, v = (normals(6, rows, 16) for rows in (9, 13, 13))
    names = [relay.var(name, shape=x.shape) for name, x in zip("qkv", (q, k, v), strict=True)]
    scores = relay.nn.batch_matmul(names[0], names[1])
    weights = relay.nn.softmax(scores * relay.const(np.float32(0.25)), axis=-1)
    out = relay.nn.batch_matmul(weights, names[2], transpose_b=False)
    module = relay.to_relax(tvm_module(relay.Function(names, out)))
    wanted = softmax(q @ k.transpose(0, 2, 1) / 4) @ v
    (found,) = check(module, [q, k, v], wanted)
    assert (found.h, found.w, found.groups) == (9, 13, 6)


def tvm_module(function):
    return relay.IRModule.from_expr(function) if hasattr(relay, "IRModule") else function


def test_float32_is_found_and_left_to_tvm(graph):
    """A workload that no backend takes is priced as the operations that it is."""
    from convoy.backends.registry import get
    from convoy.normalize.normal_form import normalize
    from convoy.partition.partition import partition

    module = normalize(_plain(graph), dtype="float32")
    assert len(attentions(module)) == 1
    backends = [get(name) for name in ("cutlass", "hopper", "attention")]
    assert all(s.workload.op == "matmul" for s in partition(module, backends).subgraphs)
    taken = partition(normal(_plain(graph)), backends).subgraphs
    assert "attention" in {s.workload.op for s in taken}
    assert isinstance(module, tvm.IRModule)


def test_a_mask_that_is_computed_and_a_constant_bias(graph):
    """A mask for each batch of 2 x 1 heads, and a bias where both batch axes are one."""
    bias, batches = normals(graph.H, 1, graph.S), graph.B * graph.H

    def body(bb, q, k, v):
        s = bb.emit(op.matmul(q, graph.transposed(bb, k)))
        s = bb.emit(op.add(bb.emit(op.multiply(s, number(0.25))), relax.const(bias)))
        s = bb.emit(op.reshape(s, (graph.B, graph.H, graph.S, graph.S)))
        first = bb.emit(op.strided_slice(q, [1, 3], [0, 0], [1, 1]))  # (B, 1, S, 1)
        hidden = bb.emit(
            op.greater(bb.emit(op.reshape(first, (graph.B, 1, 1, graph.S))), number(0))
        )
        s = bb.emit(op.where(hidden, number(-np.inf), s))
        w = bb.emit(op.nn.softmax(bb.emit(op.reshape(s, (batches, graph.S, graph.S)))))
        o = bb.emit(op.matmul(w, bb.emit(op.reshape(v, (batches, graph.S, graph.D)))))
        return graph.merged(bb, bb.emit(op.reshape(o, (graph.B, graph.H, graph.S, graph.D))))

    hidden = graph.q[:, 0, :, 0][:, None, None] > 0
    wanted = np.where(hidden, -np.inf, graph.scores() + bias)
    (found,) = check(graph.module(body), [graph.x], graph.result(softmax(wanted)))
    assert found.attention.bias.shape == (graph.B, graph.H, 1, graph.S)
