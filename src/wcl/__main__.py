"""`python -m wcl` is the `wcl` command."""

from wcl.cli import main

if __name__ == "__main__":
    main()
