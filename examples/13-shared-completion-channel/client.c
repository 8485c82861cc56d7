/* SPDX-License-Identifier: BSD-3-Clause */
/* 13-shared-completion-channel, client: waits for both completion queues through one file descriptor. */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>

#define ROUNDS 20
#define MESSAGE_SIZE 256
#define REQUEST_SEED 1300
#define REPLY_SEED 1350

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
	struct pollfd channel = {.events = POLLIN};
	int flags;

	char *in = alloc_pages(MESSAGE_SIZE);
	char *out = alloc_pages(MESSAGE_SIZE);
	CHECK(rpma_mr_reg(peer, in, MESSAGE_SIZE, RPMA_MR_USAGE_RECV, &in_mr));
	CHECK(rpma_mr_reg(peer, out, MESSAGE_SIZE, RPMA_MR_USAGE_SEND, &out_mr));

	CHECK(rpma_conn_cfg_new(&cfg));
	CHECK(rpma_conn_cfg_set_rcq_size(cfg, 10));
	CHECK(rpma_conn_cfg_set_compl_channel(cfg, true));
	CHECK(rpma_conn_req_new(peer, args.addr, args.port, cfg, &req));
	CHECK(rpma_conn_cfg_delete(&cfg));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);

	/* the server blocks in rpma_conn_wait; the same channel also works with poll, select or epoll */
	CHECK(rpma_conn_get_compl_fd(conn, &channel.fd));
	flags = fcntl(channel.fd, F_GETFL);
	REQUIRE(flags >= 0 && fcntl(channel.fd, F_SETFL, flags | O_NONBLOCK) == 0, "fcntl: %s",
		strerror(errno));

	for (uint32_t i = 0; i < ROUNDS; i++) {
		int sent = 0;
		int received = 0;

		CHECK(rpma_recv(conn, in_mr, 0, MESSAGE_SIZE, in));
		fill_pattern(out, MESSAGE_SIZE, REQUEST_SEED + i);
		CHECK(rpma_send(conn, out_mr, 0, MESSAGE_SIZE, RPMA_F_COMPLETION_ALWAYS, out));

		while (!sent || !received) {
			struct rpma_cq *cq = NULL;
			struct ibv_wc wc;
			bool is_rcq = false;
			int ret;

			REQUIRE(poll(&channel, 1, -1) >= 0 || errno == EINTR, "poll: %s",
				strerror(errno));
			ret = rpma_conn_wait(conn, 0, &cq, &is_rcq);
			if (ret == RPMA_E_NO_COMPLETION)
				continue;
			CHECK(ret);
			while ((ret = rpma_cq_get_wc(cq, 1, &wc, NULL)) == 0) {
				REQUIRE(wc.status == IBV_WC_SUCCESS, "enum ibv_wc_status %d", wc.status);
				REQUIRE(wc.opcode == (is_rcq ? IBV_WC_RECV : IBV_WC_SEND), "opcode %d",
					wc.opcode);
				REQUIRE(wc.wr_id == (uintptr_t)(is_rcq ? in : out),
					"a completion of another operation");
				*(is_rcq ? &received : &sent) += 1;
			}
			REQUIRE(ret == RPMA_E_NO_COMPLETION, "rpma_cq_get_wc: %s",
				rpma_err_2str(ret));
		}
		REQUIRE(sent == 1 && received == 1, "%d sends, %d receives", sent, received);
		check_pattern(in, MESSAGE_SIZE, REPLY_SEED + i, "a reply");
	}

	CHECK(rpma_conn_disconnect(conn));
	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_mr_dereg(&out_mr));
	CHECK(rpma_mr_dereg(&in_mr));
	free_pages(out, MESSAGE_SIZE);
	free_pages(in, MESSAGE_SIZE);
	CHECK(rpma_peer_delete(&peer));

	verified("%d requests of %d bytes, every reply correct, one descriptor polled", ROUNDS,
		MESSAGE_SIZE);
	return 0;
}
