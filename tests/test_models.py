"""The networks are those of the papers: counted and computed independently of the code that builds them."""

from __future__ import annotations

import copy
import itertools
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from network_reference import BN_INCEPTION, GOOGLENET, inception_scores, residual_scores
from noisewise import models
from refused import refused

# Everything registered, small enough to run; the size is one that the network takes.
SMALL = {
    "resnet20": (3, 32, 32),
    "resnet32": (3, 16, 16),
    "resnet44(dropout=0.2)": (3, 16, 16),
    "resnet56": (3, 16, 16),
    "resnet110": (3, 8, 8),
    "resnet18": (3, 16, 16),
    "resnet34": (3, 16, 16),
    "preact_resnet18": (3, 16, 16),
    "resnet18(stem=imagenet)": (3, 64, 64),
    "resnet50(stem=imagenet)": (3, 64, 64),
    "cnn4": (1, 28, 28),
    "cnn8": (3, 32, 32),
    "googlenet": (3, 16, 16),
    "bninception": (3, 64, 64),
    "mlp(hidden=(32, 16), norm=batch, dropout=0.1)": (1, 8, 8),
    "linear": (64,),
}
BLOCKS = {"resnet20", "resnet18", "resnet50(stem=imagenet)", "cnn4", "googlenet", "mlp(hidden=(32, 16), norm=batch, dropout=0.1)", "linear"}
EMBEDDINGS = {
    "resnet20": 64,
    "resnet32": 64,
    "resnet44": 64,
    "resnet56": 64,
    "resnet110": 64,
    "resnet18": 512,
    "resnet34": 512,
    "preact_resnet18": 512,
    "resnet50": 2048,
    "cnn4": 128,
    "cnn8": 256,
    "googlenet": 1024,
    "bninception": 1024,
    "mlp": 16,
    "linear": 64,
}


def name_of(spec: str) -> str:
    return spec.partition("(")[0]


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def on_meta_device(spec: str, **settings: object) -> models.Classifier:
    """The model without memory for its weights: quick to build, enough to count."""
    with torch.device("meta"):
        return models.get(spec, **settings)


def small(spec: str, *, num_classes: int = 5, number: int = 4, seed: int = 0) -> tuple[models.Classifier, torch.Tensor]:
    torch.manual_seed(seed)
    shape = SMALL[spec]
    return models.get(spec, num_classes=num_classes, shape=shape), torch.randn(number, *shape)


def with_random_statistics(model: models.Classifier) -> models.Classifier:
    """Randomise batch normalisation: initially it is almost the identity, which would hide a wrong or missing layer."""
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.1)
            layer.running_var.uniform_(0.5, 1.5)
            nn.init.uniform_(layer.weight, 0.5, 1.0)
            nn.init.normal_(layer.bias, 0, 0.1)
    return model


@pytest.mark.parametrize(
    ("spec", "num_classes", "count"),
    [
        ("resnet20", 10, 269_722),
        ("resnet56", 10, 853_018),
        ("cnn4", 10, 422_090),
        ("cnn8", 10, 1_639_794),
        ("resnet34", 100, 21_328_292),
        ("resnet18", 10, 11_173_962),
        ("preact_resnet18", 10, 11_171_274),
        ("resnet18(stem=imagenet)", 1000, 11_689_512),
        ("resnet34(stem=imagenet)", 1000, 21_797_672),
        ("resnet50(stem=imagenet)", 1000, 25_557_032),
    ],
)
def test_parameter_counts_equal_the_published_ones(spec: str, num_classes: int, count: int) -> None:
    assert parameters(on_meta_device(spec, num_classes=num_classes)) == count


@pytest.mark.parametrize("depth", [20, 32, 44, 56, 110])
def test_parameter_counts_of_cifar_resnets_follow_from_the_number_of_layers(depth: int) -> None:
    """6n + 2 layers: a convolution has 9·in·out weights, batch normalisation 2·out, the shortcuts none."""
    n = (depth - 2) // 6
    widths = [3, 16] + [16] * (2 * n) + [32] * (2 * n) + [64] * (2 * n)
    assert len(widths) == depth
    expected = sum(9 * before * after + 2 * after for before, after in itertools.pairwise(widths)) + 64 * 10 + 10
    model = on_meta_device(f"resnet{depth}", num_classes=10)
    assert parameters(model) == expected
    assert f"{expected:,} parameters" in type(model).__doc__


def unit_count(inputs: int, outputs: int, kernel: int, *, biases: bool = False) -> int:
    return kernel**2 * inputs * outputs + (2 + biases) * outputs


def test_googlenet_has_the_parameters_of_its_table() -> None:
    count, inputs = unit_count(3, 64, 3) + unit_count(64, 64, 1) + unit_count(64, 192, 3), 192
    for single, reduce3, three, reduce5, five, projected, outputs in GOOGLENET.values():
        assert single + three + five + projected == outputs
        count += unit_count(inputs, single, 1) + unit_count(inputs, projected, 1)
        count += unit_count(inputs, reduce3, 1) + unit_count(reduce3, three, 3)
        count += unit_count(inputs, reduce5, 1) + unit_count(reduce5, five, 5)
        inputs = outputs
    count += 1024 * 10 + 10
    assert parameters(on_meta_device("googlenet", num_classes=10)) == count
    assert f"{count:,} parameters" in models.GoogLeNet.__doc__


def bn_inception_count(table: dict[str, tuple[int, ...]], *, biases: bool) -> int:
    def unit(inputs: int, outputs: int, kernel: int) -> int:
        return unit_count(inputs, outputs, kernel, biases=biases) if outputs else 0

    count, inputs = unit(3, 64, 7) + unit(64, 64, 1) + unit(64, 192, 3), 192
    for single, reduce3, three, reduce33, double, projected in table.values():
        count += unit(inputs, single, 1) + unit(inputs, projected, 1) + unit(inputs, reduce3, 1) + unit(reduce3, three, 3)
        count += unit(inputs, reduce33, 1) + unit(reduce33, double, 3) + unit(double, double, 3)
        inputs = single + three + double + (projected or inputs)
    assert inputs == 1024
    return count


def test_bn_inception_has_the_parameters_of_its_table() -> None:
    """With the biases and the two wider poolings of the widely used Caffe weights, the same count gives theirs: 11,295,240."""
    caffe = {**BN_INCEPTION, "4c": (*BN_INCEPTION["4c"][:5], 128), "4d": (*BN_INCEPTION["4d"][:5], 128)}
    assert bn_inception_count(caffe, biases=True) + 1024 * 1000 + 1000 == 11_295_240
    model = on_meta_device("bninception", num_classes=625)
    count = parameters(model) - parameters(model.head)
    assert count == bn_inception_count(BN_INCEPTION, biases=False)
    assert f"{count:,} parameters" in models.BNInception.__doc__


def shapes_along(model: models.Classifier, x: torch.Tensor) -> list[tuple[int, ...]]:
    seen = []
    hooks = [layer.register_forward_hook(lambda *call: seen.append(tuple(call[2].shape[1:]))) for layer in model.trunk]
    with torch.no_grad():
        model.eval()(x)
    for hook in hooks:
        hook.remove()
    return seen


def test_the_layers_of_bn_inception_have_the_sizes_of_its_table() -> None:
    seen = shapes_along(models.get("bninception", num_classes=2), torch.zeros(1, 3, 224, 224))
    assert seen[:5] == [(64, 112, 112), (64, 56, 56), (64, 56, 56), (192, 56, 56), (192, 28, 28)]
    assert seen[5:7] == [(256, 28, 28), (320, 28, 28)]
    assert seen[7:12] == [(576, 14, 14)] * 5
    assert seen[12:] == [(1024, 7, 7)] * 3


def test_the_layers_of_googlenet_have_32_16_and_8_pixels() -> None:
    seen = shapes_along(models.get("googlenet", num_classes=2), torch.zeros(1, 3, 32, 32))
    modules = [shape for shape, before in zip(seen[3:], seen[2:], strict=False) if shape[0] != before[0] or shape[1] == before[1]]
    sizes = {"3": 32, "4": 16, "5": 8}
    assert modules == [(row[-1], sizes[name[0]], sizes[name[0]]) for name, row in GOOGLENET.items()]


@pytest.mark.parametrize("spec", ["bninception", "resnet20", "resnet18(stem=imagenet)"])
def test_any_image_size_is_accepted(spec: str) -> None:
    model = models.get(spec, num_classes=2).eval()
    for height, width in [(33, 57), (64, 48), (45, 32)]:
        assert model(torch.zeros(1, 3, height, width)).shape == (1, 2)


def test_every_registered_model_is_tested() -> None:
    assert {name_of(spec) for spec in SMALL} == set(models.available()) == set(EMBEDDINGS)


@pytest.mark.parametrize("spec", SMALL)
def test_shapes_are_right_and_gradients_reach_every_parameter(spec: str) -> None:
    """In evaluation mode, because batch statistics cancel the bias of the layer before them."""
    model, x = small(spec, number=2)
    features = model.eval().features(x)
    assert features.shape == (2, EMBEDDINGS[name_of(spec)])
    assert isinstance(model.head, nn.Linear)
    scores = model.head(features)
    with torch.no_grad():
        assert torch.equal(model(x), scores) and scores.shape == (2, 5)
    (scores * torch.randn_like(scores)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


# The other models have the same blocks with more or fewer layers.
@pytest.mark.parametrize("spec", [pytest.param(spec, marks=[] if spec in BLOCKS else [pytest.mark.slow]) for spec in SMALL])
def test_a_training_step_has_gradients_for_every_weight(spec: str) -> None:
    model, x = small(spec, number=4)
    F.cross_entropy(model.train()(x), torch.arange(4) % 5).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.dim() == 1 or parameter.grad.any(), name


@pytest.mark.parametrize("spec", ["resnet20", "cnn4", "mlp(hidden=(32, 16), norm=batch, dropout=0.1)"])
def test_the_seed_determines_the_weights(spec: str) -> None:
    first, again, other = (small(spec, seed=seed)[0].state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


@pytest.mark.parametrize("spec", ["resnet44(dropout=0.2)", "mlp(hidden=(32, 16), norm=batch, dropout=0.1)"])
def test_dropout_is_active_in_training_only(spec: str) -> None:
    model, x = small(spec)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_dropout_drops_its_share_of_the_embedding() -> None:
    torch.manual_seed(0)
    x = torch.ones(400, 50)
    features = models.get("linear(dropout=0.2)", num_classes=2, inputs=50).features(x)
    kept = int(features.count_nonzero())
    assert torch.allclose(features[features != 0], torch.tensor(1 / 0.8))
    assert abs(kept - 0.8 * x.numel()) < 5 * math.sqrt(0.16 * x.numel())


def test_dropout_of_an_mlp_drops_its_share_between_hidden_layers_too() -> None:
    torch.manual_seed(0)
    model = models.get("mlp(hidden=(400, 3), dropout=0.2)", num_classes=2, shape=(4,))
    nn.init.zeros_(model.layers[0].weight)
    nn.init.ones_(model.layers[0].bias)
    seen: list[torch.Tensor] = []
    model.layers[1].register_forward_pre_hook(lambda layer, given: seen.append(given[0]))
    for training in (True, False):
        model.train(training)(torch.zeros(50, 4))
    kept = int(seen[0].count_nonzero())
    assert torch.allclose(seen[0][seen[0] != 0], torch.tensor(1 / 0.8)) and (seen[1] == 1).all()
    assert abs(kept - 0.8 * seen[0].numel()) < 5 * math.sqrt(0.16 * seen[0].numel())


@pytest.mark.parametrize("spec", ["resnet20", "resnet18(stem=imagenet)", "cnn8", "googlenet", "bninception"])
def test_channels_last_gives_the_same_scores_and_stays_channels_last(spec: str) -> None:
    model, x = small(spec)
    with torch.no_grad():
        expected = with_random_statistics(model).eval()(x)
        model.to(memory_format=torch.channels_last)
        formats = []
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.register_forward_hook(lambda *call: formats.append(call[2].is_contiguous(memory_format=torch.channels_last)))
        given = model(x.to(memory_format=torch.channels_last))
    assert torch.allclose(given, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
    assert formats
    assert all(formats)


@pytest.mark.parametrize(
    "spec", [pytest.param("resnet20", marks=pytest.mark.slow), "cnn4", "mlp(hidden=(32, 16), norm=batch, dropout=0.1)"]
)
def test_a_model_compiles_to_one_graph(spec: str) -> None:
    model, x = small(spec)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert compiled(x).shape == (4, 5)
    assert torch.equal(compiled.eval()(x), model.eval()(x))


@pytest.mark.parametrize("spec", SMALL)
def test_the_repr_of_a_model_is_its_spec(spec: str) -> None:
    model = on_meta_device(spec, num_classes=5, shape=SMALL[spec])
    again = on_meta_device(repr(model))
    assert repr(again) == repr(model)
    assert [(name, tensor.shape) for name, tensor in again.state_dict().items()] == [
        (name, tensor.shape) for name, tensor in model.state_dict().items()
    ]


@pytest.mark.parametrize("spec", ["resnet20", "googlenet", "cnn4", "linear"])
def test_copies_and_pickles_compute_the_same(spec: str) -> None:
    model, x = small(spec)
    model.eval()
    with torch.no_grad():
        for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(copied(x), model(x))


@pytest.mark.parametrize("spec", ["resnet20", "resnet34", "preact_resnet18", "resnet50(stem=imagenet)"])
def test_residual_networks_compute_the_formulas_of_the_paper(spec: str) -> None:
    model, x = small(spec, number=2)
    model, x = with_random_statistics(model).double().eval(), x.double()
    with torch.no_grad():
        expected = residual_scores(model.state_dict(), x, head="head", imagenet="imagenet" in spec, pre_activation="preact" in spec)
        assert torch.allclose(model(x), expected, rtol=1e-9, atol=1e-12)


def test_option_a_keeps_every_second_pixel_and_centres_the_channels() -> None:
    model = models.get("resnet20", num_classes=2)
    x = torch.arange(16 * 5 * 4.0).view(1, 16, 5, 4)
    y = model.layer2[0].downsample(x)
    assert y.shape == (1, 32, 3, 2)
    assert torch.equal(y[:, 8:24], x[:, :, [0, 2, 4]][..., [0, 2]])
    assert not y[:, :8].any()
    assert not y[:, 24:].any()


@pytest.mark.parametrize("spec", ["googlenet", "bninception"])
def test_inception_networks_compute_their_tables(spec: str) -> None:
    model, x = small(spec, number=2)
    model, x = with_random_statistics(model).double().eval(), x.double()
    with torch.no_grad():
        assert torch.allclose(model(x), inception_scores(model, x), rtol=1e-9, atol=1e-12)


def test_a_plain_network_without_normalisation_scores_each_image_alone() -> None:
    images = torch.randn(3, 1, 8, 8)
    for norm, alone in (("none", True), ("batch", False)):
        model = models.get(f"cnn4(norm='{norm}')", num_classes=4, shape=(1, 8, 8)).train()
        assert torch.allclose(model(images)[:2], model(images[:2]), atol=1e-6) == alone
    assert "norm" not in repr(models.get("cnn8", num_classes=4))


@pytest.mark.parametrize(("spec", "shape"), [("cnn4", (1, 28, 28)), ("cnn8", (3, 32, 32)), ("cnn4", (1, 8, 8))])
def test_plain_networks_compute_the_recipe(spec: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = with_random_statistics(models.get(spec, num_classes=3, shape=shape)).double().eval()
    x = torch.randn(2, *shape, dtype=torch.float64)
    convolutions = [layer for layer in model.trunk if isinstance(layer, nn.Conv2d)]
    norms = [layer for layer in model.trunk if isinstance(layer, nn.BatchNorm2d)]
    pool_after = {"cnn4": [0, 1], "cnn8": [1, 3, 5]}[spec]
    assert [layer.out_channels for layer in convolutions] == {"cnn4": [32, 64], "cnn8": [64, 64, 128, 128, 196, 196]}[spec]
    hidden, norm = next(layer for layer in model.trunk if isinstance(layer, nn.Linear)), model.trunk[-2]
    with torch.no_grad():
        y = x
        for position, (convolution, batch) in enumerate(zip(convolutions, norms, strict=True)):
            y = F.conv2d(y, convolution.weight, convolution.bias, padding=1)
            y = F.batch_norm(y, batch.running_mean, batch.running_var, batch.weight, batch.bias).relu()
            if position in pool_after:
                y = y.unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2))
        y = y.reshape(2, -1) @ hidden.weight.T + hidden.bias
        y = (y / math.sqrt(1 + norm.eps)).relu()
        assert torch.allclose(model.features(x), y, rtol=1e-9, atol=1e-12)


def test_an_mlp_computes_its_formula() -> None:
    torch.manual_seed(0)
    model = models.get("mlp(hidden=(7, 4))", num_classes=3, shape=(2, 5)).double()
    x = torch.randn(6, 2, 5, dtype=torch.float64)
    weights = [parameter.detach() for parameter in model.parameters()]
    y = (x.reshape(6, 10) @ weights[0].T + weights[1]).clamp(min=0)
    y = (y @ weights[2].T + weights[3]).clamp(min=0)
    assert torch.allclose(model(x), y @ weights[4].T + weights[5])


def test_batch_normalisation_of_an_mlp_comes_before_relu() -> None:
    torch.manual_seed(0)
    model = models.get("mlp(hidden=(7,), norm=batch)", num_classes=3, shape=(5,)).double()
    x = torch.randn(6, 5, dtype=torch.float64)
    y = x @ model.layers[0].weight.T + model.layers[0].bias
    y = ((y - y.mean(0)) / (y.var(0, correction=0) + 1e-5).sqrt()).clamp(min=0)
    assert torch.allclose(model(x), y @ model.head.weight.T + model.head.bias)


def fan(weight: torch.Tensor) -> tuple[int, int]:
    return weight[0].numel(), weight.numel() // weight.shape[1]


def largest(model: nn.Module, kind: type[nn.Module]) -> nn.Module:
    return max((layer for layer in model.modules() if isinstance(layer, kind)), key=lambda layer: layer.weight.numel())


@pytest.mark.parametrize("spec", ["resnet18", "cnn8"])
def test_initialisations_have_the_distribution_of_their_name(spec: str) -> None:
    def weights(init: str) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(0)
        model = models.get(spec, num_classes=100, init=init)
        return largest(model, nn.Conv2d).weight.detach(), largest(model, nn.Linear).weight.detach()

    convolution, linear = weights("kaiming_normal")
    _, fan_out = fan(convolution)
    tolerance = 5 / math.sqrt(2 * convolution.numel())
    assert float(convolution.std()) == pytest.approx(math.sqrt(2 / fan_out), rel=tolerance)
    assert float(convolution.abs().max() / convolution.std()) > 4
    uneven = {"resnet18": "layer4.0.conv1", "cnn8": "trunk.14"}[spec]  # a layer whose fan in and fan out differ
    weight = models.get(spec, num_classes=100, init="kaiming_normal").get_submodule(uneven).weight.detach()
    assert fan(weight)[0] != fan(weight)[1]
    assert float(weight.std()) == pytest.approx(math.sqrt(2 / fan(weight)[1]), rel=5 / math.sqrt(2 * weight.numel()))
    assert float(linear.abs().max()) == pytest.approx(1 / math.sqrt(fan(linear)[0]), rel=1e-2)

    convolution, linear = weights("kaiming_uniform")
    assert float(convolution.abs().max()) == pytest.approx(math.sqrt(6 / fan(convolution)[0]), rel=1e-3)
    assert float(linear.abs().max()) == pytest.approx(math.sqrt(6 / sum(fan(linear))), rel=1e-3)

    convolution, linear = weights("torch")
    assert float(convolution.abs().max()) == pytest.approx(1 / math.sqrt(fan(convolution)[0]), rel=1e-3)
    assert float(linear.abs().max()) == pytest.approx(1 / math.sqrt(fan(linear)[0]), rel=1e-2)


def test_each_family_is_initialised_as_in_its_paper() -> None:
    assert models.get("cnn4", num_classes=2).init == models.get("cnn8", num_classes=2).init == "kaiming_uniform"
    assert models.get("resnet20", num_classes=2).init == models.get("resnet50", num_classes=2).init == "kaiming_normal"


@pytest.mark.parametrize(
    ("spec", "settings", "mentions"),
    [
        ("resnet21", {"num_classes": 10}, ("'resnet21'", "'resnet20'")),
        ("resnet21", {"num_classes": 10, "shape": (3, 32, 32)}, ("'resnet21'", "'resnet20'")),
        ("resnet20", {}, ("'num_classes'",)),
        ("resnet20", {"num_classes": 0}, ("'num_classes'", "ResNet20", "[1, inf)", 0)),
        ("resnet20", {"num_classes": 10, "channels": 1.5}, ("'channels'", "ResNet20", "integer", 1.5)),
        ("resnet44(dropout=1)", {"num_classes": 10}, ("'dropout'", "ResNet44", "[0, 1)", 1)),
        ("resnet50(stem=webvision)", {"num_classes": 10}, ("'stem'", "ResNet50", "'cifar', 'imagenet'", "'webvision'")),
        ("cnn4(init=zeros)", {"num_classes": 10}, ("'init'", "CNN4", "'kaiming_normal', 'kaiming_uniform', 'torch'", "'zeros'")),
        ("cnn8(size=4)", {"num_classes": 10}, ("'size'", "CNN8", "[8, inf)", 4)),
        ("cnn8", {"num_classes": 10, "shape": (3, 32, 48)}, ("'shape'", "CNN8", "square", (3, 32, 48))),
        ("resnet20", {"num_classes": 10, "shape": (64,)}, ("'shape'", "ResNet20", "(channels, height, width)", (64,))),
        ("mlp(hidden=())", {"num_classes": 10, "inputs": 4}, ("'hidden'", "MLP", ())),
        ("mlp(hidden=(8, 0))", {"num_classes": 10, "inputs": 4}, ("'hidden'", "MLP", (8, 0))),
        ("mlp(norm=layer)", {"num_classes": 10, "inputs": 4}, ("'norm'", "MLP", "'none', 'batch'", "'layer'")),
        ("linear", {"num_classes": 10}, ("'inputs'",)),
    ],
)
def test_bad_settings_are_refused(spec: str, settings: dict, mentions: tuple) -> None:
    with refused(*mentions):
        models.get(spec, **settings)


@pytest.mark.parametrize(
    ("spec", "x", "mentions"),
    [
        ("resnet20", torch.zeros(2, 3, 32, 32, dtype=torch.uint8), ("float", "torch.uint8")),
        ("resnet20", torch.zeros(2, 1, 32, 32), ("(N, 3, height, width)", (2, 1, 32, 32))),
        ("resnet20", torch.zeros(3, 32, 32), ("(N, 3, height, width)", (3, 32, 32))),
        ("cnn4", torch.zeros(2, 1, 32, 32), ("(N, 1, 28, 28)", (2, 1, 32, 32))),
        ("linear(inputs=64)", torch.zeros(2, 63), (64, (2, 63))),
        ("linear(inputs=64)", torch.zeros(64), (64, (64,))),
    ],
)
def test_inputs_of_another_shape_or_type_are_refused(spec: str, x: torch.Tensor, mentions: tuple) -> None:
    model = models.get(spec, num_classes=2)
    for call in (model, model.features):
        with refused(*mentions):
            call(x)


def test_the_shape_of_the_data_sets_channels_size_and_inputs() -> None:
    assert models.get("resnet20", num_classes=10, shape=(1, 28, 28)).channels == 1
    assert models.get("cnn8", num_classes=10, shape=(1, 28, 28))(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert models.get("mlp", num_classes=10, shape=(8, 8)).inputs == 64
    built = models.get("cnn4", num_classes=10)
    assert models.get(built, shape=(3, 32, 32)) is built


def test_a_custom_model_is_registered_by_its_name() -> None:
    class Mean(models.ImageClassifier, name="mean_pixel"):
        def build(self) -> int:
            return self.channels

        def embed(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean((2, 3))

    try:
        assert models.available("mean*") == ["mean_pixel"]
        assert models.get("mean_pixel", num_classes=4, shape=(2, 9, 9))(torch.ones(3, 2, 9, 9)).shape == (3, 4)
    finally:
        del models.registry._factories["mean_pixel"]
