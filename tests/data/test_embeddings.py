"""Embeddings as inputs: from a file or a torch module, in the order of the data, computed once, with the originals kept to be shown."""

from __future__ import annotations

import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pets import write_image
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

import noisewise
from noisewise import Run, fit
from noisewise.cli import app
from noisewise.correct import review
from noisewise.data import EmbeddingCache, batches, features, picture, read
from noisewise.report.sections.runs import repeat
from noisewise.runs import examples_of, read_recorded
from refused import refused, warned


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, where the cache is by default."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Means(nn.Module):
    """The mean colour of an image, times a weight. It counts its calls, and has dropout that must be off."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.dropout = nn.Dropout(0.9)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.dropout(x.mean((2, 3)) * self.weight)


@pytest.fixture
def images(place: Path) -> Path:
    """Twelve red and twelve blue images, each of its own shade."""
    for number in range(12):
        write_image(place / "images" / "blue" / f"{number}.png", colour=(number, 3, 200 - number))
        write_image(place / "images" / "red" / f"{number}.png", colour=(200 - number, number, 3))
    return place / "images"


def colours(folder: Path, ids: Any) -> np.ndarray:
    """The colour of every image by Pillow, from 0 to 1."""
    pixels = []
    for name in ids:
        with Image.open(folder / name) as image:
            pixels.append(image.getpixel((0, 0)))
    return np.array(pixels, np.float32) / 255


def write_both(place: Path, number: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Texts and labels as texts.csv, and their embeddings as texts.npy."""
    rng = np.random.default_rng(0)
    labels = np.arange(number) % 2
    vectors = (rng.normal(size=(number, 5)) + 4 * labels[:, None]).astype(np.float32)
    lines = [f"row{n},this is the text number {n} of the list,{('bad', 'good')[label]}" for n, label in enumerate(labels)]
    (place / "texts.csv").write_text("\n".join(["name,words,label", *lines]) + "\n")
    np.save(place / "texts.npy", vectors)
    return vectors, labels


# Files


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors", "float64.npy", "big-endian.npy", "fortran.npy"])
def test_the_rows_of_a_file_become_the_inputs(place: Path, kind: str) -> None:
    vectors, labels = write_both(place)
    file = place / f"vectors.{kind}"
    as_stored = {"float64.npy": vectors.astype(float), "big-endian.npy": vectors.astype(">f4"), "fortran.npy": np.asfortranarray(vectors)}
    if kind == "npz":
        np.savez(file, vectors=vectors)
    elif kind == "safetensors":
        save_file({"vectors": torch.from_numpy(vectors)}, file)
    else:
        np.save(file, as_stored.get(kind, vectors))
    data = read((labels[:, None], labels), embed=file)
    assert data.inputs.dtype == torch.float32 and np.array_equal(data.inputs.numpy(), vectors)
    assert read("texts.csv", embed=str(file), id="name").ids == tuple(f"row{number}" for number in range(30))


def test_the_ids_of_a_file_decide_the_order(place: Path, images: Path) -> None:
    data = read(images)
    vectors, order = colours(images, data.ids), np.random.default_rng(1).permutation(24)
    np.savez("vectors.npz", anything=vectors[order], ids=np.array(data.ids)[order])
    assert np.array_equal(read(images, embed="vectors.npz").inputs.numpy(), vectors)
    (images / "red" / "3.png").write_bytes(b"damaged")
    with warned("red/3.png"):
        kept = read(images, embed="vectors.npz", unreadable="skip")
    assert len(kept) == 23 and np.array_equal(kept.inputs.numpy(), colours(images, kept.ids))
    np.savez("vectors.npz", anything=vectors[:20], ids=np.array(data.ids)[:20])
    with refused("vectors.npz", "4 of 24", "red/8.png"):
        read(images, embed="vectors.npz")


def test_rows_without_ids_must_be_as_many_as_the_examples(place: Path, images: Path) -> None:
    np.save("vectors.npy", np.ones((24, 2)))
    (images / "red" / "3.png").write_bytes(b"damaged")
    with warned("red/3.png"), refused("vectors.npy", "24 rows", "23"):
        read(images, embed="vectors.npy", unreadable="skip")


def test_images_of_any_size_need_no_size_and_are_not_decoded(place: Path, images: Path) -> None:
    write_image(images / "red" / "large.png", size=(300, 200))
    np.save("vectors.npy", np.ones((25, 2)))
    data = read(images, embed="vectors.npy")
    (images / "red" / "0.png").write_bytes(b"damaged later")
    assert data.inputs.shape == (25, 2)
    shown = picture(data, data.ids.index("red/large.png"), side=64)
    assert shown is not None and shown.startswith("data:image/png")


BAD_FILES: dict[str, Any] = {
    "one-dimension.npy": np.ones(30),
    "three-dimensions.npy": np.ones((30, 2, 2)),
    "text.npy": np.full((30, 2), "a"),
    "complex.npy": np.ones((30, 2), complex),
    "pickled.npy": np.array([[{}]] * 30, object),
    "gap.npy": np.where(np.arange(60).reshape(30, 2) == 9, np.nan, 1.0),
    "empty.npy": np.ones((30, 0)),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_without_a_list_of_vectors_is_refused_in_one_sentence(place: Path, name: str) -> None:
    np.save(name, BAD_FILES[name])
    with refused(*(["gap.npy", "row 4"] if name == "gap.npy" else [Path(name).stem])):
        read((np.ones((30, 1)), np.arange(30) % 2), embed=name)


def test_other_bad_files_and_names_are_refused_in_one_sentence(place: Path) -> None:
    arrays = (np.ones((4, 1)), [0, 1, 0, 1])
    (place / "junk.safetensors").write_bytes(b"junk")
    np.savez("two.npz", a=np.ones((4, 2)), b=np.ones((4, 2)))
    np.savez("ids.npz", a=np.ones((4, 2)), ids=["a", "b"])
    for embed, mention in (("junk.safetensors", "junk.safetensors"), ("two.npz", "2 arrays"), ("ids.npz", "2 ids"), ("no.npy", "no.npy")):
        with refused(mention):
            read(arrays, embed=embed)
    np.save("alone.npy", np.ones((4, 2)))
    with refused("alone.npy", "labels", "--features"):
        read("alone.npy")
    with refused("age", "--feature"):
        read(arrays, embed="age")
    with refused("embed_cache"):
        read(arrays, embed_cache="somewhere")


# Modules


def test_a_module_embeds_images_in_their_order_and_in_eval_mode(images: Path) -> None:
    module = Means().train()
    data = read(images, embed=module)
    assert np.allclose(data.inputs.numpy(), colours(images, data.ids), atol=1e-6)
    assert module.training and module.dropout.training and module.weight.grad is None
    for batch in batches(data, 7, shuffle=True, seed=3):
        assert np.allclose(batch.inputs.numpy(), colours(images, [data.ids[place] for place in batch.index]), atol=1e-6)
    assert torch.equal(read(images, embed=module, memory=0).inputs, data.inputs)  # decoded from disk, batch by batch


def test_a_module_embeds_images_without_those_that_cannot_be_read(images: Path) -> None:
    (images / "blue" / "5.png").write_bytes(b"damaged")
    with warned("blue/5.png"):
        data = read(images, embed=Means(), unreadable="skip")
    assert len(data) == 23 and np.allclose(data.inputs.numpy(), colours(images, data.ids), atol=1e-6)


def test_a_module_embeds_the_inputs_of_tables_and_arrays(place: Path) -> None:
    torch.manual_seed(0)
    module, rows = nn.Linear(2, 4), np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    np.savetxt("rows.csv", np.column_stack([rows, np.arange(300) % 3]), "%.9g", ",", header="a,b,label", comments="")
    expected = rows @ module.weight.detach().numpy().T + module.bias.detach().numpy()
    for data in (read("rows.csv", embed=module), read((rows, np.arange(300) % 3), embed=module)):
        assert np.allclose(data.inputs.numpy(), expected, atol=1e-5) and data.encoding is None and data.features is None


def test_the_same_call_does_not_call_the_model_again(images: Path) -> None:
    module = Means()
    first = read(images, embed=module)
    calls = module.calls
    assert calls > 0 and torch.equal(read(images, embed=module).inputs, first.inputs) and module.calls == calls
    with torch.no_grad():
        module.weight.mul_(2)
    assert torch.equal(read(images, embed=module).inputs, 2 * first.inputs) and module.calls > calls
    calls = module.calls
    write_image(images / "red" / "0.png", colour=(0, 255, 0))
    assert read(images, embed=module).inputs[12].tolist() == [0, 2, 0] and module.calls > calls
    calls = module.calls
    read(images, embed=module, embed_cache="elsewhere")
    assert module.calls > calls and len(list(Path("elsewhere").iterdir())) == 1


def test_a_damaged_cache_file_is_computed_again(images: Path) -> None:
    first = read(images, embed=Means())
    (file,) = Path("runs/embeddings").iterdir()
    file.write_bytes(file.read_bytes()[:-4])
    assert torch.equal(read(images, embed=Means()).inputs, first.inputs)


def test_a_module_that_returns_no_vectors_is_refused(images: Path) -> None:
    class Flat(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean()

    with refused("Flat", "24"):
        read(images, embed=Flat())
    with refused("Linear", "(24, 3, 4, 6)"):
        read(images, embed=nn.Linear(5, 2))
    with refused("not finite"):
        read((np.full((4, 1), 1e38), [0, 1, 0, 1]), embed=_Overflow())


class _Overflow(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1e30


# What people are shown


def test_people_are_shown_the_originals(place: Path, images: Path) -> None:
    data, plain = read(images, embed=Means()), read(images)
    kept = data.take([20, 3]).take(torch.tensor([True, False]))
    assert kept.ids == (plain.ids[20],) and picture(kept, 0, side=8) == picture(plain, 20, side=8) is not None
    write_both(place)
    texts = read("texts.csv", embed="texts.npy", id="name").corrupted("symmetric(0.5)")
    assert features(texts.take([7]), 0) == [["words", "this is the text number 7 of the list"]]
    (place / "labels.csv").write_text("label\n" + "a\nb\n" * 15)
    assert features(read("labels.csv", embed="texts.npy"), 0) == []


def test_a_review_shows_the_images(images: Path) -> None:
    (images / "red" / "0.png").rename(images / "blue" / "wrong.png")
    run = fit("linear", read(images, embed=Means()), loss="gce(q=0.7)", batch_size=4, epochs=30, folder="run")
    assert review(run.find_label_issues(), "review.html").read_text().count("data:image/png") >= 1


def test_other_processes_get_the_embeddings_without_the_module(images: Path) -> None:
    class Local(Means):
        """A class that cannot be pickled."""

    data = read(images, embed=Local())
    copied = pickle.loads(pickle.dumps(data))
    assert torch.equal(copied.inputs, data.inputs) and copied.embedder.digest == data.embedder.digest
    assert picture(copied, 3, side=8) == picture(data, 3, side=8) is not None


# Runs


def test_a_run_on_a_file_reads_its_examples_again_and_predicts_from_vectors(place: Path) -> None:
    vectors, _ = write_both(place)
    data = read("texts.csv", embed="texts.npy", id="name")
    run = fit("linear", data, epochs=5, folder="run")
    again = examples_of(run.dynamics.record)
    assert torch.equal(again.inputs, data.inputs) and features(again, 3)[0][1].endswith("number 3 of the list")
    probabilities = run.predict(vectors)
    assert probabilities.argmax(1).tolist() == [0, 1] * 15
    assert torch.equal(run.predict("texts.npy"), probabilities) and torch.equal(run.predictor().probabilities(vectors), probabilities)
    with refused("texts.npy", "array"):
        run.predict("texts.csv")
    np.save("texts.npy", vectors[::-1])
    with refused("inputs differ"):
        examples_of(run.dynamics.record)


def test_a_run_on_a_module_finds_its_embeddings_in_the_cache(images: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    module = Means()
    run = fit("linear", read(images, embed=module), test=images, epochs=3, folder="run")
    calls = module.calls
    assert torch.equal(examples_of(run.dynamics.record).inputs, read(images, embed=module).inputs) and module.calls == calls
    assert run.dynamics.accuracy == 1
    for file in Path("runs/embeddings").iterdir():
        file.unlink()
    with refused("Means", "embed="):
        examples_of(run.dynamics.record)
    assert examples_of(run.dynamics.record, read(images, embed=module)).ids == read(images).ids
    with refused("Means", "array"):
        run.predict(images)
    assert "embed=module" in repeat(run.settings.as_json(), run.path, run.provenance)


def test_a_run_from_others_cannot_have_files_written(images: Path, place: Path) -> None:
    module = Means()
    read(images, embed=module)
    source = {"source": str(images), "embed": {"module": "Means", "digest": "0"}, "embed_cache": str(place / "planted")}
    with refused("Means"):
        read_recorded(source)
    cache = EmbeddingCache(place / "planted", write=False)
    assert read(images, embed=module, embed_cache=cache).inputs.shape == (24, 3) and not (place / "planted").exists()


def test_a_run_that_names_the_files_of_the_user_does_not_show_them(place: Path) -> None:
    """Whoever writes a run can make a file of any vectors, so the vectors alone do not show that the originals are known."""
    write_both(place)
    run = fit("linear", read("texts.csv", embed="texts.npy"), epochs=1, folder="run")
    text = (place / "texts.csv").read_text()
    (place / "texts.csv").write_text(text.replace("number 4 ", "secret "))
    with refused("inputs differ"):
        examples_of(run.dynamics.record)


def test_the_test_set_is_embedded_by_the_same_module_or_has_its_own_file(place: Path, images: Path) -> None:
    write_both(place)
    data = read("texts.csv", embed="texts.npy")
    with refused("texts.npy", "--test-features"):
        fit("linear", data, test="texts.csv", epochs=1, folder="a")
    run = fit("linear", data, test=read("texts.csv", embed="texts.npy"), epochs=5, folder="b")
    assert run.dynamics.accuracy == 1


# The command line


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_images_are_audited_and_predicted_with_a_file_of_embeddings(place: Path, images: Path) -> None:
    for number in range(12, 60):
        write_image(images / "blue" / f"{number}.png", colour=(number, 3, 200 - number))
        write_image(images / "red" / f"{number}.png", colour=(200 - number, number, 3))
    for number in (10, 30, 50):
        (images / "red" / f"{number}.png").rename(images / "blue" / f"wrong{number}.png")
    data = read(images)
    np.save("vectors.npy", colours(images, data.ids))
    options = ("--features", "vectors.npy", "--test", images, "--test-features", "vectors.npy", "--epochs", 40, "--run", "run")
    done = call("audit", images, *options, "-o", "issues.csv")
    assert done.exit_code == 0, done.stderr
    rows = Path("issues.csv").read_text().splitlines()
    assert {row.split(",")[1] for row in rows[1:4]} == {f"blue/wrong{number}.png" for number in (10, 30, 50)}
    assert Path("issues.html").read_text().count("data:image/png") >= 5
    assert Run("run").settings.model == "linear"
    shown = repeat(Run("run").settings.as_json(), Path("run"), Run("run").provenance)
    assert "--features" in shown and "--test-features" in shown
    done = call("predict", "run", "vectors.npy", "-o", "new.csv")
    assert done.exit_code == 0, done.stderr
    predicted = [row.split(",")[1] for row in Path("new.csv").read_text().splitlines()[1:]]
    assert predicted == ["red" if "red" in name or "wrong" in name else "blue" for name in data.ids]
    done = call("correct", "run", "--retrain")
    assert done.exit_code == 0 and Run("run-corrected").dynamics.accuracy is not None, done.stderr


@pytest.mark.parametrize(
    ("options", "mentions"),
    [
        (("--features", "vectors.npy"), ("23 rows", "24")),
        (("--features", "age"), ("age", "--feature)")),
        (("--features", "transformers:nobody/nothing"), ("nobody/nothing", "--download")),
        (("--features", "timm:resnet18"), ("timm:resnet18@", "--download")),
        (("--features", "timm:resnet18@vectors.npy"), ("timm", "pip install")),
        (("--test-features", "vectors.npy"), ("--test-features",)),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else None,
)
def test_bad_features_are_refused_in_one_sentence_and_nothing_is_written(
    place: Path, images: Path, options: tuple[str, ...], mentions: tuple[str, ...]
) -> None:
    if "timm" in mentions and find_spec("timm") is not None:
        pytest.skip("timm is installed")
    np.save("vectors.npy", np.ones((23, 2)))
    before = sorted(place.rglob("*"))
    done = call("audit", images, *options)
    assert done.exit_code == 2 and not done.stdout and len(done.stderr.splitlines()) == 1
    assert all(mention in done.stderr for mention in mentions), done.stderr
    assert sorted(place.rglob("*")) == before


def test_settings_files_may_name_embeddings(place: Path) -> None:
    write_both(place)
    (place / "run.toml").write_text('data = "texts.csv"\nmodel = "linear"\nepochs = 1\nembed = "texts.npy"\nid = "name"\n')
    done = call("train", "--config", "run.toml", "-o", "run")
    assert done.exit_code == 0, done.stderr
    assert noisewise.Run("run").provenance["shape"] == [5]
