"""Digests: of the plan with its settings, and of every field."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from vicoset.audit.verify.problem import REFUSED, Findings, said, shown
from vicoset.core.settings import Settings
from vicoset.plan import digest_of_content
from vicoset.runtime.downsample import NAME as RESIZED
from vicoset.runtime.record_json import fingerprints


def check_fields(body: Mapping[str, Any], found: Findings) -> None:
    """Every field has the fingerprint that the record says.

    Args:
        body: of a record.
        found: is added to.
    """
    written = body.get("fields")
    try:
        own = fingerprints(body)
    except (ValueError, RecursionError) as error:  # a number too large for JSON, lists in lists
        found.add("fields", f"cannot be recomputed: {said(error)}")
        return
    if not isinstance(written, dict):
        found.add("fields", f"{shown(written)} is no object")
        return
    for name in [*own, *(name for name in written if name not in own)]:
        if name not in own:
            found.add(f"fields.{shown(name)[1:-1]}", "the record has no such field")
        elif name not in written:
            found.add(name, "has no fingerprint")
        elif written[name] != own[name]:
            found.add(
                name, f"is not what was recorded: fingerprint {own[name]}, {shown(written[name])}"
            )


def settings_of(body: Mapping[str, Any], found: Findings) -> Settings | None:
    """The method's numbers; None and a problem where there are none.

    Args:
        body: of a record with a plan.
        found: is added to.
    """
    try:
        made = Settings(**body["settings"])
    except REFUSED as error:
        found.add("settings", said(error))
        return None
    if vars(made).keys() != body["settings"].keys():
        lacking = sorted(vars(made).keys() - body["settings"].keys())
        found.add("settings", f"lacks {', '.join(lacking)}")
        return None
    return made


def check_digest(body: Mapping[str, Any], settings: Settings, found: Findings) -> None:
    """The digest is that of plan and settings.

    Args:
        body: of a record with a plan.
        settings: its own.
        found: is added to.
    """
    if body["plan"]["name"] == RESIZED:  # names the version too, and no plan ran
        return
    told = f"{digest_of_content(body['plan'])} {settings!r}"
    own = hashlib.sha256(told.encode()).hexdigest()[:16]
    if body["digest"] != own:
        found.add("digest", f"{shown(body['digest'])}, and plan and settings have {shown(own)}")
