"""The values that a `match` has no clause for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Literal

from convoy.errors import RelayTypeError
from convoy.relay.adt import (
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternWildcard,
)
from convoy.relay.module import IRModule

_Fit = Literal["yes", "no", "partly"]


def unmatched_cases(match: Match, mod: IRModule | None = None) -> list[Pattern]:
    """Return patterns for the values that no clause of a match fits; none if it is complete.

    Args:
        match: The match.
        mod: The module with the data types.

    Raises:
        RelayTypeError: A constructor of a type that the module does not have.
    """
    found: list[Pattern] = []
    candidates: list[Pattern] = [PatternWildcard()]
    while candidates:
        candidate = candidates.pop()
        for clause in match.clauses:
            fit = _fit(clause.lhs, candidate)
            if fit == "yes":
                break
            if fit == "partly":
                candidates += reversed(_refined(clause.lhs, candidate, mod))
                break
        else:
            found.append(candidate)
    return found


def _parts(pattern: Pattern) -> Sequence[Pattern]:
    """Return the patterns of the fields; a constructor written alone has any fields."""
    if isinstance(pattern, PatternConstructor) and not pattern.patterns:
        return [PatternWildcard() for _ in pattern.constructor.inputs]
    if isinstance(pattern, (PatternConstructor, PatternTuple)):
        return pattern.patterns
    return ()


def _fit(pattern: Pattern, candidate: Pattern) -> _Fit:
    """Compare a clause with all values of a candidate: all of them fit, none, or some do."""
    if not isinstance(pattern, (PatternConstructor, PatternTuple)):
        return "yes"
    if isinstance(candidate, PatternWildcard):
        return "partly"
    if isinstance(pattern, PatternConstructor):
        assert isinstance(candidate, PatternConstructor)
        if pattern.constructor is not candidate.constructor:
            return "no"
    fits = [_fit(p, c) for p, c in zip(_parts(pattern), _parts(candidate), strict=True)]
    return "no" if "no" in fits else "partly" if "partly" in fits else "yes"


def _refined(pattern: Pattern, candidate: Pattern, mod: IRModule | None) -> list[Pattern]:
    """Split a candidate where a clause is more special."""
    if not isinstance(pattern, (PatternConstructor, PatternTuple)):
        return [candidate]
    if isinstance(candidate, PatternWildcard):
        if isinstance(pattern, PatternTuple):
            return [PatternTuple([PatternWildcard() for _ in pattern.patterns])]
        return [
            PatternConstructor(c, [PatternWildcard() for _ in c.inputs])
            for c in _constructors(pattern.constructor, mod)
        ]
    choices = [_refined(p, c, mod) for p, c in zip(_parts(pattern), _parts(candidate), strict=True)]
    if isinstance(candidate, PatternConstructor):
        return [PatternConstructor(candidate.constructor, list(c)) for c in product(*choices)]
    return [PatternTuple(list(c)) for c in product(*choices)]


def _constructors(one: Constructor, mod: IRModule | None) -> Sequence[Constructor]:
    """Return all constructors of the type of one."""
    found = {} if mod is None else mod.type_definitions
    if one.belong_to not in found:
        raise RelayTypeError(
            f"a match of {one.belong_to}, which the module does not have",
            remedy="Pass the module with its definition",
        )
    return found[one.belong_to].constructors
