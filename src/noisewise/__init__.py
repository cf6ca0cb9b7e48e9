"""noisewise: train classifiers on labels you cannot fully trust.

>>> import noisewise
>>> loss = noisewise.get("imae(T=8)")  # a drop-in for torch.nn.CrossEntropyLoss
>>> loss(torch.randn(8, 10), torch.randint(10, (8,))).shape
torch.Size([])
"""

from noisewise import _startup  # noqa: F401  # isort: skip  (first: Ctrl-C while torch loads)

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from noisewise.extensions import provide

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Called(ModuleType, Generic[_P, _T]):
    """A package that can be called like its function of the same name: `noisewise.audit(run)`."""

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        result: _T = self._function(*args, **kwargs)
        return result

    @property
    def _function(self) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])

    @property
    def __signature__(self) -> Any:
        from inspect import signature

        return signature(self._function)

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, (self.__name__,)


if TYPE_CHECKING:
    from noisewise import (
        curriculum,
        data,
        draw,
        dynamics,
        kernels,
        losses,
        methods,
        models,
        noise,
        papers,
        plugins,
        reproduce,
        retrieval,
        runs,
        theory,
        train,
        transition,
    )
    from noisewise.audit import audit as _audit
    from noisewise.correct import correct as _correct
    from noisewise.errors import DivergedError, InputError, NoisewiseError, StorageError, WorkerLostError
    from noisewise.kernels import linear_loss
    from noisewise.losses import get
    from noisewise.margin import emphasis, margin, margins
    from noisewise.noise import corrupt
    from noisewise.report import report as _report
    from noisewise.suggest import suggest as _suggest
    from noisewise.train import Recorder, Run, compare, fit

    def _called(function: Callable[_P, _T]) -> _Called[_P, _T]: ...

    audit, correct, report, suggest = _called(_audit), _called(_correct), _called(_report), _called(_suggest)

__version__ = "0.1.0"

_WHERE = {
    "DivergedError": "errors",
    "InputError": "errors",
    "NoisewiseError": "errors",
    "Recorder": "train",
    "Run": "train",
    "StorageError": "errors",
    "WorkerLostError": "errors",
    "compare": "train",
    "corrupt": "noise",
    "emphasis": "margin",
    "fit": "train",
    "get": "losses",
    "linear_loss": "kernels",
    "margin": "margin",
    "margins": "margin",
}
"""The module of every public name that is not a module itself."""

__all__ = [
    "DivergedError",
    "InputError",
    "NoisewiseError",
    "Recorder",
    "Run",
    "StorageError",
    "WorkerLostError",
    "audit",
    "compare",
    "correct",
    "corrupt",
    "curriculum",
    "data",
    "draw",
    "dynamics",
    "emphasis",
    "fit",
    "get",
    "kernels",
    "linear_loss",
    "losses",
    "margin",
    "margins",
    "methods",
    "models",
    "noise",
    "papers",
    "plugins",
    "report",
    "reproduce",
    "retrieval",
    "runs",
    "suggest",
    "theory",
    "train",
    "transition",
]

provide(
    {
        "audit": "noisewise.audit:audit_run",
        "counting of predictions": "noisewise.kernels:counted",
        "curricula": "noisewise.curriculum:__name__",
        "embedder of timm": "noisewise.integrations.timm:embedder",
        "embedder of transformers": "noisewise.integrations.transformers:embedder",
        "executor of ray": "noisewise.integrations.ray:OnRay",
        "executor of slurm": "noisewise.integrations.slurm:OnSlurm",
        "export": "noisewise.integrations.export:export",
        "fit": "noisewise.train:fit",
        "fused loss": "noisewise.kernels:fused",
        "fused residual network": "noisewise.kernels:residual",
        "installed plugins": "noisewise.plugins:load_installed",
        "missing plugin": "noisewise.plugins:missing",
        "optimisers": "noisewise.train:optimisers",
        "report": "noisewise.report:report",
        "run": "noisewise.train:Run",
        "schedules": "noisewise.train:schedules",
        "search by optuna": "noisewise.integrations.optuna:OptunaSearch",
    }
)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``noisewise --help`` does not load torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_WHERE.get(name, name)}")
    return getattr(module, name) if name in _WHERE else module


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Package(ModuleType):
    """Keeps `noisewise.margin` the function: importing the module of that name would replace it. Makes some packages callable."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("audit", "correct", "report", "suggest") and isinstance(value, ModuleType):
            value.__class__ = _Called
        super().__setattr__(name, value.margin if name == "margin" and isinstance(value, ModuleType) else value)


sys.modules[__name__].__class__ = _Package
