/* SPDX-License-Identifier: BSD-3-Clause */
/* 02-read, server: offers a page for reading and does nothing else. */
#include "common.h"

#define REGION_SIZE 4096
#define SEED 2

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	struct rpma_ep *ep = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_mr_local *mr = NULL;
	char descriptor[UINT8_MAX];
	size_t descriptor_size;

	/* register the page: from now on a remote peer that has the descriptor can read it */
	void *page = alloc_pages(REGION_SIZE);
	fill_pattern(page, REGION_SIZE, SEED);
	CHECK(rpma_mr_reg(peer, page, REGION_SIZE, RPMA_MR_USAGE_READ_SRC, &mr));

	CHECK(rpma_mr_get_descriptor_size(mr, &descriptor_size));
	REQUIRE(descriptor_size <= sizeof(descriptor), "descriptor of %zu bytes", descriptor_size);
	CHECK(rpma_mr_get_descriptor(mr, descriptor));

	CHECK(rpma_ep_listen(peer, args.addr, args.port, &ep));
	say_listening(&args);

	/* accept with the descriptor as private data */
	struct rpma_conn_private_data pdata = {descriptor, (uint8_t)descriptor_size};
	CHECK(rpma_ep_next_conn_req(ep, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, &pdata, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);

	/* this program sleeps here while the client reads its memory */
	wait_event(conn, RPMA_CONN_CLOSED);

	CHECK(rpma_conn_disconnect(conn));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_ep_shutdown(&ep));
	CHECK(rpma_mr_dereg(&mr));
	check_pattern(page, REGION_SIZE, SEED, "the page after it was read");
	free_pages(page, REGION_SIZE);
	CHECK(rpma_peer_delete(&peer));

	verified("the %d bytes are unchanged", REGION_SIZE);
	return 0;
}
