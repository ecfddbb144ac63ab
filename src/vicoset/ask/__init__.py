"""One picture, one question, any number of methods: answers, costs, and pictures of what was kept.

``source`` finds the picture, ``request`` asks a loaded model, ``page`` draws what came out. The
commands ``vicoset run`` and ``vicoset demo`` are made of it.
"""

from vicoset.ask.request import Asked, Request
from vicoset.ask.source import Source, source_of

__all__ = ["Asked", "Request", "Source", "source_of"]
