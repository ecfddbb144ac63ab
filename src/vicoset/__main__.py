"""``python -m vicoset`` is the command ``vicoset``."""

import sys

from vicoset.cli.main import main

sys.exit(main())
