"""`python -m scaleformer COMMAND [key=value ...]`."""

from scaleformer.commands import main

if __name__ == "__main__":  # processes of the server import this module
    main()
