"""CombineParallelConv2D, Dense and BatchMatmul: one large operator for several of one input.

A branch is such an operator and the elementwise ones behind it, as long as each has one user.
Branches that fit are combined as far as they are alike, and split again behind that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Call, Expr, Function, Tuple, TupleGetItem, Var, op_call
from convoy.relay.equality import same_attrs
from convoy.relay.layout import layout
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.rewriting import (
    expr_pass,
    op_name,
    substitute,
    tensor_type,
    uses,
)
from convoy.relay.types import TensorType
from convoy.relay.visit import bound_vars, free_vars, post_order

Branch = list[Call]

# Operators that act on single elements, after broadcasting.
_ELEMENTWISE = {
    "add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "nn.bias_add",
    "nn.relu", "nn.leaky_relu", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "negative",
    "abs", "clip", "cast", "erf", "floor", "ceil", "round", "copy", "fast_exp", "fast_tanh",
}  # fmt: skip


class _Combiner:
    """Combines branches of one operator along an axis of its result."""

    name = ""

    def __init__(self, min_branches: int) -> None:
        self.min_branches = min_branches

    def supported(self, call: Call) -> bool:
        """Check whether a call may start a branch."""
        return True

    def fits(self, a: Call, b: Call) -> bool:
        """Check whether two first calls may be combined."""
        raise NotImplementedError

    def first(self, branches: Sequence[Branch]) -> Call:
        """Return the combined first call."""
        raise NotImplementedError

    def axis(self, call: Call) -> int:
        """Return the axis of a result that branches are combined along."""
        raise NotImplementedError

    def back(self, call: Call) -> int:
        """Return that axis counted from the end, for operators that broadcast to more axes."""
        return self.axis(call) - len(tensor_type(call).shape)

    def size(self, call: Call) -> int:
        """Return the size of a first call's result along the axis."""
        return int(tensor_type(call).shape[self.axis(call)])  # type: ignore[arg-type]

    # ---- arguments of the operators behind the first one

    def arg_fits(self, a: Call, b: Call, i: int, root: Call) -> bool:
        """Check whether arguments `i` of two calls may be combined."""
        ta, tb, out_a, out_b = map(tensor_type, (a.args[i], b.args[i], a, b))
        back = self.back(root)
        at = back + len(ta.shape)
        if ta.dtype != tb.dtype or len(ta.shape) != len(tb.shape) or at < 0:
            return False
        if ta.shape[at] != out_a.shape[back] or tb.shape[at] != out_b.shape[back]:
            return False
        pairs = zip(ta.shape, tb.shape, strict=True)
        return all(x == y for j, (x, y) in enumerate(pairs) if j != at)

    def combined_arg(self, args: Sequence[Expr], roots: Sequence[Call]) -> Expr:
        """Return the combined argument, given the first calls of the branches."""
        axis = self.back(roots[0]) + len(tensor_type(args[0]).shape)
        return op_call("concatenate", [Tuple(args)], axis=axis)

    def split(self, combined: Expr, branches: Sequence[Branch], depth: int) -> list[Expr]:
        """Return the results of the branches behind `depth` calls."""
        results: list[Expr] = []
        begin = 0
        for branch in branches:
            axis = self.back(branch[0]) + len(tensor_type(branch[depth - 1]).shape)
            size = self.size(branch[0])
            results.append(
                op_call(
                    "strided_slice", [combined], begin=[0] * axis + [begin],
                    end=[-1] * axis + [size], strides=[1] * (axis + 1),
                    slice_mode="size", axes=None,
                )
            )  # fmt: skip
            begin += size
        return results

    # ---- the pass

    def run(self, function: Function) -> Expr:
        """Combine all branches of a function."""
        users = uses(function)
        local = set(bound_vars(function)) - set(function.params)
        groups: dict[int, list[list[Branch]]] = {}
        for node in post_order(function):
            if not isinstance(node, Call) or op_name(node) != self.name:
                continue
            if self.supported(node) and not _reads(node.args[1:], local):
                self._place(self._branch(node, users, local), groups)
        replaced: dict[int, Expr] = {}
        for root_groups in groups.values():
            for group in root_groups:
                if len(group) >= self.min_branches:
                    self._combine(group, replaced)
        return substitute(function, replaced) if replaced else function

    def _branch(self, call: Call, users: dict[int, list[Expr]], local: set[Var]) -> Branch:
        branch = [call]
        while len(users.get(id(branch[-1]), ())) == 1:
            user = users[id(branch[-1])][0]
            if not isinstance(user, Call) or op_name(user) not in _ELEMENTWISE:
                break
            if _reads([arg for arg in user.args if arg is not branch[-1]], local):
                break
            branch.append(user)
        return branch

    def _place(self, branch: Branch, groups: dict[int, list[list[Branch]]]) -> None:
        """Put a branch into the first group of its input that it fits."""
        found = groups.setdefault(id(branch[0].args[0]), [])
        for group in found:
            if self.fits(group[0][0], branch[0]):
                group.append(branch)
                return
        found.append([branch])

    def _combine(self, branches: list[Branch], replaced: dict[int, Expr]) -> None:
        combined, depth = self.first(branches), 1
        while depth < min(map(len, branches)) and self._alike(branches, depth):
            combined = self._next(combined, branches, depth)
            depth += 1
        for branch, result in zip(branches, self.split(combined, branches, depth), strict=True):
            replaced[id(branch[depth - 1])] = result

    def _alike(self, branches: list[Branch], depth: int) -> bool:
        first = branches[0]
        parent = _parent(first, depth)
        for branch in branches[1:]:
            call = branch[depth]
            if op_name(call) != op_name(first[depth]) or _parent(branch, depth) != parent:
                return False
            if not same_attrs(call.attrs, first[depth].attrs):
                return False
            for i in range(len(call.args)):
                if i != parent and not self.arg_fits(first[depth], call, i, first[0]):
                    return False
        return True

    def _next(self, combined: Call, branches: list[Branch], depth: int) -> Call:
        call, parent = branches[0][depth], _parent(branches[0], depth)
        args: list[Expr] = []
        for i in range(len(call.args)):
            parts = [branch[depth].args[i] for branch in branches]
            roots = [branch[0] for branch in branches]
            args.append(combined if i == parent else self.combined_arg(parts, roots))
        return Call(call.op, args, call.attrs)


def _reads(args: Sequence[Expr], local: set[Var]) -> bool:
    """Check for arguments that read local variables, of a let say.

    Where the first branch is computed, those of another one may not be bound yet.
    """
    return bool(local) and any(not local.isdisjoint(free_vars(arg)) for arg in args)


def _parent(branch: Branch, depth: int) -> int:
    """Return the position of the branch among the arguments of one of its calls."""
    return max(i for i, arg in enumerate(branch[depth].args) if arg is branch[depth - 1])


def _same_sizes(a: TensorType, b: TensorType, but: int) -> bool:
    if a.dtype != b.dtype or len(a.shape) != len(b.shape):
        return False
    pairs = zip(a.shape, b.shape, strict=True)
    return all(x == y for i, (x, y) in enumerate(pairs) if i != but)


def _with(call: Call, **changed: Any) -> dict[str, Any]:
    return {**dict(call.attrs or {}), **changed}


class _Conv2D(_Combiner):
    name = "nn.conv2d"

    def supported(self, call: Call) -> bool:
        attrs = call.attrs
        assert attrs is not None
        plain = all(layout(attrs[f]).is_plain for f in ("data_layout", "kernel_layout"))
        return attrs["groups"] == 1 and plain

    def axis(self, call: Call) -> int:
        assert call.attrs is not None
        return str(call.attrs["out_layout"] or call.attrs["data_layout"]).index("C")

    def _output_axis(self, call: Call) -> int:
        assert call.attrs is not None
        return str(call.attrs["kernel_layout"]).index("O")

    def fits(self, a: Call, b: Call) -> bool:
        assert a.attrs is not None and b.attrs is not None
        names = "strides padding dilation groups data_layout kernel_layout out_dtype out_layout"
        if any(a.attrs[f] != b.attrs[f] for f in names.split()):
            return False
        ta, tb = tensor_type(a.args[1]), tensor_type(b.args[1])
        return _same_sizes(ta, tb, self._output_axis(a))

    def first(self, branches: Sequence[Branch]) -> Call:
        call = branches[0][0]
        weights = Tuple([branch[0].args[1] for branch in branches])
        weight = op_call("concatenate", [weights], axis=self._output_axis(call))
        channels = sum(self.size(branch[0]) for branch in branches)
        return op_call("nn.conv2d", [call.args[0], weight], **_with(call, channels=channels))


class _FlatDense(_Combiner):
    name = "nn.dense"

    def axis(self, call: Call) -> int:
        return len(tensor_type(call).shape) - 1

    def fits(self, a: Call, b: Call) -> bool:
        assert a.attrs is not None and b.attrs is not None
        ta, tb = tensor_type(a.args[1]), tensor_type(b.args[1])
        return a.attrs["out_dtype"] == b.attrs["out_dtype"] and _same_sizes(ta, tb, 0)

    def first(self, branches: Sequence[Branch]) -> Call:
        call = branches[0][0]
        weights = Tuple([branch[0].args[1] for branch in branches])
        units = sum(self.size(branch[0]) for branch in branches)
        weight = op_call("concatenate", [weights], axis=0)
        return op_call("nn.dense", [call.args[0], weight], **_with(call, units=units))

    def arg_fits(self, a: Call, b: Call, i: int, root: Call) -> bool:
        """Check as for other operators; one number for all units is repeated for each."""
        ta, tb = tensor_type(a.args[i]), tensor_type(b.args[i])
        if ta.dtype != tb.dtype or len(ta.shape) != len(tb.shape):
            return False
        units = [(t.shape[-1:], tensor_type(c).shape[-1]) for t, c in ((ta, a), (tb, b))]
        return ta.shape[:-1] == tb.shape[:-1] and all(s in ((), (1,), (n,)) for s, n in units)

    def combined_arg(self, args: Sequence[Expr], roots: Sequence[Call]) -> Expr:
        axis = max(len(tensor_type(args[0]).shape) - 1, 0)
        parts: list[Expr] = []
        for arg, root in zip(args, roots, strict=True):
            found, units = tensor_type(arg).shape, self.size(root)
            part = arg if found else op_call("expand_dims", [arg], axis=-1, num_newaxis=1)
            if not found or (found[-1] == 1 and units > 1):
                part = op_call("repeat", [part], repeats=units, axis=axis)
            parts.append(part)
        return op_call("concatenate", [Tuple(parts)], axis=axis)


class _BatchMatmul(_Combiner):
    name = "nn.batch_matmul"

    def axis(self, call: Call) -> int:
        return 2

    def supported(self, call: Call) -> bool:
        assert call.attrs is not None
        return bool(call.attrs["transpose_b"]) and not call.attrs["transpose_a"]

    def fits(self, a: Call, b: Call) -> bool:
        assert a.attrs is not None and b.attrs is not None
        ta, tb = tensor_type(a.args[1]), tensor_type(b.args[1])
        return a.attrs["out_dtype"] == b.attrs["out_dtype"] and _same_sizes(ta, tb, 1)

    def first(self, branches: Sequence[Branch]) -> Call:
        call = branches[0][0]
        weights = Tuple([branch[0].args[1] for branch in branches])
        weight = op_call("concatenate", [weights], axis=1)
        return op_call("nn.batch_matmul", [call.args[0], weight], **dict(call.attrs or {}))

    def combined_arg(self, args: Sequence[Expr], roots: Sequence[Call]) -> Expr:
        return op_call("concatenate", [Tuple(args)], axis=-1)


class _BatchedDense(_Combiner):
    """Dense layers of one size as one batch_matmul over stacked weights."""

    name = "nn.dense"

    def axis(self, call: Call) -> int:
        return 0

    def fits(self, a: Call, b: Call) -> bool:
        assert a.attrs is not None and b.attrs is not None
        same = tensor_type(a.args[1]) == tensor_type(b.args[1])
        return a.attrs["out_dtype"] == b.attrs["out_dtype"] and same

    def first(self, branches: Sequence[Branch]) -> Call:
        data, weights = (
            op_call("stack", [Tuple([branch[0].args[i] for branch in branches])], axis=0)
            for i in (0, 1)
        )
        attrs = branches[0][0].attrs
        assert attrs is not None
        dtype = attrs["out_dtype"]
        return op_call("nn.batch_matmul", [data, weights], out_dtype=dtype, transpose_b=True)

    def arg_fits(self, a: Call, b: Call, i: int, root: Call) -> bool:
        ta, tb = tensor_type(a.args[i]), tensor_type(b.args[i])
        return ta == tb and len(ta.shape) <= len(tensor_type(root).shape)

    def combined_arg(self, args: Sequence[Expr], roots: Sequence[Call]) -> Expr:
        missing = len(tensor_type(roots[0]).shape) - len(tensor_type(args[0]).shape)
        parts = list(args)
        if missing:
            parts = [op_call("expand_dims", [a], axis=0, num_newaxis=missing) for a in parts]
        return op_call("stack", [Tuple(parts)], axis=0)

    def split(self, combined: Expr, branches: Sequence[Branch], depth: int) -> list[Expr]:
        parts = op_call("split", [combined], indices_or_sections=len(branches), axis=0)
        return [
            op_call("squeeze", [TupleGetItem(parts, i)], axis=[0]) for i in range(len(branches))
        ]


def _pass(name: str, combiner: _Combiner) -> Pass:
    return expr_pass(name, 4, combiner.run)


@register_pass
def CombineParallelConv2D(min_num_branches: int = 3) -> Pass:
    """Combine convolutions of one input, with the elementwise operators behind them.

    Args:
        min_num_branches: The least number of convolutions to combine.
    """
    return _pass("CombineParallelConv2d", _Conv2D(min_num_branches))


@register_pass
def CombineParallelDense(min_num_branches: int = 3, to_batch: bool = True) -> Pass:
    """Combine dense layers of one input, with the elementwise operators behind them.

    Args:
        min_num_branches: The least number of layers to combine.
        to_batch: Make one batch_matmul of layers of one size; False makes one large dense layer.
    """
    combiner = _BatchedDense if to_batch else _FlatDense
    return _pass("CombineParallelDense", combiner(min_num_branches))


@register_pass
def CombineParallelBatchMatmul(min_num_branches: int = 3) -> Pass:
    """Combine batched products of one input, with the elementwise operators behind them.

    Args:
        min_num_branches: The least number of products to combine.
    """
    return _pass("CombineParallelBatchMatmul", _BatchMatmul(min_num_branches))
