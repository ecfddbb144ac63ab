"""The command ``python -m vicoset.evaluate``."""

import sys

from vicoset.evaluate.main import main

sys.exit(main())
