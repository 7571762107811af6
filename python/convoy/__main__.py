"""``python -m convoy`` is the command ``convoy``."""

from .cli import main

if __name__ == "__main__":
    main()
