"""What the entry point group ``lmms_eval.models`` leads to."""

from __future__ import annotations

from typing import Any

MODEL = "vicoset"


def manifest() -> Any:
    """The model ``vicoset``, which lmms-eval loads when ``--model vicoset`` asks for it."""
    from lmms_eval.models.registry_v2 import ModelManifest

    return ModelManifest(MODEL, chat_class_path="vicoset.evaluate.lmms.model.Vicoset")
