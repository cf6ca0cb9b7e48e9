"""A damaged run folder is refused with an error that names the file, and is not changed."""

import shutil

import pytest
from test_fit import QUICK, clusters
from test_folder import contents
from test_resume import stopped_at

from noisewise import InputError, fit
from noisewise.train import Run

ASKED = {**QUICK, "epochs": 4, "evaluate_every": 2}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run that was stopped in its fourth epoch, and one that is finished."""
    folder = tmp_path_factory.mktemp("runs")
    stopped_at(17, "mlp", clusters(), folder=folder / "stopped", **ASKED)
    fit("mlp", clusters(), folder=folder / "finished", **ASKED)
    return folder


def removed(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def holding(text):
    return lambda path: path.write_text(text)


def without_line(number):
    def cut(path):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[: number - 1] + lines[number:]))

    return cut


def shortened(path):
    path.write_bytes(path.read_bytes()[:-10])


BOTH = [
    ("metrics.jsonl", lambda path: path.write_text(path.read_text() + '{"epoch":\n'), r"Line \d of .*metrics.jsonl' is not the metrics of"),
    ("metrics.jsonl", lambda path: path.write_bytes(b"\xff\xfe"), "metrics.jsonl' is not UTF-8 text"),
    ("metrics.jsonl", removed, "metrics.jsonl has no epoch 1"),
    ("metrics.jsonl", without_line(2), "metrics.jsonl has no epoch 2"),
    ("settings.json", holding("[]"), "settings.json' must contain a JSON dict. Got list"),
    ("settings.json", holding("{"), "settings.json' cannot be read as JSON"),
    ("status.json", holding("[]"), "status.json' must contain a JSON dict. Got list"),
    ("status.json", holding("{}"), "status.json' has no 'state'"),
    ("status.json", removed, "has no status.json"),
    ("provenance.json", holding("[]"), "provenance.json' must contain a JSON dict. Got list"),
    ("provenance.json", holding("{}"), "provenance.json' has no 'data'"),
    ("record", removed, "has no record/training/margins-00001.npy"),
    ("record/training/predictions-00003.npy", removed, "has no record/training/predictions-00003.npy"),
    ("record/clean", removed, "has no record/clean/margins-00002.npy"),
    ("record/training/margins-00002.npy", shortened, "margins-00002.npy' is not a complete .npy file"),
    ("labels/given.npy", removed, "has no labels/given.npy"),
]
FINISHED = [
    ("model.safetensors", removed, "has no model.safetensors"),
    ("model.safetensors", shortened, "model.safetensors' cannot be read"),
    ("record/training/margins-00004.npy", removed, "has no record/training/margins-00004.npy"),
]


@pytest.mark.parametrize(
    ("state", "name", "damage", "sentence"),
    [(state, *case) for state in ("stopped", "finished") for case in BOTH] + [("finished", *case) for case in FINISHED],
)
def test_a_damaged_run_is_neither_continued_nor_called_finished(runs, tmp_path, state, name, damage, sentence):
    folder = tmp_path / "run"
    shutil.copytree(runs / state, folder)
    damage(folder / name)
    before = contents(folder)
    with pytest.raises(InputError, match=sentence):
        fit("mlp", clusters(), folder=folder, **ASKED)
    assert contents(folder) == before


def test_what_was_written_after_the_checkpoint_may_be_lost(runs, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(runs / "stopped", folder)
    removed(folder / "checkpoints/epoch-00003.safetensors")
    removed(folder / "record/training/margins-00003.npy")
    without_line(3)(folder / "metrics.jsonl")
    assert fit("mlp", clusters(), folder=folder, **ASKED).metrics[-1]["step"] == 20


@pytest.mark.parametrize(("damage", "sentence"), [(removed, "has no model.safetensors"), (shortened, "model.safetensors' cannot be read")])
def test_a_model_that_is_not_there_whole_is_named(runs, tmp_path, damage, sentence):
    shutil.copytree(runs / "finished", tmp_path / "run")
    damage(tmp_path / "run/model.safetensors")
    with pytest.raises(InputError, match=sentence):
        Run(tmp_path / "run").model()


def test_a_folder_without_a_run_is_no_run(tmp_path):
    with pytest.raises(InputError, match=r"There is no run in '.*nowhere': it has no settings.json"):
        Run(tmp_path / "nowhere")
