"""The loop: phases step by step, with checkpoints from which it goes on unchanged."""

from __future__ import annotations

import os
import time
import zlib
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vicoset.errors import SettingError
from vicoset.tiny import words
from vicoset.tiny.bench.item import RESOLUTIONS
from vicoset.tiny.train import forward, losses, start
from vicoset.tiny.train.journal import say
from vicoset.tiny.train.optimise import Optimiser, share_of
from vicoset.tiny.train.pages import BLANK, SIGNS, TASKS, Batch, cells_at, make_batch
from vicoset.tiny.train.recipe import POINTING, PROBED, RELATING, Phase

NOISE = 0.05  # of the cells of a page that is given by signs
STATE, JOURNAL = "state.pt", "journal.jsonl"


class Trainer:
    """A model in training.

    Attributes:
        model: of the stock class, float32.
        family: "qwen" or "llava".
        seed: of weights, pages and noise.
        phases: of the recipe.
        done: phases that are over.
        step: steps of the phase that is running.
        seconds: spent so far.
    """

    def __init__(self, family: str, seed: int, phases: tuple[Phase, ...], folder: Path) -> None:
        self.family, self.seed, self.phases, self.folder = family, seed, phases, folder
        self.model = start.new_model(family, seed)
        self.signs = start.sign_table(self.model, family)
        self.places = start.place_table(family)
        drawn = torch.Generator().manual_seed(seed)
        size = (2 * len(words.VOCABULARY) + 2, self.signs.shape[1])
        probe = torch.randn(size, generator=drawn) / size[1] ** 0.5
        self.probe = torch.nn.Parameter(torch.cat([probe, torch.zeros(4, size[1])]))
        self.done, self.step, self.seconds = 0, 0, 0.0
        self.optimiser = self._new_optimiser() if phases else None
        self.tally = _Tally()

    def run(self, every: int = 20, save: float = 120.0) -> None:
        """Train until the last phase is over, from the folder's checkpoint if there is one.

        Args:
            every: steps between lines of the journal.
            save: seconds between checkpoints.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.resume()
        saved = time.monotonic()
        while self.done < len(self.phases):
            phase = self.phases[self.done]
            before = time.monotonic()
            self.tally.add(self.advance(phase))
            self.seconds += time.monotonic() - before
            self.step += 1
            over = self.step == phase.steps
            if self.step % every == 0 or over:
                say(self.folder / JOURNAL, self._line(phase))
            if over:
                self._next_phase()
            if over or time.monotonic() - saved > save:
                self.save()
                saved = time.monotonic()

    def advance(self, phase: Phase) -> dict[str, Any]:
        """One step; gives what there is to say about it.

        Args:
            phase: that is running.
        """
        name = f"{self.seed}/{phase.name}/{self.step}"
        batch = make_batch(name, self.family, phase.sheet)
        loss, said = self.loss(phase, batch, name)
        loss.backward()  # type: ignore[no-untyped-call]
        share = share_of(self.step, phase.steps, tail=phase.tail, last=phase.last)
        assert self.optimiser is not None
        self.optimiser.step(share * phase.rate)
        return said

    def loss(self, phase: Phase, batch: Batch, name: str) -> tuple[Tensor, dict[str, Any]]:
        """What a phase minimises on a batch.

        Args:
            phase: whose weights count.
            batch: any.
            name: seeds the noise.
        """
        weights = {key: value.bfloat16() for key, value in self.model.named_parameters()}
        page = RESOLUTIONS[self.family].side
        row, column = cells_at(phase.sheet.side, batch.offsets)
        places = self.places[row * page + column]
        if phase.sheet.pixels:
            visual = forward.tower(self.model, self.family, weights, batch.pages, batch.offsets)
        else:
            drawn = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            noise = torch.randn(places.shape, generator=drawn) * NOISE
            visual = (self.signs[batch.signs].sum(2) + places + noise).bfloat16()
        total, said = torch.zeros(()), {}
        if phase.weights.signs:
            part = self._sign_loss(visual.float() - places, batch)
            total, said = total + phase.weights.signs * part, {"signs": part.detach()}
        if phase.weights.answers:
            helped = bool(phase.weights.context or phase.weights.pointer)
            looks: forward.Looks | None = {} if helped else None
            logits = forward.answer_logits(
                self.model, self.family, weights, batch, visual, looks, POINTING
            )
            part, right = losses.answer_loss(logits, batch)
            total = total + phase.weights.answers * part
            said |= {"loss": part.detach(), "right": right, "tasks": batch.tasks}
            if looks is not None:
                states = looks["states", PROBED]
                probes = forward.split(self.probe[:-6], 0, (2, -1))
                context = losses.context_loss(states, probes, batch)
                context = context + losses.place_loss(states, self.probe[-6:-4], batch, page)
                pointer = losses.pointer_loss(looks, batch)
                total = total + phase.weights.context * context + phase.weights.pointer * pointer
                said |= {"context": context.detach(), "pointer": pointer.detach()}
                if phase.weights.relation:
                    said_at, decided_at = (looks["slots", block] for block in RELATING)
                    probe = self.probe[-4:]
                    part = losses.relation_loss(said_at, decided_at, probe, batch, page)
                    total = total + phase.weights.relation * part
                    said["between"] = part.detach()
        return total, said

    def save(self) -> None:
        """Write the checkpoint; a crash leaves the old one or the new one."""
        assert self.optimiser is not None or self.done == len(self.phases)
        state = {
            "family": self.family,
            "seed": self.seed,
            "recipe": repr(self.phases),
            "done": self.done,
            "step": self.step,
            "seconds": self.seconds,
            "model": self.model.state_dict(),
            "probe": self.probe.data,
            "optimiser": None if self.optimiser is None else self.optimiser.state(),
            "tally": (self.tally.sums, self.tally.counts),
        }
        path = self.folder / STATE
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)

    def resume(self) -> None:
        """Go on from the folder's checkpoint, if there is one."""
        path = self.folder / STATE
        if not path.is_file():
            return
        state = torch.load(path)
        mine = {"family": self.family, "seed": self.seed, "recipe": repr(self.phases)}
        for key, value in mine.items():
            if state[key] != value:
                raise SettingError(
                    f"{path} is of another run: its {key} is {state[key]!r}, and {value!r} was "
                    "asked for. Train into another folder, or ask for what the checkpoint has."
                )
        self.done, self.step, self.seconds = state["done"], state["step"], state["seconds"]
        self.model.load_state_dict(state["model"])
        self.probe.data = state["probe"]
        self.tally.sums, self.tally.counts = state["tally"]
        if self.done < len(self.phases):
            self.optimiser = self._new_optimiser()
            self.optimiser.load(state["optimiser"])

    def _next_phase(self) -> None:
        self.done, self.step = self.done + 1, 0
        torch.save(
            self.model.state_dict(), self.folder / f"after-{self.phases[self.done - 1].name}.pt"
        )
        self.tally = _Tally()
        self.optimiser = self._new_optimiser() if self.done < len(self.phases) else None

    def _new_optimiser(self) -> Optimiser:
        phase = self.phases[self.done]
        for name, value in self.model.named_parameters():
            value.requires_grad_(not name.startswith(phase.frozen))
        return Optimiser(self.model, (self.probe,) if phase.weights.context else ())

    def _sign_loss(self, found: Tensor, batch: Batch) -> Tensor:
        """Distance from what the cells show, and which signs they are nearest to."""
        first, second = batch.signs.unbind(-1)
        wanted: Tensor = self.signs[batch.signs].sum(2)
        spread = start.SPREAD**2
        apart = (found - wanted).square().mean(-1) / spread
        apart = torch.where(first == BLANK, 0.3, 1.0) * apart
        shown = first != BLANK
        near = F.log_softmax(found[shown] @ self.signs[:-1].T / (8 * spread), -1)
        one, two = first[shown], second[shown]
        both = two != SIGNS
        score = near.gather(1, one[:, None])[:, 0]
        score = score + near.gather(1, two.clamp(max=SIGNS - 1)[:, None])[:, 0] * both
        total: Tensor = apart.mean() - 0.3 * (score / (1 + both.float())).mean()
        return total

    def _line(self, phase: Phase) -> dict[str, Any]:
        return {
            "phase": phase.name,
            "step": self.step,
            "seconds": round(self.seconds, 1),
            **self.tally.take(),
        }


class _Tally:
    """Means since the last line of the journal."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.counts: dict[str, float] = {}

    def add(self, said: dict[str, Any]) -> None:
        for key in ("loss", "context", "pointer", "between", "signs"):
            if key in said:
                self._count(key, float(said[key]), 1)
        if "right" in said:
            for number, task in enumerate(TASKS):
                mine = said["tasks"] == number
                self._count(task, float(said["right"][mine].sum()), float(mine.sum()))

    def take(self) -> dict[str, float]:
        found = {k: round(v / self.counts[k], 4) for k, v in self.sums.items() if self.counts[k]}
        self.sums, self.counts = {}, {}
        return found

    def _count(self, key: str, value: float, weight: float) -> None:
        self.sums[key] = self.sums.get(key, 0.0) + value
        self.counts[key] = self.counts.get(key, 0.0) + weight
