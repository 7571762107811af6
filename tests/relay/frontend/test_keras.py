"""Keras models as Relay, against Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.errors import InvalidModel, InvalidOption, UnsupportedOp

from ..running import run_stock

RNG = np.random.default_rng(5)


@pytest.fixture(scope="module")
def keras() -> Any:
    return pytest.importorskip("keras")


def check(keras: Any, model: Any, x: np.ndarray, layout: str = "NCHW") -> None:
    """Compare with the model itself, images in the order of `layout`."""

    def ordered(array: np.ndarray) -> np.ndarray:
        first = layout == "NCHW" and array.ndim == 4
        return np.ascontiguousarray(np.moveaxis(array, -1, 1)) if first else array

    wanted = model(keras.ops.convert_to_tensor(x))
    wanted = [
        keras.ops.convert_to_numpy(w) for w in (wanted if isinstance(wanted, list) else [wanted])
    ]
    shape = {model.inputs[0]._keras_history[0].name: ordered(x).shape}
    mod, params = relay.frontend.from_keras(model, shape, layout)
    got = run_stock(mod, ordered(x), params=params)
    for found, want in zip(got, wanted, strict=True):
        np.testing.assert_allclose(found, ordered(want), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_images(keras: Any, layout: str) -> None:
    layers = keras.layers
    image = keras.Input((15, 18, 3))
    x = layers.Conv2D(6, 3, strides=2, padding="same", activation="relu")(image)
    x = layers.BatchNormalization()(x)
    y = layers.SeparableConv2D(6, 3, padding="same")(layers.DepthwiseConv2D(3, padding="same")(x))
    x = layers.Concatenate()([layers.Add()([x, y]), layers.PReLU(shared_axes=[1, 2])(y)])
    x = layers.Conv2DTranspose(4, 3, strides=2, padding="same")(
        layers.MaxPooling2D(3, 2, "same")(x)
    )
    x = layers.ZeroPadding2D(((1, 0), (0, 2)))(layers.UpSampling2D(2)(x))
    flat = layers.Dense(4, activation="softmax")(layers.Flatten()(layers.AveragePooling2D(3)(x)))
    model = keras.Model(image, [flat, x, layers.GlobalAveragePooling2D()(x)])
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.set_weights([RNG.uniform(0.5, 1.5, w.shape) for w in layer.get_weights()])
    check(keras, model, RNG.standard_normal((2, 15, 18, 3)).astype("float32"), layout)


def test_sequences(keras: Any) -> None:
    layers = keras.layers
    ids = keras.Input((6,), dtype="int32")
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(layers.Embedding(9, 5)(ids))
    x = layers.LayerNormalization()(layers.GRU(4, return_sequences=True)(x))
    x = layers.Add()([x, layers.MultiHeadAttention(2, 3)(x, x)])
    x = layers.TimeDistributed(layers.Dense(3, activation="tanh"))(x)
    model = keras.Model(ids, [x, layers.SimpleRNN(2)(x)])
    check(keras, model, RNG.integers(0, 9, (2, 6)).astype("int32"))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_operations_on_tensors(keras: Any, layout: str) -> None:
    layers = keras.layers
    inputs = layers.Input((6, 5, 3))
    x = layers.Conv2D(4, 3, padding="same")(inputs)
    gate = layers.ReLU(6.0)(x + 3.0) / 6
    scale = layers.Dense(4)(layers.GlobalAveragePooling2D(keepdims=True)(x))
    x = 1 - x * gate * scale - layers.GlobalMaxPooling2D()(x)
    check(keras, keras.Model(inputs, x), RNG.normal(size=(1, 6, 5, 3)).astype("float32"), layout)
    numbers = layers.Input((3,), dtype="int32")
    check(keras, keras.Model(numbers, numbers / 2), np.array([[1, -2, 3]], "int32"))
    with pytest.raises(UnsupportedOp, match="operation without a converter: Sin"):
        relay.frontend.from_keras(keras.Model(inputs, keras.ops.sin(inputs)))


@pytest.mark.parametrize("kernel", [2, 3, 5])
@pytest.mark.parametrize("strides", [2, 3])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_output_padding(keras: Any, padding: str, strides: int, kernel: int) -> None:
    layers, inputs = keras.layers, keras.layers.Input((5, 2))
    results = [
        layers.Conv1DTranspose(3, kernel, strides=strides, padding=padding, output_padding=more)(
            inputs
        )
        for more in (None, *range(strides))
    ]
    x = RNG.normal(size=(1, 5, 2)).astype("float32")
    check(keras, keras.Model(inputs, results), x, "NHWC")


def test_mistakes_are_named(keras: Any) -> None:
    class Own(keras.layers.Layer):  # type: ignore[misc, name-defined]
        def call(self, x: Any) -> Any:
            return x

    model = keras.Sequential([keras.Input((4,)), Own()])
    with pytest.raises(UnsupportedOp, match=r"Own .*Dense.*from_onnx"):
        relay.frontend.from_keras(model)


def test_other_objects_are_refused() -> None:
    with pytest.raises(InvalidModel, match="a Keras model"):
        relay.frontend.from_keras(object())
    with pytest.raises(InvalidOption, match="NCHW"):
        relay.frontend.from_keras(object(), layout="CHWN")
