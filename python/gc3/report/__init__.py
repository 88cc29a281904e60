"""Pictures and pages of results. Needs the extra gc3[plot]."""
