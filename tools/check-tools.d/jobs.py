# SPDX-License-Identifier: BSD-3-Clause
"""jobs.py COMMAND...: a shell runs COMMAND, which runs a program, as a job on a terminal: Ctrl-Z stops both, SIGCONT continues them, and each Ctrl-C
reaches the program once."""

import os
import pty
import signal
import sys
import time

PROGRAM = """
import signal, sys, time
count = 0
def interrupt(*_):
    global count
    count += 1
    print('interrupt', count, flush=True)
signal.signal(signal.SIGINT, interrupt)
print('ready', flush=True)
while count < 2:
    time.sleep(0.05)
time.sleep(0.3)
print('interrupts:', count, flush=True)
sys.exit(7)
"""


def shell():
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execvp(sys.argv[1], [*sys.argv[1:], sys.executable, "-c", PROGRAM])
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    _, status = os.waitpid(job, os.WUNTRACED)
    assert os.WIFSTOPPED(status), status
    print("stopped", flush=True)
    os.kill(-job, signal.SIGCONT)
    time.sleep(0.2)
    print("continued", flush=True)
    _, status = os.waitpid(job, 0)
    print("status:", os.waitstatus_to_exitcode(status), flush=True)
    os._exit(0)


signal.alarm(25)
child, terminal = pty.fork()
if child == 0:
    shell()
out = b""


def read_until(text):
    global out
    while text not in out:
        try:
            part = os.read(terminal, 1000)
        except OSError:
            part = b""
        if not part:
            sys.exit(f"no {text} in {out}")
        out += part


read_until(b"ready")
os.write(terminal, b"\x1a")
read_until(b"stopped")
read_until(b"continued")
os.write(terminal, b"\x03")
read_until(b"interrupt 1")
time.sleep(0.5)
os.write(terminal, b"\x03")
read_until(b"status: 7\r\n")
print(out.decode())
