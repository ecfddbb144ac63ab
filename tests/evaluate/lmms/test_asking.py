"""Requests of lmms-eval as chats, and what makes two of them one."""

from typing import Any

import numpy as np
import pytest
from PIL import Image

from vicoset.errors import SettingError, UnsupportedError
from vicoset.evaluate.lmms.asking import Ask, ask_of


def picture(seed: int = 0) -> Any:
    noise = np.random.default_rng(seed).integers(0, 256, (4, 6, 4), dtype=np.uint8)
    return Image.fromarray(noise, "RGBA")


def ask(
    image: Any = None, text: str = "what?", row: int = 3, task: str = "pope", **options: Any
) -> Ask:
    parts = [{"type": "image", "url": image or picture()}, {"type": "text", "text": text}]
    documents = {task: {"test": {row: {"parts": parts}}}}
    arguments = (
        "context",
        lambda doc: [{"role": "user", "content": doc["parts"]}],
        {"until": ["\n\n"], **options},
        row,
        task,
        "test",
    )
    return ask_of(arguments, documents, 128)


def test_a_request_is_a_chat() -> None:
    found = ask(max_new_tokens=16)
    (turn,) = found.chat
    image, text = turn["content"]
    assert (turn["role"], text) == ("user", {"type": "text", "text": "what?"})
    assert (image["type"], image["image"].mode, image["image"].size) == ("image", "RGB", (6, 4))
    assert (found.task, found.doc_id, found.limit, found.kind) == ("pope", 3, 16, (16, 1))
    assert ask().limit == 128


def test_text_alone_and_pictures_by_path(tmp_path: Any) -> None:
    turns = [{"role": "system", "content": "be brief"}]
    arguments = ("", lambda doc: turns, {}, 0, "t", "test")
    assert ask_of(arguments, {"t": {"test": [0]}}, 9).kind == (9, 0)
    picture().save(tmp_path / "a.png")
    same = ask(str(tmp_path / "a.png"))
    assert same.key == ask().key


def test_every_part_of_a_request_is_in_its_key() -> None:
    whole = ask()
    assert whole.key == ask().key
    others = [
        *(ask(picture(1)), ask(text="what"), ask(row=4), ask(task="mme"), ask(max_new_tokens=2)),
        ask(picture().transpose(Image.Transpose.TRANSPOSE)),
    ]
    assert len({whole.key, *(other.key for other in others)}) == 1 + len(others)


@pytest.mark.parametrize(
    "options", [{"do_sample": True}, {"temperature": 0.2}, {"num_beams": 3}], ids=str
)
def test_what_is_not_greedy_is_refused(options: dict[str, Any]) -> None:
    assert ask(temperature=0, num_beams=1, do_sample=False, top_p=1.0).limit == 128
    with pytest.raises(SettingError, match="allowed are greedy answers"):
        ask(**options)


def test_videos_are_refused() -> None:
    turns = [{"role": "user", "content": [{"type": "video", "url": "a.mp4"}]}]
    with pytest.raises(UnsupportedError, match="asks about video"):
        ask_of(("", lambda doc: turns, {}, 0, "t", "test"), {"t": {"test": [0]}}, 9)
