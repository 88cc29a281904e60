"""Pictures and pages of results. Needs matplotlib and plotly, optional packages."""
