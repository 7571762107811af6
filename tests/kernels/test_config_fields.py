"""Nothing of a candidate's configuration reaches generated source but enumerations and integers."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.backends.kernels.cutlass import emit
from convoy.backends.kernels.cutlass.config import KernelConfig
from convoy.backends.kernels.cutlass.family import cutlass_backend
from convoy.backends.kernels.depthwise.family import depthwise_backend
from convoy.backends.kernels.depthwise.kernels import ELEMENT as DEPTHWISE_ELEMENT
from convoy.backends.kernels.sm90.dgrad import _IN_JSON
from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.backends.kernels.sm90.kernels import kernel_from_json
from convoy.backends.kernels.sm90.source import ELEMENT
from convoy.errors import InvalidOption
from convoy.ir.candidate import Candidate, make_config
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload

MARK = "convoy_evil"
EVIL = f"1\n__attribute__((constructor)) static void {MARK}() {{}}\n//"
_PADDED = (1, 1, 1, 1)
WORKLOADS = (
    Workload("fprop", 8, 13, 13, 512, 1000, 1, 1, epilogue=Epilogue(bias=True, activation="relu")),
    Workload("fprop", 8, 28, 28, 64, 64, 3, 3, padding=_PADDED),
    Workload("fprop", 8, 28, 28, 64, 64, 3, 3, dtype="int8", out_dtype="int32", acc_dtype="int32"),
    Workload(
        "fprop",
        8,
        28,
        28,
        64,
        64,
        3,
        3,
        dtype="int8",
        out_dtype="int8",
        acc_dtype="int32",
        epilogue=Epilogue(bias=True, activation="clip", clip_max=255),
    ),
    Workload("fprop", 8, 224, 224, 4, 64, 7, 7, stride=(2, 2), padding=(3, 3, 3, 3)),
    Workload("wgrad", 8, 224, 224, 4, 64, 7, 7, stride=(2, 2), padding=(3, 3, 3, 3)),
    Workload("dgrad", 8, 224, 224, 4, 64, 7, 7, stride=(2, 2), padding=(3, 3, 3, 3)),
    Workload("dgrad", 8, 28, 28, 64, 64, 3, 3, stride=(2, 2), padding=_PADDED),
    Workload("wgrad", 8, 28, 28, 64, 64, 3, 3, padding=_PADDED),
    Workload("fprop", 8, 28, 28, 64, 64, 3, 3, padding=_PADDED, groups=64),
    Workload("wgrad", 8, 28, 28, 64, 64, 3, 3, padding=_PADDED, groups=64),
    Workload("fprop", 8, 28, 28, 64, 64, 3, 3, padding=_PADDED, groups=8),
)
BACKENDS = (cutlass_backend(), sm90_backend(), depthwise_backend())


def _kernels():
    """(inverse of to_json, JSON of a kernel) for a few kernels of every family."""
    found = {}
    for backend in BACKENDS:
        for workload in WORKLOADS:
            proposed = backend.propose(workload, Device())
            for candidate in proposed if isinstance(proposed, list) else ():
                kernel = candidate.options()["kernel"]
                found.setdefault(
                    (kernel["family"], len(kernel)), (backend.family.kernel_from_json, kernel)
                )
    return list(found.values())


KERNELS = _kernels()
NAMES = {in_json: name for name, in_json in _IN_JSON.items()}
#: Values of all JSON types, near what fields hold and far from it.
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.integers(0, 300),
        st.floats(),
        st.sampled_from([EVIL, "", "relu", "float16", "float32", "cooperative", "splitk"]),
        st.text(max_size=20),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
WORD = re.compile(r"[A-Za-z_]\w*")


def test_every_family_is_here():
    families = {kernel["family"] for _, kernel in KERNELS}
    assert {"sm90_conv", "sm90_gemm", "sm90_wgrad", "sm80_strided_dgrad"} <= families
    assert "sm80_int8_conv" in families
    assert {"dgrad_strided", "stem_dgrad", "stem_fprop", "stem_wgrad"} <= families
    assert {"depthwise_conv", "depthwise_wgrad", "grouped_conv"} <= families


# Words of all that is emitted: of the templates, and of every value of an enumeration.
_ENUMERATIONS = [
    *(emit._ELEMENT, emit._ACTIVATION, emit._SCHEDULE, emit._SCHEDULER, emit._ITERATOR),
    *(emit._KERNEL, ELEMENT, DEPTHWISE_ELEMENT),
]
WORDS = {
    word
    for text in (
        *(from_json(kernel).source for from_json, kernel in KERNELS),
        *(text for names in _ENUMERATIONS for pair in names.items() for text in pair),
    )
    for word in WORD.findall(text)
}


@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(KERNELS), st.data())
def test_mutated_kernels_put_no_text_into_source(known, data):
    from_json, kernel = known
    mutated = dict(kernel)
    for _ in range(data.draw(st.integers(1, 2))):
        names = [*kernel, "cluster", "stages", "scheduler", "align", "warp", "dtype", "name"]
        mutated[data.draw(st.sampled_from(names))] = data.draw(VALUES)
    try:
        made = from_json(mutated)
    except InvalidOption:
        return
    comment, rest = made.source.split("\n", 1)
    assert re.fullmatch(r"// [\w-]+", comment, re.ASCII)
    assert set(WORD.findall(rest)) <= WORDS
    assert MARK not in comment
    json.dumps(made.to_json())
    hash(made)


@pytest.mark.parametrize(("from_json", "kernel"), KERNELS)
@pytest.mark.parametrize("value", [EVIL, [EVIL, 1], [1, EVIL], [EVIL] * 3, True, 1.5, None, {}])
def test_a_field_of_another_type_is_named(from_json, kernel, value):
    for name in kernel:
        if name == "family" or type(kernel[name]) is type(value):
            continue
        with pytest.raises(InvalidOption, match=NAMES.get(name, name)):
            from_json({**kernel, name: value})


def test_fields_are_checked_however_a_kernel_is_made():
    config = {"family": "sm90_conv", "tile": (128, 128, 64), "schedule": "pingpong"}
    KernelConfig(**config)
    with pytest.raises(InvalidOption, match="cluster"):
        KernelConfig(**config, cluster=(EVIL, 1))
    with pytest.raises(InvalidOption, match="tile"):
        KernelConfig(**{**config, "tile": [128, 128, 64]})
    with pytest.raises(InvalidOption, match="a JSON object"):
        kernel_from_json([1])


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize(
    "config",
    [
        "{}",
        "[]",
        "x",
        make_config(kernel=1, swizzle=0, split_k=1),
        make_config(kernel={}, swizzle=0, split_k=1),
        make_config(kernel={"family": ["sm90_conv"]}, swizzle=0, split_k=1),
        make_config(kernel=KERNELS[0][1], swizzle=True, split_k=1),
        make_config(kernel=KERNELS[0][1], swizzle=-1, split_k=1),
        make_config(kernel=KERNELS[0][1], swizzle=0, split_k="2"),
    ],
)
def test_a_bad_candidate_fails_alone(backend, config):
    bad = Candidate(backend.name, "bad", config)
    with pytest.raises(InvalidOption):
        backend.launch_of(bad)
    assert isinstance(backend.prepare([(WORKLOADS[0], bad)], Device())[bad], InvalidOption)
