# SPDX-License-Identifier: BSD-3-Clause
"""fork.py LIBRARY DIRECTORY VERSION: a process and its child serve separate counters."""

import ctypes
import os
import socket
import sys

librpma, directory = ctypes.CDLL(sys.argv[1]), sys.argv[2]
device, memory, objects = ctypes.c_void_p(), ctypes.create_string_buffer(8192), []


def new_peer():
    objects.append(ctypes.c_void_p())
    assert librpma.rpma_peer_new(device, ctypes.byref(objects[-1])) == 0
    return objects[-1]


def path():
    return f"{directory}/fork-{os.getpid()}.sock"


def ask():
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path())
        peer.shutdown(socket.SHUT_WR)
        text = b""
        while part := peer.recv(100000):
            text += part
        return text.decode().splitlines()


def listeners():
    paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return [path for path in paths if os.path.lexists(path) and "socket:" in os.readlink(path)]


assert librpma.rpma_utils_get_ibv_context(b"127.0.0.1", 0, ctypes.byref(device)) == 0
assert not os.path.exists(path())
region = ctypes.c_void_p()
assert librpma.rpma_mr_reg(new_peer(), memory, ctypes.c_size_t(8192), 1, ctypes.byref(region)) == 0
assert {"rpma_regions 1", "rpma_region_bytes 8192"} <= set(ask()) and listeners()
child = os.fork()
if child == 0:
    status = 1
    try:
        assert not listeners() and not os.path.exists(path())
        new_peer()
        info = f'rpma_info{{pid="{os.getpid()}",version="{sys.argv[3]}"}} 1'
        assert {"rpma_regions 0", "rpma_region_bytes 0", info} <= set(ask())
        os.unlink(path())
        status = 0
    finally:
        os._exit(status)
assert os.waitpid(child, 0)[1] == 0
assert "rpma_regions 1" in ask()
assert librpma.rpma_mr_dereg(ctypes.byref(region)) == 0 and "rpma_regions 0" in ask()
print("each its own")
