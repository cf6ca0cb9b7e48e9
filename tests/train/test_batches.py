"""What a batch is made up of."""

import pytest
import torch
from torch import nn

from noisewise import InputError, fit


class Watching(nn.Module):
    """A linear model that keeps the labels it is trained on, which are its first input."""

    def __init__(self, classes):
        super().__init__()
        self.linear, self.seen = nn.Linear(2, classes), []

    def forward(self, inputs):
        if self.training:
            self.seen.append(inputs[:, 0].round().long().tolist())
        return self.linear(inputs)


def seen(folder, **settings):
    labels = torch.arange(240) % 6
    inputs = torch.stack([labels.float(), torch.randn(240, generator=torch.Generator().manual_seed(0))], 1)
    model = Watching(6)
    fit(model, (inputs, labels), epochs=2, batch_size=24, normalise=False, device="cpu", folder=folder, **settings)
    return model.seen


def test_a_batch_has_as_many_classes_as_asked_for(tmp_path):
    batches = seen(tmp_path / "few", classes_per_batch=3)
    assert len(batches) == 20
    assert all(len(set(batch)) <= 3 and all(batch.count(label) % 8 == 0 for label in batch) for batch in batches)
    assert sum(len(set(batch)) == 3 for batch in batches) > 5
    for epoch in (batches[:10], batches[10:]):
        assert [sum(batch.count(label) for batch in epoch) for label in range(6)] == [40] * 6
    assert batches[:10] != batches[10:]
    assert sum(len(set(batch)) == 6 for batch in seen(tmp_path / "any")) > 15


def test_classes_that_do_not_share_a_batch_evenly_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"'classes_per_batch' parameter of a run must be a divisor of the batch_size, 24\. Got 5"):
        seen(tmp_path / "run", classes_per_batch=5)
    assert not (tmp_path / "run").exists()
