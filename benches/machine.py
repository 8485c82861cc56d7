# SPDX-License-Identifier: BSD-3-Clause
"""The queries of benches/run about the machine: CPUs, their load, and the system calls of a process."""

import os
import re
import resource
import shutil
import signal
import subprocess
import time

SECONDS = 10  # for a counter to answer
PLAIN = dict(os.environ, LC_ALL="C")


class Failed(Exception):
    """Why a row has no value."""


def read(path):
    with open(path) as file:
        return file.read()


def two_cpus():
    """Two CPUs of different cores, if there are."""
    allowed = sorted(os.sched_getaffinity(0))
    try:
        with open(f"/sys/devices/system/cpu/cpu{allowed[0]}/topology/thread_siblings_list") as file:
            text = file.read().strip()
    except OSError:
        text = str(allowed[0])
    siblings = set()
    for part in text.split(","):
        ends = part.split("-")
        siblings.update(range(int(ends[0]), int(ends[-1]) + 1))
    others = [cpu for cpu in allowed[1:] if cpu not in siblings] or allowed[1:] or allowed
    return allowed[0], others[0], len(allowed)


def busy_seconds():
    """CPU time of the whole machine, all CPUs, that was not idle; stolen time counts."""
    with open("/proc/stat") as file:
        ticks = [int(n) for n in file.readline().split()[1:]]
    return (sum(ticks[:8]) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def cpu_time(pid):
    """Clock ticks of a process, and the same of all its threads in nanoseconds as the scheduler counts."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    tasks = os.listdir(f"/proc/{pid}/task")
    return int(fields[11]) + int(fields[12]), sum(int(read(f"/proc/{pid}/task/{t}/schedstat").split()[0]) for t in tasks)


def resident_kib(pid):
    return int(re.search(r"^VmRSS:\s+(\d+) kB", read(f"/proc/{pid}/status"), re.M).group(1))


class Counter:
    """Counts the system calls of a process. perf, if it may, does not slow the process down; strace does."""

    def __init__(self):
        self.name = "perf" if self.perf_works() else "strace" if shutil.which("strace") else None
        if self.name is None:
            raise Failed("counting system calls needs strace, or perf and the privilege to trace")

    def perf_works(self):
        try:
            done = subprocess.run([*self.perf(None), "--", "true"], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, env=PLAIN, timeout=SECONDS)
            return bool(self.perf_count(done.stderr))
        except (OSError, subprocess.SubprocessError):
            return False

    @staticmethod
    def perf(pid):
        return ["perf", "stat", "-x", ",", "-e", "raw_syscalls:sys_enter", *(["-p", str(pid)] if pid else [])]

    @staticmethod
    def perf_count(text):
        found = re.search(r"^(\d+|<not counted>),.*raw_syscalls:sys_enter", text, re.M)
        # a process that never ran is not counted, and made no calls
        return None if not found else 0 if found.group(1).startswith("<") else int(found.group(1))

    def during(self, pid, work):
        return self.with_perf(pid, work) if self.name == "perf" else self.with_strace(pid, work)

    def with_perf(self, pid, work):
        # perf counts for as long as the command runs that it is given: cat, until its input ends
        perf = subprocess.Popen([*self.perf(pid), "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=PLAIN)
        try:
            perf.stdin.write("started\n")
            perf.stdin.flush()
            perf.stdout.readline()
            work()
            count = self.perf_count(perf.communicate(timeout=SECONDS)[1])
        finally:
            perf.kill()
            perf.wait()
        if count is None:
            raise Failed("perf counted nothing")
        return count

    def with_strace(self, pid, work):
        strace = subprocess.Popen(["strace", "-f", "-q", "-c", "-U", "calls,name", "-p", str(pid)], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=PLAIN)
        try:
            self.until_traced(pid, strace)
            work()
            strace.send_signal(signal.SIGINT)
            text = strace.communicate(timeout=SECONDS)[1]
        finally:
            strace.kill()
            strace.wait()
        total = re.search(r"^\s*(\d+)\s+total", text, re.M)
        calls = re.findall(r"^\s*(\d+)\s+\w+$", text, re.M)
        if total is None and not calls:
            return 0
        return int(total.group(1)) if total else sum(map(int, calls))

    @staticmethod
    def until_traced(pid, strace):
        for _ in range(200):
            tasks = os.listdir(f"/proc/{pid}/task")
            if all("TracerPid:\t0\n" not in read(f"/proc/{pid}/task/{task}/status") for task in tasks):
                time.sleep(0.05)
                return
            if strace.poll() is not None:
                raise Failed("strace: " + (strace.stderr.read().strip().splitlines() or ["ended at once"])[0])
            time.sleep(0.01)
        raise Failed("strace did not attach")
