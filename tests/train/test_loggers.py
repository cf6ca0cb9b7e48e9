"""Loggers: what they write is read back with the reader of the real library."""

import json
import math
import struct
import sys

import pytest

from noisewise.train._loggers import JSONLines, Logger, MLflow, TensorBoard, WandB, flatten, registry
from refused import refused, warned
from waiting import LIMIT

SETTINGS = {"loss": "imae(T=8)", "epochs": 3, "clip": None, "data": {"name": "digits", "validation": 0.1}}
METRICS = [
    (10, {"lr": 0.5, "accuracy": {"test": 0.25, "clean": {"right": 0.75}}, "waiting": None}),
    (20, {"lr": 0.25, "accuracy": {"test": 0.5}}),
]
CURVES = {"lr": [(10, 0.5), (20, 0.25)], "accuracy/test": [(10, 0.25), (20, 0.5)], "accuracy/clean/right": [(10, 0.75)]}


def log_all(logger, state="finished"):
    logger.start(SETTINGS)
    for step, metrics in METRICS:
        logger.log(metrics, step)
    logger.finish(state)


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_flatten_joins_names_and_drops_none():
    assert flatten({"a": {"b": {"c": 1.0}, "d": None}, "e": 0.0, "f": {}}) == {"a/b/c": 1.0, "e": 0.0}


def test_jsonl_writes_settings_then_numbers_then_the_state(tmp_path):
    path = tmp_path / "deep" / "run.jsonl"
    log_all(JSONLines(path))
    assert lines_of(path) == [
        {"settings": {"loss": "imae(T=8)", "epochs": 3, "data/name": "digits", "data/validation": 0.1}},
        {"step": 10, "lr": 0.5, "accuracy/test": 0.25, "accuracy/clean/right": 0.75},
        {"step": 20, "lr": 0.25, "accuracy/test": 0.5},
        {"state": "finished"},
    ]


def test_jsonl_writes_every_line_at_once_and_appends_to_an_existing_file(tmp_path):
    path = tmp_path / "run.jsonl"
    logger = JSONLines(path)
    logger.start({})
    logger.log({"lr": 0.5}, 1)
    assert lines_of(path) == [{"settings": {}}, {"step": 1, "lr": 0.5}]
    log_all(JSONLines(path))
    assert len(lines_of(path)) == 6


def test_jsonl_writes_numbers_that_are_not_finite_as_null_and_the_step_once(tmp_path):
    path = tmp_path / "run.jsonl"
    logger = JSONLines(path)
    logger.start({"limit": math.inf, "path": tmp_path})
    logger.log({"loss": math.nan, "worst": -math.inf, "step": 7}, 7)
    assert path.read_text(encoding="utf-8").splitlines()[1] == '{"step": 7, "loss": null, "worst": null}'
    assert lines_of(path)[0] == {"settings": {"limit": None, "path": str(tmp_path)}}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_back_every_curve(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log_all(TensorBoard(tmp_path / "events"), "interrupted")
    events = accumulator.EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]} == CURVES
    (text,) = (event.tensor_proto.string_val[0].decode() for event in events.Tensors("settings/text_summary"))
    assert text.splitlines() == ["    loss = 'imae(T=8)'", "    epochs = 3", "    data/name = 'digits'", "    data/validation = 0.1"]
    assert events.Tensors("state/text_summary")[0].tensor_proto.string_val[0] == b"interrupted"


@pytest.fixture
def mlflow_client(tmp_path, monkeypatch):
    """A client with an empty database, for which MLflow needs SQLAlchemy and Alembic."""
    for package in ("sqlalchemy", "alembic"):
        pytest.importorskip(package)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)
    return pytest.importorskip("mlflow").MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/runs.db")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_mlflow_reads_back_every_curve_of_two_runs_logged_at_once(mlflow_client):
    loggers = [MLflow(uri=mlflow_client.tracking_uri, experiment="digits") for _ in range(2)]
    for logger in loggers:
        logger.start(SETTINGS)
    for step, metrics in METRICS:
        for logger in loggers:
            logger.log(metrics, step)
    for logger, state in zip(loggers, ("finished", "interrupted"), strict=True):
        logger.finish(state)
    experiment = mlflow_client.get_experiment_by_name("digits")
    runs = mlflow_client.search_runs([experiment.experiment_id])
    assert sorted(run.info.status for run in runs) == ["FINISHED", "KILLED"]
    for run in runs:
        assert run.data.params == {"loss": "imae(T=8)", "epochs": "3", "data/name": "digits", "data/validation": "0.1"}
        histories = {name: mlflow_client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        assert {name: [(point.step, point.value) for point in history] for name, history in histories.items()} == CURVES


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_server_that_is_down_gives_one_warning(monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    logger = MLflow(uri="http://127.0.0.1:9")
    with warned(repr(logger)) as caught:
        log_all(logger)
    assert len(caught) == 1


def records_of(path, kind):
    """The records of an offline run: protocol buffers in LevelDB's log format, after a header of seven bytes."""
    data, offset, record, records = path.read_bytes(), 7, b"", []
    while offset + 7 <= len(data):
        left = 32768 - offset % 32768
        if left < 7:
            offset += left
            continue
        length, part = struct.unpack("<HB", data[offset + 4 : offset + 7])
        record += data[offset + 7 : offset + 7 + length]
        offset += 7 + length
        if part in (1, 4):  # a whole record, or the last part of one
            records.append(kind.FromString(record))
            record = b""
    return records


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_wandb_writes_an_offline_run_with_every_curve(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    internal = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    for limit in ("WANDB_INIT_TIMEOUT", "WANDB__SERVICE_WAIT"):
        monkeypatch.setenv(limit, str(LIMIT))
    log_all(WandB(project="digits"), "failed")
    wandb.teardown()  # waits for the process that writes the file
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    records = records_of(file, internal.Record)
    (run,) = (record.run for record in records if record.HasField("run"))
    assert run.project == "digits"
    config = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in run.config.update}
    assert {name: value for name, value in config.items() if name != "_wandb"} == flatten(SETTINGS)
    curves = {}
    for record in records:
        if record.HasField("history"):
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            for name in row.keys() - {"_step", "_runtime", "_timestamp"}:
                curves.setdefault(name, []).append((row["_step"], row[name]))
    assert curves == CURVES
    assert [record.exit.exit_code for record in records if record.HasField("exit")] == [1]


@pytest.mark.parametrize(("spec", "package"), [("tensorboard", "tensorboard"), ("mlflow", "mlflow"), ("wandb", "wandb")])
def test_a_missing_library_is_an_error_that_names_the_extra_to_install(spec, package, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    logger = registry.get(spec)
    with refused(f"'{spec}'", package, "pip install 'noisewise[track]'"):
        logger.start(SETTINGS)
    logger.log({"lr": 0.1}, 1)
    logger.finish("failed")


def test_a_logger_that_fails_during_training_warns_once_and_is_disabled(tmp_path):
    folder = tmp_path / "runs"
    logger = JSONLines(folder / "run.jsonl")
    logger.start(SETTINGS)
    logger.log({"lr": 0.5}, 1)
    (folder / "run.jsonl").unlink()
    folder.rmdir()
    with warned(repr(logger), "FileNotFoundError") as caught:
        logger.log({"lr": 0.25}, 2)
    assert [str(warning.filename) for warning in caught] == [__file__]
    folder.mkdir()
    logger.log({"lr": 0.125}, 3)
    logger.finish("finished")
    assert list(folder.iterdir()) == []
    logger.start(SETTINGS)
    assert len(lines_of(folder / "run.jsonl")) == 1


def test_a_logger_that_cannot_start_warns_once_and_is_disabled(tmp_path):
    (tmp_path / "runs").write_text("a file where a folder should be")
    logger = JSONLines(tmp_path / "runs" / "run.jsonl")
    with warned(repr(logger)) as caught:
        log_all(logger)
    assert len(caught) == 1


def test_nothing_is_written_before_the_start_or_after_the_end(tmp_path):
    path = tmp_path / "run.jsonl"
    logger = JSONLines(path)
    logger.log({"lr": 0.5}, 1)
    logger.finish("finished")
    assert not path.exists()
    log_all(logger)
    logger.log({"lr": 0.5}, 30)
    logger.finish("finished")
    assert len(lines_of(path)) == 4


@pytest.mark.parametrize(
    "spec", ["tensorboard", "tensorboard(folder='a b')", "mlflow(experiment='x')", "wandb(mode='online')", "jsonl('a')"]
)
def test_a_logger_can_be_built_from_its_repr(spec):
    logger = registry.get(spec)
    assert isinstance(logger, Logger)
    assert repr(registry.get(repr(logger))) == repr(logger)


@pytest.mark.parametrize(
    ("spec", "mentions"),
    [
        ("jsonl", ["'path'"]),
        ("jsonl('')", ["'path'", "JSONLines", "Got ''"]),
        ("tensorboard(folder=3)", ["'folder'", "TensorBoard", "Got 3"]),
        ("mlflow(experiment=None)", ["'experiment'", "MLflow", "Got None"]),
        ("wandb(mode='of')", ["'mode'", "WandB", "'offline', 'online'", "Got 'of'"]),
        ("tensorbord", ["'tensorbord'", "'tensorboard'"]),
    ],
)
def test_a_wrong_logger_is_refused(spec, mentions):
    with refused(*mentions):
        registry.get(spec)
