"""A demonstration of ``core`` on a synthetic page: ``python -m vicoset.demo``.

No model and no image is read. ``page`` draws the population, ``measure`` compresses it and compares
messages, ``show`` writes the result as text.
"""
