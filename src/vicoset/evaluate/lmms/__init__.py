"""A guest of lmms-eval (Zhang et al., 2024; EvolvingLMMs-Lab/lmms-eval): model, tasks, logs.

Nothing here is imported by the rest of the package, and only ``model`` imports lmms-eval: it is
loaded by lmms-eval itself, through the entry point that ``plugin`` answers.
"""
