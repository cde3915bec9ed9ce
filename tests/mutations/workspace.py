"""The copy of the code: its files, its build, and the runs of its tests.

The copy is below target/mutations. Its build directory is not that of the working tree, because Cargo identifies a package
by its path within the workspace, and would use a mutated crate as the unchanged one.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from combine import VARIABLE

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "target" / "mutations" / "workspace"
BUILD = ROOT / "target" / "mutations" / "target"


def refresh(changes):
    """Makes the copy equal to the working tree, except for the files whose text is in `changes`. Files that are equal
    already keep their time, so that Cargo does not build them again."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    files = {file for file in listed.splitlines() if (ROOT / file).is_file()}
    for file in files:
        content = changes[file].encode() if file in changes else (ROOT / file).read_bytes()
        content = pass_on_variable(content) if file.endswith(".rs") else content
        path = COPY / file
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    for path in COPY.rglob("*"):
        if path.is_file() and str(path.relative_to(COPY)) not in files:
            path.unlink()


def pass_on_variable(code):
    """The code, changed so that processes started without their parent's environment still get the variable."""
    passed_on = f'.env_clear().envs(::std::env::var_os("{VARIABLE}").map(|name| ("{VARIABLE}", name)))'
    return code.replace(b".env_clear()", passed_on.encode())


class Build:
    """A build of the copy: its tests, or the errors of the compiler."""

    def __init__(self, tests):
        """Builds the test targets of these tests."""
        targets = sorted({test.split(" ")[0] for test in tests})
        command = ["cargo", "test", "--workspace", "--locked", "--no-run", "--message-format=json"]
        command += [word for target in targets for word in ("--test", target)]
        environment = {**os.environ, "CARGO_TARGET_DIR": str(BUILD)}
        done = subprocess.run(command, cwd=COPY, env=environment, stdout=subprocess.PIPE, text=True)
        messages = [json.loads(line) for line in done.stdout.splitlines()]
        self.succeeded = done.returncode == 0
        self.errors = [one["message"] for one in messages if (one.get("message") or {}).get("level") == "error"]
        self.tests = [
            test
            for one in messages if one.get("executable") and one["profile"]["test"]
            for test in tests_of(one["target"]["name"], one["executable"], Path(one["manifest_path"]).parent)
        ]

    def find(self, test):
        """The test that the list of mutations means, or `None`. Its name may lack the names of its modules."""
        target, name = test.split(" ")
        found = [one for one in self.tests if one.target == target and f"::{one.name}".endswith(f"::{name}")]
        return found[0] if len(found) == 1 else None


def tests_of(target, executable, directory):
    """The tests in an executable."""
    listed = subprocess.run([executable, "--list"], cwd=directory, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [
        Test(target, line.removesuffix(": test"), executable, directory)
        for line in listed.splitlines() if line.endswith(": test")
    ]


# Environment variables of the tests.
ENVIRONMENT = {
    # The first failure is enough. Proptest does not look for a smaller example, and does not write it to a file.
    "PROPTEST_MAX_SHRINK_ITERS": "0",
    "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "1",
    # Functions with several bodies need more space on the stack.
    "RUST_MIN_STACK": str(16 * 1024 * 1024),
    "RUST_BACKTRACE": "0",
}


class Test(NamedTuple):
    """A test in an executable."""

    target: str
    name: str
    executable: str
    directory: Path

    def run(self, limit, mutation=None):
        """Runs the test, with a mutation or without one, for at most `limit` seconds."""
        environment = {"CAMPAIGN_SCHEDULES": "300", "CONSUMER_SEEDS": "1000", **os.environ, **ENVIRONMENT}
        if mutation is not None:
            environment[VARIABLE] = mutation
        began = time.monotonic()
        # The session is new, so that the processes that the test has started can be ended with it.
        process = subprocess.Popen(
            [self.executable, "--exact", self.name], cwd=self.directory, env=environment, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )
        try:
            output, _ = process.communicate(timeout=limit)
            outcome = "passed" if process.returncode == 0 else "failed"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            outcome = "hangs"
        return Run(outcome, time.monotonic() - began, output)


class Run(NamedTuple):
    """A run of a test: `passed`, `failed` or `hangs`, its time in seconds and its output."""

    outcome: str
    seconds: float
    output: str
