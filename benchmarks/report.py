"""How large a report is and how long it takes to open: a hundred runs, and a run of a million examples.

    python benchmarks/report.py [--write]

The runs are made up, in the layout of real ones: margins that part for right and wrong labels as training goes on. The page is
opened from its file by headless Chromium, with the network off; it counts as open when the first chart, scrolled to at once,
stands. ``--write`` puts the table into benchmarks/RESULTS.md. The bar: under 15 MB, under 3 s.
"""

from __future__ import annotations

import argparse
import json
import resource
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from noisewise.report import report
from results import write_section

LOSSES = ("ce", "mae", "gce(q=0.7)", "imae(T=8)", "sce(a=0.1, b=1.0)")


def make_run(folder: Path, *, loss: str, noise: str, seed: int, examples: int, epochs: int, classes: int) -> None:
    """A run folder as training leaves it, but for the model."""
    draw = np.random.default_rng([seed, len(loss), len(noise)])
    for part in ("labels", "record/training"):
        (folder / part).mkdir(parents=True)
    names = [f"class {number}" for number in range(classes)]
    settings = {"format": 1, "data": "made up", "model": "resnet20", "loss": loss, "noise": noise, "seed": seed, "epochs": epochs}
    for name, content in {
        "settings": settings | {"batch_size": 128},
        "provenance": {"noisewise": "0", "data": {"train": {"examples": examples}, "test": {"examples": 10_000}}},
        "classes": names,
        "status": {"state": "finished", "reason": None, "epoch": epochs, "step": epochs * 100},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    true = draw.integers(classes, size=examples)
    wrong = draw.random(examples) < 0.4
    given = np.where(wrong, (true + draw.integers(1, classes, size=examples)) % classes, true)
    for name, labels in {"given": given, "true": true, "index": np.arange(examples)}.items():
        np.save(folder / f"labels/{name}.npy", labels)
    lines = []
    for epoch in range(1, epochs + 1):
        margins = draw.normal(np.where(wrong, -2.0, 2.0) * epoch / epochs - 1.0, 1.5).astype(np.float16)
        np.save(folder / f"record/training/margins-{epoch:05d}.npy", margins)
        np.save(folder / f"record/training/predictions-{epoch:05d}.npy", np.where(margins > 0, given, true).astype(np.int32))
        pulls = {group: {"pull": pull * epoch, "eta": 10.0} for group, pull in (("clean", 0.2), ("noisy", 0.1))}
        accuracy = 0.8 * epoch / epochs + 0.01 * float(draw.random())
        lines.append({"epoch": epoch, "step": 100 * epoch, "test_accuracy": accuracy, "mean_emphasis": 0.1, "emphasis": pulls})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def seconds_to_open(page: Path) -> float:
    """From asking for the page to its first chart, the best of three."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        spent = []
        for _ in range(3):
            context = browser.new_context(offline=True)
            tab = context.new_page()
            start = time.perf_counter()
            tab.goto(page.as_uri())
            tab.locator(".plot").first.scroll_into_view_if_needed()
            tab.wait_for_selector(".main-svg")
            spent.append(time.perf_counter() - start)
            context.close()
        browser.close()
    return min(spent)


def measure(title: str, runs: list[dict[str, object]]) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, run in enumerate(runs):
            make_run(folder / f"runs/{number:03d}", **run)  # type: ignore[arg-type]
        start = time.perf_counter()
        page = report(folder / "runs", folder / "report.html")
        made = time.perf_counter() - start
        size, opened = page.stat().st_size / 2**20, seconds_to_open(page)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return f"| {title} | {made:.0f} s | {resident:.1f} GiB | {size:.1f} MB | {opened:.1f} s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    many = [
        {"loss": loss, "noise": f"symmetric({rate})", "seed": seed, "examples": 5000, "epochs": 100, "classes": 10}
        for rate in (0.0, 0.2, 0.4, 0.6)
        for loss in LOSSES
        for seed in range(5)
    ]
    large = [{"loss": "ce", "noise": "symmetric(0.4)", "seed": 0, "examples": 1_000_000, "epochs": 50, "classes": 100}]
    lines = [f"`{shlex.join(['python', 'benchmarks/report.py', *sys.argv[1:]])}`; memory is the largest of the process so far.", ""]
    lines += ["| runs | making the page | memory | its size | opening it |", "|---|---|---|---|---|"]
    lines.append(measure("100 runs of 5,000 examples, 100 epochs", many))
    lines.append(measure("1 run of 1,000,000 examples, 50 epochs, 100 classes", large))
    print("\n".join(lines))
    if options.write:
        write_section("The report", lines)


if __name__ == "__main__":
    main()
