"""A default device of the user's does not reach what is made on the host."""

import pytest
import torch

from tests.runtime.helpers import ROWS, compressed, logits, model_of, prompt


# The library's own forward of these families runs under a default device of any kind.
@pytest.mark.parametrize("family", ["llava", "llava_next", "internvl", "smolvlm"])
def test_a_default_device_changes_nothing(family):
    model = model_of(family)
    inputs = prompt(model, family, ROWS)
    with compressed(model, "gmc-h2", 5) as engine:
        expected = logits(model, inputs)
        with torch.device("meta"):  # what lands there by mistake cannot be read
            found = logits(model, inputs)
    assert torch.equal(found, expected)
    mine, its = engine.records[:3], engine.records[3:]
    assert [str(record) for record in mine] == [str(record) for record in its]
    assert mine[0].pictures == its[0].pictures
