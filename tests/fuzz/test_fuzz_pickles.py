"""Damaged and forged pickles of CIFAR and CIFAR-N are read or refused. They are read in another process, which may crash."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import random
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import torch

from fuzzing import mutated, survives
from noisewise.data import load
from noisewise.noise import CIFAR100_SUPERCLASSES

FINE = [0, 99, 13, 41]
CASES = 2000
# Parts of forged pickles: names, types, sizes, objects, and the ends of all ranges.
PARTS = [
    *(b"cos\nsystem\n", b"cnumpy\ndtype\n", b"cnumpy\nndarray\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"c_codecs\nencode\n"),
    *(
        b"U\x02O8",
        b"U\x02V8",
        b"U\x02u1",
        b"U\x02f8",
        b"U\x02M8",
        b"U\x01<",
        b"U\x00",
        b"C\x04abcd",
        b"N",
        b"\x88",
        b"\x89",
        b")",
        b"]",
        b"}",
    ),
    *(b"K\x00", b"K\xff", b"J\xff\xff\xff\xff", b"J\xff\xff\xff\x7f", b"\x8a\x08" + b"\xff" * 7 + b"\x7f", b"G\x7f\xf8" + b"\0" * 6),
    *(
        b"r\xff\xff\xff\x7f",
        b"q\x00",
        b"h\x00",
        b"(",
        b"0",
        b"1",
        b"2",
        b"R",
        b"b",
        b"\x81",
        b"\x85",
        b"\x86",
        b"\x87",
        b"t",
        b"e",
        b"u",
        b"s",
        b".",
    ),
]


def changed(case: bytes, draw: random.Random) -> bytes:
    """Change bytes or whole opcodes of a case, but not its first byte, which names the file it is written to."""
    where, content = case[:1], case[1:]
    if where == b"Z" or draw.random() < 0.3:
        return where + mutated(content, draw)
    starts = [position for _, _, position in pickletools.genops(content) if position is not None]
    opcodes = [content[start:stop] for start, stop in zip(starts, [*starts[1:], len(content)], strict=True)]
    for _ in range(draw.randint(1, 4)):
        here, there = draw.randrange(len(opcodes)), draw.randrange(len(opcodes))
        change = draw.randrange(5)
        if change == 0:
            opcodes[here] = draw.choice(PARTS)
        elif change == 1:
            opcodes.insert(here, draw.choice(PARTS))
        elif change == 2 and len(opcodes) > 1:
            del opcodes[here]
        elif change == 3:
            opcodes[here], opcodes[there] = opcodes[there], opcodes[here]
        else:
            opcodes.insert(here, opcodes[there])
    return where + b"".join(opcodes)


def archive(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        zipped.writestr("labels/data.pkl", content)
    return file.getvalue()


def fuzz(folder: Path, cases: int) -> None:
    """Read changed files; every error except an `InputError` in one sentence ends the process."""
    warnings.simplefilter("error")
    (folder / "cifar-100-python").mkdir()
    (folder / "CIFAR-N").mkdir()
    batch, human = folder / "cifar-100-python" / "train", folder / "CIFAR-N" / "CIFAR-100_human.pt"
    images = np.random.default_rng(0).integers(0, 256, (len(FINE), 3072), dtype=np.uint8)
    whole = {
        "fine_labels": FINE,
        "coarse_labels": [CIFAR100_SUPERCLASSES[label] for label in FINE],
        "data": images,
        "batch_label": "1 of 1",
    }
    labels = {"clean_label": np.array(FINE), "noisy_label": np.array([0, 1, 2, 3], np.int32)}
    saved = io.BytesIO()
    torch.save(labels, saved)
    seeds = [b"b" + pickle.dumps(whole, protocol) for protocol in (0, 2, 4)]
    seeds += [b"z" + pickle.dumps(labels, protocol) for protocol in (2, 4)]
    seeds.append(b"Z" + saved.getvalue())

    def read(case: bytes) -> None:
        human.unlink(missing_ok=True)
        if case[:1] == b"b":
            batch.write_bytes(case[1:])
            load("cifar100", root=folder)
        else:
            batch.write_bytes(seeds[1][1:])
            human.write_bytes(case[1:] if case[:1] == b"Z" else archive(case[1:]))
            load("cifar100n", root=folder)

    refused = survives(read, seeds, cases, folder, mutate=changed)
    assert cases / 4 < refused < cases, f"{refused} of {cases} were refused: the changes are too small or too large"


def test_changed_pickles_are_read_or_refused(tmp_path: Path, times: int) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, __file__, str(tmp_path), str(CASES * times)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]


if __name__ == "__main__":
    fuzz(Path(sys.argv[1]), int(sys.argv[2]))
