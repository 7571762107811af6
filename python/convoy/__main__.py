"""``python -m convoy`` is the command ``convoy``."""

from .cli.main import main

if __name__ == "__main__":
    main()
