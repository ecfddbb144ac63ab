"""Tests against lmms-eval itself, which `make test-lmms` installs in an environment of its own."""

import os
from importlib.util import find_spec

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"  # read once, on import

collect_ignore_glob = [] if find_spec("lmms_eval") else ["test_*.py"]
