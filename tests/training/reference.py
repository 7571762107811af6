"""A training step in numpy: layers with the interface of ``convoy.training.Network`` that compute
at once and remember how to go back, written from the definitions."""

from __future__ import annotations

import numpy as np


class Value:
    def __init__(self, data, back=None, name=""):
        self.data, self.back, self.name = data, back, name
        self.grad = np.zeros_like(data)


class Tape:
    """``params`` by name are used as they are; ``dtype`` is that of all arithmetic."""

    def __init__(self, x, params, dtype=np.float64):
        self.dtype = dtype
        self.params = {k: Value(v.astype(dtype), name=k) for k, v in params.items()}
        self.x = Value(x.astype(dtype))
        self.order, self.moved = [], {}

    def _new(self, data, back):
        value = Value(np.asarray(data, self.dtype), back)
        self.order.append(value)
        return value

    def conv(self, x, channels, kernel, stride=1, padding=None, dilation=1, groups=1, bias=False,
             name=""):  # fmt: skip
        w = self.params[f"{name}_weight"]
        k, r, s, per_group = w.data.shape
        pad = dilation * (kernel - 1) // 2 if padding is None else padding
        n, h, width, _ = x.data.shape
        p = (h + 2 * pad - dilation * (r - 1) - 1) // stride + 1
        q = (width + 2 * pad - dilation * (s - 1) - 1) // stride + 1
        padded = np.pad(x.data, ((0, 0), (pad, pad), (pad, pad), (0, 0)))

        def taps():
            for i in range(r):
                for j in range(s):
                    rows = slice(i * dilation, i * dilation + stride * (p - 1) + 1, stride)
                    columns = slice(j * dilation, j * dilation + stride * (q - 1) + 1, stride)
                    for g in range(groups):
                        inner = slice(g * per_group, (g + 1) * per_group)
                        outer = slice(g * k // groups, (g + 1) * k // groups)
                        yield i, j, (slice(None), rows, columns, inner), outer

        y = np.zeros((n, p, q, k), self.dtype)
        for i, j, window, outer in taps():
            y[..., outer] += padded[window] @ w.data[outer, i, j].T

        def back(dy):
            grad = np.zeros_like(padded)
            for i, j, window, outer in taps():
                grad[window] += dy[..., outer] @ w.data[outer, i, j]
                w.grad[outer, i, j] += np.einsum("npqk,npqc->kc", dy[..., outer], padded[window])
            x.grad += grad[:, pad : pad + h, pad : pad + width]

        y = self._new(y, back)
        return self._bias(y, f"{name}_bias") if bias else y

    def _bias(self, x, name):
        b = self.params[name]

        def back(dy):
            x.grad += dy
            b.grad += dy.reshape(-1, dy.shape[-1]).sum(0)

        return self._new(x.data + b.data, back)

    def batch_norm(self, x, gamma=1.0, name="", epsilon=1e-5, momentum=0.1):
        g, b = self.params[f"{name}_gamma"], self.params[f"{name}_beta"]
        rows = x.data.reshape(-1, x.data.shape[-1])
        mean, var = rows.mean(0), rows.var(0)
        for kind, new in (("mean", mean), ("var", var)):
            old = self.params[f"{name}_{kind}"].data
            self.moved[f"{name}_{kind}"] = (1 - momentum) * old + momentum * new
        rstd = 1 / np.sqrt(var + epsilon)
        normal = (x.data - mean) * rstd

        def back(dy):
            axes = tuple(range(dy.ndim - 1))
            g.grad += (dy * normal).sum(axes)
            b.grad += dy.sum(axes)
            inner = dy - dy.mean(axes) - normal * (dy * normal).mean(axes)
            x.grad += g.data * rstd * inner

        return self._new(normal * g.data + b.data, back)

    def relu(self, x):
        def back(dy):
            x.grad += dy * (x.data > 0)

        return self._new(np.maximum(x.data, 0), back)

    def add(self, x, y):
        def back(dz):
            x.grad += dz
            y.grad += dz

        return self._new(x.data + y.data, back)

    def max_pool(self, x, size, stride, padding=0):
        wide = ((0, 0), (padding, padding), (padding, padding), (0, 0))
        padded = np.pad(x.data, wide, constant_values=-np.inf)
        _, h, w, _ = padded.shape
        p, q = (h - size) // stride + 1, (w - size) // stride + 1
        windows = np.stack(
            [
                padded[
                    :, i : i + stride * (p - 1) + 1 : stride, j : j + stride * (q - 1) + 1 : stride
                ]
                for i in range(size)
                for j in range(size)
            ]
        )
        which = windows.argmax(0)

        def back(dy):
            grad = np.zeros_like(padded)
            b, i, j, ch = np.indices(which.shape)
            rows, columns = i * stride + which // size, j * stride + which % size
            np.add.at(grad, (b, rows, columns, ch), dy)
            x.grad += grad[:, padding : h - padding, padding : w - padding]

        return self._new(windows.max(0), back)

    def mean(self, x):
        def back(dy):
            x.grad += dy[:, None, None] / (x.data.shape[1] * x.data.shape[2])

        return self._new(x.data.mean((1, 2)), back)

    def dense(self, x, units, name=""):
        w = self.params[f"{name}_weight"]

        def back(dy):
            x.grad += dy @ w.data
            w.grad += dy.T @ x.data

        return self._bias(self._new(x.data @ w.data.T, back), f"{name}_bias")

    def backward(self, logits, labels):
        """The mean cross entropy; gradients of all parameters are in ``params`` afterwards."""
        shifted = logits.data - logits.data.max(1, keepdims=True)
        scores = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        rows = np.arange(len(labels))
        logits.grad += (np.exp(scores) - np.eye(scores.shape[1])[labels]) / len(labels)
        for value in reversed(self.order):
            value.back(value.grad)
        return float(-scores[rows, labels].mean())


def descend(build, x, labels, state, rate, momentum=0.0, weight_decay=0.0, dtype=np.float64):
    """One step: ``build(tape)`` gives the logits. Updates ``state``, returns the loss."""
    names = [k for k in state if not k.endswith("_velocity")]
    tape = Tape(x, {k: state[k] for k in names}, dtype)
    loss = tape.backward(build(tape), labels)
    for name in names:
        if name in tape.moved:
            state[name] = tape.moved[name]
            continue
        grad, old = tape.params[name].grad, state[name].astype(dtype)
        if weight_decay:
            grad = grad + weight_decay * old
        if momentum:
            velocity = state.get(f"{name}_velocity", np.zeros_like(old))
            state[f"{name}_velocity"] = grad = momentum * velocity + grad
        state[name] = old - rate * grad
    return loss
