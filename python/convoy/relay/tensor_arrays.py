"""Tensor arrays of `relay.prelude`: lists of tensors of one dtype, as Relay functions.

An element is a data type: `tensor_float32_t` holds a tensor of up to six axes of any size,
`static_tensor_float32_any_3_t` one of shape (?, 3). Both may hold nothing (`tensor_nil`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any as Object

from convoy.errors import InvalidOption
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule
from convoy.relay.source import Source
from convoy.relay.text import parse_module_text
from convoy.relay.types import Any, Dim

_VERSION = '#[version = "0.0.5"]\n'
_MOST_AXES = 6
_DTYPES = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)] + [
    "float16", "float32", "float64",
]  # fmt: skip
_INDICES = "Tensor[(?), int32]"


def static_name(canonical: str, dtype: str, shape: Sequence[Dim]) -> str:
    """Return the name of a type, constructor or function for tensors of one shape."""
    sizes = "_".join(map(str, _sizes(shape))).replace("?", "any") or "scalar"
    return (
        f"static_tensor_{dtype}_{sizes}_t"
        if canonical == "tensor_t"
        else _name(canonical, f"{dtype}_{sizes}")
    )


def ranked_name(canonical: str, dtype: str) -> str:
    """Return the name of a type, constructor or function for tensors of any size."""
    return f"tensor_{dtype}_t" if canonical == "tensor_t" else _name(canonical, dtype)


def _name(canonical: str, suffix: str) -> str:
    return f"{canonical}_{suffix}"


def _sizes(shape: Sequence[Dim]) -> list[Object]:
    """Return sizes as text has them; other sizes than integers are unknown."""
    return [d if isinstance(d, int) else "?" for d in shape]


def _tensor(dtype: str, shape: Sequence[Dim]) -> str:
    sizes = ", ".join(map(str, _sizes(shape)))
    return f"Tensor[({sizes}), {dtype}]"


def _add(mod: IRModule, text: str) -> None:
    mod.update(infer_module(parse_module_text(Source("tensor arrays", _VERSION + text), mod)))


def define_elements(mod: IRModule) -> None:
    """Add the types of elements of any size, for the dtypes of numbers."""
    _add(mod, "".join(_element(dtype) for dtype in _DTYPES))


def _element(dtype: str) -> str:
    """Return the type of tensors of any size."""
    fields = [
        f"{ranked_name(f'tensor{n}', dtype)}({_tensor(dtype, [Any()] * n)})"
        for n in range(_MOST_AXES + 1)
    ]
    parts = ", ".join([ranked_name("tensor_nil", dtype), *fields])
    return f"type {ranked_name('tensor_t', dtype)} {{ {parts} }}\n"


def define_ranked(mod: IRModule, dtype: str) -> None:
    """Add the functions for tensors of any size, if the module lacks them."""
    name = lambda canonical: ranked_name(canonical, dtype)  # noqa: E731
    if name("tensor_take") in mod:
        return
    element, ranks = name("tensor_t"), range(_MOST_AXES + 1)
    take = [f"{name(f'tensor{n}')}(%t) => {name(f'tensor{n}')}({_TAKE})" for n in ranks if n > 0]
    grow = [
        f"{name(f'tensor{n}')}(%t) => {name(f'tensor{n + 1}')}(expand_dims(%t, axis=0))"
        for n in ranks[:-1]
    ]
    join = [
        f"{name(f'tensor{n}')}(%t) => match? (%y) "
        f"{{ {name(f'tensor{n}')}(%u) => {name(f'tensor{n}')}(concatenate((%t, %u), axis=0)) }}"
        for n in ranks[1:]
    ]
    unstack = [
        _unstack(name(f"tensor_array_unstack_tensor{n}"), _tensor(dtype, [Any()] * n), element,
                 name(f"tensor{n - 1}"))
        for n in ranks[1:]
    ]  # fmt: skip
    _add(
        mod,
        f"def @{name('tensor_take')}(%x: {element}, %lower: int32, %upper: int32) -> {element} "
        f"{{ match? (%x) {{ {', '.join(take)} }} }}\n"
        f"def @{name('tensor_expand_dims')}(%x: {element}) -> {element} "
        f"{{ match? (%x) {{ {', '.join(grow)} }} }}\n"
        f"def @{name('tensor_concatenate')}(%x: {element}, %y: {element}) -> {element} "
        f"{{ match? (%x) {{ {', '.join(join)} }} }}\n" + "".join(unstack)
        + _array(name, element, name("tensor_nil"))
        + _split(name, name, element, element)
        + _concat(name, name, element)
        + _stack(name, name, element, element),
    )  # fmt: skip


def define_static(mod: IRModule, dtype: str, shape: Sequence[Dim]) -> None:
    """Add the types and the functions for tensors of one shape, if the module lacks them."""
    if static_name("tensor_get_data", dtype, shape) in mod:
        return
    named = lambda s: lambda canonical: static_name(canonical, dtype, s)  # noqa: E731
    rows, stacked = [Any(), *shape[1:]], [Any(), *shape]
    for each in [shape, stacked, *([rows, shape[1:]] if shape else [])]:
        _define_element(mod, dtype, each)
    name, more = named(shape), named(stacked)
    element, made = name("tensor_t"), name("tensor_constructor")
    _add(
        mod,
        f"def @{name('tensor_get_data')}(%x: {element}) -> {_tensor(dtype, shape)} "
        f"{{ match? (%x) {{ {made}(%t) => %t }} }}\n"
        f"def @{name('tensor_expand_dims')}(%x: {element}) -> {more('tensor_t')} {{ match? (%x) "
        f"{{ {made}(%t) => {more('tensor_constructor')}(expand_dims(%t, axis=0)) }} }}\n"
        + _stack(name, more, element, more("tensor_t")),
    )
    if shape:
        row, rest = named(rows), named(shape[1:])
        _add(
            mod,
            _unstack(name("tensor_array_unstack"), _tensor(dtype, shape), rest("tensor_t"),
                     rest("tensor_constructor"))
            + _split(name, row, element, row("tensor_t"))
            + _concat(name, row, row("tensor_t")),
        )  # fmt: skip


def _define_element(mod: IRModule, dtype: str, shape: Sequence[Dim]) -> None:
    """Add the type of an element, arrays of it, and taking and joining its rows."""
    name = lambda canonical: static_name(canonical, dtype, shape)  # noqa: E731
    if name("tensor_array") in mod:
        return
    element, made = name("tensor_t"), name("tensor_constructor")
    text = f"type {element} {{ {name('tensor_nil')}, {made}({_tensor(dtype, shape)}) }}\n"
    _add(mod, text + _array(name, element, name("tensor_nil")))
    if not shape:
        return
    rows = [Any(), *shape[1:]]
    if any(isinstance(d, int) for d in shape[:1]):
        _define_element(mod, dtype, rows)
    result, join = (static_name(n, dtype, rows) for n in ("tensor_t", "tensor_constructor"))
    _add(
        mod,
        f"def @{name('tensor_take')}(%x: {element}, %lower: int32, %upper: int32) -> {result} "
        f"{{ match? (%x) {{ {made}(%t) => {join}({_TAKE}) }} }}\n"
        f"def @{name('tensor_concatenate')}(%x: {element}, %y: {element}) -> {result} "
        f"{{ match? (%x) {{ {made}(%t) => match? (%y) "
        f"{{ {made}(%u) => {join}(concatenate((%t, %u), axis=0)) }} }} }}\n",
    )


# ---- the text of functions, whose names `name` makes

_Name = Callable[[str], str]
_TAKE = (
    "dyn.strided_slice(%t, reshape(%lower, newshape=[1]), reshape(%upper, newshape=[1]), "
    'ones(shape=[1], dtype="int32"), begin=None, end=None, strides=None, axes=None)'
)


def _array(name: _Name, element: str, nothing: str) -> str:
    array, scatter = name("tensor_array"), name("tensor_array_scatter")
    read, write = name("tensor_array_read"), name("tensor_array_write")
    helper = name("tensor_array_scatter_helper")
    return f"""
def @{array}(%n: int32) -> List[{element}] {{
  if (%n == 0) {{ Nil }} else {{ Cons({nothing}, @{array}(%n - 1)) }}
}}
def @{read}(%array: List[{element}], %n: int32) -> {element} {{ @nth(%array, %n) }}
def @{write}(%array: List[{element}], %n: int32, %value: {element}) -> List[{element}] {{
  @update(%array, %n, %value)
}}
def @{helper}(%array: List[{element}], %current: int32, %limit: int32, %indices: {_INDICES},
              %values: List[{element}]) -> List[{element}] {{
  if (%current == %limit) {{ %array }} else {{
    @{helper}(@{write}(%array, take(%indices, %current), @{read}(%values, %current)),
              %current + 1, %limit, %indices, %values)
  }}
}}
def @{scatter}(%array: List[{element}], %indices: {_INDICES}, %values: List[{element}])
    -> List[{element}] {{
  @{helper}(%array, 0, {_COUNT.format("%indices")}, %indices, %values)
}}
"""


_COUNT = 'take(shape_of({}, dtype="int32"), 0)'


def _unstack(function: str, tensor: str, element: str, made: str) -> str:
    return f"""
def @{function}_helper(%i: int32, %up: int32, %t: {tensor}) -> List[{element}] {{
  if (%i == %up) {{ Nil }} else {{
    Cons({made}(take(%t, %i, axis=0)), @{function}_helper(%i + 1, %up, %t))
  }}
}}
def @{function}(%t: {tensor}) -> List[{element}] {{
  @{function}_helper(0, {_COUNT.format("%t")}, %t)
}}
"""


def _split(name: _Name, row: _Name, element: str, result: str) -> str:
    helper, write, take = name("ta_split_helper"), row("tensor_array_write"), name("tensor_take")
    return f"""
def @{helper}(%array: List[{result}], %value: {element}, %offset: int32, %current: int32,
              %limit: int32, %lengths: {_INDICES}) -> List[{result}] {{
  if (%current == %limit) {{ %array }} else {{
    @{write}(
      @{helper}(%array, %value, %offset + take(%lengths, %current), %current + 1, %limit, %lengths),
      %current,
      @{take}(%value, %offset, %offset + take(%lengths, %current)))
  }}
}}
def @{name("tensor_array_split")}(%array: List[{result}], %value: {element}, %lengths: {_INDICES})
    -> List[{result}] {{
  @{helper}(%array, %value, 0, 0, {_COUNT.format("%lengths")}, %lengths)
}}
"""


def _concat(name: _Name, row: _Name, result: str) -> str:
    concat = name("tensor_array_concat")
    return f"""
def @{concat}(%array: List[{result}]) -> {result} {{
  match? (%array) {{
    Nil => {row("tensor_nil")},
    Cons(%hd, %tl) => match? (%tl) {{
      Nil => %hd,
      _ => @{row("tensor_concatenate")}(%hd, @{concat}(%tl)),
    }},
  }}
}}
"""


def _stack(name: _Name, more: _Name, element: str, result: str) -> str:
    stack, helper = name("tensor_array_stack"), name("tensor_array_gather_helper")
    return f"""
def @{stack}(%array: List[{element}]) -> {result} {{
  let %rows = @map(@{name("tensor_expand_dims")}, %array);
  @foldl(@{more("tensor_concatenate")}, @hd(%rows), @tl(%rows))
}}
def @{helper}(%array: List[{element}], %found: List[{element}], %current: int32,
              %indices: {_INDICES}) -> {result} {{
  if (%current == 0) {{ @{stack}(%found) }} else {{
    @{helper}(%array,
      Cons(@{name("tensor_array_read")}(%array, take(%indices, %current - 1)), %found),
      %current - 1, %indices)
  }}
}}
def @{name("tensor_array_gather")}(%array: List[{element}], %indices: {_INDICES}) -> {result} {{
  @{helper}(%array, Nil, {_COUNT.format("%indices")}, %indices)
}}
"""


class TensorArrayOps:
    """Tensor arrays of one dtype.

    Args:
        prelude: Whose module gets the definitions.
        dtype: The dtype of the tensors.
    """

    def __init__(self, prelude: Object, dtype: str) -> None:
        self.prelude, self.dtype = prelude, dtype

    def register(self) -> None:
        """Add the definitions to the module."""
        define_ranked(self.prelude.mod, self.dtype)

    def get_name(self, canonical: str) -> str:
        """Return the name of a definition: "tensor_array_read" gives tensor_array_read_float32."""
        return ranked_name(canonical, self.dtype)

    def get_global_var(self, canonical: str) -> Object:
        """Return a function."""
        return self.prelude.mod.get_global_var(self.get_name(canonical))

    def get_type(self, canonical: str) -> Object:
        """Return a type."""
        return self.prelude.mod.get_global_type_var(self.get_name(canonical))

    def get_ctor(self, canonical: str) -> Object:
        """Return a constructor of the elements' type."""
        name = self.get_name(canonical)
        found = self.prelude.mod.get_type(self.get_name("tensor_t"))
        return next(part for part in found if part.name_hint == name)


class StaticTensorArrayOps(TensorArrayOps):
    """Tensor arrays of one dtype and shape.

    Args:
        prelude: Whose module gets the definitions.
        dtype: The dtype of the tensors.
        shape: Their shape.
        batch_dim: None; other values are not supported.

    Raises:
        InvalidOption: A batch_dim.
    """

    def __init__(
        self, prelude: Object, dtype: str, shape: Sequence[Dim], batch_dim: int | None = None
    ) -> None:
        super().__init__(prelude, dtype)
        if batch_dim is not None:
            raise InvalidOption(f"batch_dim={batch_dim}", "None")
        self.shape = list(shape)

    def register(self) -> None:
        """Add the definitions to the module."""
        define_static(self.prelude.mod, self.dtype, self.shape)

    def get_name(self, canonical: str) -> str:
        """Return the name of a definition for this shape."""
        return static_name(canonical, self.dtype, self.shape)

    def define_tensor_array_scatter(
        self, indices_shape: Sequence[Dim] | None = None, force_update: bool = False
    ) -> None:
        """Define scattering, which takes any number of indices."""
        self.register()

    def define_tensor_array_split(
        self,
        value_shape: Sequence[Dim] | None = None,
        lengths_shape: Sequence[Dim] | None = None,
        force_update: bool = False,
    ) -> None:
        """Define splitting, which takes any number of lengths."""
        self.register()
