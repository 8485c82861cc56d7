/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Arguments that are NULL, zero or out of range: endpoints, requests, connections, operations, completion
 * queues.
 */

#include "arguments.h"

#define PERSISTENT V(RPMA_FLUSH_TYPE_PERSISTENT)
#define VISIBILITY V(RPMA_FLUSH_TYPE_VISIBILITY)
#define YES V(ALWAYS)
#define NO_FLAGS V(0)
#define EIGHT V("1234567")

/* The same for all operations with a range. */
#define ONE_SIDED(conn, local, local_offset, remote, remote_offset, len, flags) \
	REFUSED(rpma_read, conn, local, local_offset, remote, remote_offset, len, flags, TOKEN), \
	REFUSED(rpma_write, conn, remote, remote_offset, local, local_offset, len, flags, TOKEN), \
	REFUSED(rpma_write_with_imm, conn, remote, remote_offset, local, local_offset, len, flags, V(1), TOKEN)
#define SENDS(conn, local, offset, len, flags) \
	REFUSED(rpma_send, conn, local, offset, len, flags, TOKEN), \
	REFUSED(rpma_send_with_imm, conn, local, offset, len, flags, V(1), TOKEN)
#define UNALIGNED(offset) \
	REFUSED(rpma_atomic_write, CONN, REMOTE, V(offset), EIGHT, YES, TOKEN), \
	REFUSED(rpma_atomic_write, CONN, REMOTE, V(0x1000 + (offset)), EIGHT, YES, TOKEN)

/* Invalid private data. */
static char byte = 'x';
static const struct rpma_conn_private_data no_ptr = {NULL, 1}, no_len = {&byte, 0}, neither = {NULL, 0};

/*
 * A request is consumed even if other arguments are invalid: an outgoing one is deleted, an incoming one
 * rejected. The original does not destroy the id of an incoming one (../../differential/differences.tsv).
 */
#define DELETED "rdma_destroy_qp(id3)\nibv_destroy_cq(cq2)\nibv_destroy_comp_channel(chan2)\nrdma_destroy_id(id3)"
#define REJECTED "rdma_destroy_qp(id4)\nibv_destroy_cq(cq3)\nibv_destroy_comp_channel(chan3)\n" \
	"rdma_reject(id4, NULL, 0)"
#define USES_UP(pdata, out) \
	{ROW("rpma_conn_req_connect", rpma_conn_req_connect, V(&a_req), pdata, out), .calls = DELETED, \
		.consumed = (void **)&a_req}, \
	{ROW("rpma_conn_req_connect", rpma_conn_req_connect, V(&a_incoming), pdata, out), .library = OURS, \
		.calls = REJECTED "\nrdma_destroy_id(id4)\nrdma_destroy_event_channel(evch3)", .consumed = (void **)&a_incoming}, \
	{ROW("rpma_conn_req_connect", rpma_conn_req_connect, V(&a_incoming), pdata, out), .library = ORIGINAL, \
		.calls = REJECTED, .consumed = (void **)&a_incoming}

static const struct row rows[] = {
	/* ---- endpoints ---- */
	REFUSED(rpma_ep_listen, NIL, V(ADDR), V(PORT), OUT),
	REFUSED(rpma_ep_listen, PEER, NIL, V(PORT), OUT),
	REFUSED(rpma_ep_listen, PEER, V(ADDR), NIL, OUT),
	REFUSED(rpma_ep_listen, PEER, V(ADDR), V(PORT), NIL),
	REFUSED(rpma_ep_listen, NIL, NIL, NIL, NIL),
	DELETES_NOTHING(rpma_ep_shutdown),
	TWO_POINTERS(rpma_ep_get_fd, EP),
	REFUSED(rpma_ep_next_conn_req, NIL, CFG, OUT),
	REFUSED(rpma_ep_next_conn_req, NIL, NIL, OUT),
	REFUSED(rpma_ep_next_conn_req, EP, CFG, NIL),
	REFUSED(rpma_ep_next_conn_req, EP, NIL, NIL),
	REFUSED(rpma_ep_next_conn_req, NIL, NIL, NIL),

	/* ---- requests ---- */
	REFUSED(rpma_conn_req_new, NIL, V(ADDR), V(PORT), CFG, OUT),
	REFUSED(rpma_conn_req_new, PEER, NIL, V(PORT), CFG, OUT),
	REFUSED(rpma_conn_req_new, PEER, V(ADDR), NIL, CFG, OUT),
	REFUSED(rpma_conn_req_new, PEER, V(ADDR), V(PORT), CFG, NIL),
	REFUSED(rpma_conn_req_new, NIL, V(ADDR), V(PORT), NIL, OUT),
	REFUSED(rpma_conn_req_new, PEER, NIL, V(PORT), NIL, OUT),
	REFUSED(rpma_conn_req_new, PEER, V(ADDR), NIL, NIL, OUT),
	REFUSED(rpma_conn_req_new, PEER, V(ADDR), V(PORT), NIL, NIL),
	REFUSED(rpma_conn_req_new, NIL, NIL, NIL, NIL, NIL),
	DELETES_NOTHING(rpma_conn_req_delete),
	REFUSED(rpma_conn_req_connect, NIL, NIL, OUT),
	REFUSED(rpma_conn_req_connect, NONE, NIL, OUT),
	REFUSED(rpma_conn_req_connect, NONE, V(&neither), OUT),
	REFUSED(rpma_conn_req_connect, NIL, NIL, NIL),
	REFUSED(rpma_conn_req_connect, NONE, NIL, NIL),
	USES_UP(V(&no_ptr), OUT),
	USES_UP(V(&no_len), OUT),
	USES_UP(V(&neither), OUT),
	USES_UP(NIL, NIL),
	REFUSED(rpma_conn_req_recv, NIL, MR, V(0), V(8), TOKEN),
	REFUSED(rpma_conn_req_recv, REQ, NIL, V(0), V(8), TOKEN),
	REFUSED(rpma_conn_req_recv, REQ, NIL, V(0), V(0), TOKEN),
	REFUSED(rpma_conn_req_recv, NIL, MR, V(0), V(64), TOKEN),
	REFUSED(rpma_conn_req_recv, REQ, NIL, V(0), V(64), TOKEN),
	REFUSED(rpma_conn_req_recv, NIL, NIL, V(0), V(0), TOKEN),
	TWO_POINTERS(rpma_conn_req_get_private_data, REQ),
	REFUSED(rpma_conn_req_get_private_data, INCOMING, NIL),

	/* ---- connections ---- */
	TWO_POINTERS(rpma_conn_get_event_fd, CONN),
	TWO_POINTERS(rpma_conn_next_event, CONN),
	TWO_POINTERS(rpma_conn_get_private_data, CONN),
	REFUSED(rpma_conn_apply_remote_peer_cfg, NIL, PCFG),
	REFUSED(rpma_conn_apply_remote_peer_cfg, CONN, NIL),
	REFUSED(rpma_conn_apply_remote_peer_cfg, NIL, NIL),
	REFUSED(rpma_conn_disconnect, NIL),
	DELETES_NOTHING(rpma_conn_delete),
	TWO_POINTERS(rpma_conn_get_qp_num, CONN),
	TWO_POINTERS(rpma_conn_get_cq, CONN),
	TWO_POINTERS(rpma_conn_get_rcq, CONN),
	/* pointers are checked before RPMA_E_NOT_SHARED_CHNL, which this connection would return */
	TWO_POINTERS(rpma_conn_get_compl_fd, CONN),
	TWO_POINTERS(rpma_conn_get_compl_fd, SHARED),
	REFUSED(rpma_conn_wait, NIL, V(0), OUT, OUT),
	REFUSED(rpma_conn_wait, NIL, V(0), OUT, NIL),
	REFUSED(rpma_conn_wait, CONN, V(0), NIL, OUT),
	REFUSED(rpma_conn_wait, SHARED, V(0), NIL, OUT),
	REFUSED(rpma_conn_wait, NIL, V(0), NIL, NIL),

	/*
	 * ---- operations: no connection, no flags, one region without the other, no region but a length ----
	 */
	ONE_SIDED(NIL, MR, V(1), REMOTE, V(2), V(3), YES),
	ONE_SIDED(CONN, MR, V(1), REMOTE, V(2), V(3), NO_FLAGS),
	ONE_SIDED(CONN, NIL, V(1), REMOTE, V(2), V(3), YES),
	ONE_SIDED(CONN, MR, V(1), NIL, V(2), V(3), YES),
	ONE_SIDED(CONN, NIL, V(0), REMOTE, V(0), V(0), YES),
	ONE_SIDED(CONN, MR, V(0), NIL, V(0), V(0), YES),
	ONE_SIDED(CONN, NIL, V(1), NIL, V(0), V(0), YES),
	ONE_SIDED(CONN, NIL, V(0), NIL, V(1), V(0), YES),
	ONE_SIDED(CONN, NIL, V(0), NIL, V(0), V(1), YES),
	ONE_SIDED(CONN, NIL, V(0), NIL, V(0), V(0), NO_FLAGS),
	ONE_SIDED(NIL, MR, V(0), REMOTE, V(0), V(8), YES),
	ONE_SIDED(CONN, NIL, V(0), REMOTE, V(0), V(8), YES),
	ONE_SIDED(CONN, MR, V(0), NIL, V(0), V(8), YES),
	ONE_SIDED(CONN, MR, V(0), REMOTE, V(0), V(8), NO_FLAGS),
	ONE_SIDED(CONN, NIL, V(0), NIL, V(0), V(8), YES),
	ONE_SIDED(NIL, NIL, V(0), NIL, V(0), V(0), NO_FLAGS),
	REFUSED(rpma_atomic_write, NIL, REMOTE, V(0), EIGHT, YES, TOKEN),
	REFUSED(rpma_atomic_write, CONN, NIL, V(0), EIGHT, YES, TOKEN),
	REFUSED(rpma_atomic_write, CONN, REMOTE, V(0), NIL, YES, TOKEN),
	REFUSED(rpma_atomic_write, CONN, REMOTE, V(0), EIGHT, NO_FLAGS, TOKEN),
	REFUSED(rpma_atomic_write, NIL, NIL, V(0), NIL, NO_FLAGS, NIL),
	UNALIGNED(1), UNALIGNED(2), UNALIGNED(3), UNALIGNED(4), UNALIGNED(5), UNALIGNED(6), UNALIGNED(7),
	/* flags are checked before the usage of the region */
	REFUSED(rpma_flush, NIL, REMOTE, V(0), V(8), VISIBILITY, YES, TOKEN),
	REFUSED(rpma_flush, NIL, PLAIN, V(0), V(8), PERSISTENT, YES, TOKEN),
	REFUSED(rpma_flush, CONN, NIL, V(0), V(8), VISIBILITY, YES, TOKEN),
	REFUSED(rpma_flush, CONN, NIL, V(0), V(8), PERSISTENT, YES, TOKEN),
	REFUSED(rpma_flush, CONN, REMOTE, V(0), V(8), VISIBILITY, NO_FLAGS, TOKEN),
	REFUSED(rpma_flush, CONN, REMOTE, V(0), V(8), PERSISTENT, NO_FLAGS, TOKEN),
	REFUSED(rpma_flush, CONN, PLAIN, V(0), V(8), VISIBILITY, NO_FLAGS, TOKEN),
	REFUSED(rpma_flush, CONN, PLAIN, V(0), V(8), PERSISTENT, NO_FLAGS, TOKEN),
	REFUSED(rpma_flush, NIL, NIL, V(0), V(0), PERSISTENT, NO_FLAGS, NIL),
	SENDS(NIL, MR, V(0), V(8), YES),
	SENDS(CONN, MR, V(0), V(8), NO_FLAGS),
	SENDS(CONN, NIL, V(1), V(0), YES),
	SENDS(CONN, NIL, V(0), V(1), YES),
	SENDS(CONN, NIL, V(8), V(0), YES),
	SENDS(CONN, NIL, V(0), V(8), YES),
	SENDS(CONN, NIL, V(0), V(0), NO_FLAGS),
	SENDS(NIL, NIL, V(0), V(0), NO_FLAGS),
	REFUSED(rpma_recv, NIL, MR, V(0), V(8), TOKEN),
	REFUSED(rpma_recv, NIL, NIL, V(0), V(0), TOKEN),
	REFUSED(rpma_recv, CONN, NIL, V(1), V(0), TOKEN),
	REFUSED(rpma_recv, CONN, NIL, V(0), V(1), TOKEN),
	REFUSED(rpma_recv, CONN, NIL, V(8), V(0), TOKEN),
	REFUSED(rpma_recv, CONN, NIL, V(0), V(8), TOKEN),

	/* ---- completion queues ---- */
	TWO_POINTERS(rpma_cq_get_fd, CQ),
	REFUSED(rpma_cq_wait, NIL),
	REFUSED(rpma_cq_get_wc, NIL, V(1), OUT, OUT),
	REFUSED(rpma_cq_get_wc, CQ, V(0), OUT, OUT),
	REFUSED(rpma_cq_get_wc, CQ, V(-1), OUT, OUT),
	REFUSED(rpma_cq_get_wc, CQ, V(INT32_MIN), OUT, OUT),
	REFUSED(rpma_cq_get_wc, CQ, V(1), NIL, OUT),
	/* the number of entries is optional for one entry only */
	REFUSED(rpma_cq_get_wc, CQ, V(2), OUT, NIL),
	REFUSED(rpma_cq_get_wc, CQ, V(INT32_MAX), OUT, NIL),
	REFUSED(rpma_cq_get_wc, NIL, V(0), NIL, NIL),
};

int main(void)
{
	return RUN_ROWS("arguments-connections", RPMA_CONNECTION_FUNCTIONS, rows);
}
