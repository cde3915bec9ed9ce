#!/usr/bin/env python3
"""Starts the local stack of a project, and compares what it returns with what the project says.

`readme_commands.py README.md DAYBOOK` runs each curl command of the page, and compares its output with the printed one.
`readme_commands.py --invoke EMULATE DAYBOOK` invokes the built command handler with each event in events/command-handler, and
compares the status with the recorded one.
"""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import urllib.request


@contextlib.contextmanager
def local_stack(daybook: str):
    """The ports of a running stack: API, DynamoDB and bus."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    options = ["--port", "--dynamodb-port", "--bus-port"]
    line = [daybook, "dev", *(str(word) for pair in zip(options, ports) for word in pair)]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    try:
        for _ in range(150):
            if process.poll() is not None:
                sys.exit("the local stack does not start")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/openapi.json")
                break
            except OSError:
                time.sleep(0.2)
        else:
            sys.exit("the local stack does not respond")
        yield ports
    finally:
        process.terminate()
        process.wait()


def commands(page: pathlib.Path):
    """Each curl command in a block of the page, and the lines after it."""
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
        for shown in block.split("$ ")[1:]:
            command, _, printed = shown.partition("\n")
            if command.startswith("curl"):
                yield command, printed.strip()


def check_readme(page: str, daybook: str) -> None:
    checked = 0
    with local_stack(daybook) as (port, *_):
        for command, printed in commands(pathlib.Path(page)):
            # A message needs some time to reach the bus.
            for _ in range(100 if "/_dev/" in command else 1):
                line = command.replace("localhost:3000", f"127.0.0.1:{port}")
                output = subprocess.run(["bash", "-c", line], stdout=subprocess.PIPE, text=True).stdout.strip()
                if output == printed:
                    break
                time.sleep(0.1)
            if output != printed:
                sys.exit(f"{command}\nprints\n{output}\nand not\n{printed}")
            checked += 1
    if checked < 5:
        sys.exit(f"{page} has only {checked} commands")
    print(f"{checked} commands of {page} print what it says")


def check_invocations(emulate: str, daybook: str) -> None:
    events = sorted(path for path in pathlib.Path("events/command-handler").glob("*.json") if ".answer" not in path.name)
    with local_stack(daybook) as (_, dynamodb, _), socket.create_server(("127.0.0.1", 0)) as free:
        environment = pathlib.Path("events/env.json").read_text().replace(":8000", f":{dynamodb}")
        local = pathlib.Path("target-env.json")
        local.write_text(environment)
        port = free.getsockname()[1]
        free.close()
        for event in events:
            variables = {**os.environ, "ENVIRONMENT": str(local), "EMULATOR_PORT": str(port)}
            line = [emulate, "CommandHandler", str(event)]
            output = subprocess.run(line, env=variables, stdout=subprocess.PIPE, check=True, text=True).stdout
            recorded = json.loads(event.with_suffix(".answer.json").read_text())
            if json.loads(output)["statusCode"] != recorded["statusCode"]:
                sys.exit(f"{event}: {output}")
            print(f"{event}: {recorded['statusCode']}")


if __name__ == "__main__":
    if sys.argv[1] == "--invoke":
        check_invocations(*sys.argv[2:])
    else:
        check_readme(*sys.argv[1:])
