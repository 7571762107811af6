"""`relay.analysis`: questions about expressions and modules."""

from convoy.relay.analysis.call_graph import CallGraph
from convoy.relay.analysis.checks import (
    check_basic_block_normal_form,
    check_constant,
    well_formed,
)
from convoy.relay.analysis.counting import (
    count_layers,
    get_total_mac_number,
    list_fake_quantized_op_freqs,
    list_op_freqs,
)
from convoy.relay.analysis.extraction import (
    extract_fused_functions,
    extract_intermdeiate_expr,
    get_calibration_data,
    search_fc_transpose,
)
from convoy.relay.analysis.features import Feature, detect_feature
from convoy.relay.analysis.kinds import check_kind
from convoy.relay.analysis.variables import (
    all_dtypes,
    all_type_vars,
    all_vars,
    bound_type_vars,
    free_type_vars,
)
from convoy.relay.cases import unmatched_cases
from convoy.relay.equality import assert_structural_equal, structural_equal
from convoy.relay.hashing import structural_hash
from convoy.relay.transform.byoc.regions import AnnotatedRegionSet
from convoy.relay.visit import bound_vars, free_vars, post_order_visit

assert_alpha_equal = assert_graph_equal = assert_structural_equal
alpha_equal = graph_equal = structural_equal

__all__ = [
    "AnnotatedRegionSet",
    "CallGraph",
    "all_dtypes",
    "all_type_vars",
    "all_vars",
    "alpha_equal",
    "assert_alpha_equal",
    "assert_graph_equal",
    "bound_type_vars",
    "bound_vars",
    "check_basic_block_normal_form",
    "check_constant",
    "check_kind",
    "count_layers",
    "detect_feature",
    "extract_fused_functions",
    "extract_intermdeiate_expr",
    "Feature",
    "free_type_vars",
    "free_vars",
    "get_calibration_data",
    "graph_equal",
    "get_total_mac_number",
    "list_fake_quantized_op_freqs",
    "list_op_freqs",
    "post_order_visit",
    "search_fc_transpose",
    "structural_hash",
    "unmatched_cases",
    "well_formed",
]
