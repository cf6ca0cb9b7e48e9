"""Pickles, archives, downloads, packages and the data folder: incomplete, corrupt and malicious files are refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import multiprocessing
import os
import pickle
import shutil
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from noisewise.data._archives import gunzip, unpack
from noisewise.data._official import data_root
from noisewise.data._pickles import load_pickle, load_torch_pickle
from noisewise.data._sources import ArchiveSite, FileSite, Package, download, pick
from noisewise.data._store import Holding, checksum, progress_bars, silent
from noisewise.errors import InputError
from refused import refused

CONTENT = bytes(range(256)) * 4096


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


class Site:
    """A local web server that can cut connections, refuse to resume, and send a wrong range."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut_after: int | None = None
        self.down_after: int | None = None
        self.resumes = True
        self.range_offset = 0
        self.ranges: list[str | None] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers.get("Range")
        self.ranges.append(wanted)
        content = self.files.get(request.path.lstrip("/"))
        if content is None or (self.down_after is not None and len(self.ranges) > self.down_after):
            request.send_error(404 if content is None else 503)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.resumes else 0
        start += self.range_offset if start else 0
        if start >= len(content):
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        request.wfile.write(content[start:][: self.cut_after])


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    thread = threading.Thread(target=site.server.serve_forever, args=(0.01,))
    thread.start()
    yield site
    site.server.shutdown()
    thread.join()
    site.server.server_close()


class Calls:
    """A pickle that runs a command when it is read."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (self.command,)


# The data folder


def test_the_data_folder_is_the_argument_then_the_variable_then_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISEWISE_DATA", str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root(tmp_path) == tmp_path
    assert data_root() == tmp_path / "named"
    monkeypatch.delenv("NOISEWISE_DATA")
    assert data_root() == tmp_path / "cache" / "noisewise"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_root() == Path.home() / ".cache" / "noisewise"


# Pickles


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL))
def test_a_pickle_of_arrays_is_read_unchanged(tmp_path: Path, protocol: int) -> None:
    written = {"data": np.arange(6, dtype=np.uint8).reshape(2, 3), "labels": [1, 2], "name": "batch", "whole": np.arange(3)}
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps(written, protocol))
    read = load_pickle(path)
    assert read.keys() == written.keys() and read["labels"] == [1, 2] and read["name"] == "batch"
    for key in ("data", "whole"):
        assert read[key].dtype == written[key].dtype
        np.testing.assert_array_equal(read[key], written[key])


def test_a_pickle_of_an_older_numpy_is_read(tmp_path: Path) -> None:
    content = pickle.dumps({"data": np.arange(9)}, 2)
    assert b"numpy._core.multiarray" in content
    (tmp_path / "old").write_bytes(content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    np.testing.assert_array_equal(load_pickle(tmp_path / "old")["data"], np.arange(9))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_pickle_with_code_is_refused_and_never_runs(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "ran"
    path = tmp_path / "evil"
    path.write_bytes(pickle.dumps({"data": Calls(f"touch {mark}")}, protocol))
    with refused("evil", f"{os.system.__module__}.system"):
        load_pickle(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "name", ["builtins eval", "builtins getattr", "numpy load", "numpy.core.multiarray scalar", "noisewise.spec Named"]
)
def test_a_pickle_of_anything_but_arrays_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "p").write_bytes(b"c" + name.replace(" ", "\n").encode() + b"\n.")
    with refused(name.replace(" ", ".")):
        load_pickle(tmp_path / "p")


@pytest.mark.parametrize("kept", [0, 1, 40, 300])
def test_truncated_pickle_is_refused(tmp_path: Path, kept: int) -> None:
    content = pickle.dumps({"data": np.zeros(1000)}, 2)
    (tmp_path / "p").write_bytes(content[:kept])
    with refused(tmp_path / "p"):
        load_pickle(tmp_path / "p")


def test_a_torch_archive_is_read_under_the_same_rules(tmp_path: Path) -> None:
    import torch

    torch.save({"clean_label": np.arange(5)}, tmp_path / "good.pt")
    np.testing.assert_array_equal(load_torch_pickle(tmp_path / "good.pt")["clean_label"], np.arange(5))
    torch.save({"clean_label": Calls(f"touch {tmp_path / 'ran'}")}, tmp_path / "evil.pt")
    with refused("evil.pt"):
        load_torch_pickle(tmp_path / "evil.pt")
    assert not (tmp_path / "ran").exists()
    (tmp_path / "cut.pt").write_bytes((tmp_path / "good.pt").read_bytes()[:-50])
    with refused("cut.pt"):
        load_torch_pickle(tmp_path / "cut.pt")


# Archives


def tar_of(members: dict[str, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def tar_with(kind: bytes, **fields: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("inside/entry")
        member.type = kind
        for field, value in fields.items():
            setattr(member, field, value)
        archive.addfile(member)
    return buffer.getvalue()


def zip_of(members: dict[str, bytes], attributes: int = 0) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = attributes << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


GOOD = {"folder/a": b"first", "folder/deeper/b": b"second", "c": b""}


@pytest.mark.parametrize("archive", [tar_of(GOOD), tar_of(GOOD, "w"), tar_of(GOOD, "w:xz"), zip_of(GOOD), zip_of(GOOD, 0o100644)])
def test_archive_unpacks_to_its_files(tmp_path: Path, archive: bytes) -> None:
    (tmp_path / "archive").write_bytes(archive)
    unpack(tmp_path / "archive", tmp_path / "out")
    unpacked = {str(path.relative_to(tmp_path / "out")): path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert unpacked == GOOD


ESCAPES = ["../outside", "a/../../outside", "/outside", "..", "a\\..\\..\\outside", "C:outside"]
MALICIOUS = {
    **{f"tar {name}": tar_of({"fine": b"x", name: b"evil"}) for name in ESCAPES},
    **{f"zip {name}": zip_of({"fine": b"x", name: b"evil"}) for name in ESCAPES},
    "tar symbolic link": tar_with(tarfile.SYMTYPE, linkname="/etc/passwd"),
    "tar hard link": tar_with(tarfile.LNKTYPE, linkname="../outside"),
    "tar device": tar_with(tarfile.CHRTYPE),
    "tar pipe": tar_with(tarfile.FIFOTYPE),
    "zip symbolic link": zip_of({"link": b"/etc/passwd"}, 0o120777),
    "tar twice": tar_of({"a": b"1", "./a": b"2"}),
    "tar file as folder": tar_of({"a": b"1", "a/b": b"2"}),
    "zip twice": zip_of({"a": b"1", "./a": b"2"}),
    "tar bomb": tar_of({"bomb": bytes(200_000)}),
    "tar bomb in parts": tar_of({f"part {number}": bytes(30_000) for number in range(4)}),
    "zip bomb": zip_of({"bomb": bytes(200_000)}),
}


@pytest.mark.parametrize("archive", MALICIOUS.values(), ids=MALICIOUS)
def test_malicious_archive_is_refused_and_leaves_nothing(tmp_path: Path, archive: bytes) -> None:
    inner = tmp_path / "deep" / "inner"
    inner.mkdir(parents=True)
    (inner / "archive").write_bytes(archive)
    with refused(inner / "archive"):
        unpack(inner / "archive", inner / "out", limit=100_000)
    assert [path.name for path in tmp_path.rglob("*")] == ["deep", "inner", "archive"]


@pytest.mark.parametrize("archive", [tar_of({"a": os.urandom(5000)}), zip_of({"a": os.urandom(5000)})], ids=["tar", "zip"])
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9])
def test_a_truncated_archive_is_refused_and_leaves_nothing(tmp_path: Path, archive: bytes, kept: float) -> None:
    (tmp_path / "archive").write_bytes(archive[: int(kept * len(archive))])
    with refused(tmp_path / "archive"):
        unpack(tmp_path / "archive", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


def test_a_zip_with_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    content = bytearray(zip_of({"a": os.urandom(5000)}))
    content[2000] ^= 1
    (tmp_path / "archive").write_bytes(content)
    with refused(tmp_path / "archive"):
        unpack(tmp_path / "archive", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_gunzip_writes_complete_files_only(tmp_path: Path) -> None:
    whole = gzip.compress(CONTENT)
    (tmp_path / "whole.gz").write_bytes(whole)
    gunzip(tmp_path / "whole.gz", tmp_path / "whole")
    assert (tmp_path / "whole").read_bytes() == CONTENT
    for name, content, limit in (("cut", whole[:-20], 1 << 30), ("not", CONTENT, 1 << 30), ("bomb", whole, 1000)):
        (tmp_path / f"{name}.gz").write_bytes(content)
        with refused(f"{name}.gz"):
            gunzip(tmp_path / f"{name}.gz", tmp_path / name, limit=limit)
        assert not (tmp_path / name).exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


# Downloads


def test_a_download_is_complete_and_reports_every_byte(tmp_path: Path, site: Site) -> None:
    site.files["file"] = CONTENT
    seen: list[tuple[str, int, int | None]] = []
    download(site.url + "file", tmp_path / "file", lambda *progress: seen.append(progress), md5=md5(CONTENT))
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert seen[-1] == ("file", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_cut_download_is_resumed(tmp_path: Path, site: Site) -> None:
    site.files["file"], site.cut_after = CONTENT, 400_000
    download(site.url + "file", tmp_path / "file", silent, md5=md5(CONTENT))
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert site.ranges == [None, "bytes=400000-", "bytes=800000-"]


def test_the_next_call_resumes_a_download_that_failed(tmp_path: Path, site: Site) -> None:
    site.files["file"], site.cut_after, site.down_after = CONTENT, 300_000, 1
    with refused(site.url + "file", 503):
        download(site.url + "file", tmp_path / "file", silent, md5=md5(CONTENT))
    assert not (tmp_path / "file").exists()
    assert (tmp_path / "file.part").read_bytes() == CONTENT[:300_000]
    site.cut_after = site.down_after = None
    download(site.url + "file", tmp_path / "file", silent, md5=md5(CONTENT))
    assert site.ranges[-1] == "bytes=300000-"
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert not (tmp_path / "file.part").exists()


def test_a_server_that_cannot_resume_sends_the_whole_file(tmp_path: Path, site: Site) -> None:
    site.files["file"], site.resumes = CONTENT, False
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    download(site.url + "file", tmp_path / "file", silent, md5=md5(CONTENT))
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_server_that_cannot_resume_and_always_cuts_is_refused(tmp_path: Path, site: Site) -> None:
    site.files["file"], site.resumes, site.cut_after = CONTENT, False, 1000
    with refused("1,000", "1,048,576"):
        download(site.url + "file", tmp_path / "file", silent)
    assert not (tmp_path / "file").exists()


def test_a_wrong_range_is_refused(tmp_path: Path, site: Site) -> None:
    site.files["file"], site.range_offset = CONTENT, 8
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    with refused(site.url + "file"):
        download(site.url + "file", tmp_path / "file", silent)
    assert not (tmp_path / "file").exists() and (tmp_path / "file.part").read_bytes() == CONTENT[:1000]


def test_a_part_longer_than_the_file_is_deleted(tmp_path: Path, site: Site) -> None:
    site.files["file"] = CONTENT
    (tmp_path / "file.part").write_bytes(CONTENT + b"more")
    download(site.url + "file", tmp_path / "file", silent, md5=md5(CONTENT))
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_corrupt_download_is_removed_and_the_next_starts_clean(tmp_path: Path, site: Site) -> None:
    site.files["file"] = CONTENT[:-1] + b"?"
    with pytest.raises(InputError) as caught:
        download(site.url + "file", tmp_path / "file", silent, md5=md5(CONTENT))
    assert md5(site.files["file"]) in str(caught.value) and md5(CONTENT) in str(caught.value)
    assert not list(tmp_path.iterdir())
    site.files["file"] = CONTENT
    download(site.url + "file", tmp_path / "file", silent, md5=md5(CONTENT))
    assert site.ranges == [None, None]


def test_download_larger_than_the_limit_is_stopped_and_removed(tmp_path: Path, site: Site) -> None:
    site.files["file"] = CONTENT
    seen: list[int] = []
    with pytest.raises(InputError) as caught:
        download(site.url + "file", tmp_path / "file", lambda _, done, __: seen.append(done), limit=300_000)
    assert site.url in str(caught.value)
    assert not list(tmp_path.iterdir()) and seen[-1] < len(CONTENT)


def test_a_missing_file_or_server_is_refused_at_once(tmp_path: Path, site: Site) -> None:
    with refused(site.url + "missing", 404):
        download(site.url + "missing", tmp_path / "missing", silent)
    with refused("http://127.0.0.1:9/file"):
        download("http://127.0.0.1:9/file", tmp_path / "file", silent)


# The store


def holding(site: Site, *more: object) -> Holding:
    files = {"set/one": CONTENT, "set/two": b"two" * 1000}
    site.files |= {"one.gz": gzip.compress(files["set/one"]), "two": files["set/two"]}
    source = FileSite(site.url, {"set/one": "one.gz", "set/two": "two"})
    return Holding("pair", ({path: md5(content) for path, content in files.items()},), (source, *more))  # type: ignore[arg-type]


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_fetch_stores_checked_files_and_then_needs_no_network(tmp_path: Path, site: Site) -> None:
    pair = holding(site)
    pair.fetch(tmp_path)
    assert names(tmp_path) == ["set/one", "set/two"]
    assert checksum(tmp_path / "set/one") == md5(CONTENT)
    requests, site.down_after = len(site.ranges), 0
    pair.fetch(tmp_path)
    assert len(site.ranges) == requests == 2


def test_fetch_writes_nothing_if_the_data_exist(tmp_path: Path, site: Site) -> None:
    pair = holding(site)
    pair.fetch(tmp_path)
    shutil.rmtree(tmp_path / ".fetching")
    pair.fetch(tmp_path)
    assert not (tmp_path / ".fetching").exists()


def test_damaged_file_in_place_is_fetched_again(tmp_path: Path, site: Site) -> None:
    pair = holding(site)
    pair.fetch(tmp_path)
    (tmp_path / "set/one").write_bytes(CONTENT[:-1])
    assert not pair.verified(tmp_path)
    pair.fetch(tmp_path)
    assert pair.verified(tmp_path)


def test_a_failed_fetch_keeps_the_good_files(tmp_path: Path, site: Site) -> None:
    pair = holding(site)
    pair.fetch(tmp_path)
    (tmp_path / "set/two").unlink()
    site.files["two"] = b"replaced"
    with refused("pair", site.url.split("/")[2]):
        pair.fetch(tmp_path)
    assert names(tmp_path) == ["set/one"]
    assert checksum(tmp_path / "set/one") == md5(CONTENT)
    site.files["two"] = b"two" * 1000
    pair.fetch(tmp_path)
    assert names(tmp_path) == ["set/one", "set/two"]


def test_the_second_source_is_used_if_the_first_fails(tmp_path: Path, site: Site) -> None:
    mirror = FileSite(site.url + "mirror/", {"set/one": "one", "set/two": "two"})
    pair = holding(site, mirror)
    site.files |= {"mirror/one": CONTENT, "mirror/two": b"two" * 1000, "one.gz": b"not gzip"}
    pair.fetch(tmp_path)
    assert names(tmp_path) == ["set/one", "set/two"]


@pytest.mark.parametrize("kind", ["traversal", "truncated", "corrupt"])
def test_bad_archive_is_refused_and_the_store_stays_usable(tmp_path: Path, site: Site, kind: str) -> None:
    good, evil = tar_of({"set/one": CONTENT}), tar_of({"set/one": CONTENT, "../../../escaped": b"evil"})
    bad = {"traversal": evil, "truncated": good[:-30], "corrupt": good[:-1] + b"?"}[kind]
    layout = ({"set/one": md5(CONTENT)},)
    site.files["set.tar.gz"] = bad
    stated = md5(good) if kind == "corrupt" else md5(bad)  # a bad archive may come with a checksum that fits
    with refused("set.tar.gz"):
        Holding("set", layout, (ArchiveSite(site.url + "set.tar.gz", stated),)).fetch(tmp_path / "root")
    assert names(tmp_path) == []
    site.files["set.tar.gz"] = good
    Holding("set", layout, (ArchiveSite(site.url + "set.tar.gz", md5(good)),)).fetch(tmp_path / "root")
    assert names(tmp_path) == ["root/set/one"]


def test_a_data_folder_that_cannot_be_created_is_refused(tmp_path: Path, site: Site) -> None:
    (tmp_path / "file").write_text("")
    with refused("pair", tmp_path / "file", "NOISEWISE_DATA"):
        holding(site).fetch(tmp_path / "file")


def _fetch(url: str, root: Path, barrier: Any) -> None:
    barrier.wait()
    holding(SimpleNamespace(url=url, files={})).fetch(root)  # type: ignore[arg-type]


def test_two_processes_fetch_the_same_thing_once(tmp_path: Path, site: Site) -> None:
    holding(site)
    context = multiprocessing.get_context("forkserver")
    barrier = context.Barrier(2)
    processes = [context.Process(target=_fetch, args=(site.url, tmp_path, barrier)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert names(tmp_path) == ["set/one", "set/two"]
    assert len(site.ranges) == 2


def test_fetch_after_a_killed_one_starts_clean(tmp_path: Path, site: Site) -> None:
    left = tmp_path / ".fetching" / "pair"
    (left / "delivered" / "set").mkdir(parents=True)
    (left / "delivered" / "set" / "one").write_bytes(b"half")
    (left / "one.gz.part").write_bytes(gzip.compress(CONTENT)[:100])
    pair = holding(site)
    pair.fetch(tmp_path)
    assert pair.verified(tmp_path) and names(tmp_path) == ["set/one", "set/two"]


# Packages, with the real clients and no network


def deliver(source: object, tmp_path: Path) -> Path:
    into = tmp_path / "workshop" / "into"
    into.mkdir(parents=True)
    source.deliver(tmp_path / "workshop", into, silent)  # type: ignore[attr-defined]
    assert [path.name for path in (tmp_path / "workshop").iterdir()] == ["into"]
    return into


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npm_package_delivers_the_files_picked(tmp_path: Path) -> None:
    (tmp_path / "tiny.tgz").write_bytes(
        tar_of({"package/package.json": b'{"name": "tiny", "version": "1.0.0"}', "package/data/a": CONTENT})
    )
    into = deliver(Package("npm", str(tmp_path / "tiny.tgz"), pick({"set/one": "package/data/a"})), tmp_path)
    assert names(into) == ["set/one"]
    assert (into / "set/one").read_bytes() == CONTENT


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_a_missing_package_is_refused_with_the_error_of_its_client(tmp_path: Path) -> None:
    with refused("npm pack", "/missing.tgz", "ENOENT"):
        deliver(Package("npm", str(tmp_path / "missing.tgz"), pick({})), tmp_path)


def test_pip_package_delivers_the_files_picked(tmp_path: Path) -> None:
    pytest.importorskip("pip")
    information = {
        "WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
        "METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "RECORD": "",
    }
    members = {f"tiny-1.0.dist-info/{name}": text.encode() for name, text in information.items()}
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    wheel.write_bytes(zip_of({"tiny/a.gz": gzip.compress(CONTENT), **members}, 0o100644))
    into = deliver(Package("pip", str(wheel), pick({"set/one": "tiny/a.gz"})), tmp_path)
    assert (into / "set/one").read_bytes() == CONTENT
    shutil.rmtree(tmp_path / "workshop")
    with pytest.raises(InputError) as caught:
        deliver(Package("pip", str(wheel), pick({"set/one": "tiny/b"})), tmp_path)
    assert "tiny/b" in str(caught.value)


@pytest.mark.skipif(not (shutil.which("apt-get") and shutil.which("dpkg-deb")), reason="apt-get is not installed")
def test_debian_package_delivers_the_files_picked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control = "Package: tiny\nVersion: 1\nArchitecture: all\nMaintainer: Nobody <nobody@example.org>\nDescription: tiny\n"
    archive, state = tmp_path / "archive", tmp_path / "state"
    for folder in (tmp_path / "deb/DEBIAN", tmp_path / "deb/usr/share", archive, state / "lists/partial", state / "cache/archives/partial"):
        folder.mkdir(parents=True)
    (tmp_path / "deb/DEBIAN/control").write_text(control)
    (tmp_path / "deb/usr/share/a").write_bytes(CONTENT)
    subprocess.run(["dpkg-deb", "--build", tmp_path / "deb", archive / "tiny.deb"], check=True, capture_output=True)
    content = (archive / "tiny.deb").read_bytes()
    listed = f"Filename: ./tiny.deb\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
    (archive / "Packages").write_text(control + listed)
    (state / "status").write_text("")
    (state / "sources.list").write_text(f"deb [trusted=yes] file:{archive} ./\n")
    (state / "apt.conf").write_text(
        f'Dir::Etc::SourceList "{state}/sources.list"; Dir::Etc::SourceParts "-"; Dir::State "{state}";'
        f'Dir::State::status "{state}/status"; Dir::Cache "{state}/cache"; APT::Sandbox::User "";'
    )
    monkeypatch.setenv("APT_CONFIG", str(state / "apt.conf"))
    subprocess.run(["apt-get", "update"], check=True, capture_output=True)
    into = deliver(Package("apt-get", "tiny", pick({"set/one": "usr/share/a"})), tmp_path)
    assert (into / "set/one").read_bytes() == CONTENT


def test_a_client_that_is_not_installed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError) as caught:
        deliver(Package("npm", "tiny", pick({})), tmp_path)
    assert "npm" in str(caught.value)


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_bars_are_shown_on_terminals_only(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")  # rich then treats standard error as a terminal
    with progress_bars() as progress:
        progress("images.tar.gz", 512, None)
        progress("images.tar.gz", 2048, 2048)
    assert ("images.tar.gz" in capsys.readouterr().err) == terminal
