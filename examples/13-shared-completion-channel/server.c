/* SPDX-License-Identifier: BSD-3-Clause */
/* 13-shared-completion-channel, server: waits for two completion queues on one channel. */
#include "common.h"

#define ROUNDS 20
#define MESSAGE_SIZE 256
#define REQUEST_SEED 1300
#define REPLY_SEED 1350

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	struct rpma_conn_cfg *cfg = NULL;
	struct rpma_ep *ep = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_mr_local *in_mr = NULL;
	struct rpma_mr_local *out_mr = NULL;
	struct rpma_cq *main_cq = NULL;
	uint32_t received = 0;
	uint32_t sent = 0;
	int ret;

	/* one buffer per reply: it may be reused only after its completion has been collected */
	char *in = alloc_pages(MESSAGE_SIZE);
	char *out = alloc_pages(ROUNDS * MESSAGE_SIZE);
	CHECK(rpma_mr_reg(peer, in, MESSAGE_SIZE, RPMA_MR_USAGE_RECV, &in_mr));
	CHECK(rpma_mr_reg(peer, out, ROUNDS * MESSAGE_SIZE, RPMA_MR_USAGE_SEND, &out_mr));

	/*
	 * A separate receive CQ, and one channel for both queues. A busy client may keep the loop below at
	 * the receive CQ while send completions accumulate in the main CQ, each of them occupying an entry of
	 * the send queue: both queues have room for all of them.
	 */
	CHECK(rpma_conn_cfg_new(&cfg));
	CHECK(rpma_conn_cfg_set_sq_size(cfg, ROUNDS));
	CHECK(rpma_conn_cfg_set_cq_size(cfg, ROUNDS));
	CHECK(rpma_conn_cfg_set_rcq_size(cfg, 10));
	CHECK(rpma_conn_cfg_set_compl_channel(cfg, true));

	CHECK(rpma_ep_listen(peer, args.addr, args.port, &ep));
	say_listening(&args);
	CHECK(rpma_ep_next_conn_req(ep, cfg, &req));
	CHECK(rpma_conn_cfg_delete(&cfg));
	CHECK(rpma_conn_req_recv(req, in_mr, 0, MESSAGE_SIZE, in));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);

	/* with a shared channel, it is not possible to wait for a single queue */
	CHECK(rpma_conn_get_cq(conn, &main_cq));
	ret = rpma_cq_wait(main_cq);
	REQUIRE(ret == RPMA_E_SHARED_CHANNEL, "rpma_cq_wait: %s", rpma_err_2str(ret));

	while (sent < ROUNDS) {
		struct rpma_cq *cq = NULL;
		struct ibv_wc wc;
		bool is_rcq = false;

		/*
		 * returns when either queue has an event, and which one; that queue may turn out to be empty
		 */
		CHECK(rpma_conn_wait(conn, 0, &cq, &is_rcq));
		REQUIRE(is_rcq == (cq != main_cq), "the wrong queue was named");

		/* drain the queue: several completions may have caused only one event */
		while ((ret = rpma_cq_get_wc(cq, 1, &wc, NULL)) == 0) {
			REQUIRE(wc.status == IBV_WC_SUCCESS, "enum ibv_wc_status %d", wc.status);
			if (!is_rcq) {
				REQUIRE(wc.opcode == IBV_WC_SEND, "opcode %d in the main CQ", wc.opcode);
				sent++;
				continue;
			}
			REQUIRE(wc.opcode == IBV_WC_RECV, "opcode %d in the receive CQ", wc.opcode);
			check_pattern(in, MESSAGE_SIZE, REQUEST_SEED + received, "a request");

			size_t place = received * MESSAGE_SIZE;
			fill_pattern(out + place, MESSAGE_SIZE, REPLY_SEED + received);
			if (++received < ROUNDS)
				CHECK(rpma_recv(conn, in_mr, 0, MESSAGE_SIZE, in));
			CHECK(rpma_send(conn, out_mr, place, MESSAGE_SIZE, RPMA_F_COMPLETION_ALWAYS,
				out + place));
		}
		REQUIRE(ret == RPMA_E_NO_COMPLETION, "rpma_cq_get_wc: %s", rpma_err_2str(ret));
	}

	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_conn_disconnect(conn));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_ep_shutdown(&ep));
	CHECK(rpma_mr_dereg(&out_mr));
	CHECK(rpma_mr_dereg(&in_mr));
	free_pages(out, ROUNDS * MESSAGE_SIZE);
	free_pages(in, MESSAGE_SIZE);
	CHECK(rpma_peer_delete(&peer));

	REQUIRE(received == ROUNDS, "%u requests", received);
	verified("%u receives and %u sends through one channel", received, sent);
	return 0;
}
