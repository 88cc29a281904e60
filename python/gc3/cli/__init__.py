"""The command line: `gc3`. One file per command; commands parse and print, the work is done elsewhere."""
