"""TypeFunctor, TypeVisitor and TypeMutator."""

from __future__ import annotations

import pytest

from convoy import relay
from convoy.relay import FuncType, RefType, TensorType, TupleType, Type, TypeVar
from convoy.relay.adt import Constructor

A, B = TypeVar("A"), TypeVar("B")
LIST = relay.GlobalTypeVar("List")
DATA = relay.TypeData(LIST, [A], [Constructor("Cons", [A, LIST(A)], LIST)])
NESTED = FuncType([TupleType([TensorType((2,)), RefType(A)]), LIST(A)], A, [A])


class Renaming(relay.TypeMutator):
    def visit_type_var(self, var: TypeVar) -> TypeVar:
        return B if var == A else var


def test_a_visitor_sees_all_parts() -> None:
    seen: list[str] = []

    class Tensors(relay.TypeVisitor):
        def visit_tensor_type(self, found: TensorType) -> None:
            seen.append(str(found))

    Tensors().visit(NESTED)
    assert seen == ["Tensor[(2), float32]"]


@pytest.mark.parametrize("type_", [NESTED, DATA, A, relay.IncompleteType(), TensorType((2,))])
def test_types_without_a_change_are_kept(type_: Type) -> None:
    assert relay.TypeMutator().visit(type_) is type_
    with pytest.raises(NotImplementedError):
        relay.TypeFunctor().visit(type_)


def test_a_mutator_rebuilds() -> None:
    found = Renaming().visit(NESTED)
    assert found.type_params == (B,)
    assert found.arg_types == (TupleType([TensorType((2,)), RefType(B)]), LIST(B))
    data = Renaming().visit(DATA)
    assert data.type_vars == (B,)
    assert data.constructors[0].inputs == (B, LIST(B))
