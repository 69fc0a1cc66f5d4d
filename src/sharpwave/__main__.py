"""`python -m sharpwave`, the same as the command `sharpwave`."""

from sharpwave.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
