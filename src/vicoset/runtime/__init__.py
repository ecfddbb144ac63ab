"""Running a plan inside a model: capture, compaction, cache, generation state, checks."""
