# SPDX-License-Identifier: BSD-3-Clause
"""The name, the addresses and the maintainer of the project."""

import shlex
from pathlib import Path


def read():
    """The variables of packaging/identity, which shells read, too."""
    lines = Path("packaging/identity").read_text().splitlines()
    return {name: shlex.split(value)[0] for name, _, value in (line.partition("=") for line in lines if line and not line.startswith("#"))}
