"""Requests of lmms-eval as chats of our model, and what makes two of them the same."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vicoset.errors import SettingError, UnsupportedError

Chat = list[dict[str, Any]]


@dataclass(frozen=True)
class Ask:
    """One request.

    Attributes:
        task: lmms-eval's name of the task.
        doc_id: row of the data.
        chat: with its images, in the form of the chat template.
        limit: most new tokens.
    """

    task: str
    doc_id: int
    chat: Chat
    limit: int

    @property
    def kind(self) -> tuple[int, int]:
        """What the requests of one batch have in common: limit and number of images."""
        parts = [part for turn in self.chat for part in turn["content"]]
        return self.limit, sum(part["type"] == "image" for part in parts)

    @property
    def key(self) -> str:
        """Task, row and a digest of all that is asked, pixels included.

        lmms-eval's own ``doc_hash`` is one and the same for every row, so that a file that changed
        under a run could not be told by it.
        """
        made = hashlib.sha256()
        for turn in self.chat:
            for part in turn["content"]:
                made.update(json.dumps([turn["role"], part["type"], part.get("text")]).encode())
                if part["type"] == "image":
                    image = part["image"]
                    made.update(f"{image.mode} {image.size}".encode())
                    made.update(image.tobytes())
        made.update(str(self.limit).encode())
        return f"{self.task}/{self.doc_id}/{made.hexdigest()[:16]}"


def ask_of(arguments: Sequence[Any], documents: Mapping[str, Any], limit: int) -> Ask:
    """What a request asks.

    Args:
        arguments: context, function from a document to messages, generation options, row, task and
            split, as lmms-eval gives them to a chat model.
        documents: task to split to rows.
        limit: most new tokens, where the task does not say it.
    """
    _, messages_of, options, doc_id, task, split = arguments
    messages = messages_of(documents[task][split][doc_id])
    chat = [
        {"role": turn["role"], "content": [_part(task, part) for part in _parts(turn["content"])]}
        for turn in messages
    ]
    return Ask(task, int(doc_id), chat, _limit(task, options, limit))


def _parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _part(task: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a message; images come as Pillow's or as paths."""
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    if part["type"] != "image":
        raise UnsupportedError(
            f"task {task!r} asks about {part['type']}; allowed are text and images. Choose another "
            "task."
        )
    image = part.get("url", part.get("image"))
    if isinstance(image, (str, os.PathLike)):
        from vicoset.evaluate.tasks.rows import picture_of

        image = picture_of(Path(image)).read()
    return {"type": "image", "image": image.convert("RGB")}


def _limit(task: str, options: Mapping[str, Any], limit: int) -> int:
    """The task's limit; answers are greedy, as in every run of ours.

    ``until`` is passed over, as lmms-eval's own chat models do.
    """
    beams, warm = options.get("num_beams") or 1, options.get("temperature") or 0
    if options.get("do_sample") or warm > 0 or beams > 1:
        raise SettingError(
            f"task {task!r} asks for do_sample={options.get('do_sample')}, temperature={warm} and "
            f"num_beams={beams}; allowed are greedy answers. Pass --gen_kwargs "
            "do_sample=false,temperature=0,num_beams=1."
        )
    return int(options.get("max_new_tokens") or limit)
