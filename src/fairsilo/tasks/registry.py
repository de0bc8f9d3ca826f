"""Tasks by name: what a data set's `task` stands for."""

from __future__ import annotations

from collections.abc import Callable

from fairsilo.core.task import Task
from fairsilo.errors import FairsiloError, nearest
from fairsilo.plugins import called, found_by, is_reference, registered
from fairsilo.tasks.classify import Classify

Maker = Callable[..., Task]  # called with the number of classes and, where one is chosen, the metric to report

GROUP = "fairsilo.tasks"
TASKS: dict[str, Maker] = {"classify": Classify}
AUTO = "auto"  # the metric of the task's own choice


def task_of(name: str, classes: int, metric: str = AUTO) -> Task:
    """The task `name` for data with so many classes, reporting `metric`.

    Args:
        name: A task of fairsilo's, one that an installed package offers (entry points of the group `fairsilo.tasks`),
            or `package:Task`.
        classes: How many the data have.
        metric: The name of the metric that is reported; `auto` for the task's own choice.

    Raises:
        FairsiloError: There is no such task, or it has no such metric.
    """
    made, wanted = _maker(name), f"task {name!r}"
    task: Task = called(made, (classes,), wanted, "(classes)")
    if metric == AUTO:
        return task
    known = [one.name for one in task.metrics]
    if metric not in known:
        hint = nearest(metric, known)
        raise FairsiloError(f"evaluate.metric is {metric!r}, which the task {name!r} does not have{hint}")
    return called(made, (classes, metric), wanted, "(classes, metric)")  # type: ignore[no-any-return]


def _maker(name: str) -> Maker:
    if name in TASKS:
        return TASKS[name]
    if has_name(name) or is_reference(name):
        return found_by(GROUP, name, "task")  # type: ignore[no-any-return]
    raise FairsiloError(f"unknown task {name!r}{nearest(name, (*TASKS, *registered(GROUP)))}")


def has_name(name: str) -> bool:
    """Whether a task is known by this name: one of fairsilo's, or offered by an installed package."""
    return name in TASKS or name in registered(GROUP)


def names_code(name: str) -> bool:
    """Whether making this task imports code that the name itself points to."""
    return not has_name(name) and is_reference(name)
