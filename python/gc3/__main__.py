"""``python -m gc3`` is ``gc3``."""

from gc3.cli.main import main

main()
