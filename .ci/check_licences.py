"""Check the licences of everything that is installed beside noisewise: none may bind those who import it to the GPL."""

import re
import sys
from importlib.metadata import Distribution, distributions

# Run-time libraries of compilers, which some wheels hold, are under the GPL with an exception for programs that use them.
EXCEPTED = re.compile(r"GPL-[\d.]+(-or-later|-only)? WITH GCC-exception-[\d.]+")
GPL = re.compile(r"\bA?GPL|(?<!Lesser )General Public License", re.IGNORECASE)


def licence(package: Distribution) -> str:
    """What a package says its licence is; some put the whole text there, of which the first line will do."""
    metadata = package.metadata
    stated = [metadata["License-Expression"] or "", *((metadata["License"] or "").strip().splitlines()[:1])]
    return "; ".join(filter(None, [*stated, *(name for name in metadata.get_all("Classifier", []) if name.startswith("License ::"))]))


found = {package.metadata["Name"]: licence(package) for package in distributions()}
bad = {name: text for name, text in found.items() if GPL.search(EXCEPTED.sub("", text)) or not text}
if bad:
    sys.exit("\n".join(f"{name} is under {text or 'no licence it names'}." for name, text in bad.items()))
print(f"{len(found)} packages, none under the GPL")
