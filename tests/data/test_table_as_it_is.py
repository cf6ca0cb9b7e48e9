"""Tables as people have them: what each column is taken for, what becomes of it, and that a saved encoding gives the same bits."""

from __future__ import annotations

import csv
import json
import threading
import urllib.request
import webbrowser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, RobustScaler
from typer.testing import CliRunner

from noisewise import fit
from noisewise.cli import app
from noisewise.data import Dataset, Encoding, UnreadCells, features, read
from noisewise.runs import examples_of, read_encoding
from refused import refused, warned

HEADER = ("customer", "age", "city", "joined", "premium", "spend", "note", "country", "kind")
GOOD = ("works great and fast", "very happy with the service", "no problems at all so far", "friendly help and quick answers")
BAD = ("cancel my contract please", "far too expensive and slow", "wants to leave for another", "complained twice about the bill")


def _customers(path: Path, rows: int, seed: int, wrong: float = 0.05) -> np.ndarray:
    """Customers, of whom 5 % leave. Returns which labels are wrong."""
    draw = np.random.default_rng(seed)
    leaves = draw.random(rows) < 0.05
    flipped = draw.random(rows) < wrong
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(HEADER)
        for row in range(rows):
            note = draw.choice(BAD if draw.random() < (0.9 if leaves[row] else 0.05) else GOOD)
            cells = {
                "customer": f"C{100_000 + row}",
                "age": f"{draw.normal(40 + 15 * leaves[row], 10):.1f}",
                "city": draw.choice(["Bern", "Genf", "Basel", "Chur", "Zug", "Lugano"][: 3 if leaves[row] else 6]),
                "joined": str(np.datetime64("2023-01-01") + int(draw.integers(0, 365))),
                "premium": "yes" if draw.random() < (0.8 if leaves[row] else 0.3) else "no",
                "spend": f"{draw.lognormal(4 - leaves[row], 1):.2f}",
                "note": f"{note}, case {draw.integers(0, 1000)}",
            }
            gaps = {name: "" for name in cells if name != "customer" and draw.random() < 0.05}
            table.writerow([*(cells | gaps).values(), "CH", "leaves" if leaves[row] != flipped[row] else "stays"])
    return flipped


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.csv and new.csv."""
    folder = tmp_path_factory.mktemp("customers")
    _customers(folder / "train.csv", 1500, 0)
    _customers(folder / "new.csv", 400, 1)
    return folder


@pytest.fixture(scope="module")
def train(tables: Path) -> Dataset:
    return read(tables / "train.csv", label="kind")


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _kinds(data: Dataset) -> dict[str, str]:
    assert data.encoding is not None
    return {column.name: column.kind for column in data.encoding.columns}


def test_every_column_is_taken_for_what_it_is(train: Dataset) -> None:
    assert _kinds(train) == {
        "customer": "left out",
        "age": "number",
        "city": "category",
        "joined": "date",
        "premium": "boolean",
        "spend": "number",
        "note": "text",
        "country": "left out",
    }
    assert train.encoding is not None
    by_name = {column.name: column for column in train.encoding.columns}
    assert "every cell is the same" in by_name["country"].done and "id" in by_name["customer"].done
    assert 40 < by_name["age"].gaps < 120 and by_name["city"].distinct == 6


def test_numbers_and_categories_are_encoded_as_scikit_learn_does_it(tables: Path, train: Dataset) -> None:
    pandas = pytest.importorskip("pandas")
    old, new = (pandas.read_csv(tables / f"{name}.csv") for name in ("train", "new"))
    new.loc[:3, "city"] = "Paris"  # an unknown value
    squeeze = FunctionTransformer(lambda values: values / np.sqrt(1 + (values / 3) ** 2))
    scale = make_pipeline(SimpleImputer(strategy="median"), RobustScaler(unit_variance=True), squeeze)
    one_hot = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=10, max_categories=100, sparse_output=False)
    reference = ColumnTransformer([("numbers", scale, ["age", "spend"])]).fit(old)
    cities = one_hot.fit(old[["city"]].dropna())
    data = read(new, label="kind", encoding=train.encoding)
    columns = dict(zip(data.features or (), data.inputs.T, strict=True))
    for name, expected in zip(("age", "spend"), reference.transform(new).T, strict=True):
        assert torch.equal(columns[name], torch.from_numpy(expected).float())
        assert torch.equal(columns[f"{name} is a gap"], torch.tensor(new[name].isna().to_numpy()).float())
    known = new["city"].notna().to_numpy()
    expected = np.zeros((len(new), 6))
    expected[known] = cities.transform(new[["city"]][known])
    ours = torch.stack([columns[f"city = {name}"] for name in cities.categories_[0]], 1)
    assert torch.equal(ours, torch.from_numpy(expected).float()) and ours[:4].sum() == 0
    assert torch.equal(columns["city is a gap"], torch.from_numpy(~known).float())


def test_rare_and_unknown_categories_share_a_column(tmp_path: Path) -> None:
    cells = ["red"] * 200 + ["blue"] * 150 + [f"rare {row % 7}" for row in range(30)] + [""] * 20
    path = tmp_path / "colours.csv"
    path.write_text("\n".join(["colour,label", *(f"{cell},{row % 2}" for row, cell in enumerate(cells))]))
    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=3, sparse_output=False)
    encoder.fit(np.array([cell for cell in cells if cell], object)[:, None])
    data = read(path)
    frequent = [f"colour = {value}" for value in sorted(set(cells) - {""}) if value not in (encoder.infrequent_categories_[0] or ())]
    assert data.features == (*frequent, *(["colour is rare"] if encoder.infrequent_categories_[0] is not None else []), "colour is a gap")
    path.write_text(path.read_text() + "".join(f"\nonce {row},1" for row in range(3)))
    data = read(path)
    assert data.features is not None and data.features[-2:] == ("colour is rare", "colour is a gap")
    (tmp_path / "new.csv").write_text("colour,label\ngreen,0\nonce 1,1\nred,1\n,1\n")
    places = [data.features.index(name) for name in ("colour = red", "colour is rare", "colour is a gap")]
    new = read(tmp_path / "new.csv", encoding=data.encoding).inputs[:, places]
    assert new.tolist() == [[0, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]


def test_text_is_encoded_as_scikit_learn_does_it(tables: Path, train: Dataset) -> None:
    pandas = pytest.importorskip("pandas")
    old, new = (pandas.read_csv(tables / f"{name}.csv")["note"] for name in ("train", "new"))
    weights = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w{2,40}\b", max_features=20_000, min_df=2)
    known = weights.fit_transform(old.dropna())
    directions = TruncatedSVD(64, random_state=0).fit(known)
    spread = directions.transform(known).std(0).max()
    expected = directions.transform(weights.transform(new.fillna(""))) / spread
    data = read(tables / "new.csv", label="kind", encoding=train.encoding)
    assert data.features is not None
    first = data.features.index("note 1")
    np.testing.assert_allclose(data.inputs[:, first : first + 64].numpy(), expected, atol=1e-5)
    gaps = data.inputs[:, data.features.index("note is a gap")].numpy().astype(bool)
    assert np.array_equal(gaps, new.isna()) and not data.inputs[gaps, first : first + 64].any()


def test_dates_become_days_months_weekdays_and_hours(tmp_path: Path) -> None:
    instants = np.datetime64("2023-11-05T00:00") + np.random.default_rng(0).integers(0, 500_000, 60).astype("timedelta64[m]")
    texts = {
        "iso": [str(instant) for instant in instants],
        "german": [instant.astype(object).strftime("%d.%m.%Y %H:%M") for instant in instants],
        "american": [instant.astype(object).strftime("%m/%d/%Y %I:%M %p") for instant in instants],
    }
    for name, cells in texts.items():
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(["at,label", *(f"{cell},{row % 2}" for row, cell in enumerate(cells))]))
    data = {name: read(tmp_path / f"{name}.csv") for name in texts}
    assert data["iso"].features == ("at", "at month", "at weekday", "at hour")
    assert torch.equal(data["iso"].inputs, data["german"].inputs) and torch.equal(data["iso"].inputs, data["american"].inputs)
    objects = [instant.astype(object) for instant in instants]
    parts = np.array(
        [[(day - objects[0].replace(hour=0, minute=0)).days, day.month, day.weekday(), day.hour + day.minute / 60] for day in objects]
    )
    scaled = RobustScaler(unit_variance=True).fit_transform(parts)
    np.testing.assert_allclose(data["iso"].inputs.numpy(), scaled / np.sqrt(1 + (scaled / 3) ** 2), atol=1e-5)


def test_a_saved_encoding_gives_the_same_bits_for_new_rows(tables: Path, train: Dataset, tmp_path: Path) -> None:
    run = fit("linear", train, epochs=1, folder=tmp_path / "run", device="cpu")
    new = read(tables / "new.csv", label="kind", encoding=train.encoding)
    saved = read_encoding(run.path)
    assert saved is not None and saved is not train.encoding
    assert torch.equal(read(tables / "new.csv", label="kind", encoding=saved).inputs, new.inputs)
    assert torch.equal(run.predict(tables / "new.csv"), run.predict(new.inputs))
    assert train.encoding is not None and saved.columns == train.encoding.columns
    (run.path / "encoding.json").write_text(json.dumps({"plain": False, "columns": [], "encoders": [{"kind": "number"}]}))
    with refused("encoding.json"):
        run.predict(tables / "new.csv")


def test_a_table_of_numbers_is_used_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("a,b,kind\n1.5,10,x\n2.5,1e9,y\n-3,30,x\n,5,40,y\n".replace(",5,40", "0.5,40"))
    data = read(path, label="kind")
    assert data.features == ("a", "b") and data.encoding is not None and data.encoding.plain and not data.cells
    assert data.inputs.tolist() == [[1.5, 10], [2.5, 1e9], [-3, 30], [0.5, 40]]
    run = fit("linear", data, epochs=1, folder=tmp_path / "run", device="cpu")
    assert run.provenance["normalise"].startswith("normalise(")
    (tmp_path / "gaps.csv").write_text("b,a\n,1\n40,\n")
    assert torch.equal(run.predict(tmp_path / "gaps.csv"), run.predict([[1.0, 35.0], [1.0, 40.0]])), "a gap is the median"


def test_a_table_that_is_scaled_is_not_normalised_again(train: Dataset, tmp_path: Path) -> None:
    assert fit("linear", train, epochs=1, folder=tmp_path / "run", device="cpu").provenance["normalise"] is None


def test_strange_cells_of_new_rows_are_gaps_and_are_reported(train: Dataset, tmp_path: Path) -> None:
    new = tmp_path / "new.csv"
    new.write_text("age,city,joined,premium,spend,note\nold,Bern,soon,perhaps,5,x\n,Bern,,,5,x\n")
    assert train.encoding is not None
    with warned("'age'", "'old'", "'joined'", "'soon'", "'premium'", "'perhaps'", kind=UnreadCells):
        inputs = read(_with_labels(new), encoding=train.encoding).inputs
    assert torch.equal(inputs[0], inputs[1])


def _with_labels(path: Path) -> Path:
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([f"{header},label", *(f"{row},{('stays', 'leaves')[place]}" for place, row in enumerate(rows))]))
    return path


def test_a_test_set_gets_the_encoding_of_the_training_set(tables: Path, train: Dataset, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    options = {"epochs": 2, "device": "cpu"}
    tests = (tables / "new.csv", read(tables / "new.csv", label="kind"), pandas.read_csv(tables / "new.csv"))
    runs = [fit("linear", train, test=test, folder=tmp_path / f"run{place}", **options) for place, test in enumerate(tests)]
    assert [run.metrics[-1]["test_accuracy"] for run in runs] == [runs[0].metrics[-1]["test_accuracy"]] * 3
    with refused("'age'", "'new'", "'train'"):
        fit("linear", train, test=read(tables / "new.csv", label="kind", drop=["age"]), **options)


def test_examples_are_shown_as_they_were_read(tables: Path, train: Dataset, tmp_path: Path) -> None:
    run = fit("linear", train, epochs=1, folder=tmp_path / "run", device="cpu")
    rows = _rows(tables / "train.csv")
    examples = examples_of(run.dynamics.record, places=np.array([7, 3]))
    for place, row in enumerate((7, 3)):
        expected = {name: cell for name, cell in rows[row].items() if name not in ("kind", "age", "spend")}
        shown = dict(features(examples, place))
        assert {name: shown[name] for name in expected} == expected
        assert all(float(shown[name] or 0) == float(rows[row][name] or 0) for name in ("age", "spend"))


def test_other_rows_with_the_same_inputs_are_not_the_examples_of_a_run(tables: Path, tmp_path: Path) -> None:
    """A run of a stranger could name a private file, with an encoding that gives all files the same inputs."""
    path = tmp_path / "data.csv"
    path.write_text((tables / "train.csv").read_text())
    run = fit("linear", read(path, label="kind"), epochs=1, folder=tmp_path / "run", device="cpu")
    path.write_text(path.read_text().replace("C100007", "C999999"))  # a column that is left out
    with refused("inputs differ"):
        examples_of(run.dynamics.record)


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({"columns": {"age": "category", "city": "text"}}, {"age": "category", "city": "text"}),
        ({"columns": ["customer:category"], "text": "note"}, {"customer": "category", "note": "text"}),
        ({"drop": ["note", "city"], "text": ["customer"]}, {"note": None, "city": None, "customer": "text"}),
        ({"features": ["customer", "country"]}, {"customer": "category", "country": "category", "age": None}),
    ],
)
def test_people_can_say_what_a_column_is(tables: Path, options: dict[str, Any], kinds: dict[str, str | None]) -> None:
    found = _kinds(read(tables / "train.csv", label="kind", **options))
    assert {name: found.get(name) for name in kinds} == kinds


def test_all_bad_columns_are_reported_at_once(tables: Path) -> None:
    with refused("'city'", "number", "'note'", "date", "such as"):
        read(tables / "train.csv", label="kind", columns={"city": "number", "note": "date"})
    with refused("'agee'", "'age'", "'kind'", "colour"):
        read(tables / "train.csv", label="kind", columns={"agee": "number", "age": "colour"}, drop=["kind"])


def test_rows_without_a_label_are_counted(tables: Path, tmp_path: Path) -> None:
    lines = (tables / "train.csv").read_text().splitlines()
    for place in (3, 10, 20):
        lines[place] = lines[place].rpartition(",")[0] + ","
    (tmp_path / "gaps.csv").write_text("\n".join(lines))
    with refused("3 of 1,500", "row 2 (line 4)", "row 9 (line 11)", "kind"):
        read(tmp_path / "gaps.csv", label="kind")


def test_frames_and_files_of_every_kind_give_the_same_inputs(tables: Path, train: Dataset, tmp_path: Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    datasets = pytest.importorskip("datasets")
    frame = pandas.read_csv(tables / "train.csv")
    frame.to_csv(tmp_path / "tabs.tsv", sep="\t", index=False)
    frame.to_csv(tmp_path / "german.csv", sep=";", decimal=",", index=False)
    frame.to_csv(tmp_path / "wide.csv", encoding="utf-16", index=False)
    frame.to_excel(tmp_path / "sheet.xlsx", index=False)
    frame.to_parquet(tmp_path / "table.parquet")
    typed = frame.assign(joined=pandas.to_datetime(frame["joined"]), city=frame["city"].astype("category"))
    sources = [frame, typed, polars.from_pandas(frame), datasets.Dataset.from_pandas(frame, preserve_index=False)]
    sources += [tmp_path / name for name in ("tabs.tsv", "german.csv", "wide.csv", "sheet.xlsx", "table.parquet")]
    for source in sources:
        data = read(source, label="kind")
        assert data.features == train.features and torch.equal(data.inputs, train.inputs), source
        assert torch.equal(read(source, label="kind", encoding=train.encoding).inputs, train.inputs)


def _decide(url: str) -> None:
    """What the review page does when a person leaves the first example out and finishes."""
    page = urllib.request.urlopen(url).read().decode()
    content = json.loads(page.partition('id="content">')[2].partition("</script>")[0])
    step = {"entries": [[content["cards"][0][0], "drop", None]], "undo": False, "since": 0}
    for path, body in (("steps", json.dumps(step).encode()), ("finish", b"")):
        origin = {"Origin": url.rpartition("/")[0].rpartition("/")[0]}
        urllib.request.urlopen(urllib.request.Request(url + path, body, origin)).read()


def test_a_customer_table_goes_from_csv_to_predictions(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = _customers(tmp_path / "customers.csv", 1500, 0)

    def noisewise(*arguments: str) -> Any:
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        return done

    shown = noisewise("data", "preview", "customers.csv", "--label", "kind", "--json")
    assert {row["name"]: row["kind"] for row in json.loads(shown.stdout)}["note"] == "text"
    audited = noisewise("audit", "customers.csv", "--label", "kind", "--id", "customer", "--epochs", "10", "--run", "run")
    assert "TF-IDF" in audited.stderr and "median" in audited.stderr
    page = (tmp_path / "issues.html").read_text()
    assert 'id="columns"' in page and "TF-IDF" in page and "case " in page
    worst = [int(row["id"][1:]) - 100_000 for row in _rows(tmp_path / "issues.csv")][:40]
    assert wrong[worst].mean() > 0.4, "of all labels, 5 % are wrong"
    reviewed = []
    monkeypatch.setattr(
        webbrowser, "open", lambda url: reviewed.append(threading.Thread(target=_decide, args=(url,))) or reviewed[0].start()
    )
    assert "1 left out" in noisewise("review", "run").stdout and "leaves" in (tmp_path / "run/corrected.csv").read_text()
    assert "of 1,500 labels" in audited.stdout and "held-out labels" in noisewise("correct", "run", "--retrain").stdout
    assert (tmp_path / "run-corrected" / "encoding.json").exists()
    lines = [line.rpartition(",")[0] for line in (tables / "new.csv").read_text().splitlines()]
    (tmp_path / "new.csv").write_text("\n".join(lines))
    noisewise("predict", "run-corrected", "new.csv", "-o", "out.csv")
    rows = _rows(tmp_path / "out.csv")
    assert len(rows) == 400 and rows[0]["id"] == "C100000"
    assert 5 < sum(row["predicted_class"] == "leaves" for row in rows) < 60, "the rare class was learned"
    for row in rows:
        shares = {name: float(row[f"p({name})"]) for name in ("stays", "leaves")}
        assert row["predicted_class"] == max(shares, key=lambda name: shares[name]) and abs(sum(shares.values()) - 1) < 1e-5
    failed = CliRunner().invoke(app, ["predict", "run-corrected", "new.csv", "-o", "new.csv"])
    assert failed.exit_code == 2 and "input" in failed.output
    failed = CliRunner().invoke(app, ["predict", "run", "customers.csv", "--id", "nmae", "-o", "other.csv"])
    assert failed.exit_code == 2 and "nmae" in failed.output and not (tmp_path / "other.csv").exists()


def test_an_encoding_that_was_changed_is_refused() -> None:
    with pytest.raises(ValueError) as caught:
        Encoding.load({"plain": True}, {})
    assert "KeyError" in str(caught.value)
