"""Damaged settings files: `--config` accepts them, or refuses them in one sentence."""

from dataclasses import fields
from pathlib import Path

import pytest

from fuzzing import survives
from noisewise.cli._options import _READING, Request
from noisewise.train import Settings, make_settings
from refused import refused

NOTHING_GIVEN = dict.fromkeys([*(field.name for field in fields(Settings)), *_READING])
FILES = [
    b'data = "digits"\nmodel = "mlp(hidden=(16,))"\nloss = "gce(q=0.7)"\nnoise = "symmetric(0.4)"\nepochs = 3\nseed = 1\n',
    b'data = "mine.csv"\nmodel = "linear"\nsteps = 0x10\nlabel = "kind"\nfeatures = ["a", "b"]\nsize = 32\nnormalise = false\n',
    b'data = "digits"\nmodel = "linear"\nepochs = 1_0\nclip = 1e3\nvalidation = 0.1\npatience = 2\nkeep = "best"\nschedule = "cosine"\n',
    b"data = 'digits'\nmodel = 'linear'\nepochs = 2\naugment = 'none'\noptimiser = 'adam(lr=0.01)'\ndevice = 'cpu'\n",
]


def read(case: bytes, file: Path) -> None:
    """What `noisewise train --config` does before it reads any data."""
    file.write_bytes(case)
    make_settings(Request.of(NOTHING_GIVEN, file).settings)


def test_every_settings_file_is_accepted_or_refused_in_one_sentence(tmp_path: Path, times: int) -> None:
    file = tmp_path / "settings.toml"
    number = survives(lambda case: read(case, file), FILES, 1000 * times, tmp_path)
    assert 1000 * times > number > 250 * times


LONG = b"0x" + b"f" * 10_000


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (b"a = " + b"[" * 5000, "settings.toml"),
        (b"a = " + b"{b=" * 5000, "settings.toml"),
        (b"loss = " + LONG, "loss"),
        (b"seed = [" + LONG + b"]", "seed"),
        (b"clip = " + LONG, "clip"),
    ],
)
def test_values_nested_too_deeply_or_too_long_to_print_are_refused(tmp_path: Path, line: bytes, name: str) -> None:
    with refused(name) as caught:
        read(b"data = 'digits'\nmodel = 'linear'\nepochs = 1\n" + line, tmp_path / "settings.toml")
    assert len(str(caught.value)) < 1000
