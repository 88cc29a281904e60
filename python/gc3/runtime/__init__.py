"""Runs programs: their arrays, engines, checks of results, and times."""
