"""A record redraws the support map that a watcher drew while it was made."""

import json

import numpy as np
import pytest

from tests.core.helpers import refused
from tests.runtime.helpers import compressed, generate, model_of, prompt, two_stages
from vicoset.errors import ImageError, UnreadableError
from vicoset.view import Watcher, cluster_map, sheet_of, support_map, support_of


def recorded(family, plan, keep, images, **options):
    model, watcher = model_of(family), Watcher()
    with compressed(model, plan, keep, audit="full", watch=watcher) as engine:
        generate(model, prompt(model, family, images), 1)
    return json.loads(json.dumps(engine.records[0].to_json())), watcher


@pytest.mark.parametrize(("family", "images"), [("qwen2_5_vl", 2), ("llava", 1), ("llava_next", 1)])
def test_it_is_the_watchers_picture(family, images):
    record, watcher = recorded(family, "gmc@2", 9, images)
    for image in range(images):
        own, seen = support_of(record, image), watcher.support(image)
        assert np.array_equal(own.kept, seen.kept) and np.allclose(own.cells, seen.cells, atol=1e-6)
        assert np.array_equal(own.carrier, seen.carrier) and np.allclose(own.mass, seen.mass)
        page = sheet_of(record, image)
        for draw in (support_map, cluster_map):
            assert draw(page, own).tobytes() == draw(page, seen).tobytes()


def test_every_stage_can_be_drawn():
    record, watcher = recorded("llava", two_stages(), 9, 1)
    assert np.array_equal(support_of(record).kept, watcher.support().kept)
    assert int(support_of(record, stage=0).kept.sum()) == 9
    assert support_of(record).carrier is None and support_of(record, stage=0).carrier is not None
    assert support_of({**record, "stages": record["stages"][:1]}).carrier is not None


def test_what_is_refused():
    record, _ = recorded("llava", "gmc@2", 9, 1)
    with refused(ImageError, "no stage"):
        support_of({**record, "stages": []})
    with refused(UnreadableError, "does not say what a support map needs"):
        support_of({"stages": [{}], "images": []})
