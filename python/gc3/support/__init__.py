"""What every part may use: settings, bounded readers of files, sizes, counted words, drawings."""
