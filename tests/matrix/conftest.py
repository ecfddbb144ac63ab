"""The setting of the core contract, which also runs where only its own packages are installed."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read once, when transformers is imported

import torch

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
