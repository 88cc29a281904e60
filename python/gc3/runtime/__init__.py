"""Runs programs: arrays for them, engines, the check of what came out, and time."""
