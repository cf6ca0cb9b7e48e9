"""Predictions of a run: inputs in every form that `fit` takes, in batches; wrong inputs are refused."""

import pickle

import numpy as np
import pandas
import pytest
import torch
from small_runs import QUICK, clusters
from torch import nn

from default_dtype import default_dtype
from noisewise import Recorder, fit
from noisewise.data import augmentations, load, read
from noisewise.models import MLP
from noisewise.train._predictor import EVALUATION_BATCH
from refused import refused

ASKED = {**QUICK, "epochs": 1}


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return fit("mlp", clusters(), folder=tmp_path_factory.mktemp("runs") / "features", **ASKED)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return fit("cnn4", load("digits").take(torch.arange(64)), folder=tmp_path_factory.mktemp("runs") / "images", **ASKED)


@pytest.mark.parametrize(
    "given",
    [torch.Tensor.numpy, torch.Tensor.double, torch.Tensor.tolist, lambda inputs: np.asfortranarray(inputs.double().numpy())],
    ids=["numpy", "double", "list", "Fortran order"],
)
def test_features_may_have_every_type_that_fit_takes(features, given):
    inputs = clusters()[0]
    assert torch.equal(features.predict(given(inputs)), features.predict(inputs))


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize(
    "given",
    [lambda images: images.permute(0, 2, 3, 1), lambda images: images.permute(0, 2, 3, 1).numpy(), torch.Tensor.numpy],
    ids=["channels last", "channels last, numpy", "numpy"],
)
def test_images_may_have_every_layout_that_fit_takes(tmp_path, given, normalise):
    generator = torch.Generator().manual_seed(0)
    raw = torch.randint(256, (20, 3, 8, 8), generator=generator, dtype=torch.uint8)
    run = fit("cnn4", (given(raw), torch.arange(20) % 2), folder=tmp_path / "run", normalise=normalise, **ASKED)
    assert run.predict(given(raw)).shape == (20, 2) and torch.equal(run.predict(given(raw)), run.predict(raw))


@pytest.mark.parametrize("normalise", [True, False])
def test_pixels_from_0_to_255_may_have_any_type(tmp_path, normalise):
    """The run was trained on uint8, so the float 255.0 is white, too."""
    digits = load("digits").take(torch.arange(64))
    run = fit("linear", digits, folder=tmp_path / "run", normalise=normalise, **ASKED)
    expected = run.predict(digits.inputs)
    for given in (digits.inputs.tolist(), digits.inputs.float(), digits.inputs.long().numpy(), digits.inputs.double()):
        assert torch.equal(run.predict(given), expected)
    if normalise:
        torch.testing.assert_close(run.predict(digits.inputs / 255), expected)
    for wrong in (digits.inputs + 0.5, digits.inputs.float() - 3, 2.0 * digits.inputs):
        with refused("uint8", "torch.float32"):
            run.predict(wrong)


def test_a_test_set_of_pixels_may_have_another_type(tmp_path):
    digits = load("digits").take(torch.arange(64))
    runs = [
        fit("linear", digits, test=(inputs, digits.labels), folder=tmp_path / name, **ASKED)
        for name, inputs in (("bytes", digits.inputs), ("floats", digits.inputs.float()), ("shares", digits.inputs / 255))
    ]
    assert len({run.metrics[-1]["test_accuracy"] for run in runs}) == 1
    with refused("test set", "uint8"):
        fit("linear", digits, test=(digits.inputs * 2.0, digits.labels), folder=tmp_path / "none", **ASKED)


def test_built_in_and_custom_models_predict_in_eval_mode(tmp_path):
    dropping = nn.Sequential(nn.Linear(8, 3), nn.Dropout(0.5))
    built_in, custom = (
        fit(model, clusters(), folder=tmp_path / name, **ASKED) for name, model in (("built-in", "mlp(dropout=0.5)"), ("custom", dropping))
    )
    inputs = clusters()[0]
    assert not built_in.model().training and torch.equal(built_in.predict(inputs), built_in.predict(inputs))
    normalised = augmentations.get(custom.provenance["normalise"])(inputs)
    assert torch.equal(custom.predict(inputs, into=dropping.train()), dropping[0](normalised).softmax(1))


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("given", [torch.clone, torch.Tensor.numpy], ids=["tensor", "numpy"])
def test_a_model_that_changes_its_inputs_in_place_does_not_change_the_given_ones(tmp_path, given, normalise):
    inputs, labels = clusters()
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 3))
    run = fit(model, (inputs.clone(), labels), folder=tmp_path / "run", normalise=normalise, **ASKED)
    passed = given(inputs.clone())
    run.predict(passed, into=model)
    assert torch.equal(torch.as_tensor(passed), inputs) and inputs.min() < 0


def test_grey_images_may_have_no_channel_dimension(images):
    raw = load("digits").inputs[:9]
    assert torch.equal(images.predict(raw[:, 0]), images.predict(raw))


@pytest.mark.parametrize("number", [1, EVALUATION_BATCH, EVALUATION_BATCH + 1, 3 * EVALUATION_BATCH])
def test_predictions_equal_those_of_the_model_on_normalised_inputs_and_are_made_in_batches(tmp_path, number):
    sizes = []

    class Watched(nn.Linear):
        def forward(self, inputs):
            sizes.append(len(inputs))
            return super().forward(inputs)

    inputs, labels = clusters()
    model = Watched(8, 3)
    run = fit(model, (inputs, labels), folder=tmp_path / "run", **ASKED)
    many = clusters(number, seed=3)[0]
    sizes.clear()
    probabilities = run.predict(many, into=model)
    assert sum(sizes) == number and max(sizes) <= EVALUATION_BATCH
    scaled = (many.double() - inputs.double().mean(0)) / inputs.double().var(0, correction=0).sqrt()
    expected = (scaled @ model.weight.double().T + model.bias.double()).softmax(1)
    torch.testing.assert_close(probabilities.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "mentions"),
    [
        (torch.zeros(4, 7), ["(8,)", "Got (7,)"]),
        (torch.zeros(8), ["(N, …)", "(8,)"]),
        (torch.zeros(0, 8), ["(N, …)", "(0, 8)"]),
        (torch.tensor([[0.0] * 8, [0.0] * 7 + [float("nan")]]), ["Row 1, column 7", "nan"]),
        ([["a"] * 8], ["numbers"]),
        (torch.zeros(4, 3, 8, 8, dtype=torch.uint8), ["(8,)", "Got (3, 8, 8)"]),
    ],
)
def test_inputs_unlike_those_of_training_are_refused(features, given, mentions):
    with refused(*mentions):
        features.predict(given)


def test_a_custom_model_must_be_given_again_with_the_same_layers(tmp_path):
    inputs, labels = clusters()
    run = fit(nn.Linear(8, 3), (inputs, labels), folder=tmp_path / "run", **QUICK)
    for call in (run.model, lambda: run.predict(inputs)):
        with refused("run'", "into="):
            call()
    with refused("run'", "size mismatch for weight"):
        run.model(nn.Linear(8, 4))
    assert run.predict(inputs, nn.Linear(8, 3)).shape == (300, 3)


def test_predicting_uses_no_random_numbers_and_ignores_the_default_dtype(tmp_path):
    inputs, labels = torch.randn(40, 4), torch.arange(40) % 2
    run = fit("mlp(hidden=(8,), norm='batch')", (inputs, labels), epochs=1, folder=tmp_path / "run", device="cpu")
    expected, state = run.predict(inputs), torch.get_rng_state()
    assert torch.equal(run.predict(inputs), expected) and torch.equal(torch.get_rng_state(), state)
    assert all(weights.requires_grad and weights.dtype == torch.float32 for weights in run.model().parameters())
    with default_dtype(torch.float64):
        assert torch.equal(run.predict(inputs), expected)


def test_a_buffer_that_is_not_persistent_is_built_again(tmp_path):
    class Shifted(MLP, name="shifted_mlp"):
        def build(self):
            self.register_buffer("shift", torch.ones(1), persistent=False)
            return super().build()

        def embed(self, x):
            return super().embed(x) + self.shift

    try:
        run = fit("shifted_mlp", (torch.randn(40, 4), torch.arange(40) % 2), epochs=1, folder=tmp_path / "run", device="cpu")
        assert run.model().shift.item() == 1
    finally:
        del Shifted.registry._factories["shifted_mlp"]


def recorded(folder, model):
    """A recorded training loop that stored its model."""
    recorder = Recorder(folder, [0, 1, 0, 1], loss="ce")
    recorder.log(range(4), torch.zeros(4, 2))
    return recorder.finish(model)


class Watched(nn.Module):
    """Gives two scores to any inputs, and keeps the inputs."""

    def __init__(self):
        super().__init__()
        self.bias, self.seen = nn.Parameter(torch.zeros(2)), []

    def forward(self, inputs):
        self.seen.append(inputs)
        return self.bias.expand(len(inputs), 2)


@pytest.mark.parametrize(
    "given",
    [
        torch.randint(100, (5, 7)),
        torch.arange(5),
        torch.rand(5, 8, 8, 3),
        torch.rand(5, 8, 8, 3).permute(0, 3, 1, 2),
        torch.rand(5, 3).bfloat16(),
        torch.rand(5, 3).double(),
        torch.randint(256, (5, 8, 8), dtype=torch.uint8),
        np.arange(10).reshape(5, 2),
        np.ones((5, 8, 8, 3), np.uint8),
        np.ones((5, 2), np.float16),
        np.ones((5, 2), ">i4"),
    ],
    ids=lambda given: f"{given.dtype} {tuple(given.shape)}",
)
def test_a_recorded_model_gets_its_inputs_unchanged(tmp_path, given):
    """A recorder never sees inputs, so it cannot know how to convert them."""
    model = Watched()
    assert recorded(tmp_path / "run", model).predict(given, into=model).shape == (5, 2)
    (seen,) = model.seen
    expected = given if isinstance(given, torch.Tensor) else torch.from_numpy(given.astype(given.dtype.newbyteorder("=")))
    assert seen.dtype == expected.dtype and torch.equal(seen, expected) and seen.stride() == expected.stride()
    assert seen.data_ptr() != expected.data_ptr()


def test_a_recorded_model_gets_numpy_floats_in_the_type_of_its_weights(tmp_path):
    for kind in (torch.float32, torch.float64):
        model = nn.Linear(3, 2).to(kind)
        run = recorded(tmp_path / str(kind), model)
        inputs = np.random.default_rng(0).normal(size=(EVALUATION_BATCH + 1, 3))
        expected = model(torch.from_numpy(inputs).to(kind)).float().softmax(1)
        for given in (inputs, inputs.tolist()):
            torch.testing.assert_close(run.predict(given, into=nn.Linear(3, 2).to(kind)), expected)


def test_a_recorded_model_of_tokens_predicts(tmp_path):
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 2))
    tokens = torch.randint(9, (6, 3))
    run = recorded(tmp_path / "run", model)
    for given in (tokens, tokens.numpy(), tokens.tolist(), list(tokens)):
        assert torch.equal(run.predict(given, into=model), model(tokens).softmax(1))


@pytest.mark.parametrize(
    ("given", "mentions"),
    [
        (torch.zeros(4, 7), ["run'", "(4, 7)", "mat1 and mat2"]),
        (torch.zeros(4, 3).double(), ["run'", "(4, 3)", "dtype"]),
        (torch.zeros(0, 3), ["'inputs'", "predict", "Got (0, 3)"]),
        (torch.tensor(1.0), ["'inputs'", "predict", "Got ()"]),
        ([["a"]], ["numbers"]),
    ],
)
def test_inputs_that_a_recorded_model_cannot_score_are_refused(tmp_path, given, mentions):
    run = recorded(tmp_path / "run", nn.Linear(3, 2))
    with refused(*mentions):
        run.predict(given, into=nn.Linear(3, 2))


@pytest.mark.parametrize(
    "forward", [lambda x: x.sum(1), lambda x: x.sum(), lambda x: x[:1], lambda x: x[:, :, None]], ids=["1", "0", "row", "3"]
)
def test_scores_with_a_wrong_shape_are_refused(tmp_path, forward):
    model = nn.Linear(3, 2)
    model.forward = forward
    with refused("run'", "(4, classes)", f"Got {tuple(forward(torch.zeros(4, 3)).shape)}"):
        recorded(tmp_path / "run", model).predict(torch.zeros(4, 3), into=model)


def test_a_recorded_module_with_the_name_of_a_built_in_model_must_be_given(tmp_path):
    recorder = Recorder(tmp_path / "run", [0, 1], loss="ce", model="mlp(num_classes=2, inputs=3)")
    recorder.log([0, 1], torch.eye(2))
    run = recorder.finish(nn.Linear(3, 2))
    with refused("run'", "into="):
        run.model()
    with refused("'into'", "Got 'mlp'"):
        run.model(into="mlp")


def _table(number: int = 60) -> pandas.DataFrame:
    generator = np.random.default_rng(0)
    kind = np.arange(number) % 2
    frame = pandas.DataFrame({"age": 40 + 9 * generator.normal(size=number) + 30 * kind, "height": generator.normal(size=number)})
    return frame.assign(member=kind == 1, kind=np.array(["cat", "dog"])[kind])


def test_columns_of_a_table_are_selected_by_name(tmp_path):
    frame = _table()
    run = fit("linear", read(frame, label="kind"), folder=tmp_path / "run", **ASKED)
    expected = run.predict(frame[["age", "height", "member"]].astype(float).to_numpy())
    reordered = frame[["member", "kind", "height", "age"]].assign(city="Bern")
    reordered.to_csv(tmp_path / "new.csv", index=False)
    for given in (frame, reordered, tmp_path / "new.csv", str(tmp_path / "new.csv")):
        torch.testing.assert_close(run.predict(given), expected)
    with refused("DataFrame", "'age'"):
        run.predict(frame.drop(columns="age"))
    with refused("'nowhere.csv'"):
        run.predict("nowhere.csv")
    assert torch.equal(pickle.loads(pickle.dumps(run.predictor())).scores(reordered), run.predictor().scores(frame))


def test_a_run_without_column_names_takes_columns_in_their_order(features, tmp_path):
    inputs = clusters()[0]
    assert torch.equal(features.predict(pandas.DataFrame(inputs.numpy())), features.predict(inputs))
    with refused("Got 'new.csv'"):
        features.predict("new.csv")
