"""Tasks by name: what a data set's `task` stands for."""

from __future__ import annotations

from collections.abc import Callable

from fairsilo.core.task import Task
from fairsilo.errors import FairsiloError, nearest
from fairsilo.tasks.classify import Classify

Maker = Callable[..., Task]  # called with the number of classes and, where one is chosen, the metric to report

TASKS: dict[str, Maker] = {"classify": Classify}


def task_of(name: str, classes: int, metric: str | None = None) -> Task:
    """The task `name` for data with so many classes, reporting `metric` (by default the task's own choice).

    Raises:
        FairsiloError: There is no such task, or it has no such metric.
    """
    if name not in TASKS:
        raise FairsiloError(f"unknown task {name!r}{nearest(name, TASKS)}")
    task = TASKS[name](classes)
    if metric is None:
        return task
    known = [one.name for one in task.metrics]
    if metric not in known:
        hint = nearest(metric, known)
        raise FairsiloError(f"evaluate.metric is {metric!r}, which the task {name!r} does not have{hint}")
    return TASKS[name](classes, metric)
