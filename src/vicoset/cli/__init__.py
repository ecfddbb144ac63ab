"""The command ``vicoset``: one entry, a module for each of its commands."""
