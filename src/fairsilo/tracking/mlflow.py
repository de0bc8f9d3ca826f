"""MLflow: a tracking server, or a folder."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from fairsilo.tracking.content import Facts
from fairsilo.tracking.tracker import Tracker

EXPERIMENT = "fairsilo"  # what runs belong to where MLFLOW_EXPERIMENT_NAME names nothing else
STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "stopped": "FAILED"}
AT_ONCE = {"metrics": 1000, "params": 100}  # what a server takes in one request
# a server that is down is noticed in seconds, and MLflow reports to nobody; what the user has set stays
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
One = TypeVar("One")


class MLflow(Tracker):
    """Tells an MLflow server, by requests that name the run: what the program does with `mlflow` itself is apart.

    Args:
        destination: The tracking URI, such as `http://host:5000`; by default `MLFLOW_TRACKING_URI`.
        anonymous: Call silos and domains by numbers.
    """

    name = "mlflow"
    module = "mlflow"

    def open(self, facts: Facts, run: str, told: int) -> str:
        for key, value in ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._metric: Any = Metric
        self._client: Any = MlflowClient(self.destination or None)
        self._rounds_of_run = facts.rounds
        if run:
            self._client.update_run(run, status="RUNNING")
            self._run = run
            return run
        tags = {**facts.about, "group": facts.group, "fairsilo": facts.id}
        self._run = str(self._client.create_run(self._experiment(), run_name=facts.name, tags=tags).info.run_id)
        settings = [Param(key, str(value)) for key, value in facts.settings.items()]
        for some in _in_turn(settings, AT_ONCE["params"]):
            self._client.log_batch(self._run, params=some)
        return self._run

    def log(self, number: int, values: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        metrics = [self._metric(_allowed(key), value, now, number) for key, value in values.items()]
        for some in _in_turn(metrics, AT_ONCE["metrics"]):
            self._client.log_batch(self._run, metrics=some)

    def answer(self, values: Mapping[str, float]) -> None:
        self.log(self._rounds_of_run, values)

    def close(self, ended: str) -> None:
        self._client.set_terminated(self._run, STATUS[ended])

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self._client.get_experiment_by_name(name)
        if found is None:
            from mlflow.exceptions import MlflowException

            try:
                return str(self._client.create_experiment(name))
            except MlflowException:  # another run of the comparison was faster, else there is none now either
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)


def _allowed(key: str) -> str:
    """A metric's name with the characters that MLflow takes."""
    return re.sub(r"[^\w./ -]", "_", key)


def _in_turn(things: Sequence[One], at_once: int) -> Iterator[Sequence[One]]:
    return (things[start : start + at_once] for start in range(0, len(things), at_once))
