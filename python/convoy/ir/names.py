"""Names of module attributes that several packages read."""

#: The names of the outputs of ``main``, in order; of modules whose model names them.
OUTPUT_NAMES = "convoy.output_names"

#: True for networks of Relay, whose relu, clip, maximum and minimum of NaN are as in TVM; those of
#: other networks are NaN.
IGNORES_NAN = "convoy.ignores_nan"
