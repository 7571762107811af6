"""Small networks built with Relax, for the tests of the graph room."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from ..helpers.stock import machine


class Net:
    """A thin builder: layers in NCHW or NHWC with random constants or parameters."""

    def __init__(self, shape, layout="NCHW", seed=0, dtype="float32"):
        """``shape``: (N, C, H, W) of the input, whatever the layout."""
        self.layout, self.dtype = layout, dtype
        self.rng = np.random.default_rng(seed)
        self.bb = relax.BlockBuilder()
        self.axis = layout.index("C")
        self.params: list[relax.Var] = [self.var("x", self.shape(*shape))]
        self.bindings: list = []
        self._scope = self.bb.function("main", self.params)
        self._scope.__enter__()
        self._flow = self.bb.dataflow()
        self._flow.__enter__()

    def var(self, name, shape):
        return relax.Var(name, relax.TensorType(shape, self.dtype))

    @property
    def x(self):
        return self.params[0]

    def shape(self, n, c, h, w):
        sizes = {"N": n, "C": c, "H": h, "W": w}
        return tuple(sizes[letter] for letter in self.layout)

    def const(self, *shape, low=-1.0, high=1.0):
        return relax.const(self.rng.uniform(low, high, shape).astype(self.dtype))

    def emit(self, expr):
        return self.bb.emit(expr)

    def channels(self, x):
        return int(x.ty.shape.values[self.axis])

    def conv(self, x, k, r=3, stride=1, padding=None, groups=1, dilation=1, bias=False, s=None):
        s = r if s is None else s
        c = self.channels(x)
        padding = (r // 2, s // 2) if padding is None else padding
        scale = (3.0 / (c // groups * r * s)) ** 0.5
        layout = "OIHW" if self.layout == "NCHW" else "HWIO"
        sizes = {"O": k, "I": c // groups, "H": r, "W": s}
        w = self.const(*(sizes[letter] for letter in layout), low=-scale, high=scale)
        y = self.emit(
            op.nn.conv2d(
                x,
                w,
                strides=stride,
                padding=padding,
                dilation=dilation,
                groups=groups,
                data_layout=self.layout,
                kernel_layout=layout,
            )
        )
        return self.bias(y) if bias else y

    def bias(self, y):
        k = self.channels(y)
        return self.emit(op.add(y, self.const(*self.shape(1, k, 1, 1))))

    def bn(self, x):
        k = self.channels(x)
        args = [self.const(k, low=0.5, high=1.5), self.const(k), self.const(k)]
        args.append(self.const(k, low=0.5, high=1.5))
        out = self.emit(op.nn.batch_norm(x, *args, axis=self.axis, epsilon=2e-5, training=False))
        return self.emit(relax.TupleGetItem(out, 0))

    def relu(self, x):
        return self.emit(op.nn.relu(x))

    def add(self, a, b):
        return self.emit(op.add(a, b))

    def concat(self, *xs):
        return self.emit(op.concat(list(xs), axis=self.axis))

    def max_pool(self, x, size=3, stride=2, padding=1):
        return self.emit(
            op.nn.max_pool2d(x, (size, size), (stride, stride), padding, layout=self.layout)
        )

    def avg_pool(self, x, size=2, stride=2, padding=0):
        return self.emit(
            op.nn.avg_pool2d(x, (size, size), (stride, stride), padding, layout=self.layout)
        )

    def head(self, x, classes=10):
        y = self.emit(op.nn.adaptive_avg_pool2d(x, (1, 1), layout=self.layout))
        n, c = int(y.ty.shape.values[0]), self.channels(y)
        y = self.emit(op.reshape(y, (n, c)))
        w = self.const(classes, c, low=-((3.0 / c) ** 0.5), high=(3.0 / c) ** 0.5)
        y = self.emit(op.matmul(y, self.emit(op.permute_dims(w))))
        y = self.emit(op.add(y, self.const(classes)))
        return self.emit(op.nn.softmax(y))

    def finish(self, *outputs):
        outs = [self.bb.emit_output(o) for o in outputs]
        self._flow.__exit__(None, None, None)
        self.bb.emit_func_output(outs[0] if len(outs) == 1 else relax.Tuple(outs))
        self._scope.__exit__(None, None, None)
        return self.bb.get()


def preact_resnet(
    batch=1, image=32, blocks=(3, 4, 6, 3), width=64, layout="NCHW", classes=10, seed=0
):
    """Pre-activation bottleneck ResNet (v2), a batch norm on the input; 16 blocks are ResNet-50."""
    net = Net((batch, 3, image, image), layout, seed)
    x = net.relu(net.bn(net.conv(net.bn(net.x), width, 7, 2, 3)))
    x = net.max_pool(x)
    mid = width
    for stage, count in enumerate(blocks):
        for i in range(count):
            stride = 2 if i == 0 and stage > 0 else 1
            act = net.relu(net.bn(x))
            y = net.relu(net.bn(net.conv(act, mid, 1)))
            y = net.relu(net.bn(net.conv(y, mid, 3, stride)))
            y = net.conv(y, mid * 4, 1)
            shortcut = net.conv(act, mid * 4, 1, stride, 0) if i == 0 else x
            x = net.add(y, shortcut)
        mid *= 2
    return net.finish(net.head(net.relu(net.bn(x)), classes))


def resnet_v1(batch=1, image=32, blocks=(3, 4, 6, 3), width=64, layout="NCHW", classes=10, seed=0):
    """Post-activation bottleneck ResNet (v1.5): every batch norm folds."""
    net = Net((batch, 3, image, image), layout, seed)
    x = net.max_pool(net.relu(net.bn(net.conv(net.x, width, 7, 2, 3))))
    mid = width
    for stage, count in enumerate(blocks):
        for i in range(count):
            stride = 2 if i == 0 and stage > 0 else 1
            y = net.relu(net.bn(net.conv(x, mid, 1)))
            y = net.relu(net.bn(net.conv(y, mid, 3, stride)))
            y = net.bn(net.conv(y, mid * 4, 1))
            shortcut = net.bn(net.conv(x, mid * 4, 1, stride, 0)) if i == 0 else x
            x = net.relu(net.add(y, shortcut))
        mid *= 2
    return net.finish(net.head(x, classes))


def run_llvm(mod, *inputs):
    """Outputs of the module's main function on the CPU with TVM's own pipeline, as numpy."""
    return to_numpy(machine(mod)["main"](*[tvm.runtime.tensor(i) for i in inputs]))


def to_numpy(result):
    if hasattr(result, "numpy"):
        return [result.numpy()]
    return [array for item in result for array in to_numpy(item)]


def random_inputs(mod, seed=1):
    rng = np.random.default_rng(seed)
    shapes = [([int(d) for d in p.ty.shape.values], str(p.ty.dtype)) for p in mod["main"].params]
    return [rng.standard_normal(shape).astype(dtype) for shape, dtype in shapes]


def count_ops(mod):
    """Operator name -> number of calls in the main function."""
    counts: dict[str, int] = {}
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call):
                op_ = value.op
                name = op_.name if isinstance(op_, tvm.ir.Op) else type(op_).__name__
                counts[name] = counts.get(name, 0) + 1
    return counts


def relative_error(got, want):
    return float(np.abs(got - want).max() / (np.abs(want).max() + 1e-30))
