"""Training: `fit` trains one `Run`, `compare` trains many, and a `Recorder` records a custom training loop."""

from noisewise.runs import Settings
from noisewise.train._compare import (
    RUNS_ON_A_GPU,
    Executor,
    Progress,
    Runs,
    RunsFailedError,
    Task,
    check_finished,
    check_jobs,
    compare,
    failure_reason,
    mark_interrupted,
    plan,
    summarise_failures,
    train_each,
    train_one,
)
from noisewise.train._deadline import OUT_OF_TIME, Deadline
from noisewise.train._fit import Underfitting, Unlearned, fit, train
from noisewise.train._loggers import Logger
from noisewise.train._optimisers import optimisers, schedules
from noisewise.train._predictor import Predictor
from noisewise.train._recorder import Recorder
from noisewise.train._request import make_settings
from noisewise.train._run import Run
from noisewise.train._tune import Search, Study, Tuned, plan_studies, run_studies, tune

__all__ = [
    "OUT_OF_TIME",
    "RUNS_ON_A_GPU",
    "Deadline",
    "Executor",
    "Logger",
    "Predictor",
    "Progress",
    "Recorder",
    "Run",
    "Runs",
    "RunsFailedError",
    "Search",
    "Settings",
    "Study",
    "Task",
    "Tuned",
    "Underfitting",
    "Unlearned",
    "check_finished",
    "check_jobs",
    "compare",
    "failure_reason",
    "fit",
    "make_settings",
    "mark_interrupted",
    "optimisers",
    "plan",
    "plan_studies",
    "run_studies",
    "schedules",
    "summarise_failures",
    "train",
    "train_each",
    "train_one",
    "tune",
]
