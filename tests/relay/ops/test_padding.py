"""Padding, blocks and resizing against numpy."""

from __future__ import annotations

import numpy as np

from convoy import relay

from .. import reference
from .cases import Case, X, check, uniform


def test_padding_and_blocks() -> None:
    widths = ((0, 0), (0, 0), (1, 2), (2, 0))
    check(
        {
            "pad": Case(
                lambda x: relay.nn.pad(x, widths, 1.5),
                lambda x: np.pad(x, widths, constant_values=1.5),
                X,
            ),
            "pad_edge": Case(
                lambda x: relay.nn.pad(x, widths, pad_mode="edge"),
                lambda x: np.pad(x, widths, "edge"),
                X,
            ),
            "pad_reflect": Case(
                lambda x: relay.nn.pad(x, widths, pad_mode="reflect"),
                lambda x: np.pad(x, widths, "reflect"),
                X,
            ),
            "mirror_symmetric": Case(
                lambda x: relay.nn.mirror_pad(x, widths),
                lambda x: np.pad(x, widths, "symmetric"),
                X,
            ),
            "mirror_reflect": Case(
                lambda x: relay.nn.mirror_pad(x, widths, "REFLECT"),
                lambda x: np.pad(x, widths, "reflect"),
                X,
            ),
            "depth_to_space": Case(
                lambda x: relay.nn.depth_to_space(x, 2),
                reference.depth_to_space_dcr,
                uniform(1, 8, 2, 3),
            ),
            "space_to_depth": Case(
                lambda x: relay.nn.space_to_depth(relay.nn.depth_to_space(x, 2), 2),
                lambda x: x,
                uniform(1, 8, 2, 3),
            ),
            "upsampling": Case(
                lambda x: relay.nn.upsampling(x, 2, 3),
                lambda x: x.repeat(2, 2).repeat(3, 3),
                X,
            ),
            "upsampling_nhwc": Case(
                lambda x: relay.nn.upsampling(x, 2, 2, layout="NHWC"),
                lambda x: x.repeat(2, 1).repeat(2, 2),
                X,
            ),
            "upsampling_bilinear": Case(
                lambda x: relay.nn.upsampling(x, 2, 2, method="bilinear", align_corners=True),
                lambda x: reference.bilinear_align_corners(x, 10, 8),
                X,
            ),
            "resize2d": Case(
                lambda x: relay.image.resize2d(
                    x, (10, 8), method="linear", coordinate_transformation_mode="align_corners"
                ),
                lambda x: reference.bilinear_align_corners(x, 10, 8),
                X,
            ),
        }
    )
