"""The gallery of the documentation: a real comparison on Fashion-MNIST, its report, and pictures of it.

    python benchmarks/gallery.py [--runs FOLDER] [--docs docs/gallery]

Trains fifteen runs (an hour on two cores) unless the folder holds them already, writes their report, opens it in headless Chromium
and takes the pictures. Nothing was tuned: the settings below are the first that were tried.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

from noisewise import compare

LOSSES = ["ce", "mae", "gce(q=0.7)", "imae(T=8, normalise='maximum')", "gr(beta=8, lam=0.5, normalise='maximum')"]
SETTINGS: dict[str, Any] = {"epochs": 30, "optimiser": "sgd(lr=0.05, momentum=0.9)", "device": "cpu"}
SECTIONS = {"emphasis": "light", "dynamics": "light", "film": "dark", "doubt": "light"}


def take_pictures(report: Path, folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])

        def opened(width: int, height: int, theme: str = "light") -> Any:
            size = {"width": width, "height": height}
            tab = browser.new_context(offline=True, viewport=size, color_scheme=theme, reduced_motion="reduce").new_page()
            tab.goto(report.resolve().as_uri())
            tab.wait_for_timeout(500)
            return tab

        opened(1280, 1000).screenshot(path=folder / "verdict.png")
        opened(390, 844, "dark").screenshot(path=folder / "phone.png")
        for name, theme in SECTIONS.items():  # in a window they fit into: what is larger is not pictured whole
            section = opened(1280, 1800, theme).locator(f"#{name}")
            section.scroll_into_view_if_needed()
            if name == "film":
                section.locator("select").first.select_option(index=0)
                section.locator("input[type=range]").first.press("End")
            section.page.wait_for_timeout(1000)
            section.screenshot(path=folder / f"{name}.png")
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/gallery"))
    parser.add_argument("--docs", type=Path, default=Path("docs/gallery"))
    options = parser.parse_args()
    grid = {"loss": LOSSES, "noise": ["symmetric(0.4)"], "seed": [0, 1, 2]}
    runs = compare("mlp(hidden=(256, 256))", "fashion_mnist", folder=options.runs, jobs=os.cpu_count(), **grid, **SETTINGS)
    options.docs.mkdir(exist_ok=True)
    take_pictures(runs.report(options.docs / "report.html", title="Fashion-MNIST, 40 % wrong labels"), options.docs)


if __name__ == "__main__":
    main()
