"""``python -m onelayer`` is the ``onelayer`` command."""

from onelayer.cli import main

if __name__ == "__main__":
    main()
