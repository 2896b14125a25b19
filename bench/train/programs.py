"""What bench/train/run and bench/ddp/run have in common: programs that measure when they are told to."""
import json
import os
import platform
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ.get("PYTHON", sys.executable)
TORCH = [PYTHON, os.path.join(HERE, "torch_steps.py")]


def build(where, package):
    """Builds a command of this module into the directory and returns its path."""
    binary = os.path.join(where, os.path.basename(package))
    subprocess.run(["go", "build", "-o", binary, package], check=True, cwd=os.path.join(HERE, "..", ".."))
    return binary


class Program:
    """A program that measures for as many seconds as it is told to, and waits meanwhile."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def measure(self, seconds):
        """Returns what it printed; None when it failed."""
        try:
            self.process.stdin.write(f"{seconds}\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline() or "null")
        except BrokenPipeError:
            return None

    def end(self):
        try:
            self.process.communicate(timeout=30)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def alternate(programs, rounds, seconds):
    """Returns what the programs, by name, printed in each round. Every other round has the opposite order."""
    out = []
    for i in range(rounds + 1):
        names = list(programs) if i % 2 == 0 else list(programs)[::-1]
        got = {name: programs[name].measure(seconds) for name in names}
        if i > 0:  # the first is for warming up
            out.append(got)
    for p in programs.values():
        p.end()
    return out


def failed(rounds):
    """Returns the programs that did not measure in every round."""
    return sorted({name for r in rounds for name in r if r[name] is None})


def span(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def machine():
    name = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as f:
            name = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), name)
    return f"{name}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}"
