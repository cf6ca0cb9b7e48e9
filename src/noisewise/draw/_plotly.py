"""Charts in a page: plotly.js as text, and figures as the JSON it draws. The one place that knows where plotly.js comes from.

The bundle beside this file is the one of the basic charts (lines, bars), as its makers publish it: `plotly.js-basic-dist-min`
4.1.1, a quarter of the whole library. Its licence lies beside it.
"""

from __future__ import annotations

import html
import json
import math
from importlib import resources
from typing import Any

import numpy as np

Figure = dict[str, Any]

_DIGITS = 5  # of a number in a page: more cannot be seen, and they are most of its size


def bundle() -> str:
    """The JavaScript that defines `Plotly`."""
    return resources.files("noisewise.draw").joinpath("plotly-basic.min.js").read_text(encoding="utf-8")


def as_text(words: str) -> str:
    """Words as plotly shows them letter by letter: it takes some tags for markup.

    Example:
        >>> as_text("<b>cat</b> & dog")
        '&lt;b&gt;cat&lt;/b&gt; &amp; dog'
    """
    return html.escape(words, quote=False)


def as_json(data: Any) -> str:
    """Data as JSON that can stand in a <script>: numbers short, NaN as null, nothing that could end the element.

    Example:
        >>> as_json({"p": np.array([1 / 3, np.nan]), "name": "</script>"})
        '{"p":[0.33333,null],"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(_plain(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, np.ndarray | np.generic):
        return _plain(data.tolist())
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    if isinstance(data, float):
        return float(f"{data:.{_DIGITS}g}") if math.isfinite(data) else None
    return data
