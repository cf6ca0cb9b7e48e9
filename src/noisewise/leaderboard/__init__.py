"""A comparison of losses and methods on noisy labels, which grows by files of results.

`board` says what is compared, `results` reads the results that come with the package, `tables` arranges them, `missing` lists the runs
without a result, and `train` trains them.
"""

from noisewise.leaderboard._board import Board, Condition, Mark, Protocol, Row, Spec, board, read_board
from noisewise.leaderboard._page import page, rows_page
from noisewise.leaderboard._results import Result, Results, read_file, results, write_file
from noisewise.leaderboard._tables import (
    MEASURES,
    Cell,
    Entry,
    Table,
    as_json,
    cost_in_words,
    held_out,
    number,
    oracle,
    ranks,
    seeds_in_words,
    tables,
)
from noisewise.leaderboard._train import FOLDER, Missing, missing, train

__all__ = [
    "FOLDER",
    "MEASURES",
    "Board",
    "Cell",
    "Condition",
    "Entry",
    "Mark",
    "Missing",
    "Protocol",
    "Result",
    "Results",
    "Row",
    "Spec",
    "Table",
    "as_json",
    "board",
    "cost_in_words",
    "held_out",
    "missing",
    "number",
    "oracle",
    "page",
    "ranks",
    "read_board",
    "read_file",
    "results",
    "rows_page",
    "seeds_in_words",
    "tables",
    "train",
    "write_file",
]
