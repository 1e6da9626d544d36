"""`python -m scaleformer COMMAND [key=value ...]`."""

from scaleformer.commands import main

main()
