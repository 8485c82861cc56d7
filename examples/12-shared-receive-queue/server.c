/* SPDX-License-Identifier: BSD-3-Clause */
/* 12-shared-receive-queue, server: several connections take their receives from one queue. */
#include "common.h"

#define CONNECTIONS 4
#define MESSAGES 5 /* from each connection */
#define MESSAGE_SIZE 512
#define BUFFERS 8 /* fewer than messages, so they are reposted */

/* the client's message; the pattern in the body depends on both numbers */
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
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	struct rpma_srq_cfg *srq_cfg = NULL;
	struct rpma_srq *srq = NULL;
	struct rpma_conn_cfg *cfg = NULL;
	struct rpma_ep *ep = NULL;
	struct rpma_conn *conn[CONNECTIONS] = {NULL};
	uint32_t qp_num[CONNECTIONS];
	uint32_t next[CONNECTIONS] = {0};
	struct rpma_mr_local *mr = NULL;
	struct rpma_mr_local *ack_mr = NULL;
	struct rpma_cq *rcq = NULL;

	struct message *buffers = alloc_pages(BUFFERS * sizeof(*buffers));
	uint32_t *acks = alloc_pages(CONNECTIONS * sizeof(*acks));
	CHECK(rpma_mr_reg(peer, buffers, BUFFERS * sizeof(*buffers), RPMA_MR_USAGE_RECV, &mr));
	CHECK(rpma_mr_reg(peer, acks, CONNECTIONS * sizeof(*acks), RPMA_MR_USAGE_SEND, &ack_mr));

	/* the shared receive queue, with its own receive CQ, filled before any client can send */
	CHECK(rpma_srq_cfg_new(&srq_cfg));
	CHECK(rpma_srq_cfg_set_rq_size(srq_cfg, BUFFERS));
	CHECK(rpma_srq_cfg_set_rcq_size(srq_cfg, CONNECTIONS * MESSAGES));
	CHECK(rpma_srq_new(peer, srq_cfg, &srq));
	CHECK(rpma_srq_cfg_delete(&srq_cfg));
	CHECK(rpma_srq_get_rcq(srq, &rcq));
	REQUIRE(rcq != NULL, "the shared receive queue has no CQ");
	for (size_t i = 0; i < BUFFERS; i++)
		CHECK(rpma_srq_recv(srq, mr, i * sizeof(*buffers), sizeof(*buffers), &buffers[i]));

	/* every connection created with this configuration takes its receives from the queue */
	CHECK(rpma_conn_cfg_new(&cfg));
	CHECK(rpma_conn_cfg_set_srq(cfg, srq));

	CHECK(rpma_ep_listen(peer, args.addr, args.port, &ep));
	say_listening(&args);
	for (int i = 0; i < CONNECTIONS; i++) {
		struct rpma_conn_req *req = NULL;

		CHECK(rpma_ep_next_conn_req(ep, cfg, &req));
		CHECK(rpma_conn_req_connect(&req, NULL, &conn[i]));
		wait_event(conn[i], RPMA_CONN_ESTABLISHED);
		CHECK(rpma_conn_get_qp_num(conn[i], &qp_num[i]));
	}
	CHECK(rpma_conn_cfg_delete(&cfg));

	for (int n = 0; n < CONNECTIONS * MESSAGES; n++) {
		struct message *message;
		struct ibv_wc wc;
		int i = 0;

		wait_wc(rcq, &wc);
		REQUIRE(wc.status == IBV_WC_SUCCESS, "enum ibv_wc_status %d", wc.status);
		REQUIRE(wc.opcode == IBV_WC_RECV && wc.byte_len == sizeof(*message),
			"opcode %d, %u bytes", wc.opcode, wc.byte_len);
		message = (struct message *)(uintptr_t)wc.wr_id;

		/* wr_id identifies the buffer; the queue pair number identifies the connection */
		while (i < CONNECTIONS && qp_num[i] != wc.qp_num)
			i++;
		REQUIRE(i < CONNECTIONS, "a message from queue pair %u", wc.qp_num);
		REQUIRE(message->connection == (uint32_t)i && message->number == next[i],
			"connection %d brought message %u of connection %u, expected %u", i,
			message->number, message->connection, next[i]);
		check_pattern(message->body, sizeof(message->body),
			seed_of(message->connection, message->number), "a message");
		next[i]++;

		/* repost the buffer, for whichever connection needs it next */
		size_t offset = (size_t)((char *)message - (char *)buffers);
		acks[i] = message->number;
		CHECK(rpma_srq_recv(srq, mr, offset, sizeof(*message), message));

		/*
		 * The reply lets the client send its next message, so the clients together never send
		 * more messages than there are buffers.
		 */
		struct rpma_cq *cq = NULL;
		CHECK(rpma_send(conn[i], ack_mr, (size_t)i * sizeof(*acks), sizeof(*acks),
			RPMA_F_COMPLETION_ALWAYS, &acks[i]));
		CHECK(rpma_conn_get_cq(conn[i], &cq));
		wait_success(cq, &acks[i], IBV_WC_SEND);
	}

	for (int i = 0; i < CONNECTIONS; i++) {
		wait_event(conn[i], RPMA_CONN_CLOSED);
		CHECK(rpma_conn_disconnect(conn[i]));
		CHECK(rpma_conn_delete(&conn[i]));
	}
	/* delete the connections first, then the queue that they use */
	CHECK(rpma_srq_delete(&srq));
	CHECK(rpma_ep_shutdown(&ep));
	CHECK(rpma_mr_dereg(&ack_mr));
	CHECK(rpma_mr_dereg(&mr));
	free_pages(acks, CONNECTIONS * sizeof(*acks));
	free_pages(buffers, BUFFERS * sizeof(*buffers));
	CHECK(rpma_peer_delete(&peer));

	verified("%d messages of %d connections through %d shared buffers", CONNECTIONS * MESSAGES,
		CONNECTIONS, BUFFERS);
	return 0;
}
