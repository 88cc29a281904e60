"""The command line: `gc3`. One file per command. Commands only parse and print; the other packages do the work."""
