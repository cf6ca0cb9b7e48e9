"""Check what is in a wheel: all files of the package and nothing else, with the licences its metadata names."""

import email
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

NEEDED = (
    "noisewise/py.typed",
    "noisewise/report/page.html",
    "noisewise/correct/review.html",
    "noisewise/draw/plotly-basic.min.js",
    "noisewise/papers/imae.toml",
    "noisewise/papers/results/",
    "noisewise/leaderboard/board.toml",
    "noisewise/leaderboard/results/",
)
LICENCES = {"LICENSE", "src/noisewise/draw/plotly-basic.LICENSE"}

root = Path(__file__).parents[1]
tracked = subprocess.run(["git", "ls-files", "src"], cwd=root, capture_output=True, text=True, check=True).stdout.split("\n")
expected = {name.removeprefix("src/") for name in tracked if name}
with zipfile.ZipFile(sys.argv[1]) as wheel:
    names = wheel.namelist()
    (metadata_name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(wheel.read(metadata_name))
beside = PurePosixPath(metadata_name).parent
packed = {name for name in names if not name.startswith(f"{beside}/")}
problems = [f"lacks {name}" for name in sorted(expected - packed)]
problems += [f"has {name}, which is not a file of the package" for name in sorted(packed - expected)]
problems += [f"lacks {start}" for start in NEEDED if not any(name.startswith(start) for name in packed)]
problems += [f"does not name the licence {name}" for name in sorted(LICENCES - set(metadata.get_all("License-File", [])))]
problems += [f"lacks the licence {name}" for name in metadata.get_all("License-File", []) if f"{beside}/licenses/{name}" not in names]
if metadata["License-Expression"] != "Apache-2.0":
    problems.append(f"is under {metadata['License-Expression']}")
if problems:
    sys.exit("\n".join(f"The wheel {problem}." for problem in problems))
print(f"{len(packed)} files in the wheel, licences: {', '.join(metadata.get_all('License-File', []))}")
