"""What the prepared tasks name with ``!function``: pictures of local tables for lmms-eval."""

from __future__ import annotations

import functools
from typing import Any


def pictures(dataset: Any) -> Any:
    """A table whose column ``image`` holds pictures, however the files hold them.

    Public Parquet files say in their metadata that a column holds pictures; other writers leave
    bytes, and JSON leaves paths.

    Args:
        dataset: of the library datasets, one split.
    """
    import datasets

    if isinstance(dataset.features["image"], datasets.Image):
        return dataset
    return dataset.cast_column("image", datasets.Image())


class Album:
    """The pictures of GQA, which lie in a table of their own.

    Args:
        path: the data's directory.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def visual(self, doc: Any) -> list[Any]:
        """The picture that a question is about.

        Args:
            doc: a row of the questions.
        """
        return [self._pictures[str(doc["imageId"])].read()]

    @functools.cached_property
    def _pictures(self) -> Any:
        from vicoset.evaluate.tasks.reading import GQA

        return GQA().pictures(self.path)
