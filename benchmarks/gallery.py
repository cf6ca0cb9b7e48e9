"""The gallery of the documentation: a real comparison on Fashion-MNIST, its report, and pictures of it.

    python benchmarks/gallery.py [--runs FOLDER] [--docs docs/gallery] [--review]

Trains fifteen runs (an hour on two cores) unless the folder holds them already, writes their report, opens it in headless Chromium
and takes the pictures. Nothing was tuned: the settings below are the first that were tried. With --review it only takes the picture of
the review page, of the run on digits that docs/review.md trains (seconds).
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noisewise import compare, fit
from noisewise.correct import review

LOSSES = ["ce", "mae", "gce(q=0.7)", "imae(T=8, normalise='maximum')", "gr(beta=8, lam=0.5, normalise='maximum')"]
SETTINGS: dict[str, Any] = {"epochs": 30, "optimiser": "sgd(lr=0.05, momentum=0.9)", "device": "cpu"}
SECTIONS = {"emphasis": "light", "dynamics": "light", "film": "dark", "doubt": "light"}


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Any, page: Path, width: int, height: int, theme: str = "light") -> Any:
    size = {"width": width, "height": height}
    tab = browser.new_context(offline=True, viewport=size, color_scheme=theme, reduced_motion="reduce").new_page()
    tab.goto(page.resolve().as_uri())
    tab.wait_for_timeout(500)
    return tab


def take_pictures(report: Path, folder: Path) -> None:
    with chromium() as browser:
        opened(browser, report, 1280, 1000).screenshot(path=folder / "verdict.png")
        opened(browser, report, 390, 844, "dark").screenshot(path=folder / "phone.png")
        for name, theme in SECTIONS.items():  # in a window they fit into: what is larger is not pictured whole
            section = opened(browser, report, 1280, 1800, theme).locator(f"#{name}")
            section.scroll_into_view_if_needed()
            if name == "film":
                section.locator("select").first.select_option(index=0)
                section.locator("input[type=range]").first.press("End")
            section.page.wait_for_timeout(1000)
            section.screenshot(path=folder / f"{name}.png")


def picture_the_review(folder: Path) -> None:
    """Twelve labels decided, and the thirteenth shown."""
    with tempfile.TemporaryDirectory() as temporary, chromium() as browser:
        run = fit("mlp", "digits", noise="symmetric(0.2)", epochs=5, folder=Path(temporary) / "x", device="cpu")
        tab = opened(browser, review(run, Path(temporary) / "review.html"), 1280, 820)
        for key in "aaakanaauaaa":
            tab.keyboard.press(key)
        tab.screenshot(path=folder / "review.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/gallery"))
    parser.add_argument("--docs", type=Path, default=Path("docs/gallery"))
    parser.add_argument("--review", action="store_true")
    options = parser.parse_args()
    if options.review:
        picture_the_review(options.docs)
        return
    grid = {"loss": LOSSES, "noise": ["symmetric(0.4)"], "seed": [0, 1, 2]}
    runs = compare("mlp(hidden=(256, 256))", "fashion_mnist", folder=options.runs, jobs=os.cpu_count(), **grid, **SETTINGS)
    options.docs.mkdir(exist_ok=True)
    take_pictures(runs.report(options.docs / "report.html", title="Fashion-MNIST, 40 % wrong labels"), options.docs)
    picture_the_review(options.docs)


if __name__ == "__main__":
    main()
