"""Trackers: listeners that copy a run's numbers to TensorBoard, MLflow or Weights & Biases while it goes on.

from fairsilo.tracking import MLflow, TensorBoard
fairsilo.run(method="fedavg", listener=[TensorBoard("logs"), MLflow("http://host:5000")])
"""

from __future__ import annotations

from fairsilo.tracking.mlflow import MLflow
from fairsilo.tracking.tensorboard import TensorBoard
from fairsilo.tracking.tracker import Tracker
from fairsilo.tracking.wandb import WandB

__all__ = ["MLflow", "TensorBoard", "Tracker", "WandB"]
