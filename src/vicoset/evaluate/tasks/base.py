"""What the tasks share: metrics of sums, checked choices, unique ids."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicoset.errors import SettingError, UnreadableError
from vicoset.evaluate.sample import Metric, Sums
from vicoset.evaluate.task import Item, Scored

Array = NDArray[np.float64]

SHORT = "\nAnswer the question using a single word or phrase."


class Benchmark:
    """A task: its data's layout, its prompt and limit, its scorer, its native aggregate.

    The prompts are those of lmms-eval and the limits those of the paper's table; answers are
    stripped before they are scored, as lmms-eval does.

    Attributes:
        name: in records and on the command line.
        version: changes when prompts, limits or the scorer change.
        maximum: attainable value of the aggregate.
        higher_is_better: False for hallucination rates.
        stratified: whether the sums have a last axis of strata.
        metrics: the benchmark's other numbers, by name.
        limit: most new tokens.
        choices: what ``load`` takes beside the path: name to allowed values, the default first;
            an empty tuple allows anything.
        layout: where the data come from and what the files look like.
        draws: whether it makes its own pictures and takes no path.
    """

    name: str
    version: str = "1"
    maximum: float = 1.0
    higher_is_better: bool = True
    stratified: bool = False
    metrics: Mapping[str, Metric] = {}
    limit: int
    choices: Mapping[str, tuple[Any, ...]] = {}
    layout: str = ""
    draws: bool = False

    def load(self, path: str | os.PathLike[str] | None, **choices: Any) -> Sequence[Item]:
        """The items, always in the same order.

        Args:
            path: the data's directory or file; None for a task that draws its own.
            choices: as ``choices`` lists them.
        """
        chosen = self.chosen(choices)
        if path is None and not self.draws:
            raise UnreadableError(
                f"{self.name} got no data; allowed is a local directory or file, in the layout of "
                f"{self.layout}. Pass --data {self.name}=PATH."
            )
        return distinct(self.name, self.items(path, **chosen))

    def chosen(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All choices, the default where none is given.

        Args:
            given: by the caller.
        """
        for name, value in given.items():
            if name not in self.choices:
                near = difflib.get_close_matches(name, self.choices, n=1)
                hint = f" Did you mean {near[0]}?" if near else ""
                raise SettingError(
                    f"{self.name} got the choice {name}={value!r}; allowed are "
                    f"{', '.join(self.choices) or 'none'}.{hint}"
                )
            allowed = self.choices[name]
            if len(allowed) > 1 and not any(value is a or value == a for a in allowed):
                raise SettingError(
                    f"{self.name} got {name}={value!r}; allowed are "
                    f"{', '.join(map(repr, allowed))}. The default is {allowed[0]!r}."
                )
        return {name: given.get(name, (*a, None)[0]) for name, a in self.choices.items()}

    def items(self, path: str | os.PathLike[str] | None, **choices: Any) -> list[Item]:
        """The items of the data.

        Args:
            path: the data's directory or file.
            choices: all of them.
        """
        raise TypeError(f"{type(self).__name__} reads no data")

    def score(self, item: Item, raw: str) -> Scored:
        """What an answer is worth.

        Args:
            item: the question.
            raw: the answer as the model gave it.
        """
        raise TypeError(f"{type(self).__name__} scores no answer")

    def aggregate(self, sums: Sums) -> Array:
        """The native value; unless a task says otherwise, correct over questions.

        Args:
            sums: name to ``[...]``, with a last axis of strata where stratified.
        """
        return ratio(sums["correct"], sums["questions"])


def ratio(part: Array, whole: Array) -> Array:
    """part / whole, 0 where the whole is 0.

    Args:
        part: ``[...]``.
        whole: ``[...]``.
    """
    part, whole = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole != 0)


def rate(part: str, whole: str) -> Callable[[Sums], Array]:
    """A metric that is a ratio of two sums.

    Args:
        part: name of the numerator.
        whole: name of the denominator.
    """
    return lambda sums: ratio(sums[part], sums[whole])


def right(correct: bool, normalised: str) -> Scored:
    """A question that is right or wrong.

    Args:
        correct: which of the two.
        normalised: the answer as compared.
    """
    value = float(correct)
    return Scored(normalised, {"correct": value, "questions": 1.0}, value)


def yes_or_no(task: str, where: str, gold: Any) -> str:
    """A reference as "yes" or "no".

    Args:
        task: its name, for messages.
        where: the row, for messages.
        gold: as in the data.
    """
    text = str(gold).lower().strip().replace(".", "")
    if text not in ("yes", "no"):
        raise UnreadableError(
            f"{task} {where} has the answer {gold!r}; allowed are yes and no. Copy the data again."
        )
    return text


def distinct(task: str, items: list[Item]) -> list[Item]:
    """The items, if no two have one id.

    Args:
        task: its name, for messages.
        items: in order.
    """
    count = Counter(item.sample_id for item in items)
    double = [name for name, times in count.items() if times > 1]
    if double:
        raise UnreadableError(
            f"{task} has {len(double)} ids twice or more, {double[0]!r} first; ids have to be "
            "unique. Check that no file of the data lies there twice."
        )
    return items
