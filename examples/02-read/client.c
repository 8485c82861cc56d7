/* SPDX-License-Identifier: BSD-3-Clause */
/* 02-read, client: reads a page of the server's memory. */
#include "common.h"

#define SEED 2

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_conn_private_data pdata;
	struct rpma_mr_remote *src = NULL;
	struct rpma_mr_local *dst = NULL;
	struct rpma_cq *cq = NULL;
	struct ibv_wc wc;
	size_t size;
	int ret;

	CHECK(rpma_conn_req_new(peer, args.addr, args.port, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);

	/* the server's private data are the descriptor of its memory region */
	CHECK(rpma_conn_get_private_data(conn, &pdata));
	REQUIRE(pdata.ptr != NULL, "the server sent no descriptor");
	CHECK(rpma_mr_remote_from_descriptor(pdata.ptr, pdata.len, &src));
	CHECK(rpma_mr_remote_get_size(src, &size));

	/* a read needs a registered destination buffer with the corresponding usage */
	void *page = alloc_pages(size);
	CHECK(rpma_mr_reg(peer, page, size, RPMA_MR_USAGE_READ_DST, &dst));

	/* the last argument is returned in the completion and identifies the operation */
	CHECK(rpma_read(conn, dst, 0, src, 0, size, RPMA_F_COMPLETION_ALWAYS, page));

	/*
	 * How to wait for a completion: poll first, wait only if there is none, then poll again. An
	 * event does not guarantee a completion, and one event may stand for several.
	 */
	CHECK(rpma_conn_get_cq(conn, &cq));
	while ((ret = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION)
		CHECK(rpma_cq_wait(cq));
	CHECK(ret);

	REQUIRE(wc.wr_id == (uintptr_t)page, "a completion of another operation");
	REQUIRE(wc.status == IBV_WC_SUCCESS, "the read failed: enum ibv_wc_status %d", wc.status);
	REQUIRE(wc.opcode == IBV_WC_RDMA_READ, "not a read: enum ibv_wc_opcode %d", wc.opcode);

	/* the data may be used only now */
	check_pattern(page, size, SEED, "the page that was read");

	CHECK(rpma_conn_disconnect(conn));
	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_mr_remote_delete(&src));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_mr_dereg(&dst));
	free_pages(page, size);
	CHECK(rpma_peer_delete(&peer));

	verified("%zu bytes read from the server's memory", size);
	return 0;
}
