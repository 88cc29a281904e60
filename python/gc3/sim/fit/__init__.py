"""Fits the parameters of machines to measurements. The simulator needs nothing of it."""
