/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 09-send-with-imm, client: sends one message with payload and one without, each with
 * immediate data.
 */
#include "common.h"

#define MESSAGE_SIZE 512
#define SEED 9
#define IMM_DATA 0x12345678u
#define IMM_EMPTY 0xfeedf00du

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_mr_local *mr = NULL;
	struct rpma_cq *cq = NULL;

	char *message = alloc_pages(MESSAGE_SIZE);
	fill_pattern(message, MESSAGE_SIZE, SEED);
	CHECK(rpma_mr_reg(peer, message, MESSAGE_SIZE, RPMA_MR_USAGE_SEND, &mr));

	CHECK(rpma_conn_req_new(peer, args.addr, args.port, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	CHECK(rpma_conn_get_cq(conn, &cq));

	/* the immediate data are passed in host byte order */
	CHECK(rpma_send_with_imm(conn, mr, 0, MESSAGE_SIZE, RPMA_F_COMPLETION_ALWAYS, IMM_DATA,
		message));
	wait_success(cq, message, IBV_WC_SEND);

	/* no memory region, offset 0, length 0: only the immediate data are sent */
	CHECK(rpma_send_with_imm(conn, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, IMM_EMPTY, mr));
	wait_success(cq, mr, IBV_WC_SEND);

	CHECK(rpma_conn_disconnect(conn));
	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_mr_dereg(&mr));
	free_pages(message, MESSAGE_SIZE);
	CHECK(rpma_peer_delete(&peer));

	verified("%d bytes and 0 bytes sent, each with immediate data", MESSAGE_SIZE);
	return 0;
}
