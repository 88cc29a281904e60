"""Helpers for all layers: settings, bounded readers of files, sizes, counted words, drawings."""
