"""What starting up costs, in a fresh process."""

import json
import subprocess
import sys

_HEAVY = {"typer", "rich", "jinja2", "plotly", "sklearn", "scipy", "pandas", "pyarrow", "matplotlib", "PIL", "safetensors"}


def _fresh(code: str) -> dict[str, object]:
    """What a fresh process prints, as JSON on its last line."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def test_importing_noisewise_loads_torch_and_numpy_only() -> None:
    found = _fresh("""
import json, sys
import torch, numpy
before = set(sys.modules)
import noisewise
print(json.dumps({"new": [name.split(".")[0] for name in set(sys.modules) - before]}))
""")
    packages = [name for name in found["new"] if name not in sys.stdlib_module_names]  # type: ignore[attr-defined]
    assert set(packages) <= {"noisewise", "torch", "numpy"}
    assert len(found["new"]) - packages.count("noisewise") < 60, "so many modules of others take time to load"  # type: ignore[arg-type]


def test_help_and_a_list_load_only_what_they_need() -> None:
    found = _fresh("""
import json, sys
from noisewise.cli import app
for argument in ("--help", "losses"):
    try:
        app([argument])
    except SystemExit as ended:
        assert not ended.code
print(json.dumps({"loaded": sorted({name.split(".")[0] for name in sys.modules})}))
""")
    assert set(found["loaded"]) & _HEAVY <= {"typer", "rich"}  # type: ignore[call-overload]


def test_asking_what_the_papers_report_does_not_load_the_compiler_of_torch() -> None:
    found = _fresh("""
import json, sys
from noisewise.papers import reported
run = {"data": "cifar10", "model": "resnet20", "loss": "imae(T=8)", "noise": "symmetric(0.4)", "steps": 100_000}
print(json.dumps({"reported": [one.words for one in reported(run)], "compiler": "torch._dynamo" in sys.modules}))
""")
    assert found["reported"] and not found["compiler"]


def test_help_and_version_do_not_load_torch() -> None:
    found = _fresh("""
import json, sys
from noisewise.cli import app
for argument in ("--help", "--version"):
    try:
        app([argument])
    except SystemExit as ended:
        assert not ended.code
print(json.dumps({"torch": "torch" in sys.modules}))
""")
    assert not found["torch"]


def test_margin_stays_the_function_after_its_module_is_imported() -> None:
    found = _fresh("""
import json
from noisewise.losses import GCE
import noisewise, noisewise.margin
print(json.dumps({"callable": callable(noisewise.margin)}))
""")
    assert found["callable"]


def test_every_loss_is_known_whichever_module_is_imported_first() -> None:
    for start in (
        "import noisewise.curriculum",
        "from noisewise.losses import get",
        "from noisewise import get",
        "import noisewise.kernels",
    ):
        found = _fresh(f"""
import json
{start}
from noisewise.losses import get
print(json.dumps(repr(get("scaled(mae, tau=2)"))))
""")
        assert found == "scaled(mae, 2.0)"
