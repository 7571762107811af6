"""`relay.image`: resizing, cropping and sampling."""

from typing import TYPE_CHECKING, Any

from convoy.relay.ast import Call, Expr
from convoy.relay.json_format.earlier_versions import resized
from convoy.relay.ops import builders

globals().update(builders("image"))
__all__ = ["resize", *builders("image")]


def resize(
    data: Expr,
    size: Any,
    layout: str = "NCHW",
    method: str = "bilinear",
    coordinate_transformation_mode: str | bool = "half_pixel",
    out_dtype: str | None = None,
    *,
    align_corners: bool | None = None,
) -> Call:
    """Resize as TVM 0.7 did, or 0.6, where the fifth argument was `align_corners`."""
    mode = coordinate_transformation_mode
    corners = mode if isinstance(mode, bool) else align_corners
    values = {"method": method.lower(), "coordinate_transformation_mode": mode}
    return builders("image")["resize2d"](
        data,
        size,
        layout=layout,
        out_dtype=out_dtype,
        **resized({**values, "align_corners": corners}),
    )


if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
