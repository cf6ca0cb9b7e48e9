"""Audit: find labels that look wrong.

`audit` ranks and flags the labels of a trained run, and suggests others; it needs the run folder only. `find_label_issues` flags labels
from the class probabilities of any model.
"""

from noisewise.audit._audit import AUDIT_COLUMNS, Audit, audit, pair_counts
from noisewise.audit._evidence import score_function
from noisewise.audit._probabilities import LabelIssues, find_label_issues

__all__ = ["AUDIT_COLUMNS", "Audit", "LabelIssues", "audit", "find_label_issues", "pair_counts", "score_function"]
