"""relax.transform.Gradient under convoy's rules: every gradient against finite sums in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.errors import InvalidWorkload
from convoy.ir.workload import Workload
from convoy.lower.executable import lower
from convoy.measure import reference
from convoy.normalize.normal_form import normalize


def differentiated(build, shapes, dtype="float32"):
    """``sum(build(x...) * t)`` with respect to all x; t is the last parameter."""
    params = [relax.Var(f"x{i}", relax.TensorType(s, dtype)) for i, s in enumerate(shapes)]
    bb = relax.BlockBuilder()
    probe = relax.BlockBuilder()
    with probe.function("main", list(params)):
        with probe.dataflow():
            shape = probe.emit_output(build(probe, *params)).ty.shape
        probe.emit_func_output(params[0])
    t = relax.Var("t", relax.TensorType(shape, dtype))
    with bb.function("main", [*params, t]):
        with bb.dataflow():
            y = build(bb, *params)
            loss = bb.emit_output(op.sum(bb.emit(op.multiply(y, t))))
        bb.emit_func_output(loss)
    mod = relax.transform.Gradient("main", require_grads=params)(bb.get())
    main = mod["main_adjoint"].with_attr("global_symbol", "main")
    return tvm.IRModule({"main": main}), [int(d) for d in shape.values]


def gradients(mod, *arrays, normal=True):
    if normal:
        mod = normalize(mod, dtype="float32")
        executable = lower(mod, "llvm")
    else:
        executable = tvm.compile(mod, "llvm")
    vm = relax.VirtualMachine(executable, tvm.cpu())
    _, grads = vm["main"](*[tvm.runtime.tensor(np.asarray(a, order="C")) for a in arrays])
    return [g.numpy() for g in grads]


def numeric(function, arrays, t, step=1e-5):
    """Central differences of ``sum(function(*arrays) * t)``."""
    arrays = [a.astype(np.float64) for a in arrays]
    found = []
    for array in arrays:
        grad = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            kept = array[index]
            sides = []
            for sign in (1, -1):
                array[index] = kept + sign * step
                sides.append(float((function(*arrays) * t).sum()))
            array[index] = kept
            grad[index] = (sides[0] - sides[1]) / (2 * step)
        found.append(grad)
    return found


def close(got, want, limit=1e-5):
    assert got.shape == want.shape
    error = np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-6)
    assert error < limit, f"{error:.1e}"


CONVOLUTIONS = {
    "strided": {"h": 9, "w": 8, "c": 3, "k": 4, "r": 3, "s": 3, "stride": (2, 2),
                "padding": (1, 1, 1, 1)},
    "asymmetric": {"h": 7, "w": 6, "c": 2, "k": 2, "r": 3, "s": 2, "stride": (2, 1),
                   "padding": (0, 2, 1, 1)},
    "dilated": {"h": 9, "w": 10, "c": 2, "k": 3, "r": 3, "s": 3, "padding": (2, 2, 2, 2),
                "dilation": (2, 2)},
    "dilated and strided": {"h": 10, "w": 9, "c": 2, "k": 3, "r": 3, "s": 3, "stride": (2, 3),
                            "dilation": (2, 2)},
    "grouped": {"h": 5, "w": 5, "c": 6, "k": 4, "r": 3, "s": 3, "padding": (1, 1, 1, 1),
                "groups": 2},
}  # fmt: skip


NHWC, NCHW, MIXED = ("NHWC", "OHWI"), ("NCHW", "OIHW"), ("NHWC", "HWIO")


@pytest.mark.parametrize(
    ("case", "layouts", "normal"),
    [
        *((case, NHWC, True) for case in CONVOLUTIONS),
        ("asymmetric", NCHW, True),
        ("grouped", NCHW, True),
        ("dilated and strided", MIXED, True),
        ("dilated and strided", NHWC, False),  # through TVM's own pipeline
        ("grouped", NCHW, False),
    ],
)
def test_conv2d(case, layouts, normal):
    fields = CONVOLUTIONS[case]
    data, kernel = layouts
    forward = Workload("fprop", 2, **fields, dtype="float32", out_dtype="float32")
    rng = np.random.default_rng(0)
    shapes = {name: shape for name, shape, _ in forward.operand_shapes()}
    values = {n: rng.uniform(-1, 1, s).astype(np.float32) for n, s in shapes.items()}

    def laid(name):
        plain, wanted = ("OHWI", kernel) if name == "w" else ("NHWC", data)
        return values[name].transpose([plain.index(letter) for letter in wanted])

    def build(bb, x, w):
        return bb.emit(
            op.nn.conv2d(
                x, w, forward.stride, forward.padding, forward.dilation, forward.groups,
                data_layout=data, kernel_layout=kernel,
            )
        )  # fmt: skip

    mod, _ = differentiated(build, [laid("x").shape, laid("w").shape])
    dx, dw = gradients(mod, laid("x"), laid("w"), laid("y"), normal=normal)
    for got, op_name, name in ((dx, "dgrad", "x"), (dw, "wgrad", "w")):
        backward = Workload(op_name, 2, **fields, dtype="float32", out_dtype="float32")
        (want,) = reference.full(backward, {**values, "dy": values["y"]})
        plain, wanted = ("OHWI", kernel) if name == "w" else ("NHWC", data)
        close(got, want.transpose([plain.index(letter) for letter in wanted]))


def in_order(array, plain, wanted):
    return np.ascontiguousarray(array.transpose([plain.index(letter) for letter in wanted]))


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
geometries = st.fixed_dictionaries({
    "h": st.integers(3, 8), "w": st.integers(3, 8), "per_group": pairs,
    "groups": st.integers(1, 3), "taps": pairs, "stride": pairs,
    "padding": st.tuples(*[st.integers(0, 2)] * 4), "dilation": pairs,
})  # fmt: skip


def forward_problem(op_name, h, w, per_group, groups, taps, stride, padding, dilation):
    try:
        return Workload(
            op_name, 2, h, w, per_group[0] * groups, per_group[1] * groups, *taps, stride, padding,
            dilation, groups, "float32", "float32",
        )  # fmt: skip
    except InvalidWorkload:  # the filter does not fit
        return None


def near(got, want):
    assert got.shape == want.shape
    assert np.linalg.norm(got - want) <= 1e-5 * max(np.linalg.norm(want), 1e-3)


@given(
    geometry=geometries,
    data=st.permutations("NHWC").map("".join),
    kernel=st.permutations("OHWI").map("".join),
)
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
def test_any_conv2d(geometry, data, kernel):
    wl = forward_problem("fprop", **geometry)
    assume(wl is not None)
    rng = np.random.default_rng(0)
    values = {n: rng.uniform(-1, 1, s).astype("float32") for n, s, _ in wl.operand_shapes()}

    def build(bb, x, w):
        return bb.emit(
            op.nn.conv2d(
                x, w, wl.stride, wl.padding, wl.dilation, wl.groups,
                data_layout=data, kernel_layout=kernel,
            )
        )  # fmt: skip

    x, w = in_order(values["x"], "NHWC", data), in_order(values["w"], "OHWI", kernel)
    mod, _ = differentiated(build, [x.shape, w.shape])
    dx, dw = gradients(mod, x, w, in_order(values["y"], "NHWC", data))
    known = {**values, "dy": values["y"]}
    for got, op_name, layout in ((dx, "dgrad", ("NHWC", data)), (dw, "wgrad", ("OHWI", kernel))):
        (want,) = reference.full(forward_problem(op_name, **geometry), known)
        near(got, in_order(want, *layout))


@given(geometry=geometries, data=st.sampled_from(["NHWC", "NCHW"]))
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
def test_any_conv2d_transpose(geometry, data):
    """Its input x is the dy of a convolution, its output that convolution's input."""
    wl = forward_problem("dgrad", **geometry)
    assume(wl is not None)
    shapes = {n: s for n, s, _ in wl.operand_shapes()}
    extent = [wl.dilation[i] * (k - 1) + 1 for i, k in enumerate((wl.r, wl.s))]
    left = [
        (size + wl.padding[i] + wl.padding[i + 2] - extent[i]) % wl.stride[i]
        for i, size in enumerate((wl.h, wl.w))
    ]
    rng = np.random.default_rng(0)
    x, w, t = (
        rng.uniform(-1, 1, s).astype("float32")
        for s in (shapes["dy"], shapes["w"], (wl.n, wl.h, wl.w, wl.c))
    )
    plain_w = "IHWO"  # of the transposed convolution, whose input channels those of dy are

    def build(bb, x, w):
        return bb.emit(
            op.nn.conv2d_transpose(
                x, w, wl.stride, wl.padding, tuple(left), wl.dilation, wl.groups,
                data_layout=data, kernel_layout="IOHW",
            )
        )  # fmt: skip

    mod, shape = differentiated(
        build, [in_order(x, "NHWC", data).shape, in_order(w, plain_w, "IOHW").shape]
    )
    assert tuple(shape) == in_order(t, "NHWC", data).shape
    arrays = [in_order(x, "NHWC", data), in_order(w, plain_w, "IOHW"), in_order(t, "NHWC", data)]
    dx, dw = gradients(mod, *arrays)
    (want,) = reference.full(forward_problem("fprop", **geometry), {"x": t, "w": w})
    near(dx, in_order(want, "NHWC", data))
    (want,) = reference.full(forward_problem("wgrad", **geometry), {"x": t, "dy": x})
    near(dw, in_order(want, plain_w, "IOHW"))


@pytest.mark.parametrize("groups", [1, 2])
def test_conv2d_transpose(groups):
    def build(bb, x, w):
        return bb.emit(
            op.nn.conv2d_transpose(
                x, w, strides=(2, 2), padding=(1, 0, 1, 1), output_padding=(1, 0), groups=groups
            )
        )

    mod, shape = differentiated(build, [(1, 4, 4, 3), (4, 6 // groups, 3, 3)])
    rng = np.random.default_rng(0)
    x, w, t = (rng.standard_normal(s) for s in ((1, 4, 4, 3), (4, 6 // groups, 3, 3), shape))
    wl = Workload(
        "dgrad", 1, shape[2], shape[3], 6, 4, 3, 3, (2, 2), (1, 0, 1, 1), (1, 1), groups,
        "float32", "float32",
    )  # fmt: skip

    def forward(x, w):
        operands = {"dy": x.transpose(0, 2, 3, 1), "w": w.transpose(0, 2, 3, 1)}
        return reference.full(wl, operands)[0].transpose(0, 3, 1, 2)

    arrays = [a.astype(np.float32) for a in (x, w, t)]
    for got, want in zip(gradients(mod, *arrays), numeric(forward, [x, w], t), strict=True):
        close(got, want)


def norm_in_numpy(x, gamma, beta, axis, epsilon=1e-5):
    axes = tuple(i for i in range(x.ndim) if i != axis)
    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(var + epsilon) * gamma.reshape(shape) + beta.reshape(shape)


@pytest.mark.parametrize(("shape", "axis"), [((3, 4, 2, 5), 1), ((3, 4, 2, 5), 3), ((7, 6), 1)])
@pytest.mark.parametrize("normal", [True, False], ids=["normal form", "TVM's pipeline"])
def test_batch_norm_with_a_mean_far_from_zero(shape, axis, normal):
    c = shape[axis]

    def build(bb, x, gamma, beta):
        zeros, ones = relax.const(np.zeros(c, "float32")), relax.const(np.ones(c, "float32"))
        both = bb.emit(op.nn.batch_norm(x, gamma, beta, zeros, ones, axis=axis, training=True))
        return bb.emit(op.nn.relu(bb.emit(relax.TupleGetItem(both, 0))))

    mod, _ = differentiated(build, [shape, (c,), (c,)])
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape) + 50
    gamma, beta, t = rng.uniform(0.5, 2, c), rng.standard_normal(c), rng.standard_normal(shape)

    def forward(x, gamma, beta):
        return np.maximum(norm_in_numpy(x, gamma, beta, axis), 0)

    arrays = [a.astype(np.float32) for a in (x, gamma, beta, t)]
    wide = [a.astype(np.float64) for a in arrays]
    got = gradients(mod, *arrays, normal=normal)
    for grad, want in zip(got, numeric(forward, wide[:3], wide[3]), strict=True):
        close(grad, want, 1e-3)


def test_frozen_batch_norm():
    rng = np.random.default_rng(0)
    mean, var = rng.standard_normal(4), rng.uniform(0.5, 2, 4)

    def build(bb, x, gamma, beta):
        moving = [relax.const(v.astype("float32")) for v in (mean, var)]
        both = bb.emit(op.nn.batch_norm(x, gamma, beta, *moving, axis=3, training=False))
        return bb.emit(relax.TupleGetItem(both, 0))

    shape = (2, 3, 3, 4)
    mod, _ = differentiated(build, [shape, (4,), (4,)])
    arrays = [rng.standard_normal(s) for s in (shape, (4,), (4,), shape)]

    def forward(x, gamma, beta):
        return (x - mean) / np.sqrt(var + 1e-5) * gamma + beta

    got = gradients(mod, *(a.astype(np.float32) for a in arrays))
    for grad, want in zip(got, numeric(forward, arrays[:3], arrays[3]), strict=True):
        close(grad, want, 1e-4)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("kind", ["max", "avg", "avg with padding", "dilated max", "adaptive"])
def test_pools(layout, kind):
    """Windows of a torch-like reference; pixels differ, so that maxima are unique."""

    def build(bb, x):
        window = {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1)}
        if kind == "max":
            return bb.emit(op.nn.max_pool2d(x, **window, layout=layout))
        if kind == "dilated max":
            return bb.emit(op.nn.max_pool2d(x, **window, dilation=(2, 2), layout=layout))
        if kind == "adaptive":
            return bb.emit(op.nn.adaptive_avg_pool2d(x, (4, 2), layout=layout))
        return bb.emit(
            op.nn.avg_pool2d(
                x, **window, count_include_pad=kind == "avg with padding", layout=layout
            )
        )

    def forward(x):
        if kind == "adaptive":
            return x.reshape(2, 4, 2, 2, 3, 3).mean((2, 4))
        step, fill = (2 if kind == "dilated max" else 1), (-np.inf if "max" in kind else 0.0)
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=fill)
        inside = np.pad(np.ones_like(x), ((0, 0), (1, 1), (1, 1), (0, 0)))
        p, q = ((padded.shape[i] - 2 * step - 1) // 2 + 1 for i in (1, 2))

        def taps(array):
            return np.stack([
                array[:, i * step : i * step + 2 * p - 1 : 2, j * step : j * step + 2 * q - 1 : 2]
                for i in range(3) for j in range(3)
            ])  # fmt: skip

        if "max" in kind:
            return taps(padded).max(0)
        return taps(padded).sum(0) / (9 if kind == "avg with padding" else taps(inside).sum(0))

    rng = np.random.default_rng(0)
    x = rng.permutation(2 * 8 * 6 * 3).reshape(2, 8, 6, 3).astype(np.float64)
    y = forward(x)
    t = rng.standard_normal(y.shape)
    to = "NHWC", layout
    order = [to[0].index(letter) for letter in to[1]]
    mod, _ = differentiated(build, [tuple(np.array(x.shape)[order])])
    (got,) = gradients(mod, *(a.transpose(order).astype(np.float32) for a in (x, t)))
    (want,) = numeric(forward, [x], t, step=0.1)
    close(got, want.transpose(order), 1e-4)


def test_a_dilated_average_pool_is_refused():
    # Errors of gradient rules reach the caller through TVM, which keeps their words.
    with pytest.raises(RuntimeError, match="dilation 1"):
        differentiated(
            lambda bb, x: bb.emit(op.nn.avg_pool2d(x, (2, 2), dilation=(2, 2), layout="NHWC")),
            [(1, 8, 8, 2)],
        )
