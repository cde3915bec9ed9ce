"""Counts the instructions of a function's process, in user mode."""

import re
import subprocess
import tempfile


def tool():
    """The tool of this machine: the counters of the processor where it has any, the simulation of callgrind otherwise."""
    probe = ["perf", "stat", "-e", "instructions:u", "true"]
    try:
        counted = subprocess.run(probe, capture_output=True, text=True)
        if counted.returncode == 0 and "<not" not in counted.stderr:
            return "perf stat"
    except FileNotFoundError:
        pass
    try:
        version = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise SystemExit("install perf or valgrind: one of them counts the instructions") from None
    return f"callgrind of {version.strip()}"


TOOL = tool()


def count(start):
    """The instructions of a process that `start` starts behind the given wrapper and that has ended when it returns."""
    with tempfile.NamedTemporaryFile() as file:
        if TOOL == "perf stat":
            start(["perf", "stat", "-e", "instructions:u", "-x,", "-o", file.name, "--"])
            return int(re.search(r"^(\d+),", file.read().decode(), re.MULTILINE)[1])
        start(["valgrind", "--tool=callgrind", f"--callgrind-out-file={file.name}"])
        # The file is written anew, so it is opened anew.
        with open(file.name) as counted:
            return int(re.search(r"^(?:summary|totals): (\d+)", counted.read(), re.MULTILINE)[1])
