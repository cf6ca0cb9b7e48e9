"""Audit: which labels look wrong, read off the record of a run that is trained already.

`audit` ranks and flags the labels of a run and suggests others. `find_label_issues` does so for class probabilities from anywhere.
Nothing here trains, and the data of a run are not needed.
"""

from noisewise.audit._audit import Audit, audit, pair_counts
from noisewise.audit._probabilities import LabelIssues, find_label_issues

__all__ = ["Audit", "LabelIssues", "audit", "find_label_issues", "pair_counts"]
