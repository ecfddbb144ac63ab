"""How the tiles of an image lie, by their looks: put together they resemble the thumbnail."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from vicoset.models.features import watch_of

_CLEAR = 0.5


class Looks:
    """The small views of all tiles that the vision tower saw for a batch.

    Rows may be repeated (beams) while the tower saw each image once.
    """

    def __init__(self, model: Any, counts: list[int]) -> None:
        """Views of the model's last images.

        Args:
            model: the top-level model, being watched.
            counts: ``[B]`` tiles of each row.
        """
        watch = watch_of(model)
        views = None if watch is None else watch.views
        self.views: Tensor | None = None
        self.starts = [0] * len(counts)
        total = sum(counts)
        if views is None or not len(views) or total % len(views):
            return
        repeat = total // len(views)
        if not repeat or len(counts) % repeat:
            return
        self.views = views.float().cpu()
        start = 0
        for row in range(0, len(counts), repeat):
            self.starts[row : row + repeat] = [start] * repeat
            start += counts[row]

    def arrangement(self, row: int, first: int, tiles: int) -> tuple[int, int] | None:
        """Lines and columns of an image's tiles, None if its pixels do not tell.

        Args:
            row: of the batch.
            first: which tile of the row is the image's first.
            tiles: how many it has, the thumbnail being the last.
        """
        if self.views is None:
            return None
        start = self.starts[row] + first
        mine = self.views[start : start + tiles]
        return arrangement(mine) if len(mine) == tiles else None


def arrangement(views: Tensor) -> tuple[int, int] | None:
    """Lines and columns under which the tiles look like the thumbnail.

    Args:
        views: ``[tiles + 1, C, S, S]`` small views, the thumbnail last.

    Returns:
        The best arrangement if it is clearly better than every other one and explains the
        thumbnail, else None.
    """
    tiles, thumbnail = views[:-1], views[-1]
    count, side = len(tiles), views.shape[-1]
    errors = {}
    for lines in range(1, count + 1):
        if count % lines == 0:
            columns = count // lines
            whole = tiles.reshape(lines, columns, *views.shape[1:]).permute(2, 0, 3, 1, 4)
            whole = whole.reshape(views.shape[1], lines * side, columns * side)
            small = adaptive_avg_pool2d(whole, side)
            errors[lines, columns] = float((small - thumbnail).square().mean())
    ranked = sorted(errors, key=lambda shape: errors[shape])
    best = errors[ranked[0]]
    contrast = float(thumbnail.var(dim=(1, 2), unbiased=False).mean())
    rival = min((errors[shape] for shape in ranked[1:]), default=contrast)
    clear = best < _CLEAR * rival and best < _CLEAR * contrast
    return ranked[0] if clear else None
