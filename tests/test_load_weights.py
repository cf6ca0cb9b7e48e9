"""Loading weights: files of torchvision load and compute, and files that do not fit are refused."""

from __future__ import annotations

import copy
import io
import math
import pickle
import warnings

import pytest
import torch
from safetensors.torch import save_file

from network_reference import residual_scores
from noisewise import models
from refused import refused, warned


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


def test_another_number_of_classes_keeps_the_last_layer_of_the_model_with_a_warning(published: dict[str, torch.Tensor], tmp_path) -> None:
    path = tmp_path / "resnet18.pth"
    torch.save(published, path)
    model = models.get("resnet18(stem=imagenet)", num_classes=14)
    head = model.head.weight.detach().clone()
    with warned("1000", "14"):
        models.load_weights(model, str(path))
    assert torch.equal(model.head.weight, head)
    assert torch.equal(model.conv1.weight, published["conv1.weight"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models.load_weights(model, path, classifier="replace")
    assert torch.equal(model.head.weight, head)


def test_replace_skips_the_last_layer_even_if_it_fits(tmp_path) -> None:
    source, model = (models.get("cnn4", num_classes=3) for _ in range(2))
    head = model.head.weight.detach().clone()
    torch.save(source.state_dict(), tmp_path / "a.pt")
    models.load_weights(model, tmp_path / "a.pt", classifier="replace")
    assert torch.equal(model.head.weight, head)
    models.load_weights(model, tmp_path / "a.pt")
    assert torch.equal(model.head.weight, source.head.weight)


def test_older_files_without_step_counts_and_in_half_precision_load(published: dict[str, torch.Tensor], tmp_path) -> None:
    older = {name: tensor.half() for name, tensor in published.items() if not name.endswith("num_batches_tracked")}
    torch.save(older, tmp_path / "older.pth")
    model = models.load_weights(models.get("resnet18(stem=imagenet)", num_classes=1000), tmp_path / "older.pth")
    assert model.conv1.weight.dtype == torch.float32
    assert torch.equal(model.conv1.weight, older["conv1.weight"].float())


@pytest.mark.parametrize(
    ("change", "mentions"),
    [
        (
            {"layer3.0.conv2.weight": torch.zeros(256, 256, 1, 1)},
            ("ResNet18", "'layer3.0.conv2.weight'", "(256, 256, 1, 1)", "torch.float32", "(256, 256, 3, 3)"),
        ),
        ({"bn1.bias": torch.zeros(64, dtype=torch.int8)}, ("'bn1.bias'", "torch.int8", "(64,)")),
        ({"fc.weight": torch.zeros(1000, 2048)}, ("'head.weight'", "(1000, 2048)", "(1000, 512)")),
        ({"layer2.1.bn2.running_var": None}, ("ResNet18", "'layer2.1.bn2.running_var'")),
        ({"fc.bias": None}, ("ResNet18", "'head.bias'")),
        ({"layer5.0.conv1.weight": torch.zeros(1)}, ("ResNet18", "'layer5.0.conv1.weight'")),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_change_nothing(change, mentions: tuple[str, ...], published, tmp_path) -> None:
    torch.save({name: tensor for name, tensor in {**published, **change}.items() if tensor is not None}, tmp_path / "a.pth")
    model = models.get("resnet18(stem=imagenet)", num_classes=1000)
    before = copy.deepcopy(model.state_dict())
    with refused(*mentions):
        models.load_weights(model, tmp_path / "a.pth")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_imagenet_weights_do_not_fit_the_cifar_stem(published, tmp_path) -> None:
    torch.save(published, tmp_path / "a.pth")
    with refused("'conv1.weight'", "(64, 3, 7, 7)", "torch.float32", "(64, 3, 3, 3)"):
        models.load_weights(models.get("resnet18", num_classes=1000), tmp_path / "a.pth")


class Code:
    """Unpickling this runs code."""

    def __reduce__(self):
        return (print, ("code from a file of weights ran",))


def test_damaged_files_and_code_are_refused(tmp_path, capsys) -> None:
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
        with refused(tmp_path / name):
            models.load_weights(model, tmp_path / name)
    assert capsys.readouterr().out == ""


def test_files_of_another_structure_or_type_are_refused(tmp_path) -> None:
    model = models.get("cnn4", num_classes=2)
    torch.save({"state_dict": model.state_dict()}, tmp_path / "nested.pt")
    torch.save([torch.zeros(1)], tmp_path / "list.pt")
    with refused("'state_dict'", "ict"):
        models.load_weights(model, tmp_path / "nested.pt")
    with refused("list"):
        models.load_weights(model, tmp_path / "list.pt")
    with refused(tmp_path / "nowhere.pt"):
        models.load_weights(model, tmp_path / "nowhere.pt")
    with refused(".safetensors", ".pt", ".pth", "weights.bin"):
        models.load_weights(model, tmp_path / "weights.bin")
    with refused("'classifier'", "load_weights", "'keep'", "'replace'", "'drop'"):
        models.load_weights(model, tmp_path / "nested.pt", classifier="drop")
