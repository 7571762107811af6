"""Matrix products."""

from __future__ import annotations

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import cast, swap, unsqueeze
from convoy.relay.frontend.linear_algebra import dense, matmul, scaled
from convoy.relay.frontend.onnx.registry import Node, convert
from convoy.relay.op import tensor as R


@convert("Gemm")
def gemm(node: Node) -> Expr:
    """Compute alpha * a @ b + beta * c."""
    a = swap(node[0], 0, 1) if node.attr("transA", 0) else node[0]
    weight = node[1] if node.attr("transB", 0) else swap(node[1], 0, 1)
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    if node.dtype().startswith(("int", "uint")):
        product = dense(a, weight, node.dtype())
    else:
        product = scaled(dense(a, weight), alpha)
    if node.get(2) is None or beta == 0:
        return product
    return R.add(product, scaled(node[2], beta))


@convert("MatMul")
def convert_matmul(node: Node) -> Expr:
    integer = node.dtype().startswith(("int", "uint"))
    return matmul(node[0], node[1], node.dtype() if integer else "")


@convert("FusedMatMul", domain="com.microsoft")
def fused_matmul(node: Node) -> Expr:
    a = swap(node[0], -1, -2) if node.attr("transA", 0) else node[0]
    b = swap(node[1], -1, -2) if node.attr("transB", 0) else node[1]
    return scaled(matmul(a, b), node.attr("alpha", 1.0))


@convert("MatMulInteger")
def matmul_integer(node: Node) -> Expr:
    """Multiply integers less their zero points, with sums in int32.

    The zero point of a matrix may be one for each row of the first, or column of the second.
    """
    a, b = cast(node[0], "int32"), cast(node[1], "int32")
    for place, point in enumerate((node.get(2), node.get(3))):
        if point is None:
            continue
        wide = cast(point, "int32")
        if node.rank(place + 2) == 1 and node.shape(place + 2)[0] != 1 and place == 0:
            wide = unsqueeze(wide, [1])
        a, b = (R.subtract(a, wide), b) if place == 0 else (a, R.subtract(b, wide))
    return matmul(a, b, "int32")


@convert("Einsum")
def einsum(node: Node) -> Expr:
    equation = node.attrs["equation"].replace(" ", "")
    return R.einsum(list(node.inputs), equation)
