/* SPDX-License-Identifier: BSD-3-Clause */
/* 12-shared-receive-queue, client: sends messages over several connections in turn. */
#include "common.h"

#define CONNECTIONS 4
#define MESSAGES 5
#define MESSAGE_SIZE 512

struct message {
	uint32_t connection;
	uint32_t number;
	char body[MESSAGE_SIZE - 8];
};

static uint32_t
seed_of(uint32_t connection, uint32_t number)
{
	return 1200 + connection * MESSAGES + number;
}

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	struct rpma_conn *conn[CONNECTIONS] = {NULL};
	struct rpma_cq *cq[CONNECTIONS] = {NULL};
	struct rpma_mr_local *mr = NULL;
	struct rpma_mr_local *ack_mr = NULL;

	struct message *messages = alloc_pages(CONNECTIONS * sizeof(*messages));
	uint32_t *acks = alloc_pages(CONNECTIONS * sizeof(*acks));
	CHECK(rpma_mr_reg(peer, messages, CONNECTIONS * sizeof(*messages), RPMA_MR_USAGE_SEND, &mr));
	CHECK(rpma_mr_reg(peer, acks, CONNECTIONS * sizeof(*acks), RPMA_MR_USAGE_RECV, &ack_mr));

	for (int i = 0; i < CONNECTIONS; i++) {
		struct rpma_conn_req *req = NULL;

		CHECK(rpma_conn_req_new(peer, args.addr, args.port, NULL, &req));
		CHECK(rpma_conn_req_connect(&req, NULL, &conn[i]));
		wait_event(conn[i], RPMA_CONN_ESTABLISHED);
		CHECK(rpma_conn_get_cq(conn[i], &cq[i]));
	}

	for (uint32_t n = 0; n < MESSAGES; n++) {
		/* one message on every connection, so that they reach the server interleaved ... */
		for (uint32_t i = 0; i < CONNECTIONS; i++) {
			messages[i].connection = i;
			messages[i].number = n;
			fill_pattern(messages[i].body, sizeof(messages[i].body), seed_of(i, n));
			CHECK(rpma_recv(conn[i], ack_mr, i * sizeof(*acks), sizeof(*acks),
				&acks[i]));
			CHECK(rpma_send(conn[i], mr, i * sizeof(*messages), sizeof(*messages),
				RPMA_F_COMPLETION_ALWAYS, &messages[i]));
		}
		/* ... and no more until all have been answered: there are buffers for only that many */
		for (uint32_t i = 0; i < CONNECTIONS; i++) {
			for (int done = 0; done < 2; done++) {
				struct ibv_wc wc;

				wait_wc(cq[i], &wc);
				REQUIRE(wc.status == IBV_WC_SUCCESS, "enum ibv_wc_status %d",
					wc.status);
				REQUIRE(wc.wr_id == (uintptr_t)(wc.opcode == IBV_WC_SEND
					? (void *)&messages[i] : (void *)&acks[i]),
					"a completion of another operation");
			}
			REQUIRE(acks[i] == n, "connection %u: answer %u to message %u", i, acks[i], n);
			acks[i] = UINT32_MAX;
		}
	}

	for (int i = 0; i < CONNECTIONS; i++) {
		CHECK(rpma_conn_disconnect(conn[i]));
		wait_event(conn[i], RPMA_CONN_CLOSED);
		CHECK(rpma_conn_delete(&conn[i]));
	}
	CHECK(rpma_mr_dereg(&ack_mr));
	CHECK(rpma_mr_dereg(&mr));
	free_pages(acks, CONNECTIONS * sizeof(*acks));
	free_pages(messages, CONNECTIONS * sizeof(*messages));
	CHECK(rpma_peer_delete(&peer));

	verified("%d messages of %d bytes over %d connections, each answered where it was sent",
		CONNECTIONS * MESSAGES, MESSAGE_SIZE, CONNECTIONS);
	return 0;
}
