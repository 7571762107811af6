"""Regions of interest."""

from __future__ import annotations

import numpy as np

from ..call import Call, Value, converter


@converter("RoiAlign")
def roi_align(call: Call) -> Value:
    """Bilinear samples on a grid in each region, their mean or their maximum.

    The maximum is of the samples' weighted corners, as the definition's own implementation has it.
    """
    n, c, height, width = call.shape()
    rows, columns = (int(call.attrs.get(f"output_{side}", 1)) for side in ("height", "width"))
    ratio = int(call.attrs.get("sampling_ratio", 0))
    if ratio <= 0:
        raise call.unsupported(
            "with sampling_ratio=0, which takes as many samples as a region is large",
            "a number of samples",
        )
    default = "half_pixel" if call.version >= 16 else "output_half_pixel"
    half = call.attrs.get("coordinate_transformation_mode", default) == "half_pixel"
    dtype, count = call.const(0).dtype, call.shape(1)[0]
    scaled = call.do("Mul", call.value(1), np.array(call.attrs.get("spatial_scale", 1.0), dtype))
    if half:
        scaled = call.do("Sub", scaled, np.array(0.5, dtype))
    x1, y1, x2, y2 = (call.do("Slice", scaled, np.array([i]), np.array([i + 1]), np.array([1]))
                      for i in range(4))  # fmt: skip
    places = []
    for low, high, bins in ((y1, y2, rows), (x1, x2, columns)):
        size = call.do("Sub", high, low)
        if not half:
            size = call.do("Max", size, np.array(1, dtype))
        steps = ((np.arange(bins * ratio) + 0.5) / (bins * ratio)).astype(dtype)[None]
        places.append(call.do("Add", low, call.do("Mul", size, steps)))  # (regions, samples)
    ys, xs = places
    parts_y = _corners(call, ys, height, dtype)
    parts_x = _corners(call, xs, width, dtype)
    flat = call.do("Transpose", call.value(0), perm=(0, 2, 3, 1))
    flat = call.reshape(flat, (n * height * width, c))
    first = call.do("Mul", call.do("Cast", call.value(2), to=7), np.array(height * width))
    first = call.reshape(first, (count, 1, 1))
    found = []
    for index_y, share_y in parts_y:
        for index_x, share_x in parts_x:
            index = call.do("Add", call.do("Mul", call.do("Unsqueeze", index_y, np.array([2])),
                                           np.array(width)),
                            call.do("Unsqueeze", index_x, np.array([1])))  # fmt: skip
            share = call.do("Mul", call.do("Unsqueeze", share_y, np.array([2])),
                            call.do("Unsqueeze", share_x, np.array([1])))  # fmt: skip
            value = call.do("Gather", flat, call.do("Add", index, first), axis=0)
            found.append(call.do("Mul", value, call.do("Unsqueeze", share, np.array([3]))))
    greatest = call.attrs.get("mode", "avg") == "max"
    total = call.do("Max" if greatest else "Sum", *found)
    total = call.reshape(total, (count, rows, ratio, columns, ratio, c))
    reduce = "ReduceMax" if greatest else "ReduceMean"
    total = call.do(reduce, total, np.array([2, 4]), keepdims=0)
    return call.do("Transpose", total, perm=(0, 3, 1, 2))


def _corners(call: Call, at: Value, size: int, dtype: np.dtype) -> list[tuple[Value, Value]]:
    """(index, share) of the elements below and above coordinates; none beyond the image by one."""
    inside = call.do("And", call.do("GreaterOrEqual", at, np.array(-1, dtype)),
                     call.do("LessOrEqual", at, np.array(size, dtype)))  # fmt: skip
    at = call.do("Clip", at, np.array(0, dtype), np.array(size - 1, dtype))
    low = call.do("Floor", at)
    part = call.do("Sub", at, low)
    high = call.do("Min", call.do("Add", low, np.array(1, dtype)), np.array(size - 1, dtype))
    zero = np.array(0, dtype)
    shares = (call.do("Sub", np.array(1, dtype), part), part)
    return [
        (call.do("Cast", index, to=7), call.do("Where", inside, share, zero))
        for index, share in zip((low, high), shares, strict=True)
    ]


@converter("MaxRoiPool")
def max_roi_pool(call: Call) -> Value:
    """The maximum of each bin of each region, by masks over rows and columns."""
    rois = call.constant(1, "regions")
    rows, columns = (int(d) for d in call.attrs["pooled_shape"])
    scale = float(call.attrs.get("spatial_scale", 1.0))
    _, c, height, width = call.shape()
    results = []
    for batch, *box in rois:
        left, top, right, bottom = (int(np.floor(v * scale + 0.5)) for v in box)
        bins_y = _bins(top, bottom, rows, height)
        bins_x = _bins(left, right, columns, width)
        for y0, y1 in bins_y:
            for x0, x1 in bins_x:
                if y1 <= y0 or x1 <= x0:
                    results.append(np.zeros((1, c, 1, 1), call.const(0).dtype))
                    continue
                part = call.do("Slice", call.value(0), np.array([int(batch), 0, y0, x0]),
                               np.array([int(batch) + 1, c, y1, x1]))  # fmt: skip
                results.append(call.do("ReduceMax", part, np.array([2, 3])))
    joined = call.do("Concat", *results, axis=0)
    joined = call.reshape(joined, (len(rois), rows, columns, c))
    return call.do("Transpose", joined, perm=(0, 3, 1, 2))


def _bins(first: int, last: int, count: int, size: int) -> list[tuple[int, int]]:
    each = max(last - first + 1, 1) / count
    return [
        (
            min(max(int(np.floor(i * each)) + first, 0), size),
            min(max(int(np.ceil((i + 1) * each)) + first, 0), size),
        )
        for i in range(count)
    ]
