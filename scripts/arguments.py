"""Command lines of the programs here whose settings are a dataclass: `--name value`, wrong ones end in one line."""

from __future__ import annotations

import argparse
from typing import NoReturn


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """The text of the module as it is, and the defaults."""


class Parser(argparse.ArgumentParser):
    """Wrong arguments raise ValueError, without the usage; names are written in full."""

    def __init__(self, program: str, description: str | None) -> None:
        super().__init__(program, description=description, formatter_class=Help, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} ({self.prog} --help lists all options)")
