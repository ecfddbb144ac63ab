"""Which run this is: everything that may change a score, and nothing that cannot."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from vicoset import __version__
from vicoset.core.settings import Settings
from vicoset.evaluate import answering, fingerprint
from vicoset.evaluate.fingerprint import Files, digest_of
from vicoset.evaluate.method import Method
from vicoset.evaluate.task import Item, Task
from vicoset.runtime.engine import depth_of

_PACKAGES = ("torch", "transformers", "tokenizers", "pillow")


def of_model(
    model: Any,
    processor: Any,
    directory: str | os.PathLike[str] | None,
    files: Files,
    square: int | None = None,
) -> dict[str, Any]:
    """The facts of a model and its processor.

    Args:
        model: as it will run.
        processor: of the model.
        directory: that it was loaded from, or None.
        files: remembers digests.
        square: pixels of both sides of every image; None where they stay as they are.
    """
    return {
        **({} if square is None else {"square": square}),
        "class": type(model).__name__,
        "config": fingerprint.of_config(model.config),
        "generation": fingerprint.of_config(model.generation_config),
        "weights": fingerprint.of_weights(model, directory, files),
        "processor": fingerprint.of_processor(processor),
        "dtype": str(model.dtype).removeprefix("torch."),
        "attention": str(model.config.get_text_config()._attn_implementation),
        "device": model.device.type,
    }


def of_task(
    task: Task, items: Sequence[Item], choices: Mapping[str, Any], files: Files
) -> dict[str, Any]:
    """The facts of a task and its data.

    Args:
        task: the benchmark.
        items: all that will be asked, whatever the shard.
        choices: that it was loaded with.
        files: remembers digests.
    """
    return {
        "name": task.name,
        "version": task.version,
        "choices": dict(choices),
        "samples": len(items),
        "items": fingerprint.of_items(items),
        "pictures": fingerprint.of_pictures(items, files),
    }


def of_method(
    method: Method, prefix: str, settings: Settings | None, positions: str = "original"
) -> dict[str, Any]:
    """The facts of a method; Full's do not name what cannot matter for it.

    Args:
        method: of the comparison.
        prefix: execution mode.
        settings: the method's numbers.
        positions: "original" or "packed".
    """
    if method.plan is None:
        code = {"code": fingerprint.of_code(method.modules)} if method.modules else {}
        return {**method.facts(), **code}
    made = [m for stage in method.plan.stages for m in (stage.selector, stage.realiser)]
    roots = ["vicoset.runtime.engine", *method.modules, *(type(one).__module__ for one in made)]
    return {
        **method.facts(),
        "prefix": prefix,
        **({} if positions == "original" else {"positions": positions}),
        "settings": repr(settings or Settings()),
        "code": fingerprint.of_code(roots),
    }


def run_facts(
    model_facts: Mapping[str, Any],
    task_facts: Mapping[str, Any],
    method_facts: Mapping[str, Any],
    batch: int,
) -> dict[str, Any]:
    """All facts with the two digests that follow from them.

    ``run_id`` is one for all tasks of a model and a method, ``digest`` is of one task's run.

    Args:
        model_facts: see :func:`of_model`.
        task_facts: see :func:`of_task`.
        method_facts: see :func:`of_method`.
        batch: items that are answered together, which the last bits depend on.
    """
    shared = {
        "model": dict(model_facts),
        "method": dict(method_facts),
        "batch": batch,
        "asking": answering.VERSION,
        "versions": versions(),
    }
    return {
        "run_id": digest_of(shared),
        "digest": digest_of({**shared, "task": dict(task_facts)}),
        "identity": {**shared, "task": dict(task_facts)},
    }


def versions() -> dict[str, str]:
    """Of what takes part in an answer."""
    return {"vicoset": __version__, **{name: _version(name) for name in _PACKAGES}}


def machine(model: Any) -> dict[str, Any]:
    """Where the run was started; no part of its identity.

    Args:
        model: on its device.
    """
    import torch

    device = model.device
    cuda = device.type == "cuda"
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "accelerator": torch.cuda.get_device_name(device) if cuda else "none",
        "threads": torch.get_num_threads(),
    }


def depth(model: Any) -> int:
    """L, blocks of a model's decoder.

    Args:
        model: a vision-language model.
    """
    return depth_of(model)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
