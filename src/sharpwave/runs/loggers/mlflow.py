"""Metrics for MLflow."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sharpwave.core.optional import require
from sharpwave.runs.loggers.base import Metrics, numbers
from sharpwave.runs.loggers.periodic import IntervalLogger


class MLflowLogger(IntervalLogger):
    """Metrics `train/...` and `eval/...` of one run of MLflow, over the steps of the run.

    The run begins with the first number. After `close` the same run is taken up again; to take it
    up from another process, pass its `run_id`.

    Args:
        experiment: The name of the experiment, made if there is none.
        tracking_uri: Address or folder of MLflow's runs; None for what MLflow is set to.
        run_name: The name of the run.
        run_id: A run to take up.
        log_interval: Steps between two updates to send; 0 sends all, and None leaves it to what a
            step is: 1000 of environments and gradients, each update of language models.

    Attributes:
        run_id: The run, None before the first number.

    Raises:
        ImportError: If `mlflow` is not installed.
        TypeError: If `log_interval` is not an integer.
        ValueError: If it is negative.

    Example:
        >>> agent = sw.PPO("CartPole-v1", logger=MLflowLogger("cartpole"))
    """

    def __init__(
        self,
        experiment: str = "sharpwave",
        *,
        tracking_uri: str | None = None,
        run_name: str | None = None,
        run_id: str | None = None,
        log_interval: int | None = None,
    ) -> None:
        super().__init__(log_interval)
        self._mlflow = require("mlflow", extra="mlflow")
        self._experiment = experiment
        self._tracking_uri = tracking_uri
        self._run_name = run_name
        self._client: Any = None
        self.run_id = run_id

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Sets the parameters of the run, those it has not got yet."""
        client = self._open()
        known = client.get_run(self.run_id).data.params
        param = self._mlflow.entities.Param
        new = [param(name, str(value)) for name, value in config.items() if name not in known]
        client.log_batch(self.run_id, params=new)

    def write(self, step: int, metrics: Metrics) -> None:
        """Sends the metrics of an update."""
        self._send(step, numbers("train", metrics))

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Sends the statistics of an evaluation."""
        self._send(step, numbers("eval", metrics))

    def close(self) -> None:
        """Sends what is pending and ends the run."""
        super().close()
        if self._client is not None:
            self._client.set_terminated(self.run_id)
            self._client = None

    def _send(self, step: int, scalars: dict[str, float]) -> None:
        metric = self._mlflow.entities.Metric
        now = int(time.time() * 1000)
        entries = [metric(name, value, now, step) for name, value in scalars.items()]
        self._open().log_batch(self.run_id, metrics=entries)

    def _open(self) -> Any:
        if self._client is None:
            self._client = self._mlflow.MlflowClient(self._tracking_uri)
            if self.run_id is None:
                self.run_id = self._create_run()
            else:
                self._client.update_run(self.run_id, status="RUNNING")
        return self._client

    def _create_run(self) -> str:
        experiment = self._client.get_experiment_by_name(self._experiment)
        experiment_id = (
            self._client.create_experiment(self._experiment)
            if experiment is None
            else experiment.experiment_id
        )
        run_id: str = self._client.create_run(experiment_id, run_name=self._run_name).info.run_id
        return run_id
