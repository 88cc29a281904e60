"""Readers of what other programs and runs have recorded: logs, traces, times of steps."""
