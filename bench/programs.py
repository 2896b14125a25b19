"""What the scripts named run have in common: programs that measure by turns, on a machine that is asked whether it is steady."""
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
PYTHON = os.environ.get("PYTHON", sys.executable)
TORCH = [PYTHON, os.path.join(HERE, "train", "torch_steps.py")]
# Pinning OpenBLAS to another core or cache makes it slow. Its idle threads would spin for 100 ms, beside the next program; 2**22 cycles are 2 ms.
ENV = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")} | {"OPENBLAS_THREAD_TIMEOUT": "22"}
PAUSE = 0.02  # others spin, too


def first():
    """Gives this script and what it starts the processors before other work, where that is allowed.

    A negative nice value, and not a real-time priority: Linux stops that for 50 ms in every second.
    """
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    except PermissionError:
        pass


def build(where, package):
    """Builds a command of this module into the directory and returns its path."""
    binary = os.path.join(where, os.path.basename(package))
    subprocess.run(["go", "build", "-o", binary, package], check=True, cwd=ROOT)
    return binary


class Program:
    """A program that answers a line with a line, and waits meanwhile. One that greets says its version first."""

    def __init__(self, command, greets=False):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=ENV)
        self.version = self.process.stdout.readline().strip() if greets else ""

    def ask(self, request):
        """Returns its answer; an empty one when it failed."""
        try:
            self.process.stdin.write(f"{request}\n")
            self.process.stdin.flush()
            return self.process.stdout.readline().strip()
        except BrokenPipeError:
            return ""

    def measure(self, seconds):
        """Returns what it measured for that time; None when it failed."""
        return json.loads(self.ask(seconds) or "null")

    def end(self):
        try:
            self.process.communicate(timeout=30)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


class Probe:
    """Tells by a loop of multiplications and additions in registers whether the machine is as fast as usual.

    A neighbour on the same physical core, which cannot be seen from inside, halves every program's speed for seconds.
    """

    LOW, AGAIN, SECONDS = 0.85, 3, 0.005
    rounds = repeated = unsteady = 0  # of all probes of the script

    def __init__(self, where, threads):
        self.program, self.seen = Program([build(where, "./bench/gemm"), str(threads)], greets=True), []

    def speed(self):
        """GFLOP/s of all threads together."""
        time.sleep(PAUSE)
        self.seen.append(float(self.program.ask(f"peak {self.SECONDS}").split()[0]))
        return self.seen[-1]

    def steady(self, round):
        """Returns what a round returns in which the machine was steady, if it is so within AGAIN rounds."""
        Probe.rounds += 1
        for i in range(self.AGAIN + 1):
            before, got = self.speed(), round()
            # The last ones only: a machine may be slower from now on.
            if min(before, self.speed()) >= self.LOW * statistics.median(sorted(self.seen[-100:])[-20:]):
                return got
            Probe.repeated += i < self.AGAIN
        Probe.unsteady += 1
        return got

    def end(self):
        self.program.end()

    @classmethod
    def said(cls):
        return f"{cls.repeated} of {cls.rounds} rounds repeated, {cls.unsteady} unsteady; nice {os.getpriority(os.PRIO_PROCESS, 0)}"


def turns(names, rounds, ask, probe):
    """Returns what the programs of these names answered in each round, by name. Every other round has the opposite order."""
    out = []

    def after_pause(name):
        time.sleep(PAUSE)
        return ask(name)

    for i in range(rounds):
        order = list(names)[:: 1 if i % 2 == 0 else -1]
        out.append(probe.steady(lambda: {name: after_pause(name) for name in order}))
    return out


def alternate(programs, rounds, seconds, probe):
    """Returns what the programs, by name, measured in each round, and ends them. One more round comes first, for warming up."""
    for p in programs.values():
        p.measure(seconds)
    out = turns(programs, rounds, lambda name: programs[name].measure(seconds), probe)
    for p in programs.values():
        p.end()
    return out


def failed(rounds):
    """Returns the programs that did not measure in every round."""
    return sorted({name for r in rounds for name in r if r[name] is None})


def span(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def geomean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def cpu():
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as f:
            for line in f:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    return platform.processor()


def machine():
    """The machine, this commit, and how steady the rounds were."""
    git = subprocess.run(["git", "describe", "--always", "--dirty", "--exclude", "*"], cwd=ROOT, capture_output=True, text=True)
    commit = f"commit {git.stdout.strip()}; " if git.returncode == 0 else ""
    return f"{cpu()}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}; {commit}{Probe.said()}"
