"""`python -m omniflow_server` is the `omniflow` command."""

from omniflow_server.cli import main

if __name__ == "__main__":
    main()
