"""Write the files of an epoch in a background thread, while the next epoch trains."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Writer:
    """Makes calls in one thread, in the order in which they were submitted.

    After a call that fails, no other call is made, so no file appears without the files before it. Every later `flush` raises the error.

    Example:
        >>> written = []
        >>> with Writer() as writer:
        ...     writer.submit(written.append, "record")
        ...     writer.submit(written.append, "metrics")
        ...     writer.flush()
        >>> written
        ['record', 'metrics']
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "noisewise-writer")  # starts the thread at the first call
        self._pending: list[Future[None]] = []
        self._error: BaseException | None = None

    def submit(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Make a call in the background. Its arguments must not change before the next `flush`."""
        self._pending.append(self._thread.submit(self._make, call, args, kwargs))

    def _make(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._error is None:
            try:
                call(*args, **kwargs)
            except BaseException as error:
                self._error = error

    def flush(self) -> None:
        """Wait until all calls are made, and raise the error of the call that failed."""
        while self._pending:
            self._pending[0].result()
            self._pending.pop(0)
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown()
