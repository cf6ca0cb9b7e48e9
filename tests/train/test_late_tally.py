"""The tally of the CPU sums up at the end of an epoch, and gives the same bits as the tally that sums up at every step."""

from __future__ import annotations

import pytest
import torch

from noisewise.train._step import LateTally, Tally

EXAMPLES, CLASSES, STEPS = 60, 4, 23


def _filled(kind: type[Tally], broken: tuple[int, ...]) -> Tally:
    """A tally of two epochs of random steps, some of which have a margin that is not finite."""
    generator = torch.Generator().manual_seed(0)
    tally, number = kind.of(EXAMPLES, torch.device("cpu")), torch.zeros((), dtype=torch.int64)
    for _ in range(2):
        tally.clear()
        for _ in range(STEPS):
            for _ in range(2):  # a batch in two parts
                index = torch.randperm(EXAMPLES, generator=generator)[:7]
                scores = torch.randn(7, CLASSES, generator=generator) * 10
                margins = scores[:, 0].clone()
                if int(number) in broken:
                    margins[2], scores[2] = torch.inf, torch.nan
                tally.note(index, scores, margins, number)
            sums, counts = torch.rand(3, dtype=torch.float64, generator=generator), torch.tensor([5.0, 2.0], dtype=torch.float64)
            tally.add(sums, counts, torch.rand((), generator=generator).double())
            number += 1
        tally.settle()
    return tally


@pytest.mark.parametrize("broken", [(), (3,), (STEPS + 4, STEPS + 9)])
def test_it_gives_the_same_bits(broken: tuple[int, ...]) -> None:
    expected, found = (_filled(kind, broken) for kind in (Tally, LateTally))
    assert isinstance(found, LateTally) and not found.seen and not found.sums
    for name, value in vars(expected).items():
        assert torch.equal(getattr(found, name).nan_to_num(-7.0), value.nan_to_num(-7.0)), name
    assert int(found.bad_step) == (broken[0] if broken and broken[0] >= STEPS else -1)


def test_sums_before_settling_are_kept_for_later() -> None:
    tally = LateTally.of(4, torch.device("cpu"))
    tally.add(torch.ones(3, dtype=torch.float64), torch.ones(2, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64))
    assert float(tally.loss) == 0
    tally.settle()
    tally.settle()
    assert float(tally.loss) == 1 and tally.pull.tolist() == [0.5, 0.5]
