"""One question, asked with and without compression."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from vicoset.ask.source import Source
from vicoset.errors import RuntimeStateError, UnsupportedError
from vicoset.evaluate.answering import Answer, Model
from vicoset.evaluate.method import Method
from vicoset.runtime.record import Record
from vicoset.runtime.record_lines import append
from vicoset.view import Support, Watcher, frame_of


@dataclass(frozen=True)
class Asked:
    """What a method answered.

    Attributes:
        method: that was run.
        answer: its text, tokens, record and seconds.
        support: where the visual tokens went; None where all of them stayed.
        correct: whether it is the reference; None where there is none.
        evidence: for each mark that the answer needs, whether a kept token's cell holds it; empty
            where nobody knows the marks, or tokens are no cells of the picture any more.
    """

    method: Method
    answer: Answer
    support: Support | None
    correct: bool | None
    evidence: tuple[bool, ...]

    @property
    def text(self) -> str:
        """The answer without blanks around it."""
        return self.answer.text.strip()

    @property
    def record(self) -> Record:
        """Of the prompt."""
        return self.answer.record

    @property
    def line(self) -> str:
        """The record in one line, under the method's name: Full is a plan that keeps everything."""
        return str(replace(self.record, plan=self.method.asked))

    @property
    def coverage(self) -> float | None:
        """``F(S)/F(V)`` behind the last stage, where the method measures it."""
        stages = self.record.stages
        return stages[-1].number("ratio") if stages else None

    @property
    def seconds(self) -> float:
        """From the inputs to the last token."""
        return self.answer.seconds["request"]


class Request:
    """A picture and a question in front of a loaded model.

    Attributes:
        source: the picture and the question.
    """

    def __init__(
        self, model: Any, processor: Any, source: Source, *, limit: int = 32, **options: Any
    ) -> None:
        """Prepare the inputs.

        Args:
            model: outside of every context.
            processor: of the model.
            source: what to ask.
            limit: most tokens of the answer.
            **options: of ``compress``: prefix, settings, allow_uncertified.
        """
        self.source = source
        self._model, self._processor, self._options = model, processor, options
        self._limit = limit
        parts = [
            {"type": "image", "image": source.image},
            {"type": "text", "text": source.question},
        ]
        self._chats = [[{"role": "user", "content": parts}]]
        try:
            self._inputs = Model(model, processor).encode(self._chats)
        except ValueError as error:  # no chat template, or one that does not show the image
            said = " ".join(str(error).split())
            raise UnsupportedError(
                f"this {type(processor).__name__} makes no prompt of a picture and a question: "
                f"{said}; allowed are processors whose chat template shows images. Look at the "
                "checkpoint's chat_template."
            ) from error
        self.frame = frame_of(processor, source.image.size)

    def ask(self, method: Method) -> Asked:
        """The answer of a method.

        Args:
            method: to run; ``Method()`` is Full.
        """
        watcher = Watcher()
        answer = self._answer(method, self._limit, watcher)
        support = watcher.support() if watcher.rows else None
        boxes = self.source.boxes
        if support is not None:
            shown = support.shows(boxes, self.frame)
        else:  # all tokens stayed, or the picture itself was made smaller
            shown = [True] * len(boxes) if answer.record.kept == answer.record.tokens else []
        return Asked(method, answer, support, self.source.correct(answer.text), tuple(shown))

    def warm(self, method: Method) -> None:
        """Run a method once without keeping anything, so that the next run's time is its own.

        Args:
            method: to run, for one token.
        """
        self._answer(method, 1, None)

    def write(self, path: str, asked: list[Asked]) -> None:
        """Append a record for each answer to a file, a sealed JSON line each.

        Args:
            path: of the file.
            asked: what :meth:`ask` gave.
        """
        lines = []
        for one in asked:
            about: dict[str, Any] = {
                "image": self.source.name,
                "question": self.source.question,
                "method": one.method.label,
                "raw": one.answer.text,
                "seconds": one.answer.seconds,
            }
            if self.source.item is not None:
                about |= {"reference": self.source.item.answer, "correct": one.correct}
            lines.append(one.record.to_json(about))
        append(path, lines)

    def _answer(self, method: Method, limit: int, watch: Watcher | None) -> Answer:
        asked = Model(self._model, self._processor, watch=watch, **self._options)
        (answer,) = method.answers(asked, lambda: self._chats, self._inputs, limit)
        if not answer.record.tokens:
            raise RuntimeStateError(
                f"the prompt about {self.source.name} holds no visual token, so there is nothing "
                "to compress; allowed are processors whose chat template shows the image. Check "
                "the template of the checkpoint."
            )
        return answer
