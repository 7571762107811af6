"""torchvision's deformable convolution: pixels sampled beside their places, times the filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F


def _deform_conv2d(
    x: Any, weight: Any, offset: Any, mask: Any, bias: Any, stride_h: int, stride_w: int,
    pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, groups: int, parts: int,
    use_mask: bool,
) -> Any:  # fmt: skip
    """Of x (n, c, h, w) in parts of channels, whose offsets along h and w are
    (n, parts * r * s * 2, p, q), and the factors of what they find (n, parts * r * s, p, q)."""
    n, c, h, w = x.shape
    k, _, r, s = weight.shape
    p, q = offset.shape[2:]
    offset = offset.reshape(n * parts, r * s, 2, p, q)
    rows = _places(r, dilation_h, p, stride_h, pad_h, x)[:, None, :, None]
    columns = _places(s, dilation_w, q, stride_w, pad_w, x)[None, :, None, :]
    rows, columns = (one.expand(r, s, p, q).reshape(r * s, p, q) for one in (rows, columns))
    # From -1 to 1 over the edges of the first and the last pixel.
    down = ((rows + offset[:, :, 0]) * 2 + 1) / h - 1
    across = ((columns + offset[:, :, 1]) * 2 + 1) / w - 1
    grid = torch.stack((across, down), -1).reshape(n * parts, r * s * p, q, 2)
    pixels = x.reshape(n * parts, c // parts, h, w)
    found = F.grid_sample(pixels, grid, align_corners=False)
    found = found.reshape(n, parts, c // parts, r * s, p * q)
    if use_mask:
        found = found * mask.reshape(n, parts, 1, r * s, p * q)
    found = found.reshape(n, c * r * s, p, q)
    return F.conv2d(found, weight.reshape(k, -1, 1, 1), bias, groups=groups)


def _places(
    size: int, dilation: int, out: int, stride: int, padding: int, like: Any
) -> torch.Tensor:
    """Where elements of a filter read along one axis, (size, out)."""
    taps = torch.arange(size, dtype=like.dtype, device=like.device) * dilation - padding
    return taps[:, None] + torch.arange(out, dtype=like.dtype, device=like.device) * stride


NAMED: dict[str, Callable[..., Any]] = {"torchvision.deform_conv2d.default": _deform_conv2d}
