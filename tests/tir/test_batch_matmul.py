"""Products of two activations: as CUDA run on the CPU, and what other rules take."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest
from tvm import te, tirx

from convoy.tir.batch_matmul import BatchMatmul

from ..emulation.kernels import call, compile_kernels
from ..graph.kernels import TARGET, cuda_source
from ..helpers.errors import l2_error


@dataclass(frozen=True)
class Product:
    """``scale * a @ b`` of (batch, rows, summed) and (batch, summed, columns), or of operands that
    are transposed; ``gated`` by its own sigmoid; the result has the dtype ``out``."""

    batch: int
    rows: int
    columns: int
    summed: int
    transposed: tuple[bool, bool] = (False, False)
    dtype: str = "float16"
    out: str = "float16"
    scaled: bool = False
    gated: bool = False

    def func(self) -> tirx.PrimFunc:
        a, b = (
            te.placeholder(shape, self.dtype, name)
            for shape, name in zip(self.shapes(), "ab", strict=True)
        )
        k = te.reduce_axis((0, self.summed), "k")

        def multiply(n, i, j):
            one = a[n, k, i] if self.transposed[0] else a[n, i, k]
            other = b[n, j, k] if self.transposed[1] else b[n, k, j]
            return te.sum(one.astype("float32") * other.astype("float32"), k)

        out = te.compute((self.batch, self.rows, self.columns), multiply, name="product")
        if self.scaled:
            raw = out
            out = te.compute(out.shape, lambda *at: raw[at] * tirx.const(0.5, "float32"), "scaled")
        if self.gated:
            value = out
            gate = te.compute(out.shape, lambda *at: te.sigmoid(value[at]), "gate")
            out = te.compute(out.shape, lambda *at: value[at] * gate[at], "gated")
        if self.out != "float32":
            wide = out
            out = te.compute(out.shape, lambda *at: wide[at].astype(self.out), "rounded")
        return te.create_prim_func([a, b, out])

    def shapes(self) -> list[tuple[int, int, int]]:
        a, b = (self.rows, self.summed), (self.summed, self.columns)
        sides = zip((a, b), self.transposed, strict=True)
        return [(self.batch, *(side[::-1] if swap else side)) for side, swap in sides]

    def inputs(self) -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        return [rng.standard_normal(shape).astype(self.dtype) for shape in self.shapes()]

    def error(self, got: np.ndarray) -> float:
        a, b = (
            x.astype("float64").transpose(0, 2, 1) if swap else x.astype("float64")
            for x, swap in zip(self.inputs(), self.transposed, strict=True)
        )
        want = a @ b * (0.5 if self.scaled else 1)
        want = want / (1 + np.exp(-want)) if self.gated else want
        return l2_error(got, want)

    def empty(self) -> np.ndarray:
        return np.full((self.batch, self.rows, self.columns), np.nan, self.out)


PRODUCTS = [
    Product(40, 72, 130, 24),
    Product(140, 32, 40, 25, (False, True)),
    Product(140, 17, 33, 24, (True, False), "float32", "float32"),
    Product(20, 40, 70, 16, (True, True), scaled=True),
    Product(8, 40, 72, 16, scaled=True, gated=True),
    Product(3, 32, 32, 320, out="float32", scaled=True),
    Product(2, 21, 35, 301),
    Product(4, 32, 32, 784, (False, True), scaled=True),  # XCiT's: 16 threads share a sum
    Product(2, 21, 16, 304, (False, True)),
    Product(1, 9, 24, 130, (True, False), "float32", "float32"),
]


def scheduled(product: Product) -> tirx.PrimFunc:
    with TARGET:
        found = BatchMatmul().apply(product.func(), TARGET, False)
    assert found is not None
    return found.mod["main"].with_attr("tirx.is_scheduled", True)


def test_cuda() -> None:
    functions = {f"product_{i}": scheduled(product) for i, product in enumerate(PRODUCTS)}
    library = compile_kernels(functions, TARGET)
    for name, product in zip(functions, PRODUCTS, strict=True):
        for backwards in (False, True):
            *_, got = call(library[name], *product.inputs(), product.empty(), backwards=backwards)
            assert product.error(got) < (1e-3 if product.out == "float16" else 1e-5), product


def test_sums_of_tiles_that_are_not_full_have_no_guards() -> None:
    text = scheduled(Product(140, 49, 49, 32, (False, True), "float32", "float32")).script()
    (sums,) = re.findall(r'sblock\("product_update"\):(.*?)sblock\(', text, re.DOTALL)
    (stored,) = re.findall(r'sblock\("product_local"\):(.*?)$', text, re.DOTALL)
    assert "T.where" not in sums and "T.where" in stored


@pytest.mark.parametrize(
    "product",
    [
        Product(192, 49, 49, 32, (False, True), "float32", "float32"),
        Product(192, 49, 32, 49), Product(24, 197, 64, 197), Product(300, 8, 9, 40),
        Product(150, 63, 65, 16, (True, False)), Product(4, 33, 32, 784, (False, True)),
    ],
    ids=str,
)  # fmt: skip
def test_no_thread_reads_behind_its_tiles(product: Product) -> None:
    """An emulated kernel would read something there, a GPU's stops."""
    func = scheduled(product)
    source = cuda_source(func)
    sizes = dict(re.findall(r"__shared__ .* (\w+)\[(\d+)\];", source))
    last = {
        axis: str(int(size) - 1)
        for size, axis in re.findall(r'\((\d+), thread="threadIdx\.(.)"', func.script())
    }
    sums = [line for line in source.splitlines() if re.search(r"local_ptr\[.* \+ .*shared", line)]
    reads = re.findall(r"(\w+_shared_ptr)\[([^][]*)\]", "\n".join(sums))
    assert len({name for name, _ in reads}) >= 2
    for name, index in reads:
        at = re.sub(r"\(int\)threadIdx\.(.)", lambda found: last[found[1]], index)
        assert eval(at) < int(sizes[name]), (name, index)


@pytest.mark.parametrize(
    "product",
    [
        Product(2, 1, 64, 64), Product(2, 64, 4, 64), Product(2, 64, 64, 4),
        Product(1176, 9, 32, 9),  # VOLO's weighted windows
    ],
    ids=str,
)  # fmt: skip
def test_declines_without_tiles(product: Product) -> None:
    with TARGET:
        assert BatchMatmul().apply(product.func(), TARGET, False) is None
