"""`python -m duly`: the same as the command `duly`."""

from duly.cli import main

if __name__ == "__main__":
    main()
