"""The run folder: its format, and everything that writes it, reads it or finds it.

`RunFolder` writes a run, `Record` reads its margins, `Settings` are its settings, `find_runs` finds runs, `examples_of` reads the examples
of a run again, and `read_origin` says which run it corrects. A run may be damaged, unfinished, or from an untrusted source: every problem
with a file is one `InputError` that names the file.
"""

from noisewise.data import digest, digest_of
from noisewise.runs._encoding import read_encoding
from noisewise.runs._examples import examples_as_given, examples_of, first_labels, held_out_of, names_of, numbers_of, rows_of
from noisewise.runs._files import CannotOpenError, exists, inside, parse_json, read_json, read_tensors, regular_file
from noisewise.runs._find import find_runs
from noisewise.runs._folder import KEPT_CHECKPOINTS, FolderInUseError, RunFolder, Writer, check_storable, end_state, folder_name, mark_ended
from noisewise.runs._format import CALIBRATION, Settings, load_settings, read_classes, read_settings, read_shares, read_temperature
from noisewise.runs._lineage import CHANGES, FIRST, ORIGIN, Before, Origin, label_digest, read_origin
from noisewise.runs._provenance import head_commit, make_provenance, read_recorded, reading_arguments, source_kind
from noisewise.runs._record import LARGEST, MARGINS, Epoch, Halves, Record, codes
from noisewise.runs._same_data import data_set_numbers

__all__ = [
    "CALIBRATION",
    "CHANGES",
    "FIRST",
    "KEPT_CHECKPOINTS",
    "LARGEST",
    "MARGINS",
    "ORIGIN",
    "Before",
    "CannotOpenError",
    "Epoch",
    "FolderInUseError",
    "Halves",
    "Origin",
    "Record",
    "RunFolder",
    "Settings",
    "Writer",
    "check_storable",
    "codes",
    "data_set_numbers",
    "digest",
    "digest_of",
    "end_state",
    "examples_as_given",
    "examples_of",
    "exists",
    "find_runs",
    "first_labels",
    "folder_name",
    "head_commit",
    "held_out_of",
    "inside",
    "label_digest",
    "load_settings",
    "make_provenance",
    "mark_ended",
    "names_of",
    "numbers_of",
    "parse_json",
    "read_classes",
    "read_encoding",
    "read_json",
    "read_origin",
    "read_recorded",
    "read_settings",
    "read_shares",
    "read_temperature",
    "read_tensors",
    "reading_arguments",
    "regular_file",
    "rows_of",
    "source_kind",
]
