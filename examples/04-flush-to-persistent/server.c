/* SPDX-License-Identifier: BSD-3-Clause */
/* 04-flush-to-persistent, server: offers a mapped file that the client may make durable. */
#include "common.h"

#define REGION_SIZE 16384
#define SEED 4

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, "FILE");
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	struct rpma_peer_cfg *pcfg = NULL;
	struct rpma_ep *ep = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_mr_local *mr = NULL;
	char descriptors[UINT8_MAX];
	size_t mr_size;
	size_t pcfg_size;

	void *mapping = map_file(args.extra, REGION_SIZE);
	CHECK(rpma_mr_reg(peer, mapping, REGION_SIZE,
		RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, &mr));

	/*
	 * This side declares whether a remote flush reaches the persistence domain. With the soft
	 * provider it does. On a device it depends on the platform: a declaration without checking the
	 * platform risks data loss on power failure.
	 */
	CHECK(rpma_peer_cfg_new(&pcfg));
	CHECK(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true));

	/* the private data of the connection are both descriptors, one after the other */
	CHECK(rpma_mr_get_descriptor_size(mr, &mr_size));
	CHECK(rpma_peer_cfg_get_descriptor_size(pcfg, &pcfg_size));
	REQUIRE(mr_size + pcfg_size <= sizeof(descriptors), "descriptors too large");
	CHECK(rpma_mr_get_descriptor(mr, descriptors));
	CHECK(rpma_peer_cfg_get_descriptor(pcfg, descriptors + mr_size));
	CHECK(rpma_peer_cfg_delete(&pcfg));

	CHECK(rpma_ep_listen(peer, args.addr, args.port, &ep));
	say_listening(&args);

	struct rpma_conn_private_data pdata = {descriptors, (uint8_t)(mr_size + pcfg_size)};
	CHECK(rpma_ep_next_conn_req(ep, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, &pdata, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	wait_event(conn, RPMA_CONN_CLOSED);

	CHECK(rpma_conn_disconnect(conn));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_ep_shutdown(&ep));
	CHECK(rpma_mr_dereg(&mr));
	free_pages(mapping, REGION_SIZE);

	void *content = alloc_pages(REGION_SIZE);
	read_file(args.extra, content, REGION_SIZE);
	check_pattern(content, REGION_SIZE, SEED, "the file");
	free_pages(content, REGION_SIZE);
	CHECK(rpma_peer_delete(&peer));

	verified("%d bytes in the file are the client's", REGION_SIZE);
	return 0;
}
