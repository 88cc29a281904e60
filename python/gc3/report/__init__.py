"""Pictures and pages of results. Needs matplotlib, an optional package."""
