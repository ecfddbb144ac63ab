"""The recipe: phases, what each of them trains on, and what it minimises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from vicoset.tiny.train.pages import Sheet

TOWERS = ("model.visual", "model.vision_tower", "model.multi_modal_projector")
TABLE = "model.language_model.embed_tokens"
DECODER = ("model.language_model", "lm_head")
PROBED, POINTING = 4, {4: 3, 5: 3}  # the block whose input is probed; block -> head that points
RELATING = (6, 7)  # the blocks whose inputs tell where two objects are, and how far apart


class Weights(NamedTuple):
    """What the parts of the loss count.

    Attributes:
        answers: cross-entropy of the answers.
        context: of the words that belong to a cell, read off a state.
        pointer: of the evidence under two heads.
        relation: of the places of two objects, read off the states of a question.
        signs: distance of the tower's output from what a cell shows.
    """

    answers: float = 0.0
    context: float = 0.0
    pointer: float = 0.0
    relation: float = 0.0
    signs: float = 0.0


ALONE = Weights(answers=1.0)


@dataclass(frozen=True)
class Phase:
    """A part of training.

    Attributes:
        name: of the phase.
        sheet: its pictures.
        steps: of the optimiser.
        weights: of the loss.
        frozen: names of weights that stay begin so.
        rate: of the learning rates at its start.
        tail: part of its steps in which the rate falls to ``last`` of it.
        last: what the rate falls to.
    """

    name: str
    sheet: Sheet
    steps: int
    weights: Weights
    frozen: tuple[str, ...] = ()
    rate: float = 1.0
    tail: float = 0.3
    last: float = 0.0

    @property
    def alone(self) -> bool:
        """Whether answers are all that is minimised."""
        return self.weights == ALONE


FULL = {"qwen": (36, 24), "llava": (24, 16)}  # cells per side, slots


def recipe(family: str, scale: float = 1.0) -> tuple[Phase, ...]:
    """The phases of a family, in order.

    First the decoder learns to read pages that are given by what their cells show, with probes and
    pointers that help it over the plateau; the tower learns to say what cells show; then the
    decoder goes on with such pages, and both together on pictures, with the answers alone.

    Args:
        family: "qwen" or "llava".
        scale: of all numbers of steps, for a short run.
    """
    side, slots = FULL[family]
    helped = Weights(answers=1.0, context=0.5, pointer=0.15)

    def steps(count: int) -> int:
        return max(2, round(count * scale))

    return (
        Phase(
            "signs",
            Sheet(12, 32, 10, crowd=(60, 90), pixels=False),
            steps(340),
            helped,
            frozen=(*TOWERS, TABLE),
            tail=0.0,
        ),
        Phase(
            "places",
            Sheet(16, 20, 14, crowd=(40, 60), mix=(2, 2, 3, 5), pixels=False),
            steps(300),
            helped._replace(relation=0.5),
            frozen=(*TOWERS, TABLE),
        ),
        Phase(
            "tower",
            Sheet(8, 60, 1, crowd=(90, 140), mix=(3, 2, 2, 5)),
            steps(600),
            Weights(signs=1.0),
            frozen=DECODER,
            tail=0.5,
        ),
        Phase(
            "objects",
            Sheet(16, 20, 14, crowd=(40, 60), mix=(1, 1, 2, 6), pixels=False),
            steps(200),
            ALONE,
            frozen=(*TOWERS, TABLE),
            rate=0.5,
        ),
        Phase(
            "pages",
            Sheet(side, 4, slots, mix=(2, 2, 3, 5), pixels=False),
            steps(260),
            ALONE,
            frozen=(*TOWERS, TABLE),
            rate=0.4,
            last=0.25,
        ),
        Phase("whole", Sheet(side, 4, slots), steps(250), ALONE, rate=0.07, tail=0.7),
    )
