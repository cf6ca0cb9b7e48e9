"""Export the model of a run for programs without noisewise: ONNX, or PyTorch's own format (.pt2).

The graph takes what `Run.predict` takes as an array, and returns the same probabilities: normalisation and temperature are in it. What
happens to the columns of a table before is not; a JSON file beside the model describes it. ONNX needs the extra ``onnx``.
"""

from __future__ import annotations

import copy
import io
import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import noisewise
from noisewise.data import Normalise, augmentations
from noisewise.errors import InputError, reason
from noisewise.output import check_output, check_replacing, written_output
from noisewise.train import Predictor, Run

_ENDINGS = (".onnx", ".pt2")
_MARK = b"noisewise"  # in the metadata of what was exported here


class _Exported(nn.Module):
    """From raw inputs to probabilities."""

    mean: Tensor
    std: Tensor

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.model, self.temperature = copy.deepcopy(predictor.model).float(), predictor.temperature
        scale = None if predictor.normalise is None else augmentations.get(predictor.normalise)
        self.normalised = isinstance(scale, Normalise)
        if isinstance(scale, Normalise):
            numbers = torch.tensor((scale.mean, scale.std), dtype=torch.float64)
            numbers = numbers.mul(255.0 if predictor.dtype == "torch.uint8" else 1.0).float()
            mean, std = numbers.view(2, 1, -1, *[1] * (len(predictor.shape or ()) - 1))
            self.register_buffer("mean", mean)
            self.register_buffer("std", std)

    def forward(self, inputs: Tensor) -> Tensor:
        numbers = inputs.float()
        if self.normalised:
            numbers = (numbers - self.mean) / self.std
        scores: Tensor = self.model(numbers).float()
        return (scores / self.temperature).softmax(1)


def export(run: str | os.PathLike[str], output: str | os.PathLike[str], *, into: nn.Module | None = None) -> Path:
    """Write the model of a run as ONNX or as a PyTorch program, with a JSON file beside it that describes inputs and classes.

    Args:
        run: a run, or its folder.
        output: the file to write: .onnx (opset 18 or newer) or .pt2.
        into: a module with the same layers, for a run whose model was given as an object.

    Returns:
        The file that was written. ``model.onnx`` has ``model.json`` beside it.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> run = noisewise.fit("linear", ([[0.1], [0.2], [2.1], [2.2]], ["short", "short", "long", "long"]), epochs=20, folder=folder)
        >>> file = export(run, f"{folder}/model.pt2")
        >>> probabilities = torch.export.load(file).module()(torch.tensor([[0.0], [2.5]]))
        >>> [run.classes[number] for number in probabilities.argmax(1)]
        ['short', 'long']
    """
    file = check_output(output, "export", _ENDINGS)
    description = file.with_suffix(".json")
    check_replacing(file, None, lambda path: _MARK in path.read_bytes(), "model")
    check_replacing(description, None, lambda path: _MARK in path.read_bytes(), "description of a model")
    run = run if isinstance(run, Run) else Run(run)
    if run.provenance.get("recorded"):
        raise InputError(f"The run in {str(run.path)!r} was written by a Recorder, which does not know the inputs. Export your own module.")
    predictor = run.predictor(into)
    facts = _facts(run, predictor)
    content = _onnx(predictor, facts) if file.suffix.lower() == ".onnx" else _program(predictor, facts)
    with written_output(description) as part:
        part.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    with written_output(file) as part:
        part.write_bytes(content)
    return file


def _facts(run: Run, predictor: Predictor) -> dict[str, Any]:
    """What a program must know to use the model."""
    encoding, embedder = predictor.encoding, predictor.embedder
    facts: dict[str, Any] = {
        "noisewise": noisewise.__version__,
        "classes": list(run.classes),
        "inputs": {"name": "inputs", "type": str(predictor.dtype).removeprefix("torch."), "shape": ["batch", *(predictor.shape or ())]},
        "outputs": {"name": "probabilities", "shape": ["batch", len(run.classes)]},
        "columns": None if predictor.features is None else list(predictor.features),
        "before": "nothing: normalisation and temperature are in the model",
    }
    if encoding is not None and not encoding.plain:
        arrays = {name: values.tolist() for name, values in encoding.arrays().items()}
        facts |= {"encoding": encoding.as_json(), "arrays": arrays, "columns": list(encoding.names)}
        facts["before"] = "turn the columns of the table into numbers as 'encoding' says; 'columns' names the inputs in their order"
    elif embedder is not None:
        facts |= {"embedder": dict(embedder), "before": "compute the embeddings of the inputs as 'embedder' says"}
    elif predictor.features is not None:
        facts["before"] = "put the columns of the table in the order of 'columns'"
    return facts


def _module(predictor: Predictor) -> tuple[nn.Module, dict[str, Any]]:
    """The module to export, and the arguments of both exporters: an example, and that a batch may have any size."""
    module = _Exported(predictor).cpu().eval().requires_grad_(False)
    example = torch.zeros(2, *(predictor.shape or ()), dtype=getattr(torch, str(predictor.dtype).removeprefix("torch.")))
    return module, {"args": (example,), "dynamic_shapes": {"inputs": {0: torch.export.Dim("batch")}}}


@contextmanager
def _exporting(predictor: Predictor) -> Iterator[None]:
    """Leave out what torch says about its own internals, and say in one sentence what it cannot export."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            logger.setLevel(logging.ERROR)
            yield
    except Exception as error:  # torch raises errors of many kinds
        first = reason(error).partition(". ")[0]
        raise InputError(
            f"The model of the {predictor.run_name} cannot be exported ({first}). Keep it in PyTorch with run.model()."
        ) from error
    finally:
        logger.setLevel(level)


def _program(predictor: Predictor, facts: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    with _exporting(predictor):
        module, arguments = _module(predictor)
        torch.export.save(torch.export.export(module, **arguments), buffer, extra_files={"noisewise.json": json.dumps(facts)})
    return buffer.getvalue()


def _onnx(predictor: Predictor, facts: Mapping[str, Any]) -> bytes:
    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        raise InputError("Writing ONNX needs onnx and onnxscript, which are not installed; run: pip install 'noisewise[onnx]'.")
    with _exporting(predictor):
        module, arguments = _module(predictor)
        names: dict[str, Any] = {"input_names": ["inputs"], "output_names": ["probabilities"]}
        exported: Any = torch.onnx.export(module, **arguments, **names, dynamo=True, verbose=False, external_data=False)
        exported.model.metadata_props["noisewise"] = noisewise.__version__
        exported.model.metadata_props["classes"] = json.dumps(facts["classes"], ensure_ascii=False)
        content: bytes = exported.model_proto.SerializeToString()
    return content
