"""Loggers send the metrics of a run to other tools, as a spec such as ``"tensorboard(folder='runs')"``.

A logger that fails (a server is down, a disk is full) warns once and is then disabled; training continues. Each logger imports its library
when a run starts.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from noisewise.errors import InputError, NoisewiseError, invalid_parameter
from noisewise.spec import Named, Registry, setting

registry: Registry[Logger] = Registry("logger")


def flatten(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested mappings, with names joined by "/"; values that are None are dropped.

    Example:
        >>> flatten({"lr": 0.1, "emphasis": {"right": 0.3, "wrong": None}})
        {'lr': 0.1, 'emphasis/right': 0.3}
    """
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}/{inner}": each for inner, each in flatten(value).items()}
        elif value is not None:
            flat[name] = value
    return flat


def _text(parameter: str, owner: str) -> Callable[[Any], str]:
    """A check that accepts a string or a path."""

    def check(value: Any) -> str:
        if not isinstance(value, str | os.PathLike) or not os.fspath(value):
            raise invalid_parameter(parameter, owner, "a string that is not empty", value)
        return str(os.fspath(value))

    return check


class Logger(Named, registry=registry):
    """Sends the settings and metrics of a run to another tool: `start` once, `log` often, `finish` once.

    A subclass defines `open`, `write` and `close`; they may raise anything.

    Example:
        >>> class Printed(Logger):
        ...     def open(self, settings):
        ...         print("training with", settings["loss"])
        ...     def write(self, metrics, step):
        ...         print(step, metrics)
        ...     def close(self, state):
        ...         print(state)
        >>> logger = Printed()
        >>> logger.start({"loss": "imae(T=8)"})
        training with imae(T=8)
        >>> logger.log({"accuracy": {"test": 0.5}}, step=10)
        10 {'accuracy/test': 0.5}
        >>> logger.finish("finished")
        finished
    """

    _running = False

    def open(self, settings: dict[str, Any]) -> None:
        """Import the library and start a run with these settings."""
        raise NotImplementedError(f"{type(self).__name__} must define open")

    def write(self, metrics: dict[str, float], step: int) -> None:
        """Write the metrics of one step."""
        raise NotImplementedError(f"{type(self).__name__} must define write")

    def close(self, state: str) -> None:
        """End the run and release the resources of `open`."""
        raise NotImplementedError(f"{type(self).__name__} must define close")

    def start(self, settings: Mapping[str, Any]) -> None:
        """Start logging; raises `InputError` if the library is not installed."""
        self._running = True
        self._try(lambda: self.open(flatten(settings)))

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Log metrics, nested or not; values that are None are dropped."""
        if self._running:
            self._try(lambda: self.write({name: float(value) for name, value in flatten(metrics).items()}, step))

    def finish(self, state: str) -> None:
        """End with the state of the run: "finished", "failed" or "interrupted"."""
        if self._running:
            self._try(lambda: self.close(state))
        self._running = False

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except NoisewiseError:
            self._running = False
            raise
        except Exception as error:  # a failing logger must not end training
            self._running = False
            warnings.warn(f"The logger {self!r} failed and is now disabled: {type(error).__name__}: {error}", stacklevel=3)

    def _library(self, module: str, package: str) -> Any:
        try:
            return importlib.import_module(module)
        except ImportError:
            raise InputError(
                f"The logger {self.name!r} needs {package}, which is not installed; run: pip install 'noisewise[track]'."
            ) from None


class TensorBoard(Logger, name="tensorboard"):
    """Event files for TensorBoard.

    Args:
        folder: the folder of the files; None is torch's default, ``runs/<time>_<machine>``.

    Example:
        >>> registry.get("tensorboard(folder='runs/first')")
        tensorboard(folder='runs/first')
    """

    folder: str | None = setting(default=None, check=_text("folder", "TensorBoard"))

    def open(self, settings: dict[str, Any]) -> None:
        self._writer = self._library("torch.utils.tensorboard", "tensorboard").SummaryWriter(self.folder)
        # Markdown shows indented lines as code.
        self._writer.add_text("settings", "\n".join(f"    {name} = {value!r}" for name, value in settings.items()))

    def write(self, metrics: dict[str, float], step: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self, state: str) -> None:
        self._writer.add_text("state", state)
        self._writer.close()


class MLflow(Logger, name="mlflow"):
    """A run of an MLflow experiment.

    Args:
        uri: the tracking server or store; None is MLflow's default: the variable MLFLOW_TRACKING_URI, or a local database.
        experiment: the name of the experiment; it is created if it does not exist.

    Example:
        >>> registry.get("mlflow(uri='sqlite:///runs.db')")
        mlflow(uri='sqlite:///runs.db', experiment='noisewise')
    """

    uri: str | None = setting(default=None, check=_text("uri", "MLflow"))
    experiment: str = setting(default="noisewise", check=_text("experiment", "MLflow"))

    def open(self, settings: dict[str, Any]) -> None:
        self._mlflow = self._library("mlflow", "mlflow-skinny")
        # A separate client, because MLflow has only one active run per process and several runs may be logged at once.
        self._client = self._mlflow.MlflowClient(tracking_uri=self.uri)
        experiment = self._client.get_experiment_by_name(self.experiment)
        number = self._client.create_experiment(self.experiment) if experiment is None else experiment.experiment_id
        self._run = self._client.create_run(number).info.run_id
        parameter = self._mlflow.entities.Param
        self._client.log_batch(self._run, params=[parameter(name, str(value)) for name, value in settings.items()])

    def write(self, metrics: dict[str, float], step: int) -> None:
        now, metric = int(1000 * time.time()), self._mlflow.entities.Metric
        self._client.log_batch(self._run, metrics=[metric(name, value, now, step) for name, value in metrics.items()])

    def close(self, state: str) -> None:
        status = {"finished": "FINISHED", "failed": "FAILED"}.get(state, "KILLED")
        self._client.set_terminated(self._run, status)


class WandB(Logger, name="wandb"):
    """A run of Weights & Biases.

    Args:
        project: the name of the project.
        mode: "offline" writes a folder for ``wandb sync``; "online" sends during training and needs an account.

    Example:
        >>> registry.get("wandb(mode=online)")
        wandb(project='noisewise', mode='online')
    """

    project: str = setting(default="noisewise", check=_text("project", "WandB"))
    mode: str = setting(default="offline", choices=("offline", "online"))

    def open(self, settings: dict[str, Any]) -> None:
        library = self._library("wandb", "wandb")
        # "create_new": several runs may be logged at once; console "off": do not capture the terminal.
        self._run = library.init(
            project=self.project, mode=self.mode, config=settings, reinit="create_new", settings=library.Settings(console="off")
        )

    def write(self, metrics: dict[str, float], step: int) -> None:
        self._run.log(metrics, step=step)

    def close(self, state: str) -> None:
        self._run.finish(exit_code=0 if state == "finished" else 1)


class JSONLines(Logger, name="jsonl"):
    """A text file with one JSON object a line: ``{"settings": …}``, then ``{"step": 1, "lr": 0.1, …}``, then ``{"state": …}``.

    Lines are appended as soon as they are logged. A number that is not finite becomes null.

    Args:
        path: the file; missing folders are created.

    Example:
        >>> registry.get("jsonl('runs/first.jsonl')")
        jsonl('runs/first.jsonl')
    """

    path: str = setting(check=_text("path", "JSONLines"))

    def open(self, settings: dict[str, Any]) -> None:
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        self._add({"settings": {name: _finite(value) for name, value in settings.items()}})

    def write(self, metrics: dict[str, float], step: int) -> None:
        self._add({"step": step} | {name: _finite(value) for name, value in metrics.items() if name != "step"})

    def close(self, state: str) -> None:
        self._add({"state": state})

    def _add(self, line: dict[str, Any]) -> None:
        with Path(self.path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
