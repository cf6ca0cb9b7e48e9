"""The run folder: its format, and the checked readers for every file in it.

A run may be damaged, unfinished, or made by somebody you do not know. `_files` opens a file safely, whatever it is. `_format` knows
which values each file must hold. Both report a problem as one `InputError` that names the file. Nothing here knows how runs are trained.
"""

from noisewise.runs._files import (
    CannotOpenError,
    exists,
    inside,
    list_numbered,
    missing,
    open_array,
    parse_json,
    read_array,
    read_json,
    read_tensors,
    read_text,
    regular_file,
)
from noisewise.runs._format import (
    CALIBRATION,
    EVALUATED,
    FORMAT,
    KINDS,
    RECORDS,
    check_checkpoint,
    check_settings,
    read_classes,
    read_correction,
    read_metrics,
    read_names,
    read_provenance,
    read_settings,
    read_shares,
    read_status,
    read_temperature,
)

__all__ = [
    "CALIBRATION",
    "EVALUATED",
    "FORMAT",
    "KINDS",
    "RECORDS",
    "CannotOpenError",
    "check_checkpoint",
    "check_settings",
    "exists",
    "inside",
    "list_numbered",
    "missing",
    "open_array",
    "parse_json",
    "read_array",
    "read_classes",
    "read_correction",
    "read_json",
    "read_metrics",
    "read_names",
    "read_provenance",
    "read_settings",
    "read_shares",
    "read_status",
    "read_temperature",
    "read_tensors",
    "read_text",
    "regular_file",
]
