"""Augmentations are compared with Pillow and numpy, one image at a time: first the pixels for given random numbers, then the numbers."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance
from scipy import stats

from noisewise.data import Augmentation, Normalise, augmentations
from noisewise.data._augment import Crop, Flip, Jitter, ResizedCrop, Rotation
from refused import refused

SPECS = [
    "crop(4)",
    "crop(0, size=8)",
    "centre_crop(8)",
    "flip",
    "rotation(20)",
    "resized_crop(size=8)",
    "jitter(brightness=0.4, contrast=0.4, saturation=0.4)",
    "none",
    "normalise((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))",
    "crop(4) + flip + rotation(15) + jitter(0.4, 0.4, 0.4)",
]
RANDOM = [spec for spec in SPECS if not spec.startswith(("none", "centre", "normalise"))]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(number: int = 6, height: int = 12, width: int = 12, seed: int = 0) -> torch.Tensor:
    return torch.randint(256, (number, 3, height, width), dtype=torch.uint8, generator=generator(seed))


def smooth(number: int, height: int, width: int) -> torch.Tensor:
    """Images with large structures, on which resizing by another rule would show."""
    small = torch.rand(number, 3, 5, 5, generator=generator(1))
    return (255 * torch.nn.functional.interpolate(small, (height, width), mode="bicubic").clamp(0, 1)).to(torch.uint8)


def pillow(image: torch.Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def agrees(observed: torch.Tensor, expected: np.ndarray) -> bool:
    """Whether counts agree with probabilities, by a chi-square test at a level that a fixed seed should not miss by chance."""
    counts = observed.double().numpy()
    return stats.chisquare(counts, expected * counts.sum()).pvalue > 1e-4


@pytest.mark.parametrize("spec", SPECS)
def test_the_repr_reads_back(spec: str) -> None:
    augmentation = augmentations.get(spec)
    again = augmentations.get(repr(augmentation))
    assert repr(again) == repr(augmentation)
    assert torch.equal(again(images(), generator()), pickle.loads(pickle.dumps(augmentation))(images(), generator()))


@pytest.mark.parametrize("spec", RANDOM)
def test_equal_seeds_give_equal_results_and_other_seeds_do_not(spec: str) -> None:
    augmentation, batch = augmentations.get(spec), images(32)
    first = augmentation(batch, generator(3))
    torch.rand(5)  # the global generator plays no part
    assert torch.equal(first, augmentation(batch, generator(3)))
    assert not torch.equal(first, augmentation(batch, generator(4)))


@pytest.mark.parametrize("spec", RANDOM)
def test_every_example_is_changed_differently(spec: str) -> None:
    same = images(1).expand(64, -1, -1, -1)
    changed = augmentations.get(spec)(same, generator())
    different = {changed[position].numpy().tobytes() for position in range(64)}
    assert len(different) == 2 if spec == "flip" else len(different) > 20


@pytest.mark.parametrize("spec", [spec for spec in SPECS if "normalise" not in spec])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16])
def test_the_type_is_kept_and_the_input_is_not_changed(spec: str, dtype: torch.dtype) -> None:
    batch = images() if dtype == torch.uint8 else (images().float() / 255).to(dtype)
    before = batch.clone()
    changed = augmentations.get(spec)(batch, generator())
    assert changed.dtype == dtype
    assert torch.equal(batch, before)


@pytest.mark.parametrize("spec", SPECS)
def test_no_step_reads_values_back_from_the_device(spec: str) -> None:
    """The device "meta" has no values: a step that runs there can be captured in a CUDA graph."""
    augmentation = augmentations.get(spec)
    for step in getattr(augmentation, "steps", (augmentation,)):
        batch = images()
        drawn = step.draw(batch, generator())
        assert step.apply(batch.to("meta"), *(values.to("meta") for values in drawn)).shape == step.apply(batch, *drawn).shape


def test_a_sum_is_its_parts_in_order() -> None:
    batch = images()
    state = generator(5)
    expected = Rotation(15)(Flip()(Crop(4)(batch, state), state), state)
    assert torch.equal(augmentations.get("crop(4) + flip + rotation(15)")(batch, generator(5)), expected)
    assert repr((Crop(4) + Flip()) + Rotation(15)) == repr(Crop(4) + (Flip() + Rotation(15)))


def test_crop_cuts_the_padded_image() -> None:
    batch = images(200, 10, 7)
    crop = Crop(3)
    top, left = crop.draw(batch, generator())
    for image, row, column, cropped in zip(batch, top.tolist(), left.tolist(), crop.apply(batch, top, left), strict=True):
        padded = np.pad(image.numpy(), ((0, 0), (3, 3), (3, 3)))
        assert np.array_equal(cropped.numpy(), padded[:, row : row + 10, column : column + 7])


def test_crop_to_a_size_cuts_inside_the_image() -> None:
    batch = images(100, 9, 12)
    crop = augmentations.get("crop(0, size=8)")
    top, left = crop.draw(batch, generator())
    for image, row, column, cropped in zip(batch, top.tolist(), left.tolist(), crop.apply(batch, top, left), strict=True):
        assert torch.equal(cropped, image[:, row : row + 8, column : column + 8])
    assert (set(top.tolist()), set(left.tolist())) == (set(range(2)), set(range(5)))


def test_crop_positions_are_uniform_and_independent() -> None:
    top, left = Crop(4).draw(torch.zeros(1, 1, 32, 32).expand(40_000, -1, -1, -1), generator())
    assert agrees(torch.bincount(9 * top + left, minlength=81), np.full(81, 1 / 81))


def test_flip_mirrors_with_probability_p() -> None:
    batch = images(40_000, 1, 2)
    (flipped,) = Flip(0.3).draw(batch, generator())
    changed = Flip(0.3).apply(batch, flipped)
    assert torch.equal(changed[flipped], batch[flipped].flip(-1))
    assert torch.equal(changed[~flipped], batch[~flipped])
    assert stats.binomtest(int(flipped.sum()), len(batch), 0.3).pvalue > 1e-4
    assert stats.binomtest(int(Flip().draw(batch, generator())[0].sum()), len(batch), 0.5).pvalue > 1e-4


def source_positions(height: int, width: int, angle: float) -> np.ndarray:
    """Where each pixel of an image turned by an angle comes from, as (row, column) with fractions."""
    turn = np.exp(-1j * math.radians(angle))  # rows count downwards, so that counter-clockwise is minus
    rows, columns = np.mgrid[:height, :width]
    middle = width / 2 + 1j * height / 2
    place = ((columns + 0.5) + 1j * (rows + 0.5) - middle) * turn.conjugate() + middle
    return np.stack([place.imag, place.real])


@pytest.mark.parametrize(("height", "width"), [(32, 32), (28, 28), (17, 24)])
def test_rotation_is_pillows_nearest_rotation(height: int, width: int) -> None:
    batch = images(41, height, width)
    angles = torch.linspace(-180, 180, 41)
    turned = Rotation(180).apply(batch, angles)
    compared = 0
    for image, angle, ours in zip(batch, angles.tolist(), turned, strict=True):
        theirs = tensor(pillow(image).rotate(angle, Image.Resampling.NEAREST))
        places = source_positions(height, width, angle)
        clear = torch.from_numpy((np.abs(places - np.round(places)) > 1e-3).all(0))  # at a border between pixels rounding decides
        assert torch.equal(ours[:, clear], theirs[:, clear])
        compared += int(clear.sum())
    assert compared > 0.9 * 41 * height * width


def test_rotation_angles_are_uniform() -> None:
    (angles,) = Rotation(20).draw(torch.zeros(20_000, 1, 1, 1), generator())
    assert stats.kstest(angles.numpy(), stats.uniform(-20, 40).cdf).pvalue > 1e-4


def reference_part(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float], rng: np.random.Generator
) -> tuple[int, ...]:
    """Top, left, height, width of the part that torchvision's documentation describes, for one image."""
    for _ in range(10):
        area = height * width * rng.uniform(*scale)
        aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w
    w, h = width, height
    if width / height < ratio[0]:
        h = round(width / ratio[0])
    elif width / height > ratio[1]:
        w = round(height * ratio[1])
    return (height - h) // 2, (width - w) // 2, h, w


@pytest.mark.parametrize(
    ("height", "width", "scale", "ratio"),
    [
        (32, 32, (0.08, 1.0), (3 / 4, 4 / 3)),
        (10, 60, (0.5, 1.0), (3 / 4, 4 / 3)),  # mostly the fallback: such parts seldom fit
        (60, 10, (0.5, 1.0), (3 / 4, 4 / 3)),
        (20, 24, (0.9, 1.0), (0.5, 2.0)),
        (40, 40, (0.1, 0.2), (2.0, 3.0)),  # wider than high
    ],
)
def test_parts_are_distributed_as_drawn_one_image_at_a_time(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> None:
    number = 4000
    drawn = ResizedCrop(size=8, scale=scale, ratio=ratio).draw(torch.zeros(1, 1, height, width).expand(number, -1, -1, -1), generator())
    rng = np.random.default_rng(0)
    expected = np.array([reference_part(height, width, scale, ratio, rng) for _ in range(number)]).T
    for ours, theirs in zip(
        [*drawn, drawn[2] * drawn[3], drawn[0] + drawn[2]], [*expected, expected[2] * expected[3], expected[0] + expected[2]], strict=True
    ):
        assert stats.ks_2samp(ours.numpy(), theirs).pvalue > 1e-4
    assert ((drawn[0] >= 0) & (drawn[0] + drawn[2] <= height) & (drawn[1] >= 0) & (drawn[1] + drawn[3] <= width)).all()


def test_the_fallback_is_the_largest_allowed_part_in_the_middle() -> None:
    never_fits = ResizedCrop(size=8, scale=(1.0, 1.0), ratio=(1.0, 1.0))
    drawn = never_fits.draw(torch.zeros(3, 1, 10, 25), generator())
    assert [values.tolist() for values in drawn] == [[0] * 3, [7] * 3, [10] * 3, [10] * 3]


@pytest.mark.parametrize(("height", "width", "size"), [(40, 40, 16), (16, 24, 32), (33, 21, 21)])
def test_parts_are_resized_as_pillow_does(height: int, width: int, size: int) -> None:
    batch = smooth(40, height, width)
    augmentation = ResizedCrop(size=size)
    drawn = augmentation.draw(batch, generator())
    for image, top, left, h, w, ours in zip(
        batch, *(values.int().tolist() for values in drawn), augmentation.apply(batch, *drawn), strict=True
    ):
        theirs = pillow(image).crop((left, top, left + w, top + h)).resize((size, size), Image.Resampling.BILINEAR)
        assert int((ours.int() - tensor(theirs).int()).abs().max()) <= 1  # Pillow rounds once more, between the two directions


def test_floating_parts_are_resized_as_torch_does_with_antialias() -> None:
    batch = smooth(10, 30, 30).double() / 255
    augmentation = ResizedCrop(size=12)
    drawn = augmentation.draw(batch, generator())
    for image, top, left, h, w, ours in zip(
        batch, *(values.int().tolist() for values in drawn), augmentation.apply(batch, *drawn), strict=True
    ):
        part = image[None, :, top : top + h, left : left + w]
        expected = torch.nn.functional.interpolate(part, (12, 12), mode="bilinear", antialias=True)[0]
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)


ENHANCE = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)


def test_jitter_is_pillows_enhancement_in_the_drawn_order() -> None:
    batch = images(60, 9, 11)
    jitter = Jitter(0.6, 0.6, 0.6)
    factors, order = jitter.draw(batch, generator())
    for image, factor, steps, ours in zip(batch, factors.tolist(), order.tolist(), jitter.apply(batch, factors, order), strict=True):
        changed = pillow(image)
        for step in steps:
            changed = ENHANCE[step](changed).enhance(factor[step])
        difference = (ours.int() - tensor(changed).int()).abs()
        assert int(difference.max()) <= 1
        assert float((difference > 0).float().mean()) < 0.01  # a product that falls on an integer may round either way


def test_jitter_factors_and_orders_are_uniform() -> None:
    factors, order = Jitter(0.4, 1.5, 0.0).draw(torch.zeros(20_000, 3, 1, 1), generator())
    assert stats.kstest(factors[:, 0].numpy(), stats.uniform(0.6, 0.8).cdf).pvalue > 1e-4
    assert stats.kstest(factors[:, 1].numpy(), stats.uniform(0.0, 2.5).cdf).pvalue > 1e-4
    assert (factors[:, 2] == 1).all()
    kinds = torch.bincount(order @ torch.tensor([9, 3, 1]))
    assert agrees(kinds[kinds > 0], np.full(6, 1 / 6))
    assert (order.sort(1).values == torch.arange(3)).all()


def test_jitter_without_settings_changes_nothing() -> None:
    assert torch.equal(Jitter()(images(), generator()), images())


def test_saturation_leaves_grey_images_alone() -> None:
    grey = images()[:, :1]
    assert torch.equal(Jitter(saturation=0.9)(grey, generator()), grey)
    with refused("channels"):
        Jitter(saturation=0.9)(images()[:, :2], generator())


@pytest.mark.parametrize("inputs", [images(50), torch.randn(300, 7, generator=generator()) * 3 + 1000], ids=["images", "features"])
def test_normalise_gives_mean_zero_and_variance_one(inputs: torch.Tensor) -> None:
    normalised = Normalise.of(inputs)(inputs).double().transpose(0, 1).flatten(1)
    torch.testing.assert_close(normalised.mean(1), torch.zeros(len(normalised), dtype=torch.float64), atol=1e-4, rtol=0)
    torch.testing.assert_close(normalised.var(1, correction=0), torch.ones(len(normalised), dtype=torch.float64), atol=1e-4, rtol=0)


def test_bytes_and_the_same_numbers_in_floating_point_have_the_same_scale() -> None:
    inputs = images(50)
    of_bytes, of_floats = Normalise.of(inputs), Normalise.of(inputs.double() / 255)
    assert of_bytes.mean == pytest.approx(of_floats.mean, rel=1e-12) and of_bytes.std == pytest.approx(of_floats.std, rel=1e-12)


def test_normalise_only_shifts_a_constant_feature() -> None:
    inputs = torch.stack([torch.full((49,), 0.1), torch.arange(49.0)], 1)  # so many that the mean of the first is not quite 0.1
    assert Normalise.of(inputs).std[0] == 1.0
    assert torch.isfinite(Normalise.of(inputs)(inputs)).all()


def test_centre_crop_is_the_middle() -> None:
    batch = images(2, 10, 13)
    assert torch.equal(augmentations.get("centre_crop(8)")(batch), batch[:, :, 1:9, 2:10])


@pytest.mark.parametrize(
    ("spec", "mentions"),
    [
        ("crop(-1)", ("padding", "Crop", "-1")),
        ("crop(4, size=0)", ("size", "0")),
        ("flip(1.5)", ("'p'", "Flip", "1.5")),
        ("rotation", ("degrees",)),
        ("resized_crop(224, scale=(0.5, 0.1))", ("scale", "ResizedCrop")),
        ("resized_crop(224, ratio=1)", ("ratio", "ResizedCrop")),
        ("jitter(brightness=-1)", ("brightness", "Jitter", "-1")),
        ("normalise((0.5,), (0.0,))", ("std",)),
        ("normalise((0.5,), (0.5, 0.5))", ("std", "1")),
        ("flop", ("flop", "flip")),
        ("0.5*flip", ("0.5*flip",)),
    ],
)
def test_a_bad_setting_is_refused(spec: str, mentions: tuple[str, ...]) -> None:
    with refused(*mentions):
        augmentations.get(spec)


@pytest.mark.parametrize(
    ("augmentation", "batch", "state", "mentions"),
    [
        (Flip(), images(), None, ("generator",)),
        (Flip() + Crop(), images(), None, ("generator",)),
        (Flip(), images()[0], generator(), ("images",)),
        (augmentations.get("crop(0, size=20)"), images(), generator(), ("size", "12", "20")),
        (augmentations.get("centre_crop(20)"), images(), None, ("size", "(12, 12)", "20")),
        (Normalise((0.5,), (0.5,)), images(), None, ("1",)),
    ],
)
def test_a_bad_call_is_refused(
    augmentation: Augmentation, batch: torch.Tensor, state: torch.Generator | None, mentions: tuple[str, ...]
) -> None:
    with refused(*mentions):
        augmentation(batch, state)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("spec", SPECS)
def test_a_cuda_graph_captures_the_whole_call(spec: str) -> None:
    augmentation, batch = augmentations.get(spec), images(16).cuda()
    state = torch.Generator("cuda").manual_seed(0)
    augmentation(batch, state)  # the first call fills the caches
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(state)
    with torch.cuda.graph(graph):
        changed = augmentation(batch, state).clone()  # a view alone would leave the graph empty
    torch.cuda.synchronize()  # torch seeds the generator on the stream of the capture, for which a replay does not wait
    state.manual_seed(7)
    graph.replay()
    first = changed.clone()
    graph.replay()
    assert torch.equal(first, augmentation(batch, torch.Generator("cuda").manual_seed(7)))
    assert torch.equal(first, changed) == (spec not in RANDOM)
