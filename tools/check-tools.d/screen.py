# SPDX-License-Identifier: BSD-3-Clause
"""screen.py PID END COMMAND...: rpma top on a terminal of 80 columns, where a process with PID has a connection. END: key, interrupt or terminate."""

import atexit
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

pid, end, command = sys.argv[1], sys.argv[2], sys.argv[3:]
controller, terminal = pty.openpty()


def modes():
    """All modes but those of a serial line, where the C library and others write the same speed in two ways."""
    modes = termios.tcgetattr(terminal)
    del modes[2]
    return modes


fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
before = modes()
news, tell = os.pipe()
out = b""


def shell():
    """Runs the command as a job, and prints its number and how it stops and ends."""
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(terminal, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        for fd in range(3):
            os.dup2(terminal, fd)
        os.execvp(command[0], command)
    os.write(tell, f"{job}\n".encode())
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        os.write(tell, b"stopped\n" if os.WIFSTOPPED(status) else f"{os.waitstatus_to_exitcode(status)}\n".encode())
        if not os.WIFSTOPPED(status):
            os._exit(0)


if os.fork() == 0:
    shell()
os.close(tell)
news = open(news, encoding="ascii")
job = int(news.readline())


def kill():
    """Ends stopped jobs, whatever fails."""
    try:
        os.kill(job, signal.SIGKILL)
    except ProcessLookupError:
        pass


atexit.register(kill)
signal.signal(signal.SIGTERM, lambda *_: sys.exit("too late"))


def read(seconds):
    """What the terminal gets until then."""
    global out
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and select.select([controller], [], [], left)[0]:
        out += os.read(controller, 65536)


def lines():
    """The last complete screen."""
    *_, screen, _ = re.split(rb"\x1b\[H", out + b"\x1b[H")
    text = re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", screen.decode())
    return text.replace("\r", "").split("\n")


def press(keys, expected):
    """Presses keys, and waits for a screen with a line that matches."""
    os.write(controller, keys)
    for _ in range(100):
        read(0.1)
        screen = lines()
        if any(re.search(expected, line) for line in screen):
            assert len(screen) == 24 and max(map(len, screen)) <= 80, screen
            return screen
    sys.exit(f"no line {expected} after {keys} in {screen}")


row = rf"^ *{pid} 127\.0\.0\.1:[0-9]+ .* open +[1-9][0-9.kM]* "
screen = press(b"", row)
assert out.startswith(b"\x1b[?1049h"), out[:80]
assert re.match("rpma top: 1 process, 1 connection open$", screen[0]), screen
assert re.match(r"total: out [1-9][0-9.kM]*/s +[0-9.]+ MB/s +in [0-9]+/s [0-9.]+ MB/s +p99 [0-9.]+ us$", screen[1]), screen
assert re.match("MB/s [▁-█]+ max [0-9.]+$", screen[2]), screen
assert re.match(r" *PID +PEER .*STATE +OUT/s +IN/s +OUT MB/s +IN MB/s +p99 us", screen[4]), screen
press(b"?", "^q +quit$")
press(b"\x1b", row)
press(b"\r", "^transport +iwarp$")
assert any(re.match("link +direct_copy$", line) for line in lines()), lines()
press(b"\x7f", row)
press(b"\t", rf"^ *{pid} rpma +1 ")
press(b"sss", "  by CONN$")
# Stopped and continued: the terminal is that of the shell meanwhile.
os.write(controller, b"\x1a")
assert news.readline() == "stopped\n" and modes() == before
os.kill(job, signal.SIGCONT)
press(b"\t", row)
read(0.3)
if end == "terminate":
    os.kill(job, signal.SIGTERM)
else:
    os.write(controller, {"key": b"q", "interrupt": b"\x03"}[end])
status = int(news.readline())
assert status == (0 if end == "key" else 130), status
read(0.3)
left = out[out.rindex(b"\x1b[?1049l"):]
assert modes() == before, "the terminal is not restored"
# After a signal the last tables are on the screen of the shell.
assert (b"PEER" in left) == (end != "key") and b"\x1b[?1049h" not in left, left
print("restored after", end)
