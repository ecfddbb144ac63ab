"""Evidence: what a compression did to coverage, messages and decisions of a request."""

from vicoset.audit.coverage import Bank, Coverage, Quantisation, coverage_of
from vicoset.audit.decisions import Decision, Prior, decision, innovation_error
from vicoset.audit.look import Look, Reference, blank, look, refer
from vicoset.audit.messages import Messages, messages_at
from vicoset.audit.population import auroc, correlation, harmful
from vicoset.audit.request import LEVELS, against, assemble, audit, audit_inputs
from vicoset.audit.result import Audit
from vicoset.audit.states import Distortion, distortion_of

__all__ = [
    "LEVELS",
    "Audit",
    "Bank",
    "Coverage",
    "Decision",
    "Distortion",
    "Look",
    "Messages",
    "Prior",
    "Quantisation",
    "Reference",
    "against",
    "assemble",
    "audit",
    "audit_inputs",
    "auroc",
    "blank",
    "correlation",
    "coverage_of",
    "decision",
    "distortion_of",
    "harmful",
    "innovation_error",
    "look",
    "messages_at",
    "refer",
]
