"""The report: one page that shows what each loss did to the right and to the wrong labels.

``report(["runs"], "report.html")`` reads run folders from any machine and writes a page that opens offline. `_report` gathers the facts,
each module in `sections` adds its own, and `_render` writes them as HTML. `write_card` writes a model with its model card.
"""

from noisewise.report._card import write_card
from noisewise.report._report import check_page, report

__all__ = ["check_page", "report", "write_card"]
