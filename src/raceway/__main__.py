"""`python -m raceway` and the command `raceway`."""

from raceway.cli.app import main

if __name__ == "__main__":
    main()
