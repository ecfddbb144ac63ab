"""Checking sealed records: from the record alone, and by running its request again."""

from vicoset.audit.verify.lines import Verified, verify_body, verify_file, verify_line
from vicoset.audit.verify.problem import Findings, Problem
from vicoset.audit.verify.rerun import rerun

__all__ = ["Findings", "Problem", "Verified", "rerun", "verify_body", "verify_file", "verify_line"]
