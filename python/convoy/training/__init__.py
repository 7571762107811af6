"""Training: compile a network's loss into a module for one step of gradient descent."""

from .network import LossModule, Network
from .resnet import resnet50, small_resnet
from .session import TrainingSession
from .step import Sgd, TrainStep, train_step

__all__ = [
    "LossModule",
    "Network",
    "Sgd",
    "TrainStep",
    "TrainingSession",
    "resnet50",
    "small_resnet",
    "train_step",
]
