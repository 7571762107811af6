"""``assert`` statements about values of tensors, which a trace does not know."""

from __future__ import annotations

import dis
import sys
from pathlib import Path
from types import FrameType

_HERE = str(Path(__file__).parent)
_FAILS = "LOAD_ASSERTION_ERROR"
#: Between a jump and what follows it, by version of Python.
_FILLERS = ("CACHE", "NOT_TAKEN")


def passing() -> bool | None:
    """The truth value with which the caller's assertion passes; None where the caller asserts
    nothing.

    The caller is the innermost frame outside of this package, and about to test a value.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    if frame is None:
        return None
    code = [one for one in dis.get_instructions(frame.f_code) if one.opname not in _FILLERS]
    at = {one.offset: i for i, one in enumerate(code)}
    i = at.get(frame.f_lasti)
    if i is None:
        return None
    i += code[i].opname == "TO_BOOL"  # of Python 3.13
    jump = code[i]
    for truth in (True, False):
        if jump.opname.endswith(f"IF_{str(truth).upper()}"):
            if code[i + 1].opname == _FAILS:
                return truth
            if code[at[jump.argval]].opname == _FAILS:
                return not truth
    return None
