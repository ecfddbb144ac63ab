"""An audit in words and numbers."""

from __future__ import annotations

from collections.abc import Iterator

from vicoset.audit.coverage import Coverage
from vicoset.audit.decisions import Decision
from vicoset.audit.messages import Messages
from vicoset.audit.result import Audit
from vicoset.audit.states import Distortion


def told(audit: Audit) -> str:
    """The lines of an audit.

    Args:
        audit: to tell.
    """
    return "\n".join(_lines(audit))


def _lines(audit: Audit) -> Iterator[str]:
    yield str(audit.record)
    for coverage in audit.coverage:
        yield from _coverage(coverage)
    for states in audit.states:
        yield from _states(states)
    for messages in audit.messages:
        yield from _messages(messages)
    if audit.decisions:
        yield from _decisions(audit.decisions)
    if audit.full_answer is not None:
        same = "changed" if audit.changed else "the same"
        yield f"answers ({same})"
        yield f"  Full     {audit.full_answer!r}"
        yield f"  compact  {audit.compact_answer!r}"
    count = sum(map(len, audit.checks.values()))
    yield f"statements checked: {count}, violated: {len(audit.violations)}"
    yield from (f"  VIOLATED {text}" for text in audit.violations)
    spent = ", ".join(f"{name} {value:.3f} s" for name, value in audit.seconds.items())
    yield f"time: {spent}"


def _coverage(one: Coverage) -> Iterator[str]:
    yield f"coverage before block {one.boundary}: {one.selector} keeps {one.kept} of {one.tokens}"
    certificate = "no rounds"
    if one.certificate is not None:
        certificate = f"c_B {one.certificate:.4f} in {len(one.rounds)} rounds"
    yield f"  F(S)/F(V)    {one.ratio:.4f}  ({one.objective}; {certificate})"
    for bank in one.banks:
        yield f"  {bank.name:11s}  {bank.saturation:.4f}  of a share of {bank.share:.4f}"
    yield f"  grid         {one.grid:.4f}  left uncovered"
    quant = one.quantisation
    yield f"  appearance   {quant.distance:.4f}  squared distance, bound {quant.bound:.4f}"


def _states(one: Distortion) -> Iterator[str]:
    yield f"states before block {one.boundary}, realised by {one.realiser}"
    bound = "" if one.bound is None else f", bound {one.bound:.4f}"
    yield f"  distortion   {one.behind:.4f}  of the energy ({one.before:.4f} to centroids{bound})"


def _messages(one: Messages) -> Iterator[str]:
    yield f"messages of block {one.block}"
    polar = "" if one.direction is None else f"  direction {one.direction:.4f}"
    polar += "" if one.amplitude is None else f", amplitude {one.amplitude:.4f}"
    yield f"  error e_M    {one.error:.4f}{polar}"
    yield f"  parts        representation {one.representation:.4f}, mass {one.mass:.4f}"
    yield f"  grouped mass {one.grouped:.4f}  softmax bound {one.grouped_bound:.4f}"
    yield f"  attention    {one.attention:.4f}  on the image, {one.compact_attention:.4f} compact"


def _decisions(found: tuple[Decision, ...]) -> Iterator[str]:
    first = found[0]
    yield f"decisions at {len(found)} positions under Full's answer"
    if first.prior is not None:
        yield f"  VIE          {first.prior.vie:.4f}  at the end of the prompt"
        escapes = sum(one.prior is not None and one.prior.escape for one in found)
        yield f"  escapes      {escapes}  of the {first.prior.candidates} candidates"
    certified = sum(one.certified for one in found)
    flips = sum(one.flip for one in found)
    no_flip = f"{certified} of {len(found)} certified"
    yield f"  no-flip      {no_flip}, rho {first.ratio:.3f} at the first"
    yield f"  flips        {flips}"
