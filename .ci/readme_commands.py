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


# The options with the ports of a local stack: API, DynamoDB and bus.
PORTS = ["--port", "--dynamodb-port", "--bus-port"]


def free_ports() -> list[int]:
    """A free port for each option."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in PORTS]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextlib.contextmanager
def local_stack(daybook: str):
    """The ports of a running stack: API, DynamoDB and bus."""
    ports = free_ports()
    line = [daybook, "dev", *(str(word) for pair in zip(PORTS, ports) for word in pair)]
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


def commands(block: str):
    """Each command of a console block, and the lines after it."""
    for shown in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, printed = shown.partition("\n")
        while command.endswith("\\"):
            more, _, printed = printed.partition("\n")
            command = command[:-1] + more.strip()
        yield command, printed.strip()


def check_readme(page: str, daybook: str) -> None:
    checked = 0
    blocks = re.findall(r"```console\n(.*?)```", pathlib.Path(page).read_text(), re.DOTALL)
    shown = [pair for block in blocks for pair in commands(block)]
    with local_stack(daybook) as (port, *_):
        for command, printed in (pair for pair in shown if pair[0].startswith("curl")):
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
