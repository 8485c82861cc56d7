# SPDX-License-Identifier: BSD-3-Clause
"""The rows of the table: the measurement, its reference, and the target."""

import others
import peers
import perf

SMALL_WRITES = 15000
IDLE_WINDOW_S = 5

TCP = {"SOFTVERBS_LOCAL": "0"}
CRC = {"SOFTVERBS_CRC": "1"}
ROCE = {"SOFTVERBS_TRANSPORT": "roce"}

RAW_BUSY = ("raw-pingpong",)
HALF_BUSY = "half round trip of raw TCP, both busy"


class Row:
    """The settings are environment variables for value and reference; own_settings are those of the value alone."""

    def __init__(self, name, what, unit, program, ref=None, ref_what="", scale=1.0, target=None, digits=2, settings=None,
                 own_settings=None):
        self.name, self.what, self.unit, self.program = name, what, unit, program
        self.ref, self.ref_what, self.scale, self.target, self.digits = ref, ref_what, scale, target, digits
        self.settings = settings or {}
        self.own_settings = own_settings or {}


def bandwidth(kind, label, size, target=None):
    return Row(f"{kind}-{label}", f"{kind}s of {label}", "GB/s", (f"{kind}-stream", "--size", str(size)),
               ("raw-stream", "--size", str(size)), "raw TCP, messages of this size", 1.0, target)


def over_tcp(row):
    """As between two hosts: without the memory that two processes of one host share."""
    return Row(f"tcp-{row.name}", f"{row.what}; over TCP", row.unit, row.program, row.ref, row.ref_what, row.scale, row.target,
               row.digits, TCP)


def beside_kernel(kind, label, size):
    """The one copy that two processes need, by the kernel."""
    return Row(f"vm-{kind}-{label}", f"{kind}s of {label}", "GB/s", (f"{kind}-stream", "--size", str(size)),
               (f"vm-{kind}-stream", "--size", str(size)), f"process_vm_{kind}v of this size", 1.0, (">=", 0.95))


def in_memfds(row):
    """With memory that both processes map."""
    return Row(f"memfd-{row.name}", f"{row.what}; memory of memfds", row.unit, (*row.program, "--memfd"), row.ref, row.ref_what, row.scale,
               row.target, row.digits, row.settings)


def beside_memcpy(kind, label, size):
    return in_memfds(Row(f"{kind}-{label}", f"{kind}s of {label}", "GB/s", (f"{kind}-stream", "--size", str(size)),
                         ("memcpy", "--size", str(size)), "memcpy of this size, of what the caches have", 1.0, (">=", 0.9)))


def as_original(name, what, unit, program, digits=2):
    """Through ours and through the C library in turn. Ours is never slower than 0.9 of it."""
    target = ("<=", 1.11) if unit == "us" else (">=", 0.9)
    return Row(f"c-{name}", what, unit, program, (others.ORIGINAL, *program),
               "the same program with the C librpma of this machine on libsoftverbs", 1.0, target, digits)


def perftest(kind):
    return Row(f"perftest-{kind}", f"{kind}s of 64 KiB, the average that ib_{kind}_bw -R prints on libsoftverbs", "GB/s",
               (others.PERFTEST, f"ib_{kind}_bw", str(64 << 10)), ("raw-stream", "--size", str(64 << 10)),
               "raw TCP, messages of this size", 1.0, (">=", 0.9))


def beside_ucx(row, test, size=8):
    """Ahead of UCX, over what the row uses."""
    transports, path = (peers.TCP, "tcp") if row.settings == TCP else (peers.SHARED, "shared memory")
    return Row(f"ucx-{row.name}", row.what, row.unit, row.program, (peers.UCX, test, str(size), transports),
               f"UCX over {path}, {test} of ucx_perftest", 1.0, ("<=" if row.unit == "us" else ">=", 1), row.digits, row.settings)


def beside_fabric(row):
    provider = "tcp" if row.settings == TCP else "shm"
    return Row(f"fabric-{row.name}", row.what, row.unit, row.program, (peers.FABRIC, "8", provider),
               f"libfabric, provider {provider}, fi_pingpong", 1.0, ("<=", 1), row.digits, row.settings)


ON_ONE_HOST = [
    Row("write-spin", "8 B unsignalled write seen by an application that spins on its memory; both applications spin, both"
        " processes pinned; one way", "us", ("write-pingpong", "--signal", "32"), RAW_BUSY, HALF_BUSY, 0.5, ("<=", 2.5)),
    Row("write-core-free", "the same with a core free: the initiator is blocked in rpma_cq_wait until it is answered, the"
        " libraries' threads may use any CPU; one way", "us", ("write-oneway", "--free", "--signal", "32"), RAW_BUSY, HALF_BUSY,
        0.5, ("<=", 1.5)),
    Row("write-unsignalled", "write-spin against the same with every write signalled: not slower, 10 % left for noise", "us",
        ("write-pingpong", "--signal", "32"), ("write-pingpong", "--signal", "1"), "every write signalled", 1.0, ("<=", 1.1)),
    Row("send-sleep", "8 B send/recv, both asleep in rpma_cq_wait, half round trip", "us", ("send-pingpong", "--sleep"),
        ("raw-pingpong", "--sleep"), "half round trip of raw TCP, both in blocking recv", 0.5, ("<=", 1.4)),
    Row("write-rate", "8 B writes, one signalled in 16, until all are visible", "M/s", ("write-rate", "--signal", "16"),
        ("raw-rate",), "raw TCP, one send() for each FPDU of such a write (28 B)", 1.0, (">=", 5), 3),
    Row("write-rate-64", "8 B writes, one signalled in 64, until all are visible", "M/s", ("write-rate", "--signal", "64"),
        ("raw-rate",), "raw TCP, one send() for each FPDU of such a write (28 B)", 1.0, (">=", 5), 3),
    Row("write-flush", "8 B write and flush to visibility, polling", "us", (perf.PERF, "write-flush", "8"), RAW_BUSY,
        "round trip of raw TCP, both busy", 1.0, ("<=", 1.25)),
    Row("send-poll", "8 B send/recv, both polling, half round trip", "us", ("send-pingpong",), RAW_BUSY, HALF_BUSY, 0.5, ("<=", 1.2)),
    Row("srq-64", "8 B send/recv round on one of 64 connections with one shared receive queue, both polling", "us",
        ("srq-pingpong", "--conns", "64"), ("srq-pingpong", "--conns", "4"), "the same with 4 connections", 1.0, ("<=", 1.3)),
    Row("syscalls", f"system calls of the target's process for each of {SMALL_WRITES} writes of 64 B, its application asleep",
        "a write", None, target=("<=", 0.15), digits=4),
    Row("idle-1000", f"CPU time (utime+stime) of both processes of 1,000 idle connections in {IDLE_WINDOW_S} s", "ticks", None,
        target=("<=", 1), digits=0),
    bandwidth("write", "4KiB", 4 << 10), bandwidth("write", "64KiB", 64 << 10), bandwidth("write", "1MiB", 1 << 20),
    bandwidth("read", "4KiB", 4 << 10), bandwidth("read", "64KiB", 64 << 10), bandwidth("read", "1MiB", 1 << 20),
]


def beside_peers(link):
    """The peers have their data in their own shared memory, where they copy themselves; here it may be any memory, unless `link`
    is in_memfds."""
    row = {row.name: link(row) for row in ON_ONE_HOST if row.program}
    return [beside_ucx(row["write-spin"], "ucp_put_lat"), beside_ucx(row["send-poll"], "tag_lat"), beside_fabric(row["send-poll"]),
            beside_ucx(row["write-64KiB"], "ucp_put_bw", 64 << 10), beside_ucx(row["read-64KiB"], "ucp_get", 64 << 10)]


def roce_stream(kind, label, size, target):
    """Beside the same packets without a library, and beside the same operations over iWARP."""
    program = (f"{kind}-stream", "--size", str(size))
    what = f"{kind}s of {label}; over RoCE"
    return [
        Row(f"roce-{kind}-{label}", what, "GB/s", program, ("udp-stream", "--size", str(size)),
            "UDP with UDP_SEGMENT and UDP_GRO, ICRCs and ACKs, messages of this size", 1.0, target, 2, TCP, ROCE),
        Row(f"roce-iwarp-{kind}-{label}", what, "GB/s", program, program, "over iWARP, by TCP", 1.0, (">=", 1), 2, TCP, ROCE),
    ]


OVER_ROCE = [
    *roce_stream("write", "1MiB", 1 << 20, (">=", 0.8)), *roce_stream("read", "1MiB", 1 << 20, (">=", 0.8)),
    Row("roce-write-asleep", "8 B write until its completion, polled, the target's program asleep; over RoCE", "us",
        ("write-completion", "--sleep"), ("udp-pingpong", "--sleep"),
        "round trip of UDP, the same lengths, initiator busy, target in blocking recv", 1.0, ("<=", 1.3), 2, TCP, ROCE),
    Row("roce-write-polling", "the same, the target's program polls", "us", ("write-completion",), ("udp-pingpong",),
        "round trip of UDP, the same lengths, both busy", 1.0, ("<=", 1.5), 2, TCP, ROCE),
    Row("roce-write-rate", "8 B writes, 64 in flight, all signalled; over RoCE", "M/s", ("write-depth", "--depth", "64"), ("udp-rate",),
        "UDP, one send() for each packet of such a write, 64 in flight", 1.0, (">=", 4), 3, TCP, ROCE),
]


def local_over_roce(row):
    """Two processes of one host over RoCE, beside the same operations over iWARP: both share memory."""
    target = ("<=" if row.unit == "us" else ">=", 1)
    return Row(f"roce-local-{row.name}", f"{row.what}; over RoCE, on one host", row.unit, row.program, row.program,
               "over iWARP, on one host, too", 1.0, target, row.digits, None, ROCE)


LOCAL_OVER_ROCE = ("write-spin", "send-poll", "send-sleep", "write-rate", "write-flush", "write-4KiB", "write-1MiB", "read-1MiB")


ROWS = [
    *ON_ONE_HOST,
    *(over_tcp(row) for row in ON_ONE_HOST
      if row.name in ("write-spin", "write-core-free", "send-sleep", "write-rate", "write-rate-64", "write-flush", "send-poll", "syscalls")),
    Row("tcp-switches", "context switches of an initiator that polls for write-flush, all threads; over TCP", "a second", ("switches",),
        target=("<=", 3500), digits=0, settings=TCP),
    over_tcp(bandwidth("write", "4KiB", 4 << 10, (">=", 2))), over_tcp(bandwidth("write", "64KiB", 64 << 10, (">=", 1))),
    over_tcp(bandwidth("write", "1MiB", 1 << 20, (">=", 0.95))), over_tcp(bandwidth("read", "4KiB", 4 << 10)),
    over_tcp(bandwidth("read", "64KiB", 64 << 10, (">=", 0.9))), over_tcp(bandwidth("read", "1MiB", 1 << 20, (">=", 0.9))),
    Row("tcp-read-depth", "8 B reads, 16 in flight; over TCP", "M/s", ("read-rate", "--depth", "16"), ("read-rate", "--depth", "1"),
        "one at a time", 1.0, (">=", 4), 3, TCP),
    *OVER_ROCE,
    *(local_over_roce(row) for row in ON_ONE_HOST if row.name in LOCAL_OVER_ROCE),
    Row("tcp-connect", "connect, established at both ends, disconnect; over TCP", "us", ("connect-cycle",), ("raw-connect",),
        "TCP connect, accept, a byte each way, close", 1.0, ("<=", 2.5), 1, TCP),
    Row("tcp-streams", "writes of 64KiB on 4 connections, 4 in flight on each; over TCP", "GB/s",
        ("write-streams", "--conns", "4", "--depth", "4", "--size", str(64 << 10)),
        ("write-streams", "--conns", "1", "--depth", "4", "--size", str(64 << 10)), "on one connection", 1.0, (">=", 0.9), 2, TCP),
    Row("tcp-flood", "8 B send/recv round, both asleep in rpma_cq_wait, beside 4 connections to the same process that are flooded with aligned"
        " 8 B writes; over TCP", "us", ("flooded-pingpong", "--sleep", "--conns", "5"), ("flooded-pingpong", "--sleep", "--conns", "1"),
        "the same without the flood", 1.0, ("<=", 5), 1, TCP),
    Row("ring-flood", "tcp-flood, over memory that both share, without direct copies", "us",
        ("flooded-pingpong", "--sleep", "--conns", "5"), ("flooded-pingpong", "--sleep", "--conns", "1"),
        "the same without the flood", 1.0, ("<=", 5), 1, {"SOFTVERBS_LOCAL": "ring"}),
    Row("tcp-crc", "writes of 64KiB with SOFTVERBS_CRC=1; over TCP", "GB/s", ("write-stream", "--size", str(64 << 10)),
        ("write-stream", "--size", str(64 << 10)), "without CRC", 1.0, (">=", 0.6), 2, TCP, CRC),
    *(Row(f"vm-{kind}-8", f"8 B {kind}, its completion polled", "us", (perf.PERF, kind, "8"), (f"vm-{kind}-guarded",),
          f"one process_vm_{kind}v of 8 B and of a guard page", 1.0, ("<=", 1.15)) for kind in ("write", "read")),
    Row("vm-write-spin", "write-spin", "us", ("write-pingpong", "--signal", "32"), ("vm-write",), "one process_vm_writev of 8 B", 1.0,
        ("<=", 1.5)),
    Row("vm-write-burst", "one of 64 8 B writes that are posted together, until they have completed", "us",
        ("write-burst", "--signal", "64"), ("vm-write",), "one process_vm_writev of 8 B", 1.0, ("<=", 0.45)),
    beside_kernel("write", "64KiB", 64 << 10), beside_kernel("write", "1MiB", 1 << 20),
    beside_kernel("read", "64KiB", 64 << 10), beside_kernel("read", "1MiB", 1 << 20),
    *(in_memfds(Row(f"{kind}-8", f"8 B {kind}, its completion polled", "us", (perf.PERF, kind, "8"), (f"vm-{kind}",),
                    f"one process_vm_{kind}v of 8 B", 1.0, ("<=", 0.5))) for kind in ("write", "read")),
    *(beside_memcpy(kind, label, size) for kind in ("write", "read") for label, size in (("64KiB", 64 << 10), ("1MiB", 1 << 20))),
    Row("shm-send-poll", "send-poll", "us", ("send-pingpong",), ("shm-pingpong",), "half a ping-pong in shared memory, both spin", 0.5,
        ("<=", 2)),
    Row("eventfd-send-sleep", "send-sleep", "us", ("send-pingpong", "--sleep"), ("eventfd-pingpong",),
        "half a ping-pong of two eventfds, both asleep", 0.5, ("<=", 1.2)),
    Row("target-cpu", "CPU time of the target's process for each read or write of 64 B that its program takes no part in", "ns",
        ("target-cpu", "--size", "64"), target=("<=", 10), digits=0),
    Row("first-write", "a process's first connection, from rpma_conn_req_new to the completion of its first write", "us",
        ("first-write",), ("raw-connect",), "TCP connect, accept, a byte each way, close", 1.0, ("<=", 12), 0),
    Row("conns-1000", "send-poll with 1,000 connections open", "us", ("send-pingpong", "--conns", "1000"), ("send-pingpong",),
        "with one connection open", 1.0, ("<=", 1.2)),
    Row("memory-1000", "resident memory of an idle connection, 1,000 of them, at the side that needs more", "KiB", None,
        target=("<=", 64), digits=1),
    as_original("write-spin", "write-spin, this library on soft", "us", ("write-pingpong", "--signal", "32")),
    as_original("write-flush", "write-flush, this library on soft", "us", (perf.PERF, "write-flush", "8")),
    as_original("write-rate", "write-rate, this library on soft", "M/s", ("write-rate", "--signal", "16"), 3),
    as_original("send-poll", "send-poll, this library on soft", "us", ("send-pingpong",)),
    as_original("send-sleep", "send-sleep, this library on soft", "us", ("send-pingpong", "--sleep")),
    as_original("write-64KiB", "write-64KiB, this library on soft", "GB/s", ("write-stream", "--size", str(64 << 10))),
    as_original("read-64KiB", "read-64KiB, this library on soft", "GB/s", ("read-stream", "--size", str(64 << 10))),
    perftest("write"), perftest("read"),
    Row("start-up", "start and end of /bin/true with libsoftverbs.so preloaded", "us", ("start-up", "--preload", others.SOFTVERBS),
        ("start-up",), "/bin/true alone", 1.0, ("<=", 3), 0),
    *beside_peers(lambda row: row), *beside_peers(in_memfds), *beside_peers(over_tcp),
]
