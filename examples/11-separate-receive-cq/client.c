/* SPDX-License-Identifier: BSD-3-Clause */
/* 11-separate-receive-cq, client: sends requests and receives replies, each with its own completion queue. */
#include "common.h"

#define ROUNDS 20
#define MESSAGE_SIZE 256
#define REQUEST_SEED 1100
#define REPLY_SEED 1150

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	struct rpma_conn_cfg *cfg = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_mr_local *in_mr = NULL;
	struct rpma_mr_local *out_mr = NULL;
	struct rpma_cq *cq = NULL;
	struct rpma_cq *rcq = NULL;

	char *in = alloc_pages(MESSAGE_SIZE);
	char *out = alloc_pages(MESSAGE_SIZE);
	CHECK(rpma_mr_reg(peer, in, MESSAGE_SIZE, RPMA_MR_USAGE_RECV, &in_mr));
	CHECK(rpma_mr_reg(peer, out, MESSAGE_SIZE, RPMA_MR_USAGE_SEND, &out_mr));

	CHECK(rpma_conn_cfg_new(&cfg));
	CHECK(rpma_conn_cfg_set_rcq_size(cfg, 10));
	CHECK(rpma_conn_req_new(peer, args.addr, args.port, cfg, &req));
	CHECK(rpma_conn_cfg_delete(&cfg));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);

	CHECK(rpma_conn_get_cq(conn, &cq));
	CHECK(rpma_conn_get_rcq(conn, &rcq));
	REQUIRE(rcq != NULL && rcq != cq, "there is no separate receive CQ");

	for (uint32_t i = 0; i < ROUNDS; i++) {
		CHECK(rpma_recv(conn, in_mr, 0, MESSAGE_SIZE, in));
		fill_pattern(out, MESSAGE_SIZE, REQUEST_SEED + i);
		CHECK(rpma_send(conn, out_mr, 0, MESSAGE_SIZE, RPMA_F_COMPLETION_ALWAYS, out));

		/*
		 * compare with 07: completions need not be distinguished, and each queue can be waited for on
		 * its own
		 */
		wait_success(rcq, in, IBV_WC_RECV);
		check_pattern(in, MESSAGE_SIZE, REPLY_SEED + i, "a reply");
		wait_success(cq, out, IBV_WC_SEND);
	}

	CHECK(rpma_conn_disconnect(conn));
	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_mr_dereg(&out_mr));
	CHECK(rpma_mr_dereg(&in_mr));
	free_pages(out, MESSAGE_SIZE);
	free_pages(in, MESSAGE_SIZE);
	CHECK(rpma_peer_delete(&peer));

	verified("%d requests of %d bytes sent, every reply correct", ROUNDS, MESSAGE_SIZE);
	return 0;
}
