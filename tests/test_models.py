"""The networks are the papers': counted, computed and named independently of the code that builds them."""

from __future__ import annotations

import copy
import io
import itertools
import math
import pickle
import warnings

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from noisewise import models
from noisewise.errors import InputError

# Everything registered, small enough to run; the size is one that the network takes.
SMALL = {
    "resnet20": (3, 32, 32),
    "resnet32": (3, 16, 16),
    "resnet44(dropout=0.2)": (3, 16, 16),
    "resnet56": (3, 16, 16),
    "resnet110": (3, 8, 8),
    "resnet18": (3, 16, 16),
    "resnet34": (3, 16, 16),
    "resnet18(stem=imagenet)": (3, 64, 64),
    "resnet50(stem=imagenet)": (3, 64, 64),
    "cnn4": (1, 28, 28),
    "cnn8": (3, 32, 32),
    "googlenet": (3, 16, 16),
    "bninception": (3, 64, 64),
    "mlp(hidden=(32, 16), norm=batch, dropout=0.1)": (1, 8, 8),
    "linear": (64,),
}
EMBEDDINGS = {
    "resnet20": 64,
    "resnet32": 64,
    "resnet44": 64,
    "resnet56": 64,
    "resnet110": 64,
    "resnet18": 512,
    "resnet34": 512,
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


def unfilled(spec: str, **settings: object) -> models.Classifier:
    """The model without memory for its weights: quick to make, enough to count."""
    with torch.device("meta"):
        return models.get(spec, **settings)


def small(spec: str, *, num_classes: int = 5, number: int = 4, seed: int = 0) -> tuple[models.Classifier, torch.Tensor]:
    torch.manual_seed(seed)
    shape = SMALL[spec]
    return models.get(spec, num_classes=num_classes, shape=shape), torch.randn(number, *shape)


def with_lively_statistics(model: models.Classifier) -> models.Classifier:
    """Batch normalisation at its start is almost the identity, which would hide a wrong order or a missing one."""
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
        ("resnet18(stem=imagenet)", 1000, 11_689_512),
        ("resnet34(stem=imagenet)", 1000, 21_797_672),
        ("resnet50(stem=imagenet)", 1000, 25_557_032),
    ],
)
def test_parameter_count_is_the_published_one(spec: str, num_classes: int, count: int) -> None:
    assert parameters(unfilled(spec, num_classes=num_classes)) == count


@pytest.mark.parametrize("depth", [20, 32, 44, 56, 110])
def test_option_a_counts_follow_from_the_number_of_layers(depth: int) -> None:
    """6n + 2 layers: a convolution has 9·in·out weights, batch normalisation 2·out, the shortcuts none."""
    n = (depth - 2) // 6
    widths = [3, 16] + [16] * (2 * n) + [32] * (2 * n) + [64] * (2 * n)
    assert len(widths) == depth
    expected = sum(9 * before * after + 2 * after for before, after in itertools.pairwise(widths)) + 64 * 10 + 10
    model = unfilled(f"resnet{depth}", num_classes=10)
    assert parameters(model) == expected
    assert f"{expected:,} parameters" in type(model).__doc__


def unit_count(inputs: int, outputs: int, kernel: int, *, biases: bool = False) -> int:
    return kernel**2 * inputs * outputs + (2 + biases) * outputs


# Szegedy et al. 2015, table 1: #1×1, #3×3 reduce, #3×3, #5×5 reduce, #5×5, pool proj; and the channels of the output.
GOOGLENET = {
    "3a": (64, 96, 128, 16, 32, 32, 256),
    "3b": (128, 128, 192, 32, 96, 64, 480),
    "4a": (192, 96, 208, 16, 48, 64, 512),
    "4b": (160, 112, 224, 24, 64, 64, 512),
    "4c": (128, 128, 256, 24, 64, 64, 512),
    "4d": (112, 144, 288, 32, 64, 64, 528),
    "4e": (256, 160, 320, 32, 128, 128, 832),
    "5a": (256, 160, 320, 32, 128, 128, 832),
    "5b": (384, 192, 384, 48, 128, 128, 1024),
}


def test_googlenet_has_the_parameters_of_its_table() -> None:
    count, inputs = unit_count(3, 64, 3) + unit_count(64, 64, 1) + unit_count(64, 192, 3), 192
    for single, reduce3, three, reduce5, five, projected, outputs in GOOGLENET.values():
        assert single + three + five + projected == outputs
        count += unit_count(inputs, single, 1) + unit_count(inputs, projected, 1)
        count += unit_count(inputs, reduce3, 1) + unit_count(reduce3, three, 3)
        count += unit_count(inputs, reduce5, 1) + unit_count(reduce5, five, 5)
        inputs = outputs
    count += 1024 * 10 + 10
    assert parameters(unfilled("googlenet", num_classes=10)) == count
    assert f"{count:,} parameters" in models.GoogLeNet.__doc__


# Ioffe & Szegedy 2015, figure 5: #1×1, #3×3 reduce, #3×3, double #3×3 reduce, double #3×3, pool proj (0: passed through).
BN_INCEPTION = {
    "3a": (64, 64, 64, 64, 96, 32),
    "3b": (64, 64, 96, 64, 96, 64),
    "3c": (0, 128, 160, 64, 96, 0),
    "4a": (224, 64, 96, 96, 128, 128),
    "4b": (192, 96, 128, 96, 128, 128),
    "4c": (160, 128, 160, 128, 160, 96),
    "4d": (96, 128, 192, 160, 192, 96),
    "4e": (0, 128, 192, 192, 256, 0),
    "5a": (352, 192, 320, 160, 224, 128),
    "5b": (352, 192, 320, 192, 224, 128),
}


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
    """The same count, with the biases and the two wider poolings of the widely used Caffe weights, is theirs: 11,295,240."""
    caffe = {**BN_INCEPTION, "4c": (*BN_INCEPTION["4c"][:5], 128), "4d": (*BN_INCEPTION["4d"][:5], 128)}
    assert bn_inception_count(caffe, biases=True) + 1024 * 1000 + 1000 == 11_295_240
    model = unfilled("bninception", num_classes=625)
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


def test_bn_inception_sees_the_sizes_of_its_table() -> None:
    seen = shapes_along(models.get("bninception", num_classes=2), torch.zeros(1, 3, 224, 224))
    assert seen[:5] == [(64, 112, 112), (64, 56, 56), (64, 56, 56), (192, 56, 56), (192, 28, 28)]
    assert seen[5:7] == [(256, 28, 28), (320, 28, 28)]
    assert seen[7:12] == [(576, 14, 14)] * 5
    assert seen[12:] == [(1024, 7, 7)] * 3


def test_googlenet_sees_32_16_and_8_pixels() -> None:
    seen = shapes_along(models.get("googlenet", num_classes=2), torch.zeros(1, 3, 32, 32))
    modules = [shape for shape, before in zip(seen[3:], seen[2:], strict=False) if shape[0] != before[0] or shape[1] == before[1]]
    sizes = {"3": 32, "4": 16, "5": 8}
    assert modules == [(row[-1], sizes[name[0]], sizes[name[0]]) for name, row in GOOGLENET.items()]


@pytest.mark.parametrize("spec", ["bninception", "resnet20", "resnet18(stem=imagenet)"])
def test_any_image_size_is_taken(spec: str) -> None:
    model = models.get(spec, num_classes=2).eval()
    for height, width in [(33, 57), (64, 48), (45, 32)]:
        assert model(torch.zeros(1, 3, height, width)).shape == (1, 2)


def test_every_registered_model_is_tried_here() -> None:
    assert {name_of(spec) for spec in SMALL} == set(models.available()) == set(EMBEDDINGS)


@pytest.mark.parametrize("spec", SMALL)
def test_scores_and_embedding_have_their_shapes(spec: str) -> None:
    model, x = small(spec)
    model.eval()
    with torch.no_grad():
        features = model.features(x)
        assert features.shape == (4, EMBEDDINGS[name_of(spec)])
        assert model(x).shape == (4, 5)
        assert torch.equal(model(x), model.head(features))
    assert isinstance(model.head, nn.Linear)


@pytest.mark.parametrize("spec", SMALL)
def test_gradients_reach_every_parameter(spec: str) -> None:
    """In evaluation mode, because batch statistics cancel the bias of the layer before them."""
    model, x = small(spec)
    scores = model.eval()(x)
    (scores * torch.randn_like(scores)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("spec", SMALL)
def test_training_moves_every_weight(spec: str) -> None:
    model, x = small(spec, number=8)
    F.cross_entropy(model.train()(x), torch.arange(8) % 5).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.dim() == 1 or parameter.grad.any(), name


@pytest.mark.parametrize("spec", ["resnet20", "cnn4", "mlp(hidden=(32, 16), norm=batch, dropout=0.1)"])
def test_the_seed_decides_the_weights(spec: str) -> None:
    first, again, other = (small(spec, seed=seed)[0].state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


@pytest.mark.parametrize("spec", ["resnet44(dropout=0.2)", "mlp(hidden=(32, 16), norm=batch, dropout=0.1)"])
def test_dropout_acts_in_training_only(spec: str) -> None:
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
        expected = with_lively_statistics(model).eval()(x)
        model.to(memory_format=torch.channels_last)
        formats = []
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.register_forward_hook(lambda *call: formats.append(call[2].is_contiguous(memory_format=torch.channels_last)))
        given = model(x.to(memory_format=torch.channels_last))
    assert torch.allclose(given, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
    assert formats
    assert all(formats)


@pytest.mark.parametrize("spec", ["resnet20", "cnn4", "mlp(hidden=(32, 16), norm=batch, dropout=0.1)"])
def test_compiles_to_one_graph(spec: str) -> None:
    model, x = small(spec)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert compiled(x).shape == (4, 5)
    assert torch.equal(compiled.eval()(x), model.eval()(x))


@pytest.mark.parametrize("spec", SMALL)
def test_repr_gives_the_model_back(spec: str) -> None:
    model = unfilled(spec, num_classes=5, shape=SMALL[spec])
    again = unfilled(repr(model))
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


def residual_scores(tensors: dict[str, torch.Tensor], x: torch.Tensor, *, head: str, imagenet: bool = False) -> torch.Tensor:
    """He et al. 2016 in evaluation mode, from named tensors alone; without a projection the shortcut is option A."""

    def normalised(x: torch.Tensor, name: str) -> torch.Tensor:
        mean, variance, scale, shift = (
            tensors[f"{name}.{part}"].view(-1, 1, 1) for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / torch.sqrt(variance + 1e-5) * scale + shift

    def convolved(x: torch.Tensor, name: str, stride: int = 1) -> torch.Tensor:
        weight = tensors[f"{name}.weight"]
        return F.conv2d(x, weight, stride=stride, padding=(weight.shape[-1] - 1) // 2)

    def shortcut(x: torch.Tensor, block: str, outputs: int, stride: int) -> torch.Tensor:
        if f"{block}.downsample.0.weight" in tensors:
            return normalised(convolved(x, f"{block}.downsample.0", stride), f"{block}.downsample.1")
        padded = x.new_zeros(len(x), outputs, math.ceil(x.shape[2] / stride), math.ceil(x.shape[3] / stride))
        first = (outputs - x.shape[1]) // 2
        for row in range(padded.shape[2]):
            for column in range(padded.shape[3]):
                padded[:, first : first + x.shape[1], row, column] = x[:, :, row * stride, column * stride]
        return padded

    x = normalised(convolved(x, "conv1", 2 if imagenet else 1), "bn1").clamp(min=0)
    if imagenet:
        x = F.max_pool2d(F.pad(x, (1, 1, 1, 1), value=-math.inf), 3, 2)
    stage, position = 1, 0
    while f"layer{stage}.0.conv1.weight" in tensors:
        block, stride = f"layer{stage}.{position}", 2 if stage > 1 and position == 0 else 1
        if f"{block}.conv1.weight" not in tensors:
            stage, position = stage + 1, 0
            continue
        bottleneck = f"{block}.conv3.weight" in tensors
        y = normalised(convolved(x, f"{block}.conv1", 1 if bottleneck else stride), f"{block}.bn1").clamp(min=0)
        y = normalised(convolved(y, f"{block}.conv2", stride if bottleneck else 1), f"{block}.bn2")
        if bottleneck:
            y = normalised(convolved(y.clamp(min=0), f"{block}.conv3"), f"{block}.bn3")
        x = (y + shortcut(x, block, y.shape[1], stride)).clamp(min=0)
        position += 1
    return x.mean((2, 3)) @ tensors[f"{head}.weight"].T + tensors[f"{head}.bias"]


@pytest.mark.parametrize("spec", ["resnet20", "resnet34", "resnet50(stem=imagenet)"])
def test_residual_networks_compute_what_the_paper_says(spec: str) -> None:
    model, x = small(spec, number=2)
    model, x = with_lively_statistics(model).double().eval(), x.double()
    with torch.no_grad():
        expected = residual_scores(model.state_dict(), x, head="head", imagenet="imagenet" in spec)
        assert torch.allclose(model(x), expected, rtol=1e-9, atol=1e-12)


def test_option_a_keeps_every_second_pixel_and_centres_the_channels() -> None:
    model = models.get("resnet20", num_classes=2)
    x = torch.arange(16 * 5 * 4.0).view(1, 16, 5, 4)
    y = model.layer2[0].downsample(x)
    assert y.shape == (1, 32, 3, 2)
    assert torch.equal(y[:, 8:24], x[:, :, [0, 2, 4]][..., [0, 2]])
    assert not y[:, :8].any()
    assert not y[:, 24:].any()


def inception_scores(model: models.Classifier, x: torch.Tensor) -> torch.Tensor:
    """The two tables in evaluation mode, from the model's convolutions and normalisations in the order of their columns."""
    convolutions = (layer for layer in model.modules() if isinstance(layer, nn.Conv2d))
    norms = (layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d))

    def unit(x: torch.Tensor, kernel: int, stride: int = 1) -> torch.Tensor:
        convolution, norm = next(convolutions), next(norms)
        assert convolution.weight.shape[-1] == kernel
        x = F.conv2d(x, convolution.weight, stride=stride, padding=(kernel - 1) // 2)
        return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias).clamp(min=0)

    def pooled(x: torch.Tensor, stride: int) -> torch.Tensor:
        windows = F.pad(x, (1, 1, 1, 1), value=-math.inf).unfold(2, 3, stride).unfold(3, 3, stride)
        return windows.amax((-1, -2))

    def averaged(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1).mean((-1, -2))

    if isinstance(model, models.GoogLeNet):
        x = unit(unit(unit(x, 3), 1), 3)
        for name in GOOGLENET:
            x = pooled(x, 2) if name in ("4a", "5a") else x
            x = torch.cat([unit(x, 1), unit(unit(x, 1), 3), unit(unit(x, 1), 5), unit(pooled(x, 1), 1)], 1)
    else:
        x = pooled(unit(unit(pooled(unit(x, 7, 2), 2), 1), 3), 2)
        for name in BN_INCEPTION:
            if name in ("3c", "4e"):
                x = torch.cat([unit(unit(x, 1), 3, 2), unit(unit(unit(x, 1), 3), 3, 2), pooled(x, 2)], 1)
            else:
                pool = pooled(x, 1) if name == "5b" else averaged(x)
                x = torch.cat([unit(x, 1), unit(unit(x, 1), 3), unit(unit(unit(x, 1), 3), 3), unit(pool, 1)], 1)
    assert next(convolutions, None) is None
    return x.mean((2, 3)) @ model.head.weight.T + model.head.bias


@pytest.mark.parametrize("spec", ["googlenet", "bninception"])
def test_inception_networks_compute_their_tables(spec: str) -> None:
    model, x = small(spec, number=2)
    model, x = with_lively_statistics(model).double().eval(), x.double()
    with torch.no_grad():
        assert torch.allclose(model(x), inception_scores(model, x), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("spec", "shape"), [("cnn4", (1, 28, 28)), ("cnn8", (3, 32, 32)), ("cnn4", (1, 8, 8))])
def test_plain_networks_compute_the_recipe(spec: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = with_lively_statistics(models.get(spec, num_classes=3, shape=shape)).double().eval()
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


def test_mlp_is_its_formula() -> None:
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
def test_named_initialisations_are_what_they_are_called(spec: str) -> None:
    def made(init: str) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(0)
        model = models.get(spec, num_classes=100, init=init)
        return largest(model, nn.Conv2d).weight.detach(), largest(model, nn.Linear).weight.detach()

    convolution, linear = made("kaiming_normal")
    _, fan_out = fan(convolution)
    tolerance = 5 / math.sqrt(2 * convolution.numel())
    assert float(convolution.std()) == pytest.approx(math.sqrt(2 / fan_out), rel=tolerance)
    assert float(convolution.abs().max() / convolution.std()) > 4
    uneven = {"resnet18": "layer4.0.conv1", "cnn8": "trunk.14"}[spec]  # as many channels in as out would tell nothing of the fan
    weight = models.get(spec, num_classes=100, init="kaiming_normal").get_submodule(uneven).weight.detach()
    assert fan(weight)[0] != fan(weight)[1]
    assert float(weight.std()) == pytest.approx(math.sqrt(2 / fan(weight)[1]), rel=5 / math.sqrt(2 * weight.numel()))
    assert float(linear.abs().max()) == pytest.approx(1 / math.sqrt(fan(linear)[0]), rel=1e-2)

    convolution, linear = made("kaiming_uniform")
    assert float(convolution.abs().max()) == pytest.approx(math.sqrt(6 / fan(convolution)[0]), rel=1e-3)
    assert float(linear.abs().max()) == pytest.approx(math.sqrt(6 / sum(fan(linear))), rel=1e-3)

    convolution, linear = made("torch")
    assert float(convolution.abs().max()) == pytest.approx(1 / math.sqrt(fan(convolution)[0]), rel=1e-3)
    assert float(linear.abs().max()) == pytest.approx(1 / math.sqrt(fan(linear)[0]), rel=1e-2)


def test_each_family_starts_as_its_paper_does() -> None:
    assert models.get("cnn4", num_classes=2).init == models.get("cnn8", num_classes=2).init == "kaiming_uniform"
    assert models.get("resnet20", num_classes=2).init == models.get("resnet50", num_classes=2).init == "kaiming_normal"


def torchvision_resnet18(num_classes: int = 1000) -> dict[str, torch.Tensor]:
    """The file torchvision publishes, from its structure: names and shapes, random values."""
    generator = torch.Generator().manual_seed(7)

    def norm(name: str, width: int) -> dict[str, torch.Tensor]:
        return {
            f"{name}.weight": torch.rand(width, generator=generator) + 0.5,
            f"{name}.bias": 0.1 * torch.randn(width, generator=generator),
            f"{name}.running_mean": 0.1 * torch.randn(width, generator=generator),
            f"{name}.running_var": torch.rand(width, generator=generator) + 0.5,
            f"{name}.num_batches_tracked": torch.tensor(5005),
        }

    def convolution(name: str, outputs: int, inputs: int, kernel: int) -> dict[str, torch.Tensor]:
        scale = math.sqrt(2 / (inputs * kernel**2))
        return {f"{name}.weight": scale * torch.randn(outputs, inputs, kernel, kernel, generator=generator)}

    tensors = convolution("conv1", 64, 3, 7) | norm("bn1", 64)
    inputs = 64
    for stage, width in enumerate((64, 128, 256, 512), start=1):
        for position in (0, 1):
            block = f"layer{stage}.{position}"
            tensors |= convolution(f"{block}.conv1", width, inputs, 3) | norm(f"{block}.bn1", width)
            tensors |= convolution(f"{block}.conv2", width, width, 3) | norm(f"{block}.bn2", width)
            if inputs != width:
                tensors |= convolution(f"{block}.downsample.0", width, inputs, 1) | norm(f"{block}.downsample.1", width)
            inputs = width
    tensors["fc.weight"] = 0.05 * torch.randn(num_classes, 512, generator=generator)
    tensors["fc.bias"] = torch.randn(num_classes, generator=generator)
    return tensors


@pytest.fixture(scope="module")
def published() -> dict[str, torch.Tensor]:
    return torchvision_resnet18()


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
def test_torchvision_weights_load_and_compute(suffix: str, published: dict[str, torch.Tensor], tmp_path) -> None:
    assert len(published) == 122
    assert sum(tensor.numel() for name, tensor in published.items() if "running" not in name and "tracked" not in name) == 11_689_512
    path = tmp_path / f"resnet18{suffix}"
    save_file(published, path) if suffix == ".safetensors" else torch.save(published, path)
    model = models.get("resnet18(stem=imagenet)", num_classes=1000)
    assert models.load_weights(model, path) is model
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = residual_scores(published, x, head="fc", imagenet=True)
        assert torch.allclose(model.eval()(x), expected, rtol=1e-4, atol=1e-4)
    assert int(model.bn1.num_batches_tracked) == 5005


def test_other_classes_keep_the_models_own_last_layer_and_say_so(published: dict[str, torch.Tensor], tmp_path) -> None:
    path = tmp_path / "resnet18.pth"
    torch.save(published, path)
    model = models.get("resnet18(stem=imagenet)", num_classes=14)
    own = model.head.weight.detach().clone()
    with pytest.warns(UserWarning, match="has 1000 classes and the model 14"):
        models.load_weights(model, str(path))
    assert torch.equal(model.head.weight, own)
    assert torch.equal(model.conv1.weight, published["conv1.weight"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models.load_weights(model, path, classifier="replace")
    assert torch.equal(model.head.weight, own)


def test_replace_leaves_out_a_last_layer_that_would_fit(tmp_path) -> None:
    source, model = (models.get("cnn4", num_classes=3) for _ in range(2))
    own = model.head.weight.detach().clone()
    torch.save(source.state_dict(), tmp_path / "a.pt")
    models.load_weights(model, tmp_path / "a.pt", classifier="replace")
    assert torch.equal(model.head.weight, own)
    models.load_weights(model, tmp_path / "a.pt")
    assert torch.equal(model.head.weight, source.head.weight)


def test_older_files_without_step_counts_and_in_half_precision_load(published: dict[str, torch.Tensor], tmp_path) -> None:
    older = {name: tensor.half() for name, tensor in published.items() if not name.endswith("num_batches_tracked")}
    torch.save(older, tmp_path / "older.pth")
    model = models.load_weights(models.get("resnet18(stem=imagenet)", num_classes=1000), tmp_path / "older.pth")
    assert model.conv1.weight.dtype == torch.float32
    assert torch.equal(model.conv1.weight, older["conv1.weight"].float())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"layer3.0.conv2.weight": torch.zeros(256, 256, 1, 1)},
            r"does not fit ResNet18: .*'layer3.0.conv2.weight' .* shaped \(256, 256, 1, 1\).* torch.float32 shaped \(256, 256, 3, 3\)",
        ),
        ({"bn1.bias": torch.zeros(64, dtype=torch.int8)}, r"'bn1.bias' .*torch.int8 shaped \(64,\)"),
        ({"fc.weight": torch.zeros(1000, 2048)}, r"'head.weight' .* shaped \(1000, 2048\).* \(1000, 512\)"),
        ({"layer2.1.bn2.running_var": None}, "ResNet18: it has no tensor 'layer2.1.bn2.running_var'"),
        ({"fc.bias": None}, "ResNet18: it has no tensor 'head.bias'"),
        ({"layer5.0.conv1.weight": torch.zeros(1)}, "ResNet18: it has a tensor 'layer5.0.conv1.weight'"),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_change_nothing(change, sentence: str, published, tmp_path) -> None:
    torch.save({name: tensor for name, tensor in {**published, **change}.items() if tensor is not None}, tmp_path / "a.pth")
    model = models.get("resnet18(stem=imagenet)", num_classes=1000)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(InputError, match=sentence):
        models.load_weights(model, tmp_path / "a.pth")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_imagenet_weights_do_not_fit_the_cifar_stem(published, tmp_path) -> None:
    torch.save(published, tmp_path / "a.pth")
    with pytest.raises(InputError, match=r"'conv1.weight' .* shaped \(64, 3, 7, 7\).* torch.float32 shaped \(64, 3, 3, 3\)"):
        models.load_weights(models.get("resnet18", num_classes=1000), tmp_path / "a.pth")


class Code:
    """Unpickled by a careless reader, this would run."""

    def __reduce__(self):
        return (print, ("code from a file of weights ran",))


def test_unreadable_files_are_refused_in_one_sentence(tmp_path, capsys) -> None:
    model = models.get("cnn4", num_classes=2)
    whole = io.BytesIO()
    torch.save(model.state_dict(), whole)
    (tmp_path / "short.pt").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    (tmp_path / "empty.pth").write_bytes(b"")
    (tmp_path / "code.pt").write_bytes(pickle.dumps({"trunk.0.weight": Code()}))
    torch.save({"trunk.0.weight": Code()}, tmp_path / "code2.pt")
    save_file(model.state_dict(), tmp_path / "whole.safetensors")
    (tmp_path / "short.safetensors").write_bytes((tmp_path / "whole.safetensors").read_bytes()[:-100])
    for name in ("short.pt", "empty.pth", "code.pt", "code2.pt", "short.safetensors"):
        with pytest.raises(InputError, match="cannot be read: the file is damaged") as caught:
            models.load_weights(model, tmp_path / name)
        assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


def test_other_wrong_files_are_refused_in_one_sentence(tmp_path) -> None:
    model = models.get("cnn4", num_classes=2)
    torch.save({"state_dict": model.state_dict()}, tmp_path / "nested.pt")
    torch.save([torch.zeros(1)], tmp_path / "list.pt")
    with pytest.raises(InputError, match=r"one dictionary of named tensors. Got a (Ordered)?[dD]ict at 'state_dict'"):
        models.load_weights(model, tmp_path / "nested.pt")
    with pytest.raises(InputError, match="Got a list"):
        models.load_weights(model, tmp_path / "list.pt")
    with pytest.raises(InputError, match="There is no file"):
        models.load_weights(model, tmp_path / "nowhere.pt")
    with pytest.raises(InputError, match=r"must be a \.safetensors, \.pt or \.pth file"):
        models.load_weights(model, tmp_path / "weights.bin")
    with pytest.raises(InputError, match=r"The 'classifier' parameter of load_weights must be 'keep' or 'replace'. Got 'drop' instead."):
        models.load_weights(model, tmp_path / "nested.pt", classifier="drop")


@pytest.mark.parametrize(
    ("spec", "settings", "sentence"),
    [
        ("resnet21", {"num_classes": 10}, "There is no model named 'resnet21'. Did you mean"),
        ("resnet21", {"num_classes": 10, "shape": (3, 32, 32)}, "There is no model named 'resnet21'. Did you mean"),
        ("resnet20", {}, "missing a required argument: 'num_classes'"),
        ("resnet20", {"num_classes": 0}, r"The 'num_classes' parameter of ResNet20 must be an integer in \[1, inf\). Got 0 instead."),
        ("resnet20", {"num_classes": 10, "channels": 1.5}, "The 'channels' parameter of ResNet20 must be an integer"),
        ("resnet44(dropout=1)", {"num_classes": 10}, r"The 'dropout' parameter of ResNet44 must be in \[0, 1\). Got 1 instead."),
        ("resnet50(stem=webvision)", {"num_classes": 10}, "The 'stem' parameter of ResNet50 must be one of 'cifar', 'imagenet'."),
        (
            "cnn4(init=zeros)",
            {"num_classes": 10},
            "The 'init' parameter of CNN4 must be one of 'kaiming_normal', 'kaiming_uniform', 'torch'.",
        ),
        ("cnn8(size=4)", {"num_classes": 10}, r"The 'size' parameter of CNN8 must be an integer in \[8, inf\)."),
        ("cnn8", {"num_classes": 10, "shape": (3, 32, 48)}, "The 'shape' parameter of CNN8 must be that of a square image."),
        ("resnet20", {"num_classes": 10, "shape": (64,)}, r"The 'shape' parameter of ResNet20 must be \(channels, height, width\)."),
        ("mlp(hidden=())", {"num_classes": 10, "inputs": 4}, "The 'hidden' parameter of MLP must be one or more integers above 0"),
        ("mlp(hidden=(8, 0))", {"num_classes": 10, "inputs": 4}, "The 'hidden' parameter of MLP must be"),
        ("mlp(norm=layer)", {"num_classes": 10, "inputs": 4}, "The 'norm' parameter of MLP must be one of 'none', 'batch'."),
        ("linear", {"num_classes": 10}, "missing a required argument: 'inputs'"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(spec: str, settings: dict, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        models.get(spec, **settings)


@pytest.mark.parametrize(
    ("spec", "x", "sentence"),
    [
        ("resnet20", torch.zeros(2, 3, 32, 32, dtype=torch.uint8), "floating point .scale and normalise images first.. Got torch.uint8"),
        ("resnet20", torch.zeros(2, 1, 32, 32), r"must be shaped \(N, 3, height, width\). Got \(2, 1, 32, 32\) instead."),
        ("resnet20", torch.zeros(3, 32, 32), r"must be shaped \(N, 3, height, width\)"),
        ("cnn4", torch.zeros(2, 1, 32, 32), r"must be shaped \(N, 1, 28, 28\). Got \(2, 1, 32, 32\) instead."),
        ("linear(inputs=64)", torch.zeros(2, 63), r"must be shaped \(N, …\) with 64 features for each example. Got \(2, 63\) instead."),
        ("linear(inputs=64)", torch.zeros(64), r"must be shaped \(N, …\) with 64 features"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_one_sentence(spec: str, x: torch.Tensor, sentence: str) -> None:
    model = models.get(spec, num_classes=2)
    for call in (model, model.features):
        with pytest.raises(InputError, match=sentence):
            call(x)


def test_shape_sets_what_each_model_takes_from_it() -> None:
    assert models.get("resnet20", num_classes=10, shape=(1, 28, 28)).channels == 1
    assert models.get("cnn8", num_classes=10, shape=(1, 28, 28))(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert models.get("mlp", num_classes=10, shape=(8, 8)).inputs == 64
    built = models.get("cnn4", num_classes=10)
    assert models.get(built, shape=(3, 32, 32)) is built


def test_a_model_of_ones_own_is_found_by_its_name() -> None:
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
