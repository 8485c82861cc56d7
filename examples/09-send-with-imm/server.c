/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 09-send-with-imm, server: receives one message with payload and one without, each with
 * immediate data.
 */
#include "common.h"

#include <arpa/inet.h>

#define MESSAGE_SIZE 512
#define SEED 9
#define IMM_DATA 0x12345678u
#define IMM_EMPTY 0xfeedf00du

static void
expect(struct rpma_cq *cq, const void *op_context, uint32_t length, uint32_t imm)
{
	struct ibv_wc wc;

	wait_wc(cq, &wc);
	REQUIRE(wc.wr_id == (uintptr_t)op_context, "a completion of another operation");
	REQUIRE(wc.status == IBV_WC_SUCCESS, "enum ibv_wc_status %d", wc.status);
	REQUIRE(wc.opcode == IBV_WC_RECV && wc.byte_len == length, "opcode %d, %u bytes", wc.opcode,
		wc.byte_len);

	/* the flag indicates immediate data, which are in network byte order */
	REQUIRE(wc.wc_flags & IBV_WC_WITH_IMM, "no immediate data");
	REQUIRE(ntohl(wc.imm_data) == imm, "immediate data 0x%08x, expected 0x%08x",
		ntohl(wc.imm_data), imm);
}

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	struct rpma_ep *ep = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_mr_local *mr = NULL;
	struct rpma_cq *cq = NULL;

	char *message = alloc_pages(MESSAGE_SIZE);
	CHECK(rpma_mr_reg(peer, message, MESSAGE_SIZE, RPMA_MR_USAGE_RECV, &mr));

	CHECK(rpma_ep_listen(peer, args.addr, args.port, &ep));
	say_listening(&args);
	CHECK(rpma_ep_next_conn_req(ep, NULL, &req));
	CHECK(rpma_conn_req_recv(req, mr, 0, MESSAGE_SIZE, message));
	/*
	 * an empty receive posted on a connection request still needs a memory region; on a connection it
	 * does not
	 */
	CHECK(rpma_conn_req_recv(req, mr, 0, 0, mr));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	CHECK(rpma_conn_get_cq(conn, &cq));

	expect(cq, message, MESSAGE_SIZE, IMM_DATA);
	check_pattern(message, MESSAGE_SIZE, SEED, "the message");
	expect(cq, mr, 0, IMM_EMPTY);

	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_conn_disconnect(conn));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_ep_shutdown(&ep));
	CHECK(rpma_mr_dereg(&mr));
	free_pages(message, MESSAGE_SIZE);
	CHECK(rpma_peer_delete(&peer));

	verified("%d bytes with 0x%08x, then 0 bytes with 0x%08x", MESSAGE_SIZE, IMM_DATA, IMM_EMPTY);
	return 0;
}
