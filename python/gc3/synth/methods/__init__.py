"""Methods that find schedules: one file for a kind, one class for each that decides instances (`session.Method`)."""
