"""Turning a scene into pixels, with integer arithmetic only: the same bytes on every machine."""
