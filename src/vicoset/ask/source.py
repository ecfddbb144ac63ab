"""Which picture and which question a command names: a file, or a picture of the benchmark."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vicoset.errors import SettingError, UnreadableError
from vicoset.runtime.checkpoint import read_image
from vicoset.tiny import bench

SCHEME = "tinybench:"
FORMS = f"a file, or {SCHEME}KIND/NUMBER such as {SCHEME}{bench.KINDS[0]}/0000"
_DEFAULT = next(iter(bench.RESOLUTIONS))


@dataclass(frozen=True)
class Source:
    """A picture and a question about it.

    Attributes:
        name: as it was asked for.
        image: RGB, upright.
        question: its text.
        item: of the benchmark, with the answer and its evidence; None where nobody knows them.
    """

    name: str
    image: Any
    question: str
    item: bench.Item | None = None

    @property
    def boxes(self) -> list[tuple[float, float, float, float]]:
        """(left, top, right, bottom) in pixels of every mark that the answer needs."""
        known = () if self.item is None else self.item.boxes
        return [(box.left, box.top, box.right, box.bottom) for box in known]

    def correct(self, answer: str) -> bool | None:
        """Whether an answer is the reference; None where there is none.

        Args:
            answer: as the model gave it.
        """
        return None if self.item is None else bench.correct(answer, self.item.answer)


def source_of(name: str, question: str | None = None, model: str = "") -> Source:
    """The picture and the question that a command names.

    Args:
        name: path of a file; or ``tinybench:`` with a kind (``chart``), a picture
            (``chart/0012``) or an item (``chart/0012/comparison/1``).
        question: the user's text; may be left out where the benchmark has one.
        model: that will be asked, as a command names it; its resolution is drawn.
    """
    if question is not None and not question.strip():
        raise SettingError(
            f"the question about {name} is empty; allowed is any text. Write it in quotation marks "
            "behind the image."
        )
    if name.startswith(SCHEME):
        return _drawn(name, question, resolution_of(model))
    image = read_image(name)
    if question is None:
        raise SettingError(
            f"no question came with the image {name}; only pictures of the benchmark "
            f"({SCHEME}{bench.KINDS[0]}/0000) bring their own. Write it in quotation marks behind "
            "the image."
        )
    return Source(name, image, question)


def image_of(name: str, model: str = "") -> Any:
    """The picture alone.

    Args:
        name: as :func:`source_of` takes it.
        model: that will be asked.
    """
    return source_of(name, None if name.startswith(SCHEME) else "?", model).image


def resolution_of(model: str) -> str:
    """Whose resolution of the benchmark a model is shown.

    Args:
        model: as a command names it: a directory, or the name of a bundled model.
    """
    config = Path(model) / "config.json"
    kind = model
    if config.is_file():
        try:
            kind = str(json.loads(config.read_text(encoding="utf-8")).get("model_type", ""))
        except (ValueError, AttributeError) as error:
            raise UnreadableError(f"{config} is no configuration of a model: {error}") from error
    return next((name for name in bench.RESOLUTIONS if name in kind), _DEFAULT)


def _drawn(name: str, question: str | None, resolution: str) -> Source:
    """A picture of the benchmark, with the item whose question it is."""
    kind, _, rest = name.removeprefix(SCHEME).partition("/")
    number, _, task = rest.partition("/")
    if kind not in bench.KINDS:
        near = difflib.get_close_matches(kind, bench.KINDS, n=1, cutoff=0.5)
        raise SettingError(
            f"{name!r} names no picture of the benchmark; allowed are the kinds "
            f"{', '.join(bench.KINDS)}. Write {SCHEME}{near[0] if near else bench.KINDS[0]}/0000."
        )
    if not (number or "0").isdecimal() or len(number) > 4:
        raise SettingError(
            f"{name!r} has the number {number!r}; allowed are 0000 to 9999. Write "
            f"{SCHEME}{kind}/0000."
        )
    unit = f"{kind}/{int(number or 0):04d}"
    items = bench.picture_items(resolution, unit)
    by_id = {item.item_id: item for item in items}
    if task and f"{unit}/{task}" not in by_id:
        raise SettingError(
            f"{name!r} names no question of {unit}; allowed are "
            f"{', '.join(known.removeprefix(f'{unit}/') for known in by_id)}."
        )
    chosen: bench.Item | None = by_id[f"{unit}/{task}"] if task else items[0]
    if question is not None and (chosen is None or question != chosen.question):
        chosen = next((item for item in items if item.question == question), None)
    text = question if chosen is None else chosen.question
    assert text is not None
    return Source(f"{SCHEME}{unit}", items[0].image(), text, chosen)
