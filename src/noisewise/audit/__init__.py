"""Audit: find labels that look wrong, and what else is wrong with the data.

`audit` ranks and flags the labels of a trained run, or of data on which it trains one, and suggests others; `audit_run` takes only runs,
and `audit_tokens` judges tokens and sequences. `find_label_issues` judges labels from class probabilities of any models, which
`evidence_from_features` computes for tables and embeddings. `find_multilabel_issues` and `find_token_issues` judge those of several classes
per example and of tokens. `outliers`, `near_duplicates`, `ambiguous` and `weak_groups` look at features and predictions, and `consensus` at
the labels of several annotators. `RobustEnsemble` classifies with the models that judge labels from features.
"""

from noisewise.audit._ambiguous import Ambiguous, ambiguous
from noisewise.audit._audit import AUDIT_COLUMNS, Audit, add_evidence, audit_run, keep_evidence
from noisewise.audit._consensus import Consensus, consensus
from noisewise.audit._duplicates import NearDuplicates, near_duplicates
from noisewise.audit._ensemble import RobustEnsemble
from noisewise.audit._evidence import score_function
from noisewise.audit._features import evidence_from_features
from noisewise.audit._held_out_like import run_probabilities
from noisewise.audit._issues import LabelIssues, pair_counts
from noisewise.audit._multilabel import MultilabelIssues, find_multilabel_issues
from noisewise.audit._outliers import Outliers, outliers
from noisewise.audit._probabilities import find_label_issues
from noisewise.audit._source import EPOCHS, LOSS, audit, audit_data, check_data, check_judges, is_run
from noisewise.audit._tokens import TokenIssues, audit_tokens, find_token_issues
from noisewise.audit._votes import read_votes
from noisewise.audit._weak_groups import WeakGroups, weak_groups

__all__ = [
    "AUDIT_COLUMNS",
    "EPOCHS",
    "LOSS",
    "Ambiguous",
    "Audit",
    "Consensus",
    "LabelIssues",
    "MultilabelIssues",
    "NearDuplicates",
    "Outliers",
    "RobustEnsemble",
    "TokenIssues",
    "WeakGroups",
    "add_evidence",
    "ambiguous",
    "audit",
    "audit_data",
    "audit_run",
    "audit_tokens",
    "check_data",
    "check_judges",
    "consensus",
    "evidence_from_features",
    "find_label_issues",
    "find_multilabel_issues",
    "find_token_issues",
    "is_run",
    "keep_evidence",
    "near_duplicates",
    "outliers",
    "pair_counts",
    "read_votes",
    "run_probabilities",
    "score_function",
    "weak_groups",
]
