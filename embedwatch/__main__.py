"""`python -m embedwatch`: the command line."""

from embedwatch.cli import main

if __name__ == "__main__":
    main()
