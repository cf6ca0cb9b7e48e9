"""A damaged run folder is refused with an error that names the file, and is not changed."""

import shutil

import pytest
from small_runs import QUICK, clusters, file_contents, interrupt_after

from noisewise import fit
from noisewise.train import Run
from refused import refused

SETTINGS = {**QUICK, "epochs": 4, "evaluate_every": 2}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run that was interrupted in its fourth epoch, and a finished run."""
    folder = tmp_path_factory.mktemp("runs")
    interrupt_after(17, "mlp", clusters(), folder=folder / "interrupted", **SETTINGS)
    fit("mlp", clusters(), folder=folder / "finished", **SETTINGS)
    return folder


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def replace_by(text):
    return lambda path: path.write_text(text)


def remove_line(number):
    def remove(path):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[: number - 1] + lines[number:]))

    return remove


def truncate(path):
    path.write_bytes(path.read_bytes()[:-10])


BOTH = [
    ("metrics.jsonl", lambda path: path.write_text(path.read_text() + '{"epoch":\n'), ["Line", "metrics.jsonl"]),
    ("metrics.jsonl", lambda path: path.write_bytes(b"\xff\xfe"), ["metrics.jsonl", "UTF-8"]),
    ("metrics.jsonl", remove, ["metrics.jsonl", "epoch 1"]),
    ("metrics.jsonl", remove_line(2), ["metrics.jsonl", "epoch 2"]),
    ("settings.json", replace_by("[]"), ["settings.json", "list"]),
    ("settings.json", replace_by("{"), ["settings.json", "JSON"]),
    ("status.json", replace_by("[]"), ["status.json", "list"]),
    ("status.json", replace_by("{}"), ["status.json", "'state'"]),
    ("status.json", remove, ["status.json"]),
    ("provenance.json", replace_by("[]"), ["provenance.json", "list"]),
    ("provenance.json", replace_by("{}"), ["provenance.json", "'data'"]),
    ("record", remove, ["record/training/margins-00001.npy"]),
    ("record/training/predictions-00003.npy", remove, ["record/training/predictions-00003.npy"]),
    ("record/clean", remove, ["record/clean/margins-00002.npy"]),
    ("record/training/margins-00002.npy", truncate, ["margins-00002.npy"]),
    ("labels/given.npy", remove, ["labels/given.npy"]),
]
FINISHED = [
    ("model.safetensors", remove, ["model.safetensors"]),
    ("model.safetensors", truncate, ["model.safetensors"]),
    ("record/training/margins-00004.npy", remove, ["record/training/margins-00004.npy"]),
]


@pytest.mark.parametrize(
    ("state", "name", "damage", "mentions"),
    [(state, *case) for state in ("interrupted", "finished") for case in BOTH] + [("finished", *case) for case in FINISHED],
)
def test_a_damaged_run_is_refused_and_not_changed(runs, tmp_path, state, name, damage, mentions):
    folder = tmp_path / "run"
    shutil.copytree(runs / state, folder)
    damage(folder / name)
    before = file_contents(folder)
    with refused(*mentions):
        fit("mlp", clusters(), folder=folder, **SETTINGS)
    assert file_contents(folder) == before


def test_files_written_after_the_last_checkpoint_may_be_missing(runs, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(runs / "interrupted", folder)
    remove(folder / "checkpoints/epoch-00003.safetensors")
    remove(folder / "record/training/margins-00003.npy")
    remove_line(3)(folder / "metrics.jsonl")
    assert fit("mlp", clusters(), folder=folder, **SETTINGS).metrics[-1]["step"] == 20


@pytest.mark.parametrize("damage", [remove, truncate])
def test_the_model_of_a_run_with_a_damaged_model_file_cannot_be_read(runs, tmp_path, damage):
    shutil.copytree(runs / "finished", tmp_path / "run")
    damage(tmp_path / "run/model.safetensors")
    with refused("model.safetensors"):
        Run(tmp_path / "run").model()


def test_a_folder_without_settings_is_not_a_run(tmp_path):
    with refused("nowhere", "settings.json"):
        Run(tmp_path / "nowhere")
