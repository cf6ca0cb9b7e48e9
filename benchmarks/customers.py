"""A table of customers, as companies have them: how many wrong labels the commands find, and how much of that could be known at all.

    python benchmarks/customers.py [--seeds 5 6 7 8 9] [--rows 3000] [--write]
    python benchmarks/customers.py --make customers.csv [--noise one-sided] [--commas]

The columns are a name, the day of signing up, a country, a plan, numbers of use, a fee, and the text of the last support ticket. 5 % of the
customers left; the label depends on several columns at once, none of which decides it. Cells are missing. Labels are wrong in one of two
ways: "one-sided" labels a fifth of those who left "no", "symmetric" turns 5 % of all labels.

Because the table is generated, the chance of "yes" is known exactly for each row. The best list that anybody could make from the columns
and the given labels follows from it; it is shown beside ours.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score

from results import write_section

NOISES = ("one-sided", "symmetric")
RARE = 0.05
_COUNTRIES = ("Germany", "France", "Italy", "Austria", "Spain", "Poland", "Malta")
_PLANS = ("basic", "team", "business")
_GONE = (
    "cancel my subscription",
    "switching to another provider",
    "please close the account",
    "we want our money back",
    "too expensive for us",
)
_ANNOYED = ("still waiting for an answer", "this is the third time", "nobody called back", "the export failed again")
_ORDINARY = (
    "how do I add a colleague",
    "the invoice has the old address",
    "where is the export button",
    "please reset my password",
    "thank you",
)
_OPENINGS = ("Hello,", "Hi team,", "Good morning,", "Dear support,", "")
_CLOSINGS = ("Best regards", "Thanks in advance", "Please call me", "")
_FIRST = ("Anna", "Ben", "Clara", "David", "Émilie", "Fatma", "Giulia", "Håkon", "Inés", "Jörg", "Kasia", "Liam")
_LAST = ("Moser", "Schmidt", "Rossi", "Dupont", "Nowak", "García", "Weiß", "Borg", "Huber", "Keller", "Ivanova")


@dataclass(frozen=True)
class Customers:
    """A table with its labels, and what is known of it.

    Args:
        columns: the cells by column, without the label.
        true: 1 for those who left.
        given: the labels in the table.
        left: the chance of "yes", given the columns.
        chance: the chance of each label to be wrong, given the columns and the label.
    """

    columns: dict[str, list[str]]
    true: np.ndarray
    given: np.ndarray
    left: np.ndarray
    chance: np.ndarray


def customers(rows: int, seed: int, noise: str) -> Customers:
    """A table of customers. Columns are independent among those who left, and among those who stayed."""
    rng = np.random.default_rng(seed)
    true = (rng.random(rows) < RARE).astype(np.int64)
    odds = np.full(rows, np.log(RARE / (1 - RARE)))

    def chosen(stayed: tuple[float, ...], left: tuple[float, ...]) -> np.ndarray:
        """One of several values, with other chances for those who left."""
        picked = np.where(true == 1, rng.choice(len(left), rows, p=left), rng.choice(len(stayed), rows, p=stayed))
        odds[:] += np.log(np.take(left, picked) / np.take(stayed, picked))
        return picked

    def logarithm(stayed: float, left: float, spread: float, gaps: float) -> np.ndarray:
        """A number whose logarithm is normal, with gaps as NaN."""
        values = rng.normal(np.where(true == 1, left, stayed), spread)
        missing = rng.random(rows) < gaps
        odds[~missing] += ((values[~missing] - stayed) ** 2 - (values[~missing] - left) ** 2) / (2 * spread**2)
        return np.where(missing, np.nan, np.exp(values))

    plan = chosen((0.5, 0.35, 0.15), (0.7, 0.25, 0.05))
    country = chosen((0.3, 0.25, 0.15, 0.15, 0.1, 0.04, 0.01), (0.3, 0.2, 0.15, 0.1, 0.15, 0.09, 0.01))
    topic = chosen((0.01, 0.12, 0.57, 0.3), (0.65, 0.2, 0.05, 0.1))  # the last wrote no ticket
    days = logarithm(6.3, 5.2, 0.9, 0.02)
    logins = logarithm(3.0, 1.0, 0.6, 0.05)
    fee = logarithm(3.7, 3.9, 0.5, 0.1)
    late = chosen((0.85, 0.12, 0.03), (0.25, 0.35, 0.4))
    given = _noisy(true, noise, rng)
    last = datetime.date(2025, 6, 30)
    columns = {
        "customer": [f"{rng.choice(_FIRST)} {rng.choice(_LAST)} {10_000 + row}" for row in range(rows)],
        "signed_up": ["" if np.isnan(day) else str(last - datetime.timedelta(min(5000, int(day)))) for day in days],
        "country": ["" if rng.random() < 0.05 else _COUNTRIES[place] for place in country],
        "plan": [_PLANS[place] for place in plan],
        "logins_last_30_days": ["" if np.isnan(number) else str(round(number)) for number in logins],
        "monthly_fee": ["" if np.isnan(number) else f"{number:.2f}" for number in fee],
        "late_payments": [str(number) for number in late],
        "newsletter": [str(rng.choice(["yes", "no"])) for _ in range(rows)],
        "last_ticket": ["" if kind == 3 else _ticket(rng, (_GONE, _ANNOYED, _ORDINARY)[kind]) for kind in topic],
    }
    left = 1 / (1 + np.exp(-odds))
    return Customers(columns, true, given, left, _chance(left, given, noise))


def _ticket(rng: np.random.Generator, phrases: tuple[str, ...]) -> str:
    said = [rng.choice(_OPENINGS), rng.choice(phrases), *([rng.choice(_ORDINARY)] if rng.random() < 0.3 else []), rng.choice(_CLOSINGS)]
    return " ".join(map(str, filter(None, said)))


def _noisy(true: np.ndarray, noise: str, rng: np.random.Generator) -> np.ndarray:
    drawn = rng.random(len(true))
    wrong = drawn < 0.05 if noise == "symmetric" else (drawn < 0.2) & (true == 1)
    return np.where(wrong, 1 - true, true)


def _chance(left: np.ndarray, given: np.ndarray, noise: str) -> np.ndarray:
    """By Bayes' rule, from the chance of having left."""
    missed, invented = (0.05, 0.05) if noise == "symmetric" else (0.2, 0.0)
    is_no = left * missed / (left * missed + (1 - left) * (1 - invented))
    is_yes = (1 - left) * invented / ((1 - left) * invented + left * (1 - missed))
    return np.where(given == 0, is_no, is_yes)


def write(path: Path, table: Customers, *, commas: bool = False) -> None:
    """The table as a CSV; with decimal commas and semicolons as a German Excel writes it."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=";" if commas else ",")
        writer.writerow([*table.columns, "left"])
        for row, label in enumerate(table.given.tolist()):
            cells = [
                cells[row].replace(".", ",") if commas and name == "monthly_fee" else cells[row] for name, cells in table.columns.items()
            ]
            writer.writerow([*cells, ("no", "yes")[label]])


def listed(table: Customers, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The quality of every label and whether it is in the list, by the command of the README."""
    write(folder / "customers.csv", table)
    command = "-m noisewise audit customers.csv --label left --id customer --run run -o issues.csv --epochs 1"  # no network judges tables
    subprocess.run([sys.executable, *command.split()], cwd=folder, check=True, capture_output=True)
    quality, flagged = np.ones(len(table.given)), np.zeros(len(table.given), dtype=bool)
    with (folder / "issues.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            quality[int(row["index"])], flagged[int(row["index"])] = float(row["label_quality"]), row["is_label_issue"] == "True"
    return quality, flagged


def measured(table: Customers, chance: np.ndarray, flagged: np.ndarray) -> dict[str, float]:
    """Of the missed rare positives, the share found, their share of the doubtful labels "no", and the average precision; then of all."""
    wrong, no = table.true != table.given, table.given == 0
    found = flagged & no
    return {
        "found": float(wrong[found].sum() / max(1, wrong[no].sum())),
        "precision": float(wrong[found].mean()) if found.any() else float("nan"),
        "order": float(average_precision_score(wrong[no], chance[no])),
        "all found": float(flagged[wrong].mean()),
        "precision of all": float(wrong[flagged].mean()) if flagged.any() else float("nan"),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, nargs="+", default=[5, 6, 7, 8, 9])
    options.add_argument("--rows", type=int, default=3000)
    options.add_argument("--noise", choices=NOISES, default="one-sided")
    options.add_argument("--make", type=Path)
    options.add_argument("--commas", action="store_true")
    options.add_argument("--write", action="store_true")
    asked = options.parse_args()
    if asked.make is not None:
        write(asked.make, customers(asked.rows, asked.seeds[0], asked.noise), commas=asked.commas)
        return
    lines = [
        f"`{shlex.join(['python', 'benchmarks/customers.py', *sys.argv[1:]])}`, {asked.rows:,} rows, means of {len(asked.seeds)} seeds.",
        "",
    ]
    for noise in NOISES:
        rows = []
        for seed in asked.seeds:
            table = customers(asked.rows, seed, noise)
            with tempfile.TemporaryDirectory() as folder:
                quality, flagged = listed(table, Path(folder))
            rows.append((measured(table, 1 - quality, flagged), measured(table, table.chance, table.chance > 0.5)))
            print(noise, seed, *({name: round(value, 3) for name, value in one.items()} for one in rows[-1]), sep="\n  ", flush=True)
        lines += _table(noise, rows)
    print("\n".join(lines))
    if asked.write:
        write_section("Customers: wrong labels in a table as companies have it", lines)


def _table(noise: str, rows: list[tuple[dict[str, float], dict[str, float]]]) -> list[str]:
    names = list(rows[0][0])
    lines = [f"{noise}:", "", f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for title, which in (("noisewise", 0), ("the best there can be", 1)):
        means = [np.nanmean([row[which][name] for row in rows]) for name in names]
        lines.append(f"| {title} | {' | '.join(f'{value:.3g}' for value in means)} |")
    return [*lines, ""]


if __name__ == "__main__":
    main()
