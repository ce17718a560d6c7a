"""Killing commands at random points."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

__all__ = ["KILLS", "LONG", "kill_within"]

LONG = "SPECCOMPILE_LONG_TESTS" in os.environ
KILLS = 100 if LONG else 3
"""How many a test makes."""

# Importing takes longer than most commands, and is the same for all of them.
_DRIVER = """
import sys
from importlib import import_module
from speccompile.cli.main import main

import_module(f"speccompile.cli.{sys.argv[1]}")
print("ready", flush=True)
main()
"""


def kill_within(seconds: float, attempt: int, *words: object) -> None:
    """Start a command, and kill it after a part of the `seconds` that it takes, imports aside;
    `attempt` seeds which part."""
    command = [sys.executable, "-c", _DRIVER, *map(str, words)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        time.sleep(random.Random(attempt).uniform(0, seconds))
        os.killpg(process.pid, signal.SIGKILL)
