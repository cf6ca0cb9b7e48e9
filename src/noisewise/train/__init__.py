"""Training: `fit` trains one run, `compare` many, a `Run` is what each leaves, and a `Recorder` makes one of a loop of your own.

The engine knows losses, noise, data and models. It must not know reports, audits or the command line.
"""

from noisewise.runs import Settings
from noisewise.train._compare import (
    Progress,
    Runs,
    RunsFailedError,
    Task,
    check_jobs,
    compare,
    plan,
    told_of,
    train_each,
    why_failed,
)
from noisewise.train._fit import Underfitting, Unlearned, fit
from noisewise.train._optimisers import optimisers, schedules
from noisewise.train._predictor import Predictor
from noisewise.train._recorder import Recorder
from noisewise.train._request import make_settings
from noisewise.train._run import Run

__all__ = [
    "Predictor",
    "Progress",
    "Recorder",
    "Run",
    "Runs",
    "RunsFailedError",
    "Settings",
    "Task",
    "Underfitting",
    "Unlearned",
    "check_jobs",
    "compare",
    "fit",
    "make_settings",
    "optimisers",
    "plan",
    "schedules",
    "told_of",
    "train_each",
    "why_failed",
]
