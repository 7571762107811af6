"""Batch norm in training as loops for any target, channels last (see ``batch_norm.py``)."""

from __future__ import annotations

from collections.abc import Callable

from tvm import te, tirx, topi

from .activation_backward import through


def _rows(x: te.Tensor) -> list[tirx.IterVar]:
    return [te.reduce_axis((0, d), name=f"r{i}") for i, d in enumerate(x.shape[:-1])]


def _count(x: te.Tensor) -> int:
    count = 1
    for d in x.shape[:-1]:
        count *= int(d)
    return count


def _f32(value: tirx.Expr) -> tirx.Expr:
    return value.astype("float32")


def _channels(x: te.Tensor, function: Callable[[tirx.Var], tirx.Expr], name: str) -> te.Tensor:
    return te.compute((x.shape[-1],), function, name=name)


def stats_loops(
    x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, moving_mean: te.Tensor, moving_var: te.Tensor,
    epsilon: float, momentum: float, scale: bool, center: bool, training: bool, unbiased: float,
) -> list[te.Tensor]:  # fmt: skip
    """The statistics as loops. Squares are summed of differences to the first row, since
    ``E[x^2] - E[x]^2`` cancels where the mean is large."""
    if bool(training):
        first = [0] * (len(x.shape) - 1)
        rows, again, count = _rows(x), _rows(x), float(_count(x))

        def shifted(axes, c):  # type: ignore[no-untyped-def]
            return _f32(x(*axes, c)) - _f32(x(*first, c))

        total = _channels(x, lambda c: te.sum(shifted(rows, c), axis=rows), "total")
        squares = _channels(
            x, lambda c: te.sum(shifted(again, c) * shifted(again, c), axis=again), "squares"
        )
        offset = _channels(x, lambda c: total[c] * tirx.const(1 / count, "float32"), "offset")
        mean = _channels(x, lambda c: _f32(x(*first, c)) + offset[c], "mean")
        var = _channels(
            x,
            lambda c: te.max(
                squares[c] * tirx.const(1 / count, "float32") - offset[c] * offset[c],
                tirx.const(0.0, "float32"),
            ),
            "var",
        )
    else:
        mean, var = moving_mean, moving_var
    rstd = _channels(
        x, lambda c: tirx.rsqrt(var[c] + tirx.const(float(epsilon), "float32")), "rstd"
    )
    factor = topi.identity(rstd)
    if bool(scale):
        factor = _channels(x, lambda c: rstd[c] * gamma[c], "scale")
    shift = _channels(
        x, lambda c: (beta[c] if bool(center) else 0.0) - mean[c] * factor[c], "shift"
    )
    keep = tirx.const(1 - float(momentum), "float32") if bool(training) else None

    def moved(old, new, name, factor=1.0):  # type: ignore[no-untyped-def]
        if keep is None:
            return topi.identity(old)
        rate = tirx.const(float(momentum) * factor, "float32")
        return _channels(x, lambda c: old[c] * keep + new[c] * rate, name)

    mean_out = mean if bool(training) else topi.identity(mean)
    return [
        factor, shift, mean_out, rstd,
        moved(moving_mean, mean, "new_mean"), moved(moving_var, var, "new_var", float(unbiased)),
    ]  # fmt: skip


def grad_stats_loops(  # type: ignore[no-untyped-def]
    dy, x, gamma, scale, shift, mean, rstd, activation, parameters, use_gamma, training
):
    rows, again, count = _rows(x), _rows(x), float(_count(x))

    def gradient(axes, c):  # type: ignore[no-untyped-def]
        normal = _f32(x(*axes, c)) * scale[c] + shift[c]
        return through(_f32(dy(*axes, c)), normal, activation, parameters)

    dbeta = _channels(x, lambda c: te.sum(gradient(rows, c), axis=rows), "dbeta")
    product = _channels(
        x,
        lambda c: te.sum(gradient(again, c) * (_f32(x(*again, c)) - mean[c]), axis=again),
        "product",
    )
    dgamma = _channels(x, lambda c: product[c] * rstd[c], "dgamma")
    a = _channels(x, lambda c: rstd[c] * (gamma[c] if bool(use_gamma) else 1.0), "a")
    per_row = tirx.const(1 / count if bool(training) else 0.0, "float32")
    b = _channels(x, lambda c: -a[c] * rstd[c] * dgamma[c] * per_row, "b")
    c_ = _channels(x, lambda c: -a[c] * dbeta[c] * per_row - b[c] * mean[c], "c")
    return [dgamma, dbeta, a, b, c_]


def affine_loops(x, scale, shift):  # type: ignore[no-untyped-def]
    dtype = str(x.dtype)
    return te.compute(
        x.shape, lambda *i: (_f32(x(*i)) * scale[i[-1]] + shift[i[-1]]).astype(dtype), name="affine"
    )


def grad_apply_loops(dy, x, scale, shift, a, b, c, activation, parameters):  # type: ignore[no-untyped-def]
    dtype = str(x.dtype)

    def element(*i):  # type: ignore[no-untyped-def]
        channel, value = i[-1], _f32(x(*i))
        normal = value * scale[channel] + shift[channel]
        gradient = through(_f32(dy(*i)), normal, activation, parameters)
        return (a[channel] * gradient + b[channel] * value + c[channel]).astype(dtype)

    return te.compute(x.shape, element, name="dx")
