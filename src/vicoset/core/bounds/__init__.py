"""The analysis as executable statements.

Every function computes both sides of one identity or bound from plain tensors and returns them
as an `Identity` (`.gap`, `.holds()`) or an `Inequality` (`.slack`, `.holds()`), with the named
terms it is made of. They work in the dtype and on the device of what they are given.

- `coverage`: the facility objective, its certificates, its banks.
- `quantisation`: from facility deficit to the distance of a token's carrier.
- `transport`: population moments, centroids, what assignment and RMS restoration cost.
- `message`: the signed attention message, its decomposition, direction and magnitude.
- `decision`: propagation to the logits, margins, flips.
"""

from .coverage import (
    bank_mixture,
    batched_certificate,
    final_certificate,
    marginal_form,
    monotonicity,
    normalisation,
    residual_bound,
    submodularity,
)
from .decision import (
    centred_distortion,
    flip_risk,
    innovation_bound,
    interface_budget,
    margin_lemma,
    observed_no_flip,
    pair_stability,
    unrolled_recursion,
    winner_candidates,
)
from .message import (
    direction_lower_bounds,
    direction_magnitude,
    directional_quantisation,
    local_lipschitz,
    message_bound,
    message_budget,
    message_decomposition,
    sign_blindness,
    softmax_mass_bound,
    state_to_message,
)
from .quantisation import (
    assignment_bound,
    coverage_to_quantisation,
    gibbs_identity,
    grounded_mode,
)
from .statement import Identity, Inequality
from .transport import (
    centroid_optimality,
    first_moment,
    pretransport_bound,
    radial_split,
    rms_bound,
    rms_split,
)

__all__ = [
    "Identity",
    "Inequality",
    "assignment_bound",
    "bank_mixture",
    "batched_certificate",
    "centred_distortion",
    "centroid_optimality",
    "coverage_to_quantisation",
    "direction_lower_bounds",
    "direction_magnitude",
    "directional_quantisation",
    "final_certificate",
    "first_moment",
    "flip_risk",
    "gibbs_identity",
    "grounded_mode",
    "innovation_bound",
    "interface_budget",
    "local_lipschitz",
    "margin_lemma",
    "marginal_form",
    "message_bound",
    "message_budget",
    "message_decomposition",
    "monotonicity",
    "normalisation",
    "observed_no_flip",
    "pair_stability",
    "pretransport_bound",
    "radial_split",
    "residual_bound",
    "rms_bound",
    "rms_split",
    "sign_blindness",
    "softmax_mass_bound",
    "state_to_message",
    "submodularity",
    "unrolled_recursion",
    "winner_candidates",
]
