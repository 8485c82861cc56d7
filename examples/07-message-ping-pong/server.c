/* SPDX-License-Identifier: BSD-3-Clause */
/* 07-message-ping-pong, server: receives a message, checks it and replies, ROUNDS times. */
#include "common.h"

#define ROUNDS 100
#define MESSAGE_SIZE 1024
#define PING_SEED 7000
#define PONG_SEED 7500

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	struct rpma_ep *ep = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_mr_local *ping_mr = NULL;
	struct rpma_mr_local *pong_mr = NULL;
	struct rpma_cq *cq = NULL;

	char *ping = alloc_pages(MESSAGE_SIZE);
	char *pong = alloc_pages(MESSAGE_SIZE);
	CHECK(rpma_mr_reg(peer, ping, MESSAGE_SIZE, RPMA_MR_USAGE_RECV, &ping_mr));
	CHECK(rpma_mr_reg(peer, pong, MESSAGE_SIZE, RPMA_MR_USAGE_SEND, &pong_mr));

	CHECK(rpma_ep_listen(peer, args.addr, args.port, &ep));
	say_listening(&args);
	CHECK(rpma_ep_next_conn_req(ep, NULL, &req));

	/*
	 * A message without a posted receive waits for one at best; many transports end the connection
	 * instead. The client may send as soon as it is connected, so the first receive is posted before
	 * the request is accepted.
	 */
	CHECK(rpma_conn_req_recv(req, ping_mr, 0, MESSAGE_SIZE, ping));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	CHECK(rpma_conn_get_cq(conn, &cq));

	int ping_here = 0;
	int pong_free = 1;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		/*
		 * Wait for two completions, in any order: this round's ping has arrived, and the last
		 * pong's buffer may be reused.
		 */
		while (!ping_here || !pong_free) {
			struct ibv_wc wc;

			wait_wc(cq, &wc);
			REQUIRE(wc.status == IBV_WC_SUCCESS, "enum ibv_wc_status %d", wc.status);
			if (wc.wr_id == (uintptr_t)ping) {
				REQUIRE(wc.opcode == IBV_WC_RECV && wc.byte_len == MESSAGE_SIZE,
					"not a ping: opcode %d, %u bytes", wc.opcode, wc.byte_len);
				ping_here = 1;
			} else {
				REQUIRE(wc.wr_id == (uintptr_t)pong && wc.opcode == IBV_WC_SEND,
					"a completion of another operation");
				pong_free = 1;
			}
		}
		check_pattern(ping, MESSAGE_SIZE, PING_SEED + i, "a ping");

		/* the next ping may arrive as soon as the client has this pong: post its receive first */
		ping_here = 0;
		if (i + 1 < ROUNDS)
			CHECK(rpma_recv(conn, ping_mr, 0, MESSAGE_SIZE, ping));

		fill_pattern(pong, MESSAGE_SIZE, PONG_SEED + i);
		pong_free = 0;
		CHECK(rpma_send(conn, pong_mr, 0, MESSAGE_SIZE, RPMA_F_COMPLETION_ALWAYS, pong));
	}
	wait_success(cq, pong, IBV_WC_SEND);

	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_conn_disconnect(conn));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_ep_shutdown(&ep));
	CHECK(rpma_mr_dereg(&pong_mr));
	CHECK(rpma_mr_dereg(&ping_mr));
	free_pages(pong, MESSAGE_SIZE);
	free_pages(ping, MESSAGE_SIZE);
	CHECK(rpma_peer_delete(&peer));

	verified("%d pings of %d bytes received and answered", ROUNDS, MESSAGE_SIZE);
	return 0;
}
