# SPDX-License-Identifier: BSD-3-Clause
"""The C library: its declarations, and what every call of it has in common."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cffi

from ._errors import RpmaError

DECLARATIONS = """
struct rpma_conn_private_data { void *ptr; uint8_t len; };
struct ibv_wc {
    uint64_t wr_id; int status; int opcode; uint32_t vendor_err; uint32_t byte_len; uint32_t imm_data;
    uint32_t qp_num; uint32_t src_qp; unsigned int wc_flags; uint16_t pkey_index; uint16_t slid;
    uint8_t sl; uint8_t dlid_path_bits;
};
struct ibv_device {
    void *ops[2]; int node_type; int transport_type;
    char name[64]; char dev_name[64]; char dev_path[256]; char ibdev_path[256];
};
struct ibv_context { struct ibv_device *device; };  /* and more, behind it */

const char *rpma_err_last(void);
const char *rpma_err_2str(int ret);
const char *rpma_version(void);
int rpma_utils_get_ibv_context(const char *addr, int type, struct ibv_context **ctx);
int rpma_peer_new(struct ibv_context *ctx, struct rpma_peer **peer);
int rpma_peer_delete(struct rpma_peer **peer);
int rpma_mr_reg(struct rpma_peer *peer, void *ptr, size_t size, int usage, struct rpma_mr_local **mr);
int rpma_mr_dereg(struct rpma_mr_local **mr);
int rpma_mr_get_descriptor(const struct rpma_mr_local *mr, void *desc);
int rpma_mr_remote_from_descriptor(const void *desc, size_t size, struct rpma_mr_remote **mr);
int rpma_mr_remote_delete(struct rpma_mr_remote **mr);
int rpma_peer_cfg_from_descriptor(const void *desc, size_t size, struct rpma_peer_cfg **cfg);
int rpma_peer_cfg_delete(struct rpma_peer_cfg **cfg);
int rpma_conn_apply_remote_peer_cfg(struct rpma_conn *conn, const struct rpma_peer_cfg *cfg);
int rpma_conn_cfg_new(struct rpma_conn_cfg **cfg);
int rpma_conn_cfg_delete(struct rpma_conn_cfg **cfg);
int rpma_conn_cfg_set_timeout(struct rpma_conn_cfg *cfg, int timeout_ms);
int rpma_conn_cfg_set_cq_size(struct rpma_conn_cfg *cfg, uint32_t size);
int rpma_conn_cfg_set_sq_size(struct rpma_conn_cfg *cfg, uint32_t size);
int rpma_conn_cfg_set_rq_size(struct rpma_conn_cfg *cfg, uint32_t size);
int rpma_ep_listen(struct rpma_peer *peer, const char *addr, const char *port, struct rpma_ep **ep);
int rpma_ep_shutdown(struct rpma_ep **ep);
int rpma_ep_next_conn_req(struct rpma_ep *ep, const struct rpma_conn_cfg *cfg, struct rpma_conn_req **req);
int rpma_ep_get_fd(const struct rpma_ep *ep, int *fd);
int rpma_conn_req_new(struct rpma_peer *peer, const char *addr, const char *port, const struct
    rpma_conn_cfg *cfg,
                      struct rpma_conn_req **req);
int rpma_conn_req_delete(struct rpma_conn_req **req);
int rpma_conn_req_connect(struct rpma_conn_req **req, const struct rpma_conn_private_data *data, struct
    rpma_conn **conn);
int rpma_conn_req_get_private_data(const struct rpma_conn_req *req, struct rpma_conn_private_data *data);
int rpma_conn_delete(struct rpma_conn **conn);
int rpma_conn_disconnect(struct rpma_conn *conn);
int rpma_conn_next_event(struct rpma_conn *conn, int *event);
int rpma_conn_get_event_fd(const struct rpma_conn *conn, int *fd);
int rpma_conn_get_private_data(const struct rpma_conn *conn, struct rpma_conn_private_data *data);
int rpma_conn_get_cq(const struct rpma_conn *conn, struct rpma_cq **cq);
int rpma_cq_get_fd(const struct rpma_cq *cq, int *fd);
int rpma_cq_wait(struct rpma_cq *cq);
int rpma_cq_get_wc(struct rpma_cq *cq, int num, struct ibv_wc *wc, int *got);
int rpma_read(struct rpma_conn *conn, struct rpma_mr_local *dst, size_t dst_offset, const struct
    rpma_mr_remote *src,
              size_t src_offset, size_t len, int flags, const void *context);
int rpma_write(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset, const struct
    rpma_mr_local *src,
               size_t src_offset, size_t len, int flags, const void *context);
int rpma_atomic_write(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset, const char
    src[8], int flags,
                      const void *context);
int rpma_flush(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset, size_t len, int
    type, int flags,
               const void *context);
int rpma_send(struct rpma_conn *conn, const struct rpma_mr_local *src, size_t offset, size_t len, int flags,
              const void *context);
int rpma_recv(struct rpma_conn *conn, struct rpma_mr_local *dst, size_t offset, size_t len, const void
    *context);
"""

E_UNKNOWN, E_NOSUPP, E_PROVIDER, E_NOMEM, E_INVAL = -100000, -100001, -100002, -100003, -100004
E_NO_COMPLETION, E_NO_EVENT = -100005, -100006

# Usages of memory, which descriptors have as well.
READ_SRC, READ_DST, WRITE_SRC, WRITE_DST, FLUSH_VISIBLE, FLUSH_PERSISTENT, SEND, RECV = (
    1 << bit for bit in range(8)
)

COMPLETION_ALWAYS = 3
SIZE_OF_DESCRIPTOR = 21
MOST_OF_ONE_OPERATION = 2**32 - 1

# The statuses of a completion that have an exception of their own.
WC_SUCCESS, WC_WR_FLUSH_ERR, WC_REM_ACCESS_ERR, WC_RETRY_EXC_ERR = 0, 5, 10, 12
WC_RECV_RDMA_WITH_IMM = 129

ESTABLISHED, CLOSED, LOST, REJECTED, UNREACHABLE = range(5)


def load() -> Any:
    """The library of this package, or without one that of the system."""
    own = Path(__file__).with_name("_lib") / "librpma.so.0"
    try:
        return ffi.dlopen(str(own) if own.exists() else "librpma.so.0")
    except OSError as error:
        raise ImportError(
            f"rpma: {error}; the wheel contains the library, and make wheel builds it"
        ) from None


ffi: Any = cffi.FFI()
ffi.cdef(DECLARATIONS)
lib: Any = load()


def text(chars: Any) -> str:
    found: bytes = ffi.string(chars)
    return found.decode(errors="replace")


def library_version() -> str:
    """The version of the C library."""
    return text(lib.rpma_version())


def last_reason() -> str:
    """Why the last call of this thread failed."""
    return text(lib.rpma_err_last())


def check(code: int, call: str, kind: type[RpmaError] = RpmaError) -> None:
    """Raises the failure of a call of the library."""
    if code != 0:
        raise kind(call, last_reason() or text(lib.rpma_err_2str(code)), code)


# A child of fork(2) has the objects of its parent, but not the device. Process identifiers do not tell the
# two apart: that of a child may be that of an ancestor that has ended.
_generation = [0]


def _forked() -> None:
    _generation[0] += 1


os.register_at_fork(after_in_child=_forked)


class OfProcess:
    """What belongs to the process that made it."""

    __slots__ = ("_made_in",)

    def __init__(self) -> None:
        self._made_in = _generation[0]

    # A default argument: when the interpreter exits, names of modules may be None.
    def is_inherited(self, generation: list[int] = _generation) -> bool:
        return self._made_in != generation[0]

    def check_process(self, call: str) -> None:
        if self.is_inherited():
            raise RpmaError(call, "the object was made before fork(): make a new Peer in the child", E_INVAL)


class Counted(OfProcess):
    """
    What is deleted once its last user has released it; the first user is who made it.

    References do not tell who is the last: cyclic garbage is finalized in any order. A finalizer may also
    run in a thread that holds any lock, so there is none here: `append` and `pop` are atomic.
    """

    __slots__ = ("_users",)

    def __init__(self, delete: Callable[[], object]) -> None:
        super().__init__()
        self._users: list[Callable[[], object] | None] = [delete]

    def use(self) -> None:
        self._users.append(None)

    def release(self) -> None:
        delete = self._users.pop()
        if delete is not None and not self.is_inherited():
            delete()
