"""Pictures and pages of what commands found: needs the extra gc3[plot]."""
