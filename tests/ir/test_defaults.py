"""What the command line and Python share by default."""

from convoy.backends.registry import BUILT_IN
from convoy.ir.defaults import BACKENDS, LIBRARIES


def test_placement_chooses_from_every_backend_that_is_built_in() -> None:
    assert tuple(BUILT_IN) == BACKENDS
    assert {*BACKENDS} - {*LIBRARIES} == {"tvm"}, "whose kernels are not tuned"
