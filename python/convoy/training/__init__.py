"""Training: a network's loss becomes a module that takes one step of gradient descent."""

from .step import Sgd, TrainStep, train_step

__all__ = ["Sgd", "TrainStep", "train_step"]
