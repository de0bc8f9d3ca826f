"""Tasks by name: what a data set's `task` stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fairsilo.core.task import Metric, Task
from fairsilo.errors import FairsiloError, nearest
from fairsilo.plugins import called, found_by, is_reference, registered
from fairsilo.tasks.classify import Classify
from fairsilo.tasks.metrics import METRICS
from fairsilo.tasks.next_character import NextCharacter
from fairsilo.tasks.options import Options
from fairsilo.tasks.regress import Regress
from fairsilo.tasks.segment import Segment

Maker = Callable[..., Task]  # called with the number of classes and, where one is chosen, the metric to report

GROUP = "fairsilo.tasks"
TASKS: dict[str, Maker] = {
    "classify": Classify,
    "segment": Segment,
    "next-character": NextCharacter,
    "regress": Regress,
}
AUTO = "auto"  # the metric of the task's own choice


def task_of(name: str, classes: int, metric: str = AUTO, options: Options | None = None) -> Task:
    """The task `name` for data with so many classes, reporting `metric`.

    Args:
        name: A task of fairsilo's, one that an installed package offers (entry points of the group `fairsilo.tasks`),
            or `package:Task`.
        classes: How many the data have.
        metric: The name of the metric that is reported; `auto` for the task's own choice.
        options: How the loss is computed; for tasks of fairsilo's own.

    Raises:
        FairsiloError: There is no such task, or it has no such metric, or no use for an option.
    """
    if name in METRICS:
        return _own(name, classes, metric, options or Options())
    if options and options.changed():
        raise FairsiloError(f"task.{next(iter(options.changed()))} is for tasks of fairsilo's own, not for {name!r}")
    made, wanted = _maker(name), f"task {name!r}"
    task: Task = called(made, (classes,), wanted, "(classes)")
    if metric == AUTO:
        return task
    _check_metric(name, metric, task.metrics)
    return called(made, (classes, metric), wanted, "(classes, metric)")  # type: ignore[no-any-return]


def _own(name: str, classes: int, metric: str, options: Options) -> Task:
    kind = TASKS[name]
    if metric == AUTO:
        return kind(classes, options=options)
    _check_metric(name, metric, METRICS[name])
    return kind(classes, metric, options=options)


def _check_metric(name: str, metric: str, known: Iterable[Metric]) -> None:
    names = [one.name for one in known]
    if metric not in names:
        hint = nearest(metric, names)
        raise FairsiloError(f"evaluate.metric is {metric!r}, which the task {name!r} does not have{hint}")


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
