"""What the texts of the commands' options mean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from vicoset.errors import PlanError, SettingError, UnknownNameError

_DEEP = 1000  # blocks that every boundary fits in


def check_plans(plans: list[str]) -> list[str]:
    """The plans, refused where a name is unknown, before a model is loaded.

    Args:
        plans: names; what a model's depth decides is left to be seen with the model.
    """
    from vicoset.plan import plan_named
    from vicoset.runtime import downsample

    for text in plans:
        try:
            _ = text == downsample.NAME or plan_named(text, _DEEP)
        except UnknownNameError:
            raise
        except PlanError:
            continue
    return plans


def seeds_of(text: str) -> list[int]:
    """The seeds of a list.

    Args:
        text: of an option.
    """
    found = listed(text)
    if not found or not all(part.isdecimal() for part in found):
        raise SettingError(f"--seeds {text!r}; allowed are whole numbers from 0 on, such as 0,1,2.")
    return [int(part) for part in found]


def listed(text: str) -> list[str]:
    """The parts of a list with commas.

    Args:
        text: of an option.
    """
    return [part.strip() for part in text.split(",") if part.strip()]


def data_and_choices(
    data: Sequence[str], choices: Sequence[str]
) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """What ``--data`` and ``--choice`` say, by task.

    Args:
        data: TASK=PATH, each.
        choices: TASK=KEY:VALUE,..., each; a task may be named more than once.
    """
    read: dict[str, dict[str, Any]] = {}
    for text in choices:
        for name, chosen in by_task([text], "--choice").items():
            read.setdefault(name, {}).update(choice(one) for one in chosen.split(",") if one)
    return by_task(data, "--data"), read


def by_task(given: Sequence[str], option: str) -> dict[str, str]:
    """``TASK=VALUE`` as pairs.

    Args:
        given: of an option that may be given more than once.
        option: its name, for messages.
    """
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise SettingError(
                f"{option} {text!r}; allowed is TASK=VALUE, such as {option} pope=/data/pope."
            )
        found[name] = value
    return found


def choice(text: str) -> tuple[str, Any]:
    """``key:value``; numbers, true and false are read as such.

    Args:
        text: of an option.
    """
    key, colon, value = text.partition(":")
    if not colon:
        raise SettingError(f"choice {text!r}; allowed is KEY:VALUE, such as parser:first-sentence.")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
