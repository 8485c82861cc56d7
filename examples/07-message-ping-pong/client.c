/* SPDX-License-Identifier: BSD-3-Clause */
/* 07-message-ping-pong, client: sends a message and checks the reply, ROUNDS times. */
#include "common.h"

#define ROUNDS 100
#define MESSAGE_SIZE 1024
#define PING_SEED 7000
#define PONG_SEED 7500

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_mr_local *ping_mr = NULL;
	struct rpma_mr_local *pong_mr = NULL;
	struct rpma_cq *cq = NULL;

	char *ping = alloc_pages(MESSAGE_SIZE);
	char *pong = alloc_pages(MESSAGE_SIZE);
	CHECK(rpma_mr_reg(peer, ping, MESSAGE_SIZE, RPMA_MR_USAGE_SEND, &ping_mr));
	CHECK(rpma_mr_reg(peer, pong, MESSAGE_SIZE, RPMA_MR_USAGE_RECV, &pong_mr));

	CHECK(rpma_conn_req_new(peer, args.addr, args.port, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	CHECK(rpma_conn_get_cq(conn, &cq));

	for (uint32_t i = 0; i < ROUNDS; i++) {
		int ping_sent = 0;
		int pong_here = 0;

		/* the server only replies to our messages, so posting the receive now is early enough */
		CHECK(rpma_recv(conn, pong_mr, 0, MESSAGE_SIZE, pong));
		fill_pattern(ping, MESSAGE_SIZE, PING_SEED + i);
		CHECK(rpma_send(conn, ping_mr, 0, MESSAGE_SIZE, RPMA_F_COMPLETION_ALWAYS, ping));

		while (!ping_sent || !pong_here) {
			struct ibv_wc wc;

			wait_wc(cq, &wc);
			REQUIRE(wc.status == IBV_WC_SUCCESS, "enum ibv_wc_status %d", wc.status);
			if (wc.wr_id == (uintptr_t)ping) {
				REQUIRE(wc.opcode == IBV_WC_SEND, "not a send: %d", wc.opcode);
				ping_sent = 1;
			} else {
				REQUIRE(wc.wr_id == (uintptr_t)pong && wc.opcode == IBV_WC_RECV,
					"a completion of another operation");
				REQUIRE(wc.byte_len == MESSAGE_SIZE, "a pong of %u bytes", wc.byte_len);
				pong_here = 1;
			}
		}
		check_pattern(pong, MESSAGE_SIZE, PONG_SEED + i, "a pong");
	}

	CHECK(rpma_conn_disconnect(conn));
	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_mr_dereg(&pong_mr));
	CHECK(rpma_mr_dereg(&ping_mr));
	free_pages(pong, MESSAGE_SIZE);
	free_pages(ping, MESSAGE_SIZE);
	CHECK(rpma_peer_delete(&peer));

	verified("%d pings of %d bytes sent, every pong correct", ROUNDS, MESSAGE_SIZE);
	return 0;
}
