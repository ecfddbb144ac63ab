"""What a record's request was about: its images and its question, found again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vicoset.errors import UnreadableError, VicosetError


def request_of(
    body: Mapping[str, Any], files: Sequence[str] | None = None, question: str | None = None
) -> tuple[list[Any], str]:
    """The images and the question of a record.

    ``about`` may name them in two ways: ``task``, an object with the task's name, the sample's id
    and the task's choices; or ``image`` (a file, ``tinybench:document/0003``, or a list of them)
    and ``question``.

    Args:
        body: of the record.
        files: images to take instead.
        question: text to take instead.
    """
    about = body["about"]
    task = about.get("task")
    if isinstance(task, Mapping) and files is None and question is None:
        return _of_task(task)
    named = about.get("image", []) if files is None else list(files)
    named = [named] if isinstance(named, str) else named
    asked = about.get("question") if question is None else question
    if not isinstance(asked, str) or not isinstance(named, list) or not named:
        raise UnreadableError(
            "this record does not say what was asked; its image and its question are needed. Give "
            "them with --image FILE --question TEXT."
        )
    from vicoset.ask.source import image_of

    kind = str(body.get("model", {}).get("type", ""))
    return [image_of(str(name), kind) for name in named], asked


def squared_as(
    body: Mapping[str, Any], model: Any, processor: Any, chat: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], Any]:
    """The chat with its images in the one size that its run brought them to, and the processor.

    Args:
        body: of the record.
        model: that is asked again.
        processor: of the model.
        chat: with the images as they came.
    """
    task = body["about"].get("task")
    side = task.get("square") if isinstance(task, Mapping) else None
    if not isinstance(side, int):
        return chat, processor
    from vicoset.runtime.square import squared

    fitting, size = squared(model, processor, side)

    def part(found: dict[str, Any]) -> dict[str, Any]:
        return {**found, "image": size(found["image"])} if found["type"] == "image" else found

    return [{**turn, "content": [part(one) for one in turn["content"]]} for turn in chat], fitting


def _of_task(task: Mapping[str, Any]) -> tuple[list[Any], str]:
    """An item of a task, by its id."""
    from vicoset.evaluate.tasks import task as named

    choices, data = task.get("choices", {}), task.get("data")
    try:
        items = named(str(task["name"])).load(data, **choices)
        item = next(one for one in items if one.sample_id == task["sample"])
    except StopIteration:
        raise UnreadableError(
            f"task {task['name']!r} has no sample {task['sample']!r} with the choices {choices}; "
            "allowed are its ids. Check that the data are those of the run."
        ) from None
    except (KeyError, TypeError) as error:
        raise UnreadableError(
            f"this record names its task as {ascii(dict(task))[:200]}; allowed is an object with "
            f"name, sample and choices ({type(error).__name__}: {error})."
        ) from error
    try:
        return [one.read() for one in item.pictures], item.prompt
    except VicosetError:
        raise
    except Exception as error:
        raise UnreadableError(f"an image of {task['sample']!r} cannot be read: {error}") from error
