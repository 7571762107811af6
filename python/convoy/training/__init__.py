"""Training: compile a network's loss into a module for one step of gradient descent."""

from .network import LossModule, Network
from .optimizers import Adam, Group, Sgd
from .resnet import resnet50, small_resnet
from .session import TrainingSession
from .step import TrainStep, train_step
from .update import Scaling

__all__ = [
    "Adam",
    "Group",
    "LossModule",
    "Network",
    "Scaling",
    "Sgd",
    "TrainStep",
    "TrainingSession",
    "resnet50",
    "small_resnet",
    "train_step",
]
