"""Workloads computed in numpy, registered as the external functions of a rewritten graph."""

from __future__ import annotations

import itertools

import numpy as np
import tvm_ffi

from convoy.ir.activation_values import activate
from convoy.ir.bottleneck import parts
from convoy.ir.squeeze_excite import squeeze_and_excite
from convoy.measure import reference

_counter = itertools.count()


def run_workload(workload, operands):
    """Outputs of a workload on numpy operands in its own order, rounded once at the end."""
    names = [name for name, _, _ in workload.operand_shapes()]
    given = dict(zip(names, operands, strict=False))
    for (name, shape, dtype), value in zip(workload.operand_shapes(), operands, strict=False):
        assert value.shape == shape and str(value.dtype) == dtype, name
    if workload.op in ("dgrad", "wgrad"):
        (gradient,) = reference.full(workload, given)
        return [gradient.astype(workload.out_dtype)]
    if workload.is_integer:
        return reference.full(workload, given)
    if workload.bottleneck is not None:
        return bottleneck(workload, given)
    if workload.squeeze_excite is not None:
        return squeeze_excite(workload, given)
    if workload.stem is not None:
        given["x"] = image(workload, given["x"]).astype(given["w"].dtype)
    if workload.expansion is not None:
        given["x"] = expanded(workload.expansion, given).astype(workload.dtype)
    x, w = (given[name].astype("float64") for name in ("x", "w"))
    if workload.op == "matmul":
        y = x @ w.T
    else:
        y = conv3d(workload, x, w) if workload.is_3d else conv2d(workload, x, w)
    e = workload.epilogue
    residual = given["residual"].astype("float64") if e.residual else 0.0
    y = y + (given["bias"].astype("float64") if e.bias else 0.0)
    y = y if e.residual_last else y + residual
    y = activate(e.activation, y, e.alpha, e.clip_min, e.clip_max)
    y = y + residual if e.residual_last else y
    y = largest(workload, y) if workload.stem is not None else y
    outputs = [y.astype(workload.out_dtype)] if e.writes_y else []
    if e.affine_relu:
        y2 = np.maximum(y * given["scale"].astype("float64") + given["shift"], 0)
        outputs.append(y2.astype(workload.out_dtype))
    return outputs


def conv2d(workload, x, w):
    top, left, bottom, right = workload.padding
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    g, (dh, dw), (sh, sw) = workload.groups, workload.dilation, workload.stride
    kg, cg = workload.k // g, workload.c // g
    y = np.zeros((workload.n, workload.p, workload.q, workload.k))
    for i, r, s in itertools.product(range(g), range(workload.r), range(workload.s)):
        rows = slice(r * dh, r * dh + sh * (workload.p - 1) + 1, sh)
        columns = slice(s * dw, s * dw + sw * (workload.q - 1) + 1, sw)
        part = x[:, rows, columns, i * cg : (i + 1) * cg]
        filt = w[i * kg : (i + 1) * kg, r, s]
        y[..., i * kg : (i + 1) * kg] += np.einsum("npqc,kc->npqk", part, filt)
    return y


def expanded(expansion, given):
    """The result of the 1x1 convolution that a depthwise convolution reads."""
    e = expansion.epilogue
    y = given["x"].astype("float64") @ given["expand"].astype("float64").T
    y = y + (given["expand_bias"].astype("float64") if e.bias else 0.0)
    return activate(e.activation, y, e.alpha, e.clip_min, e.clip_max)


def bottleneck(workload, given):
    """The results of the second and third convolution, each of the one before."""
    renamed = {"residual": "residual", "expand_bias": "bias"}, {"reduce_bias": "bias"}
    first, *others = parts(workload)
    (tensor,) = run_workload(first, [given[name] for name, *_ in first.operand_shapes()[:-1]])
    results = []
    for part, filters, names in zip(others, ("expand", "reduce"), renamed, strict=False):
        own = {new: given[old] for old, new in names.items() if old in given}
        own |= {"x": tensor, "w": given[filters][:, None, None]}
        (tensor,) = run_workload(part, [own[name] for name, *_ in part.operand_shapes()[:-1]])
        results.append(tensor)
    return results


def squeeze_excite(workload, given):
    """An image times gates, which are products of the means of its channels."""
    values = given["x"].astype("float64").mean((1, 2)).astype(workload.dtype)
    renamed = ("squeeze", "squeeze_bias"), ("excite", "excite_bias")
    for part, (filters, bias) in zip(squeeze_and_excite(workload), renamed, strict=True):
        own = [values[:, None, None], given[filters][:, None, None]]
        (found,) = run_workload(part, own + [given[bias]] * part.epilogue.bias)
        values = found[:, 0, 0]
    e, x = workload.epilogue, given["x"].astype("float64")
    y = x * values[:, None, None].astype("float64")
    y = y + (given["residual"].astype("float64") if e.residual else 0.0)
    y = activate(e.activation, y, e.alpha, e.clip_min, e.clip_max)
    return [y.astype(workload.dtype)]


def image(workload, x):
    """The input of a stem with channels last, of which it may have fewer than the convolution."""
    x = x if workload.stem.channels_last else x.transpose(0, 2, 3, 1)
    return np.pad(x, ((0, 0), (0, 0), (0, 0), (0, workload.c - x.shape[3])))


def largest(workload, y):
    """The max-pool of a stem, if it has one."""
    stem = workload.stem
    if not stem.pools:
        return y
    top, left, bottom, right = stem.padding
    around = ((0, 0), (top, bottom), (left, right), (0, 0))
    y = np.pad(y, around, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(y, stem.window, (1, 2))
    return windows[:, :: stem.stride[0], :: stem.stride[1]].max((-2, -1))


def conv3d(workload, x, w):
    """The sum over the filter's planes of convolutions of the input's planes."""
    depth = workload.depth
    x = np.pad(x, ((0, 0), depth.padding, (0, 0), (0, 0), (0, 0)))
    y = np.zeros((workload.n, depth.o, workload.p, workload.q, workload.k))
    for o, t in itertools.product(range(depth.o), range(depth.t)):
        y[:, o] += conv2d(workload, x[:, o * depth.stride + t * depth.dilation], w[:, t])
    return y


def register(workload):
    """Register a global function that computes ``workload``; returns its symbol."""
    symbol = f"convoy_test_{id(_counter)}_{next(_counter)}"  # this file may be loaded twice
    count = len(workload.operand_shapes()) - workload.num_outputs

    def run(*tensors):
        arrays = [np.from_dlpack(t) for t in tensors]
        for out, value in zip(arrays[count:], run_workload(workload, arrays[:count]), strict=True):
            assert out.shape == value.shape
            writable(out)[...] = value

    tvm_ffi.register_global_func(symbol, run)
    return symbol


def writable(array):
    """The memory that a (read-only) DLPack import points to."""
    import ctypes

    size = array.size * array.itemsize
    raw = (ctypes.c_char * size).from_address(array.ctypes.data)
    return np.frombuffer(raw, array.dtype).reshape(array.shape)
