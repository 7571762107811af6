"""The activations of an epilogue by name; :mod:`.activation_values` computes them.

A kernel computes them in float32. ``clip`` has two bounds, ``leaky_relu`` and ``elu`` a parameter
``alpha``. Hard sigmoid is not in the list: it is a ``clip`` of a scaled and shifted convolution.
"""

#: In an order that cost models have learned: new ones go to the end.
ACTIVATIONS = (
    *("none", "relu", "clip", "sigmoid", "silu", "gelu", "gelu_tanh", "hardswish", "leaky_relu"),
    *("tanh", "elu", "mish", "softplus"),
)
#: Those with a parameter ``alpha``: the slope, or minus the limit, below zero.
WITH_ALPHA = ("leaky_relu", "elu")
