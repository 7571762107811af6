"""Base class of the graph passes: one walk over the bindings of a straight-line function.

A pass subclasses :class:`Rewriter` and returns the replacement of each operator call. The walk
renames arguments, emits, infers types and folds constants.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import tvm
from tvm import relax
from tvm.tirx import PrimFunc

from .expr import have_same_type, is_const, layer_of, op_name, shape_of, with_layer
from .fold import fold_call
from .function import bindings_of, count_uses, main_function, result_of


def _is_canonical(
    mod: tvm.IRModule, bindings: Sequence[relax.Binding], uses: Counter[relax.Var]
) -> bool:
    """Return whether the entry function is one dataflow block, its values and all kernels are used,
    and none is an alias: nothing for the passes behind a walk."""
    plain = len(main_function(mod)[1].body.blocks) == 1 and all(
        isinstance(binding, relax.VarBinding)
        and isinstance(binding.value, (relax.Call, relax.TupleGetItem))
        and uses[binding.var]
        for binding in bindings
    )
    if not plain or len(mod.functions) == 1:
        return plain
    calls = [b.value for b in bindings if isinstance(b.value, relax.Call)]
    named = (part for call in calls for part in (call.op, *call.args))
    return len(mod.functions) == 1 + len({v for v in named if isinstance(v, tvm.ir.GlobalVar)})


class _WouldEmit(Exception):
    """A rewriter that only looks emits nothing."""


class Rewriter:
    """Rebuilds the entry function of a module binding by binding.

    Subclasses override :meth:`rewrite`. While it runs, ``self.uses`` counts the reads of the *old*
    variables and ``self.values`` maps them to the expressions bound to them, ``self.old`` is the
    binding being visited, ``self.value_of`` maps each emitted variable to its expression.
    """

    #: Operators whose calls :meth:`rewrite` receives; None for every call.
    ops: ClassVar[frozenset[str] | None] = None
    #: Whether calls have their type inferred before they reach :meth:`rewrite`; a pass that
    #: changes dtypes cannot have that, since operands may not fit together yet.
    infer_first: ClassVar[bool] = True

    def __init__(self) -> None:
        self.builder = relax.BlockBuilder()
        self.renamed: dict[relax.Var, relax.Expr] = {}
        self.value_of: dict[relax.Var, relax.Expr] = {}
        self.uses: Counter[relax.Var] = Counter()
        self.values: dict[relax.Var, relax.Expr] = {}
        self.old: relax.Binding = None
        self._reshapes: dict[tuple[relax.Expr, tuple[int, ...]], relax.Expr] = {}
        self._looks = False  # whether something is to be changed, without changing it

    # -- to override ---------------------------------------------------------------------------

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        """Replacement of ``call`` (arguments already renamed), or None to keep it."""
        return None

    def takes(self, value: relax.Expr) -> bool:
        """Return whether :meth:`rewrite` receives a value of the old function. With ``ops``, a
        module without any such value is returned unchanged."""
        name = op_name(value)
        return bool(name) and (self.ops is None or name in self.ops)

    def start(self, func: relax.Function) -> None:
        """Prepare for the walk; ``self.builder`` already has its dataflow scope."""

    def finish_output(self, expr: relax.Expr, declared: tvm.ir.Type) -> relax.Expr:
        """Convert a tensor that the function returns; ``declared`` is its old type."""
        return expr

    # -- the walk ------------------------------------------------------------------------------

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        gv, func = main_function(mod)
        bindings = bindings_of(func)
        if self.ops is not None and not any(self.takes(binding.value) for binding in bindings):
            return mod
        self.uses = count_uses(func)
        self.values = {binding.var: binding.value for binding in bindings}
        params = func.params[:]
        self.renamed |= {param: param for param in params}
        if self._changes_nothing(mod, bindings):
            return mod
        kernels = {v: f for v, f in mod.functions.items() if isinstance(f, PrimFunc)}
        if kernels:  # whose names others do not get
            self.builder = relax.BlockBuilder(tvm.IRModule(kernels))
        builder = self.builder
        with builder.function("main", params, attrs=dict(func.attrs or {})):
            with builder.dataflow():
                self.start(func)
                for binding in bindings:
                    self.old = binding
                    self._visit(binding)
                result = self._output(result_of(func))
            builder.emit_func_output(result)
        return self._replace(mod, gv, builder.get())

    def emit(self, expr: relax.Expr, name: str = "") -> relax.Expr:
        """Bind ``expr`` and return its variable; a constant where it folds to one."""
        if isinstance(expr, relax.Var) or is_const(expr):
            return expr
        if self._looks:
            raise _WouldEmit
        if self.old is not None:
            expr = with_layer(expr, layer_of(self.old.value))
        expr = self.builder.normalize(expr)
        if isinstance(expr, relax.Call):
            folded = fold_call(expr)
            if folded is not None:
                return folded
        var = self.builder.emit(expr, name)
        self.value_of[var] = expr
        return var

    def producer(self, expr: relax.Expr, name: str = "") -> relax.Call | None:
        """The call that ``expr`` is bound to, if it is one (of operator ``name`` when given)."""
        value = self.value_of.get(expr) if isinstance(expr, relax.Var) else None
        if isinstance(value, relax.Call) and (not name or op_name(value) == name):
            return value
        return None

    def single_use(self, old: relax.Expr) -> relax.Call | None:
        """The old call that an old value is bound to, if it is one and the value is read once."""
        value = self.values.get(old) if isinstance(old, relax.Var) else None
        return value if isinstance(value, relax.Call) and self.uses[old] == 1 else None

    def reshaped(self, expr: relax.Expr, shape: tuple[int, ...]) -> relax.Expr:
        """``expr`` in another shape: the value that was reshaped to it, where that has it."""
        while (made := self.producer(expr, "relax.reshape")) is not None:
            expr = made.args[0]
        if shape_of(expr) == shape:
            return expr
        if (expr, shape) not in self._reshapes:
            self._reshapes[expr, shape] = self.emit(relax.op.reshape(expr, shape))
        return self._reshapes[expr, shape]

    def rename(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Var):
            return self.renamed.get(expr, expr)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.rename(field) for field in expr.fields[:]])
        if isinstance(expr, relax.TupleGetItem):
            source = self.rename(expr.tuple_value)
            if isinstance(source, relax.Tuple):
                return source.fields[expr.index]
            return relax.TupleGetItem(source, expr.index)
        if isinstance(expr, relax.Call):
            old = expr.args[:]
            args = [self.rename(arg) for arg in old]
            # Inferring the type of a convolution again takes 0.6 ms.
            same = all(map(have_same_type, args, old))
            return relax.Call(
                expr.op, args, expr.attrs, expr.ty_args, expr.span, expr.ty if same else None
            )
        return expr

    def _changes_nothing(self, mod: tvm.IRModule, bindings: Sequence[relax.Binding]) -> bool:
        """Return whether the function would be rebuilt as it is. Most passes find nothing to do in
        most networks, which a copy of the rewriter sees in a fraction of the time: it walks the
        function until something is to be emitted."""
        own = type(self)
        walk = ("emit", "rename", "finish_output")
        inherits = all(getattr(own, name) is getattr(Rewriter, name) for name in walk)
        if not inherits or not _is_canonical(mod, bindings, self.uses):
            return False
        probe = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (dict, list, set)):
                setattr(probe, name, copy.copy(value))
        probe.builder, probe._looks = relax.BlockBuilder(), True
        try:
            probe.start(main_function(mod)[1])
            return not any(map(probe._would_change, bindings))
        except Exception:  # _WouldEmit, or one that the walk itself will raise
            return False

    def _would_change(self, binding: relax.Binding) -> bool:
        value, self.old = binding.value, binding
        if self.takes(value) and self.rewrite(value, value) is not None:
            return True
        self.renamed[binding.var], self.value_of[binding.var] = binding.var, value
        return isinstance(value, relax.Call) and fold_call(value) is not None

    def _visit(self, binding: relax.Binding) -> None:
        value = binding.value
        if isinstance(binding, relax.MatchCast):
            # Shapes are static, so a cast adds nothing.
            self.renamed[binding.var] = self.rename(value)
            return
        new = self.rename(value)
        if isinstance(value, relax.Call):
            if self.takes(value):
                if self.infer_first:
                    new = self.builder.normalize(new)
                replacement = self.rewrite(new, value)
                if replacement is not None:
                    new = replacement
        elif isinstance(value, (relax.Var, relax.Tuple)) or is_const(value):
            self.renamed[binding.var] = new  # an alias
            return
        if isinstance(new, relax.Tuple):  # items are looked up by rename
            self.renamed[binding.var] = new
        else:
            self.renamed[binding.var] = self.emit(new, binding.var.name)

    def _output(self, old: relax.Expr) -> relax.Expr:
        def leaf(new: relax.Expr, declared: tvm.ir.Type) -> relax.Expr:
            if isinstance(declared, tvm.ir.TupleType):
                if isinstance(new, relax.Var) and isinstance(self.value_of.get(new), relax.Tuple):
                    new = self.value_of[new]
                if not isinstance(new, relax.Tuple):
                    count = len(declared.fields)
                    new = relax.Tuple([self.emit(relax.TupleGetItem(new, i)) for i in range(count)])
                pairs = zip(new.fields, declared.fields, strict=True)
                return relax.Tuple([leaf(field, ty) for field, ty in pairs])
            return self.builder.emit_output(self.finish_output(new, declared))

        return leaf(self.rename(old), old.ty)

    def _replace(
        self, mod: tvm.IRModule, gv: tvm.ir.GlobalVar, built: tvm.IRModule
    ) -> tvm.IRModule:
        func, name = built["main"], gv.name_hint
        if func.attrs and "global_symbol" in func.attrs and name != "main":
            func = func.with_attr("global_symbol", name)
        new = mod.clone()
        del new[gv]  # whose type may be another one now
        for added, kernel in built.functions.items():
            if isinstance(kernel, PrimFunc):
                new[added] = kernel
        new[name] = func
        new = relax.transform.CanonicalizeBindings()(new)
        return relax.transform.DeadCodeElimination([name])(new)
