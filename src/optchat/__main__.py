"""``python -m optchat`` is the command ``optchat``."""

from optchat.cli.main import main

if __name__ == "__main__":
    main()
