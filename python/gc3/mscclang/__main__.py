"""``python -m gc3.mscclang SCRIPT.py ARG...``: see `gc3.cli.script`."""

from gc3.cli.script import main

if __name__ == "__main__":
    main()
