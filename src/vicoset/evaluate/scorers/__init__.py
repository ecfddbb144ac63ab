"""What an answer is worth: pure functions of strings, equal to those of the benchmarks' evaluators.

They take the answer as the evaluator hands it over; lmms-eval strips it before, and so do the tasks
of :mod:`vicoset.evaluate.tasks`.
"""
