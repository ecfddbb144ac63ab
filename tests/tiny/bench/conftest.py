"""The default items, made once."""

import pytest

from vicoset.tiny import bench


@pytest.fixture(scope="session", params=list(bench.RESOLUTIONS))
def items(request: pytest.FixtureRequest) -> list[bench.Item]:
    return bench.items(request.param)
