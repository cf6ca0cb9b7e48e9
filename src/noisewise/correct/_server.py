"""The review page behind a server on this machine: every decision is saved at once, and "finish" applies all of them.

The server listens on the loopback interface alone. Every path begins with a random token, which web pages and other users of the machine
do not know. A page of another origin cannot use the server even with the token: requests must name this server as their host, and as their
origin if they have one. Anything else is refused in the same way, so that an answer tells nothing.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from json import dumps
from pathlib import Path
from typing import Any

from noisewise.audit import Audit
from noisewise.correct._cards import Cards
from noisewise.correct._correction import Correction, audited, correct
from noisewise.correct._decisions import ACTIONS, UNDECIDED, read_decisions
from noisewise.correct._log import DecisionLog, Entry, Step
from noisewise.correct._page import page
from noisewise.dynamics import Dynamics
from noisewise.errors import InputError, NoisewiseError
from noisewise.output import check_output
from noisewise.runs import RunFolder, parse_json
from noisewise.spec import as_int

_ADDRESS = "127.0.0.1"
_SIDE = 1024  # of a picture, in pixels
_MOST_DETAILS = 64  # cards in one answer
_LONGEST = 2**24  # bytes of a request
_PATIENCE = 60  # seconds to wait for the rest of a request
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class ReviewServer(ThreadingHTTPServer):
    """Serves the review page of one run. `review_server` makes it.

    Args:
        cards: the doubtful labels.
        log: the decisions so far.
        finish: applies the decisions, and returns what was done.
        port: the port; 0 for any that is free.
    """

    daemon_threads = True

    def __init__(self, cards: Cards, log: DecisionLog, finish: Callable[[], tuple[Correction, Path]], port: int) -> None:
        self._answers, self._closed, self._changed = 0, False, threading.Condition()
        try:
            super().__init__((_ADDRESS, port), _Handler)
        except OSError as error:
            raise InputError(f"The port {port} cannot be used ({error.strerror}). Give another one, or 0 for any that is free.") from None
        self.cards, self.log, self._finish = cards, log, finish
        self.token = secrets.token_urlsafe(32)
        self.written: tuple[Correction, Path] | None = None
        """The corrected labels and their file, once the review is finished."""
        text, policy = page(cards, None)
        self.page, self.policy = text.encode(), f"{policy}; frame-ancestors 'none'"
        decided = {entry.example for step in log.steps for entry in step.entries}
        self._labels, self._classes, self._lock = cards.labels(decided), set(cards.classes), threading.Lock()

    @property
    def origin(self) -> str:
        return f"http://{_ADDRESS}:{self.server_port}"

    @property
    def url(self) -> str:
        """The address of the page, with its token."""
        return f"{self.origin}/{self.token}/"

    def server_bind(self) -> None:
        """Bind the port without asking a name server for the name of this machine."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(os.name == "posix"))
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = _ADDRESS, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that the browser closed."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Keep the server open while the block answers a request."""
        with self._changed:
            if self._closed:
                raise ConnectionAbortedError
            self._answers += 1
        try:
            yield
        finally:
            with self._changed:
                self._answers -= 1
                self._changed.notify_all()

    def server_close(self) -> None:
        """Close the server when all answers are given: Python aborts if it ends while a thread runs code of torch."""
        super().server_close()
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._answers, _PATIENCE)

    def details(self, numbers: list[int]) -> list[dict[str, Any]]:
        """The details of some cards, with the addresses of their pictures."""
        if not 0 < len(numbers) <= _MOST_DETAILS or max(numbers) >= len(self.cards):
            raise InputError(f"There are {len(self.cards)} cards, and up to {_MOST_DETAILS} can be asked for at once.")
        shown = self.cards.has_pictures
        return [
            card | {"image": f"image/{number}" if shown else None}
            for number, card in zip(numbers, self.cards.details(numbers), strict=True)
        ]

    def image(self, number: int) -> bytes:
        """The picture of a card as a PNG."""
        url = self.cards.picture(number, side=_SIDE) if number < len(self.cards) else None
        if url is None:
            raise InputError(f"Card {number} has no picture.")
        return base64.b64decode(url.partition(",")[2])

    def steps(self, since: int) -> dict[str, Any]:
        """The steps after the first ones."""
        with self._lock:
            steps = self.log.steps[since:]
            return {"version": len(self.log.steps), "steps": [{"entries": step.entries, "undo": step.undo} for step in steps]}

    def decide(self, content: Any) -> dict[str, Any]:
        """Save a step, and return it with all steps that the page does not know yet."""
        step, since = self._as_step(content)
        with self._lock:
            if self.written is None:
                self.log.append(step, self._labels)
        return self.steps(since)

    def finish(self) -> dict[str, Any]:
        """Apply the decisions, and stop the server."""
        with self._lock:
            self.written = self._finish()
        return {"summary": repr(self.written[0]), "file": str(self.written[1].resolve())}

    def stop(self) -> None:
        threading.Thread(target=self.shutdown).start()  # it waits for the loop that this request belongs to

    def _as_step(self, content: Any) -> tuple[Step, int]:
        try:
            entries = tuple(Entry(*entry) for entry in content["entries"])
            since, undo = as_int("since", "review", content["since"], 0), content["undo"] is True
            known = all(self._is_known(entry) for entry in entries)
        except (KeyError, TypeError):
            known = False
        if not known or not entries:
            raise InputError("A decision names an example, a decision or a class that this review does not have.")
        return Step(entries, undo), since

    def _is_known(self, entry: Entry) -> bool:
        has_label = entry.label in self._classes if entry.decision == "relabel" else entry.label is None
        return type(entry.example) is int and entry.example in self._labels and entry.decision in (*ACTIONS, UNDECIDED) and has_label


class _Handler(BaseHTTPRequestHandler):
    """Answers requests that know the token and come from this server's page."""

    server: ReviewServer
    protocol_version = "HTTP/1.1"
    timeout = _PATIENCE

    def do_GET(self) -> None:
        path = self._allowed_path()
        for pattern, answer in _PAGES:
            if path is not None and (match := re.fullmatch(pattern, path)):
                self._try(partial(answer, self.server, *match.groups()))
                return
        self._refuse()

    def do_POST(self) -> None:
        path = self._allowed_path()
        if self.headers.get("Origin") is None or path not in ("steps", "finish"):
            self._refuse()
        elif path == "steps":
            self._try(lambda: _json(self.server.decide(self._content())))
        else:
            self.close_connection = True
            self._try(lambda: _json(self.server.finish()))
            if self.server.written is not None:
                self.server.stop()

    def _allowed_path(self) -> str | None:
        """The path after the token; None if the request is not allowed."""
        _, token, *rest = f"{self.path}/".split("/", 2)
        hosts = {f"{name}:{self.server.server_port}" for name in (_ADDRESS, "localhost")}
        host, origin = self.headers.get("Host"), self.headers.get("Origin")
        site, target = self.headers.get("Sec-Fetch-Site", "none"), self.headers.get("Sec-Fetch-Dest")
        allowed = (
            hmac.compare_digest(token.encode(), self.server.token.encode())
            and host in hosts  # a name that a stranger pointed at this machine is another host
            and origin in (None, f"http://{host}")
            and (site in ("none", "same-origin") or target == "document")  # another page may link to this one, but not include it
        )
        return "/".join(rest).removesuffix("/") if allowed and "/" in self.path[1:] else None

    def _content(self) -> Any:
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"\d{1,9}", length) or int(length) > _LONGEST:
            self.close_connection = True
            raise InputError("A request has no length, or is too long.")
        try:
            return parse_json(self.rfile.read(int(length)).decode())
        except ValueError:
            raise InputError("A request is not JSON.") from None

    def _try(self, call: Callable[[], tuple[str, bytes]]) -> None:
        """Answer with a result, or with the sentence of an error."""
        with self.server.answering():
            try:
                kind, content = call()
            except NoisewiseError as error:
                self._answer(*_json({"error": str(error)}), status=400)
                return
            self._answer(kind, content)

    def _refuse(self) -> None:
        self.close_connection = True  # the content of the request was not read
        self._answer("text/plain; charset=utf-8", b"Forbidden\n", status=403)

    do_HEAD = do_OPTIONS = do_PUT = do_DELETE = do_PATCH = _refuse  # noqa: N815

    def _answer(self, kind: str, content: bytes, status: int = 200) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(content)), "Content-Security-Policy": self.server.policy, **_HEADERS}
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def version_string(self) -> str:
        return "noisewise"

    def log_message(self, format: str, *values: Any) -> None:
        """Print nothing: the terminal shows the address, and addresses contain the token."""


def _json(content: Any) -> tuple[str, bytes]:
    return "application/json", dumps(content, ensure_ascii=False).encode()


_PAGES: tuple[tuple[str, Callable[..., tuple[str, bytes]]], ...] = (
    ("", lambda server: ("text/html; charset=utf-8", server.page)),
    (r"image/(\d{1,9})", lambda server, number: ("image/png", server.image(int(number)))),
    (r"details/(\d{1,9}(?:,\d{1,9})*)", lambda server, numbers: _json(server.details(list(map(int, numbers.split(",")))))),
    (r"steps/(\d{1,9})", lambda server, since: _json(server.steps(int(since)))),
)
"""What can be read: the pattern of the path after the token, and the function that answers."""


@contextmanager
def review_server(
    audit_or_run: Audit | Dynamics | str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    limit: int | None = None,
    data: Any = None,
    port: int = 0,
) -> Iterator[ReviewServer]:
    """Serve the review page of a run on this machine. Call `serve_forever` of the result; it returns when the review is finished.

    Args:
        audit_or_run: the audit; or a run, its folder or its dynamics, which is audited first.
        output: the file of corrected labels, which "finish" writes; by default ``corrected.csv`` in the run folder.
        limit: the number of doubtful labels, the most doubtful first; by default all.
        data: the training data, to show the examples; by default the source that the run names. If it is gone, examples are not shown.
        port: the port; by default any that is free.

    Returns:
        A context manager. Inside it, `url` is the address of the page. Decisions are in ``decisions.jsonl`` in the run folder, which is
        locked, so that only one review of a run is open.
    """
    result = audited(audit_or_run, "review_server")
    folder = Path(result.dynamics.folder)
    target = check_output(folder / "corrected.csv" if output is None else output, "review_server", [".csv"])
    cards = Cards(result, None if limit is None else as_int("limit", "review_server", limit, 1), data)
    port = as_int("port", "review_server", port, 0)

    def corrected() -> Correction:
        return correct(result, decisions=read_decisions(log.path) if log.steps else {})

    def finish() -> tuple[Correction, Path]:
        correction = corrected()
        return correction, correction.write(target)

    with RunFolder(folder).lock():
        log = DecisionLog(folder)
        corrected()  # refuses decisions that were made on other labels
        with ReviewServer(cards, log, finish, port) as server:
            yield server
