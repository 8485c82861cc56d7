/* SPDX-License-Identifier: BSD-3-Clause */
/* 03-read-write-file, server: offers a mapped file for reading and writing. */
#include "common.h"

#define REGION_SIZE 65536

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, "FILE");
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	struct rpma_ep *ep = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_mr_local *mr = NULL;
	char descriptor[UINT8_MAX];
	size_t descriptor_size;

	/* data written to a shared mapping are in the file, so they outlive this process */
	void *mapping = map_file(args.extra, REGION_SIZE);
	CHECK(rpma_mr_reg(peer, mapping, REGION_SIZE,
		RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST, &mr));
	CHECK(rpma_mr_get_descriptor_size(mr, &descriptor_size));
	REQUIRE(descriptor_size <= sizeof(descriptor), "descriptor of %zu bytes", descriptor_size);
	CHECK(rpma_mr_get_descriptor(mr, descriptor));

	CHECK(rpma_ep_listen(peer, args.addr, args.port, &ep));
	say_listening(&args);

	struct rpma_conn_private_data pdata = {descriptor, (uint8_t)descriptor_size};
	CHECK(rpma_ep_next_conn_req(ep, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, &pdata, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	wait_event(conn, RPMA_CONN_CLOSED);

	CHECK(rpma_conn_disconnect(conn));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_ep_shutdown(&ep));
	CHECK(rpma_mr_dereg(&mr));

	/* the file, read with ordinary I/O, must match the mapped memory */
	void *content = alloc_pages(REGION_SIZE);
	read_file(args.extra, content, REGION_SIZE);
	REQUIRE(memcmp(content, mapping, REGION_SIZE) == 0, "the file differs from its mapping");
	free_pages(content, REGION_SIZE);
	free_pages(mapping, REGION_SIZE);
	CHECK(rpma_peer_delete(&peer));

	verified("%d bytes of the file match the mapping", REGION_SIZE);
	return 0;
}
