"""Names of module attributes that several rooms read."""

#: The names of the outputs of ``main``, in order; of modules whose model names them.
OUTPUT_NAMES = "convoy.output_names"
