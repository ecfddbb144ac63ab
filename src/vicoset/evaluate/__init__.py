"""Tasks, runs, records, statistics and tables."""
