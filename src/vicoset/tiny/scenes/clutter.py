"""What every page carries besides its content: panels below, words and numbers between."""

from __future__ import annotations

from vicoset.tiny.draw.atlas import DIGITS, SMALL
from vicoset.tiny.scenes.rng import Dice
from vicoset.tiny.scenes.scene import UNITS, Panel, Scene, new_pen, write


def panels(dice: Dice, scene: Scene) -> None:
    """Coloured areas, some of them see-through, anywhere on the page."""
    extent = scene.side * UNITS
    for _ in range(1 + scene.side * scene.side // 160 + dice.below(3)):
        height = dice.between(UNITS, max(extent // 2, UNITS + 1))
        width = dice.between(UNITS, max(extent // 2, UNITS + 1))
        top = dice.between(-UNITS, extent - UNITS)
        left = dice.between(-UNITS, extent - UNITS)
        edges = (max(top, 0), max(left, 0), min(top + height, extent), min(left + width, extent))
        if dice.chance(0.6):
            shift = [dice.between(-24, 24) for _ in range(3)]
            scene.marks.append(Panel(edges, (shift[0], shift[1], shift[2]), True))
        else:
            low, high = (15, 75) if scene.paper.dark else (160, 225)
            new = [dice.between(low, high) for _ in range(3)]
            scene.marks.append(Panel(edges, (new[0], new[1], new[2]), False))


def words(dice: Dice, scene: Scene, share: float, numbers: bool) -> None:
    """Fill a share of the free cells with runs that nobody asks about.

    Args:
        dice: to draw from.
        scene: to write on.
        share: of the page's cells.
        numbers: also write runs of digits, without a key.
    """
    wanted, tries = int(scene.side * scene.side * share), 0
    while wanted > 0 and tries < 60 + scene.side * scene.side // 8:
        tries += 1
        alphabet = DIGITS if numbers and dice.chance(0.25) else SMALL
        text = "".join(dice.pick(alphabet) for _ in range(dice.between(3, 7)))
        row, column = dice.below(scene.side), dice.below(scene.side)
        if scene.free(row, column - 1 if column else 0, row + 1, column + len(text)):
            write(scene, row, column, text, new_pen(dice, scene.paper), known=text.isdecimal())
            scene.take(row, column, row + 1, column + len(text) + 1)
            wanted -= len(text)
