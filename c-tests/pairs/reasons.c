/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reasons.c -- rpma_err_last after a failed completion or event: the operation, its length and addresses,
 * wr_id, the peer's address and the name of the status.
 */
#include "link.h"

#include <stdio.h>
#include <string.h>

#define SIZE 4096
#define OP_CONTEXT ((void *)0x77)

/* rpma_err_last() of this thread begins with `begin` and contains each of the other texts, up to NULL. */
#define EXPECT_REASON(begin, ...) expect_reason((begin), (const char *const[]){__VA_ARGS__, NULL}, __LINE__)

static void
expect_reason(const char *begin, const char *const parts[], int line)
{
	const char *text = rpma_err_last();

	EXPECT(strncmp(text, begin, strlen(begin)) == 0, "line %d: not \"%s\": %s", line, begin, text);
	for (; *parts != NULL; parts++)
		EXPECT(strstr(text, *parts) != NULL, "line %d: no \"%s\" in: %s", line, *parts, text);
}

/* ---- completions ---- */

static void
reasons_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	open_target(&node, side);
	region_new(&node, &region, SIZE, USAGE_ALL);
	for (unsigned i = 0; i < 3; i++) {
		accept_link(&node, &link, NULL, &region);
		expect_broken(&link);
		/* the request of the peer that was refused, and the reason */
		if (i == 1)
			EXPECT_REASON("rpma_conn_next_event: Connection closed: ", side->addr, "RDMA read from the remote peer, 8 bytes at 0x", "key 0x",
				"the range is not in the memory region");
		delete_link(&link);
	}
	close_with_region(&node, &region);
}

static void
await_failure(struct link *link, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	next_wc(link->cq, &wc);
	EXPECT(wc.status == status && wc.wr_id == 0x77, "status %d of %llx", wc.status, (unsigned long long)wc.wr_id);
}

static void
reasons_initiator(struct side *side)
{
	char from[64], port[32];
	struct region local;
	struct node node;
	struct link link;
	struct ibv_wc wc;

	open_initiator(&node, side);
	region_new(&node, &local, SIZE, USAGE_ALL);
	/* over RoCE all queue pairs have the same UDP port, and a number */
	snprintf(port, sizeof(port), ":%s", over_roce() ? "4791 (queue pair " : side->port);

	/* a local range past the end of its region; then the request that is flushed after it */
	connect_link(&node, &link, NULL, NULL);
	OK(rpma_write(link.conn, link.remote, 64, local.mr, SIZE - 8, 32, RPMA_F_COMPLETION_ALWAYS, OP_CONTEXT));
	OK(rpma_send(link.conn, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, (void *)0x78));
	await_failure(&link, IBV_WC_LOC_PROT_ERR);
	snprintf(from, sizeof(from), "local address %p", (void *)(local.ptr + SIZE - 8));
	EXPECT_REASON("rpma_cq_get_wc: ", side->addr, port, ": RDMA write, 32 bytes, ", from, "lkey 0x", "remote address 0x", "rkey 0x", "wr_id 0x77",
		"local protection error (IBV_WC_LOC_PROT_ERR)");
	next_wc(link.cq, &wc);
	EXPECT(wc.status == IBV_WC_WR_FLUSH_ERR, "%d", wc.status);
	EXPECT_REASON("rpma_cq_get_wc: work request with wr_id 0x78 failed: work request flushed (IBV_WC_WR_FLUSH_ERR); ", side->addr,
		"RDMA write, 32 bytes", "wr_id 0x77");
	end_broken(&link);
	EXPECT_REASON("rpma_conn_next_event: Connection closed: ", side->addr, "RDMA write, 32 bytes", "IBV_WC_LOC_PROT_ERR");
	delete_link(&link);

	/* a read that the target refuses */
	connect_link(&node, &link, NULL, NULL);
	OK(rpma_read(link.conn, local.mr, 0, link.remote, SIZE, 8, RPMA_F_COMPLETION_ALWAYS, OP_CONTEXT));
	await_failure(&link, IBV_WC_REM_ACCESS_ERR);
	EXPECT_REASON("rpma_cq_get_wc: ", side->addr, ": RDMA read, 8 bytes, ", "wr_id 0x77", "remote access error (IBV_WC_REM_ACCESS_ERR)",
		over_roce() ? "" : "the remote peer ended the connection: ");
	end_broken(&link);
	delete_link(&link);

	/* there is no reason for a connection that a side has closed */
	RETURNS(RPMA_E_INVAL, rpma_conn_delete(NULL));
	connect_link(&node, &link, NULL, NULL);
	end_link(&link);
	EXPECT_REASON("rpma_conn_delete: conn_ptr is NULL", "");
	close_with_region(&node, &local);
}

/* ---- failed connection attempts ---- */

static void
no_listener_initiator(struct side *side)
{
	struct rpma_conn_req *req;
	struct node node;
	struct link link;

	open_peer(&node, side);
	req = new_req(&node, NULL);
	start_link(&link, &req, NULL);
	expect_event(&link, RPMA_CONN_REJECTED);
	EXPECT_REASON("rpma_conn_next_event: Connection rejected: ", side->addr, side->port,
		over_roce() ? "no program listens on this port of rdma_cm" : "nothing accepts TCP connections at ");
	delete_link(&link);
	close_node(&node);
}

static void
no_listener_target(struct side *side)
{
	(void)side;
}

static void
rejecting_target(struct side *side)
{
	struct rpma_conn_req *req;
	struct node node;

	open_target(&node, side);
	req = next_req(&node, NULL);
	OK(rpma_conn_req_delete(&req));
	close_node(&node);
}

static void
rejected_initiator(struct side *side)
{
	struct rpma_conn_req *req;
	struct node node;
	struct link link;

	open_initiator(&node, side);
	req = new_req(&node, NULL);
	start_link(&link, &req, NULL);
	expect_event(&link, RPMA_CONN_REJECTED);
	EXPECT_REASON("rpma_conn_next_event: Connection rejected: ", side->addr, side->port,
		over_roce() ? " rejected the connection: 28 (consumer reject)" : "did not accept the connection");
	delete_link(&link);
	close_node(&node);
}

const struct test reasons_tests[] = {
	{"reasons-of-completions", reasons_target, reasons_initiator, .missing = not_soft},
	{"reasons-nobody-listens", no_listener_target, no_listener_initiator, .missing = not_soft},
	{"reasons-rejected", rejecting_target, rejected_initiator, .missing = not_soft},
	{.name = NULL},
};
