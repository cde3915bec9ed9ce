#!/usr/bin/env python3
"""Follows a page as its reader does: `tutorial.py PAGE DAYBOOK` writes each file that the page shows, applies each diff, runs each
command of a `console` block, and compares what it prints with the page, where `…` stands for any text. The binary DAYBOOK creates
the project in the current folder, with the versions of this workspace's dependencies, and with the features that `new-project` gives
to the project `shop` beside it. A local stack runs on free ports, and what it prints is not compared.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request

from readme_commands import PORTS, commands, free_ports

ROOT = pathlib.Path(__file__).parent.parent
BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"`(app/\S+)`:\n\n$")
# The addresses that the page names: the API and DynamoDB.
NAMED = ["localhost:3000", "localhost:8000"]


class Reader:
    def __init__(self, daybook: str):
        # One shell for the whole page, because a function of the shell is used by later commands.
        self.shell = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ports = free_ports()
        self.target = os.environ["CARGO_TARGET_DIR"]
        self.daybook, self.stack, self.folder = daybook, None, pathlib.Path.cwd()

    def run(self, command: str) -> tuple[str, bool]:
        """What the command prints, and whether it succeeds."""
        print("{", command, "} </dev/null", "printf '\\nended with %s\\n' $?", sep="\n", file=self.shell.stdin, flush=True)
        lines = []
        while (line := self.shell.stdout.readline()) and not line.startswith("ended with "):
            lines.append(line)
        return "".join(lines).strip(), line == "ended with 0\n"

    def here(self, text: str) -> str:
        """What the page says, for this machine."""
        text = text.replace("cargo run -- new ../tickets", f"{self.daybook} new tickets").replace("../tickets", "tickets")
        text = text.replace("--path .", f"--path {ROOT}").replace("target/debug", f"{self.target}/debug")
        for named, port in zip(NAMED, self.ports):
            text = text.replace(named, f"127.0.0.1:{port}")
        return text

    def start(self, command: str) -> None:
        self.stop()
        ports = " ".join(f"{option} {port}" for option, port in zip(PORTS, self.ports))
        self.stack = subprocess.Popen(["bash", "-c", f"exec {self.here(command)} {ports}"], stdout=subprocess.DEVNULL, cwd=self.folder)
        self.until_ready()

    def stop(self) -> None:
        if self.stack:
            self.stack.send_signal(signal.SIGINT)
            try:
                self.stack.wait(60)
            except subprocess.TimeoutExpired:
                self.stack.kill()
                sys.exit("the local stack does not stop")

    def until_ready(self) -> None:
        """Waits until the stack runs what the files contain."""
        for _ in range(600):
            if not self.stack or self.stack.poll() is not None:
                sys.exit("the local stack has ended")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[0]}/openapi.json", timeout=60) as response:
                    if "X-Daybook-Previous-Functions" not in response.headers:
                        return
            except OSError:
                pass
            time.sleep(0.5)
        sys.exit("the local stack does not start")

    def command(self, command: str, printed: str) -> None:
        if command.startswith("cargo run -- --"):
            return self.start(command)
        if command.startswith("curl") and self.stack:
            self.until_ready()
        expected = re.compile(re.escape(self.here(printed)).replace("…", ".*"), re.DOTALL)
        # What a read shows may take a moment: a message on its way, a deadline.
        reads = command == "mails" or (command.startswith("curl") and "--json" not in command)
        for _ in range(100 if reads else 1):
            output, succeeds = self.run(self.here(command))
            if expected.fullmatch(output) and succeeds != ("FAILED" in printed):
                break
            time.sleep(0.2)
        else:
            sys.exit(f"$ {command}\n{output}\n-- is not as the page says:\n{printed}")
        print(f"$ {command}", flush=True)

    def set_parameters(self, line: str) -> None:
        """Replaces the parameters of the default stack, the first of samconfig.toml, by those of the page, which adds some."""
        config, template = (self.folder / name for name in ("samconfig.toml", "template.yaml"))
        before, (now,) = tomllib.loads(config.read_text())["default"]["deploy"]["parameters"], tomllib.loads(line).values()
        config.write_text(re.sub("^parameter_overrides = .*\n", line, config.read_text(), count=1, flags=re.MULTILINE))
        assert tomllib.loads(config.read_text())["default"]["deploy"]["parameters"] == before | {"parameter_overrides": now}
        assert set(now) > set(before["parameter_overrides"]), now
        parameters = re.search(r"^Parameters:\n(.*?)^\w", template.read_text(), re.DOTALL | re.MULTILINE)[1]
        unknown = {override.split("=")[0] for override in now} - set(re.findall(r"^  (\w+):", parameters, re.MULTILINE))
        assert not unknown, f"template.yaml has no parameters {unknown}"

    def follow(self, page: str) -> None:
        for block in BLOCK.finditer(page):
            kind, text = block["kind"], block["text"]
            file = FILE.search(page[: block.start()])
            if kind == "rust":
                (self.folder / file[1]).write_text(text)
            elif kind == "diff":
                subprocess.run(["git", "apply", "-"], input=text, text=True, cwd=self.folder, check=True)
            elif kind == "toml":
                self.set_parameters(text)
            elif kind == "sh":
                print(f"not run: {text.splitlines()[0]}")
            elif kind != "console":
                sys.exit(f"a block of kind {kind}: what shall a test do with it?")
            else:
                for command, printed in commands(text):
                    self.command(command, printed)
                    if command.startswith("cd "):
                        self.folder = self.folder / self.here(command)[3:]
                        shutil.copytree("shop/app/same-features", self.folder / "app/same-features")
                        # For `cargo test -p operator` too: Cargo unites only the features of the packages that it selects.
                        with (self.folder / "app/operator/Cargo.toml").open("a") as manifest:
                            manifest.write('\n[dependencies.same-features]\npath = "../same-features"\n')


if __name__ == "__main__":
    page, daybook = sys.argv[1:]
    reader = Reader(daybook)
    try:
        reader.follow(pathlib.Path(page).read_text())
    finally:
        reader.stop()
        reader.shell.stdin.close()
        reader.shell.wait()
