"""Retrieval, compared with rankings by hand, a slow implementation and scikit-learn; with networks; and on real people."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat
from scipy.stats import ttest_1samp
from sklearn.metrics import average_precision_score, label_ranking_average_precision_score, top_k_accuracy_score
from torch import Tensor, nn

import noisewise
from noisewise import data, models
from noisewise.data import ImageFiles, Stream
from noisewise.errors import InputError
from noisewise.retrieval import Embeddings, Retrieval, embed, rank, retrieve
from real_data import real
from refused import refused


def circle(*degrees: float) -> Tensor:
    """Vectors in the plane at some angles: the nearer the angle, the more similar."""
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], 1)


def one_query(answers: str, *, camera: int = 1) -> Retrieval:
    """A query with a given ranking: "+" is right, "-" is wrong, "o" is right but from the camera of the query."""
    gallery = Embeddings(
        circle(*range(1, len(answers) + 1)),
        torch.tensor([0 if mark == "-" else 7 for mark in answers]),
        torch.tensor([camera if mark in "o-" else camera + 1 for mark in answers]),
    )
    return rank(Embeddings(circle(0), torch.tensor([7]), torch.tensor([camera])), gallery)


@pytest.mark.parametrize(
    ("answers", "average", "trapezoid", "first"),
    [
        ("+", 1, 1, 1),
        ("-+", Fraction(1, 2), Fraction(1, 4), 2),
        ("+-+", Fraction(5, 6), (1 + (Fraction(2, 3) + Fraction(1, 2)) / 2) / 2, 1),
        ("--++-", Fraction(5, 12), (Fraction(1, 6) + (Fraction(1, 2) + Fraction(1, 3)) / 2) / 2, 3),
        ("o-+", Fraction(1, 2), Fraction(1, 4), 2),
        ("+ooo", 1, 1, 1),
    ],
)
def test_measures_equal_those_computed_by_hand(answers: str, average: Fraction, trapezoid: Fraction, first: int) -> None:
    result = one_query(answers)
    assert result.map == pytest.approx(float(average), abs=1e-15)
    assert result.map_trapezoid == pytest.approx(float(trapezoid), abs=1e-15)
    assert result.first.tolist() == [first]
    assert [result.cmc(place) for place in (1, 2, 3)] == [float(first <= place) for place in (1, 2, 3)]


def slow(queries: Embeddings, gallery: Embeddings) -> list[tuple[float, float, int]]:
    """Average precision, its trapezoid form and the rank of the first right answer for every query, in plain Python."""
    measures = []
    for vector, identity, camera in zip(queries.vectors.tolist(), queries.identities.tolist(), queries.cameras.tolist(), strict=True):
        ranking = []
        for other, name, place in zip(gallery.vectors.tolist(), gallery.identities.tolist(), gallery.cameras.tolist(), strict=True):
            if name == identity and place == camera:
                continue
            cosine = math.fsum(a * b for a, b in zip(vector, other, strict=True)) / (math.hypot(*vector) * math.hypot(*other) or 1)
            ranking.append((-round(cosine, 9), name == identity))
        ranking.sort()  # of equals, False comes first
        recall = average = trapezoid = 0.0
        precision, hits, first, number = 1.0, 0, 0, sum(right for _, right in ranking)
        for position, (_, right) in enumerate(ranking, 1):
            hits += right
            first = first or position * right
            recalled, now = (hits / number, hits / position) if number else (math.nan, math.nan)
            average += (recalled - recall) * now
            trapezoid += (recalled - recall) * (now + precision) / 2
            recall, precision = recalled, now
        measures.append((average if number else math.nan, trapezoid if number else math.nan, first))
    return measures


def random_embeddings(number: int, size: int, identities: int, cameras: int, generator: torch.Generator) -> Embeddings:
    """Vectors of small integers, so that many are equally similar."""
    return Embeddings(
        torch.randint(-2, 3, (number, size), generator=generator).double(),
        torch.randint(identities, (number,), generator=generator),
        torch.randint(cameras, (number,), generator=generator),
    )


@settings(max_examples=60)
@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(1, 40), st.integers(1, 4), st.integers(1, 8), st.integers(1, 3))
def test_measures_equal_those_of_the_slow_implementation(
    seed: int, number: int, entries: int, size: int, identities: int, cameras: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    queries = random_embeddings(number, size, identities, cameras, generator)
    gallery = random_embeddings(entries, size, identities, cameras, generator)
    expected = slow(queries, gallery)
    if all(first == 0 for *_, first in expected):
        with pytest.raises(InputError):
            rank(queries, gallery)
        return
    result = rank(queries, gallery)
    average, trapezoid, first = (list(column) for column in zip(*expected, strict=True))
    np.testing.assert_allclose(result.average_precision, average, atol=1e-12)
    np.testing.assert_allclose(result.trapezoid, trapezoid, atol=1e-12)
    assert result.first.tolist() == first
    assert result.unmatched == first.count(0)
    assert result.map == pytest.approx(np.nanmean(average)) and result.map_trapezoid <= result.map + 1e-12
    answered = [place for place in first if place]
    assert result.cmc(2) == pytest.approx(sum(place <= 2 for place in answered) / len(answered))


def cosines(queries: Embeddings, gallery: Embeddings) -> np.ndarray:
    return nn.functional.cosine_similarity(queries.vectors[:, None].double(), gallery.vectors[None].double(), dim=2).numpy()


def test_average_precision_equals_that_of_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    queries = Embeddings(torch.randn(30, 16, generator=generator), torch.arange(30) % 10)
    gallery = Embeddings(torch.randn(500, 16, generator=generator), torch.randint(12, (500,), generator=generator))
    right, similarity = (queries.identities[:, None] == gallery.identities).numpy(), cosines(queries, gallery)
    expected = [average_precision_score(truth, scores) for truth, scores in zip(right, similarity, strict=True)]
    result = rank(queries, gallery)
    np.testing.assert_allclose(result.average_precision, expected, rtol=1e-12)
    assert result.map == pytest.approx(label_ranking_average_precision_score(right, similarity), rel=1e-12)


def test_cmc_equals_top_k_accuracy_if_every_person_is_in_the_gallery_once() -> None:
    generator = torch.Generator().manual_seed(0)
    gallery = Embeddings(torch.randn(40, 6, generator=generator), torch.arange(40))
    people = torch.randint(40, (300,), generator=generator)
    queries = Embeddings(gallery.vectors[people] + torch.randn(300, 6, generator=generator), people)
    result = rank(queries, gallery)
    for places in (1, 5, 20):
        expected = top_k_accuracy_score(people.numpy(), cosines(queries, gallery), k=places, labels=np.arange(40))
        assert result.cmc(places) == pytest.approx(expected, abs=1e-12)
    assert 0.1 < result.cmc(1) < result.cmc(5) < result.cmc(20) < 1


def test_random_embeddings_are_ranked_by_chance() -> None:
    generator = torch.Generator().manual_seed(0)
    people = 20
    gallery = Embeddings(torch.randn(people, 8, generator=generator), torch.arange(people))
    queries = Embeddings(torch.randn(4000, 8, generator=generator), torch.arange(4000) % people)
    result = rank(queries, gallery)
    places = torch.arange(1, people + 1).double()  # one right answer, anywhere with the same probability
    error = 4 / math.sqrt(4000)
    assert result.map == pytest.approx(float((1 / places).mean()), abs=error * float((1 / places).std()))
    for place in (1, 5, 20):
        chance = place / people
        assert result.cmc(place) == pytest.approx(chance, abs=error * math.sqrt(chance * (1 - chance)))


def test_the_length_of_vectors_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, gallery = (random_embeddings(number, 5, 4, 2, generator) for number in (10, 50))
    longer = Embeddings(gallery.vectors * torch.linspace(0.01, 100, 50)[:, None], gallery.identities, gallery.cameras)
    assert torch.equal(rank(queries, gallery).first, rank(queries, longer).first)


def test_the_order_of_the_gallery_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, gallery = (random_embeddings(number, 3, 6, 3, generator) for number in (20, 300))
    shuffled = torch.randperm(300, generator=generator)
    other = Embeddings(gallery.vectors[shuffled], gallery.identities[shuffled], gallery.cameras[shuffled])  # type: ignore[index]
    assert torch.equal(rank(queries, gallery).average_precision, rank(queries, other).average_precision)


def test_equal_vectors_are_equally_similar_at_every_position() -> None:
    generator = torch.Generator().manual_seed(0)
    query, vector = torch.randn(1, 1021, generator=generator), torch.randn(1, 1021, generator=generator)
    identities = torch.zeros(997, dtype=torch.int64)
    identities[::7] = 1
    result = rank(Embeddings(query, torch.tensor([1])), Embeddings(vector.expand(997, -1), identities))
    assert result.first.tolist() == [int((identities == 0).sum()) + 1]  # ties are ranked after all wrong answers


def test_the_same_embedding_for_everybody_has_the_worst_score() -> None:
    people = torch.arange(50)
    result = rank(Embeddings(torch.ones(50, 4), people), Embeddings(torch.ones(50, 4), people))
    assert result.first.tolist() == [50] * 50 and result.map == pytest.approx(1 / 50)


def test_a_vector_of_zeros_is_equally_similar_to_all() -> None:
    result = rank(Embeddings(torch.zeros(1, 2), torch.tensor([1])), Embeddings(circle(0, 90, 180), torch.tensor([1, 2, 3])))
    assert result.first.tolist() == [3]


def test_a_query_in_the_gallery_is_left_out() -> None:
    seen = Embeddings(circle(0, 40, 10), torch.tensor([1, 1, 2]), torch.tensor([1, 2, 1]))
    query = Embeddings(seen.vectors[:1], seen.identities[:1], seen.cameras[:1])  # type: ignore[index]
    assert rank(query, seen).first.tolist() == [2]  # the other person at 10 degrees, then the other camera
    assert rank(Embeddings(query.vectors, query.identities), Embeddings(seen.vectors, seen.identities)).first.tolist() == [1]


def test_queries_without_a_right_answer_are_counted_and_left_out() -> None:
    queries = Embeddings(circle(0, 90, 45), torch.tensor([1, 2, 3]), torch.tensor([1, 1, 1]))
    gallery = Embeddings(circle(0, 40, 80), torch.tensor([1, 2, 1]), torch.tensor([2, 1, 2]))  # 2 from its own camera only, 3 never
    result = rank(queries, gallery)
    assert result.unmatched == 2 and result.first.tolist() == [1, 0, 0]
    assert result.average_precision.isnan().tolist() == [False, True, True]
    assert result.map == pytest.approx((1 + 2 / 3) / 2) and result.cmc(1) == 1
    assert repr(result).startswith("Retrieval(mAP 83.3 %, CMC-1 100.0 %, CMC-5 100.0 %, CMC-20 100.0 %; 3 queries, 2 ")


def test_ranking_in_blocks_gives_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    queries, gallery = (random_embeddings(number, 3, 6, 3, generator) for number in (23, 60))
    whole = rank(queries, gallery)
    monkeypatch.setattr("noisewise.retrieval._BLOCK", 300)
    assert torch.equal(rank(queries, gallery).trapezoid, whole.trapezoid)


def test_the_summary_has_the_columns_of_the_tables() -> None:
    result = one_query("-----+")
    assert result.summary() == {"map": result.map, "map_trapezoid": result.map_trapezoid, "cmc1": 0.0, "cmc5": 0.0, "cmc20": 1.0}


PEOPLE, HEIGHT, WIDTH = 6, 8, 4


def draw_people(folder: Path) -> ImageFiles:
    """Three frames of every person from each of two cameras, and their groups; every person has different colours."""
    generator = np.random.default_rng(0)
    paths, groups = [], []
    for person in range(PEOPLE):
        clothes = generator.integers(0, 256, (HEIGHT, 1, 3))
        for camera in (1, 2):
            for frame in range(3):
                pixels = (clothes + generator.integers(-9, 10, (HEIGHT, WIDTH, 3)) + 15 * camera).clip(0, 255)
                paths.append(str(folder / f"{person}-{camera}-{frame}.png"))
                Image.fromarray(pixels.astype(np.uint8)).save(paths[-1])
                groups.append((person, camera, 100 - 2 * person - camera))  # tracklets need not be numbered from 0, nor in order
    identity, camera, tracklet = torch.tensor(groups).T.contiguous()
    names = tuple(f"person {number}" for number in range(PEOPLE))
    return ImageFiles(tuple(paths), identity, names, groups={"identity": identity, "camera": camera, "tracklet": tracklet}, name="drawn")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> ImageFiles:
    return draw_people(tmp_path_factory.mktemp("people"))


def sides(files: ImageFiles) -> tuple[ImageFiles, ImageFiles]:
    return files.take(files.groups["camera"] == 1), files.take(files.groups["camera"] == 2)


class Pixels(nn.Module):
    """The pixels are the embedding."""

    def features(self, x: Tensor) -> Tensor:
        return x.flatten(1)


def test_a_tracklet_is_the_mean_of_its_frames(people: ImageFiles) -> None:
    pixels = data.read(people).inputs.flatten(1).numpy().astype(np.float64)
    for batch_size in (1, 7, 256):
        result = embed(Pixels(), people, batch_size=batch_size)
        numbers = sorted(set(people.groups["tracklet"].tolist()))
        for row, number in enumerate(numbers):
            frames = people.groups["tracklet"].numpy() == number
            np.testing.assert_allclose(result.vectors[row], pixels[frames].mean(0), rtol=1e-13)
            assert result.identities[row] == people.groups["identity"].numpy()[frames][0]
            assert result.cameras is not None and result.cameras[row] == people.groups["camera"].numpy()[frames][0]
        assert len(result) == len(numbers) == 2 * PEOPLE
    assert repr(result) == f"Embeddings(12 × {3 * HEIGHT * WIDTH}, 6 identities, 2 cameras)"


def test_images_are_normalised_and_resized(people: ImageFiles) -> None:
    plain, scaled = embed(Pixels(), people), embed(Pixels(), people, normalise="normalise((0.2, 0.2, 0.2), (0.5, 0.5, 0.5))")
    torch.testing.assert_close(scaled.vectors, (plain.vectors / 255 - 0.2) / 0.5, rtol=0, atol=1e-6)
    assert embed(Pixels(), people, size=(4, 2)).vectors.shape == (2 * PEOPLE, 24)


def test_a_network_is_used_in_eval_mode_and_not_changed(people: ImageFiles) -> None:
    network = models.get("resnet20(dropout=0.5)", num_classes=PEOPLE)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    first, again = embed(network, people), embed(network, people)
    assert torch.equal(first.vectors, again.vectors) and network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    network.eval()
    with torch.no_grad():
        frames = network.features(data.read(people).inputs.float())
    row = sorted(set(people.groups["tracklet"].tolist())).index(int(people.groups["tracklet"][0]))
    torch.testing.assert_close(first.vectors[row].float(), frames[:3].mean(0), rtol=1e-4, atol=1e-4)


def test_a_streamed_gallery_gives_the_same_embeddings(people: ImageFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory = embed(Pixels(), people)
    monkeypatch.setattr("noisewise.retrieval.read", lambda files, size: Stream.of(files, (HEIGHT, WIDTH), workers=1))
    assert torch.equal(embed(Pixels(), people, batch_size=5).vectors, in_memory.vectors)


def test_a_run_normalises_images_as_in_training(people: ImageFiles, tmp_path: Path) -> None:
    queries, gallery = sides(people)
    run = noisewise.fit("mlp(hidden=(16,))", data.read(people), epochs=3, batch_size=8, folder=tmp_path / "run", device="cpu")
    pixels = data.read(people).inputs.double()
    mean, std = pixels.mean((0, 2, 3), keepdim=True), pixels.std((0, 2, 3), keepdim=True, correction=0)
    with torch.no_grad():
        frames = run.model().features(((pixels - mean) / std).float())  # type: ignore[operator]
    by_hand = torch.stack([frames[people.groups["tracklet"] == number].mean(0) for number in people.groups["tracklet"].unique()])
    torch.testing.assert_close(embed(run, people).vectors.float(), by_hand, rtol=1e-4, atol=1e-4)
    assert retrieve(run, queries, gallery).unmatched == 0
    with refused("'normalise'", "run"):
        retrieve(run, queries, gallery, normalise="normalise((0.0,), (1.0,))")


def test_people_with_different_clothes_are_found(people: ImageFiles) -> None:
    queries, gallery = sides(people)
    assert retrieve(Pixels(), queries, gallery).summary() == dict.fromkeys(("map", "map_trapezoid", "cmc1", "cmc5", "cmc20"), 1.0)
    whole = retrieve(Pixels(), queries, people)  # the makers of MARS leave the queries in the gallery
    assert whole.map == 1.0 and len(whole.first) == PEOPLE


def write_mars(root: Path) -> None:
    """A test split in the format of MARS: people have flat colours, and similar hues are similar people."""
    seen = {  # folder, camera and sequence: the hue in degrees
        ("00-1", 1, 1): 10,  # no person: not read
        ("0000", 1, 1): 20,  # a distractor
        ("0002", 1, 1): 10,  # a query
        ("0002", 1, 2): 11,  # from the same camera: left out
        ("0002", 3, 1): 30,
        ("0004", 2, 1): 80,  # a query
        ("0004", 5, 1): 75,
    }
    info = root / "MARS" / "info"
    info.mkdir(parents=True)
    names, spans = [], []
    for (person, camera, sequence), hue in seen.items():
        folder = root / "MARS" / "bbox_test" / person
        folder.mkdir(parents=True, exist_ok=True)
        red, green = (round(200 * part) for part in circle(hue)[0].tolist())
        for frame in (1, 2):
            names.append(f"{person}C{camera}T{sequence:04d}F{frame:03d}.jpg")
            Image.new("RGB", (8, 16), (red, green, 0)).save(folder / names[-1], quality=95)
        spans.append((len(names) - 1, len(names), int(person.replace("00-1", "-1")), camera))
    (info / "test_name.txt").write_text("\n".join(names) + "\n")
    savemat(info / "tracks_test_info.mat", {"track_test_info": np.array(spans)})
    savemat(info / "query_IDX.mat", {"query_IDX": np.array([[3, 6]])})


def test_mars_is_evaluated_by_its_protocol(tmp_path: Path) -> None:
    write_mars(tmp_path)
    test = data.files("mars", "test", tmp_path)
    result = retrieve(Pixels(), test.take(test.groups["query"] == 1), test, size=16)
    assert result.first.tolist() == [2, 1]  # the distractor is ranked before the first person
    assert result.summary() == {"map": 0.75, "map_trapezoid": 0.625, "cmc1": 0.5, "cmc5": 1.0, "cmc20": 1.0}


TWO = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("make", "mentions"),
    [
        (lambda: Embeddings(torch.zeros(2), TWO), ("'vectors'", "Embeddings", "(N, size)", "(2,)")),
        (lambda: Embeddings(torch.tensor([[0.0], [math.nan]]), TWO), ("'vectors'", "Embeddings", "finite")),
        (lambda: Embeddings(circle(0, 1), torch.tensor([1])), ("'identities'", "torch.int64", "(1,)")),
        (lambda: Embeddings(circle(0, 1), TWO, TWO.float()), ("'cameras'", "Embeddings", "int64")),
        (lambda: rank(Embeddings(circle(0, 1), TWO), Embeddings(torch.ones(2, 3), TWO)), ("vectors", 2, "queries")),
        (lambda: rank(Embeddings(circle(0, 1), TWO, TWO), Embeddings(circle(0, 1), TWO)), ("cameras",)),
        (lambda: rank(Embeddings(circle(0, 1), TWO), Embeddings(circle(0, 1), TWO + 2)), ("identity", "queries", "gallery")),
        (lambda: rank(Embeddings(circle(0, 1), TWO), Embeddings(torch.ones(0, 2), TWO[:0])), ("identity", "queries", "gallery")),
        (lambda: one_query("oo"), ("camera",)),
        (lambda: one_query("+").cmc(0), ("'ranks'", "cmc", "[1, inf)", 0)),
    ],
)
def test_a_bad_argument_is_refused(make: object, mentions: tuple[object, ...]) -> None:
    with refused(*mentions):
        make()  # type: ignore[operator]


def test_bad_files_and_networks_are_refused_before_any_image_is_read(people: ImageFiles, tmp_path: Path) -> None:
    missing = replace(people, paths=tuple(str(tmp_path / "none.png") for _ in people.paths))
    queries, gallery = sides(missing)
    unknown = replace(missing, groups={"identity": missing.groups["identity"]})
    with refused("identity, camera, tracklet"):
        retrieve(Pixels(), queries, unknown)
    with refused("image"):
        retrieve(Pixels(), queries, gallery.take(torch.zeros(len(gallery), dtype=torch.bool)))
    mixed = replace(missing, groups={**missing.groups, "tracklet": torch.zeros(len(missing), dtype=torch.int64)})
    with refused("identity", "tracklet 0"):
        retrieve(Pixels(), queries, mixed)
    with refused("identity", "queries", "gallery"):
        retrieve(Pixels(), missing.take(missing.labels < 3), missing.take(missing.labels >= 3))
    with refused("features(x)", "'Linear'"):
        retrieve(nn.Linear(2, 2), queries, gallery)


def test_features_that_are_not_vectors_are_refused(people: ImageFiles) -> None:
    class Maps(nn.Module):
        def features(self, x: Tensor) -> Tensor:
            return x

    with refused("(N, size)", (36, 3, HEIGHT, WIDTH)):
        embed(Maps(), people)


SIZE = (40, 16)


def real_map(model: noisewise.Run | nn.Module, normalise: str | None = None) -> float:
    """Mean average precision on the test people, with queries from camera 1 and from camera 2."""
    first, second = sides(data.files("pku_reid", "test"))
    results = [retrieve(model, queries, gallery, size=SIZE, normalise=normalise) for queries, gallery in ((first, second), (second, first))]
    assert [len(result.first) for result in results] == [12, 12] and not any(result.unmatched for result in results)
    return sum(result.map for result in results) / 2


@pytest.fixture(scope="module")
def untrained() -> list[float]:
    """The mean average precision of twelve networks with random weights."""
    scale = repr(data.Normalise.of(data.read("pku_reid", size=SIZE).inputs))
    precisions = []
    for seed in range(12):
        torch.manual_seed(seed)
        precisions.append(real_map(models.get("resnet20", num_classes=62), scale))
    return precisions


@real("pku_reid")
@pytest.mark.slow
def test_random_networks_find_real_people_a_little_better_than_chance(untrained: list[float]) -> None:
    chance = sum(1 / place for place in range(1, 13)) / 12  # one right answer among twelve, anywhere with the same probability
    assert ttest_1samp(untrained, chance, alternative="greater").pvalue < 1e-3
    assert max(untrained) < 0.6


@real("pku_reid")
@pytest.mark.slow
def test_training_on_other_people_ranks_real_people_better(untrained: list[float], tmp_path: Path) -> None:
    train = data.read("pku_reid", size=SIZE)
    settings = {"epochs": 8, "batch_size": 32, "optimiser": "sgd(lr=0.05, momentum=0.9)", "augment": "crop(2) + flip", "clean_pass": False}
    run = noisewise.fit("resnet20", train, **settings, device="cpu", folder=tmp_path / "run")
    assert real_map(run) > max(untrained) + 0.1
