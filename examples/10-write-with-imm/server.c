/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 10-write-with-imm, server: a client writes to its memory and notifies it of each part that has been
 * written.
 */
#include "common.h"

#include <arpa/inet.h>

#define CHUNKS 8
#define CHUNK_SIZE 4096
#define REGION_SIZE (CHUNKS * CHUNK_SIZE)
#define SEED 1000

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	struct rpma_ep *ep = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_mr_local *mr = NULL;
	struct rpma_mr_local *recv_mr = NULL;
	struct rpma_cq *cq = NULL;
	char descriptor[UINT8_MAX];
	size_t descriptor_size;
	unsigned seen = 0;

	char *region = alloc_pages(REGION_SIZE);
	CHECK(rpma_mr_reg(peer, region, REGION_SIZE, RPMA_MR_USAGE_WRITE_DST, &mr));
	CHECK(rpma_mr_get_descriptor_size(mr, &descriptor_size));
	REQUIRE(descriptor_size <= sizeof(descriptor), "descriptor of %zu bytes", descriptor_size);
	CHECK(rpma_mr_get_descriptor(mr, descriptor));

	/* never written to: the receives below are only consumed by the notifications */
	char *unused = alloc_pages(1);
	CHECK(rpma_mr_reg(peer, unused, 1, RPMA_MR_USAGE_RECV, &recv_mr));

	CHECK(rpma_ep_listen(peer, args.addr, args.port, &ep));
	say_listening(&args);

	/* each write with immediate data consumes one receive */
	struct rpma_conn_private_data pdata = {descriptor, (uint8_t)descriptor_size};
	CHECK(rpma_ep_next_conn_req(ep, NULL, &req));
	for (int i = 0; i < CHUNKS; i++)
		CHECK(rpma_conn_req_recv(req, recv_mr, 0, 0, region));
	CHECK(rpma_conn_req_connect(&req, &pdata, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	CHECK(rpma_conn_get_cq(conn, &cq));

	for (int i = 0; i < CHUNKS; i++) {
		struct ibv_wc wc;
		uint32_t chunk;

		wait_wc(cq, &wc);
		REQUIRE(wc.wr_id == (uintptr_t)region, "a completion of another operation");
		REQUIRE(wc.status == IBV_WC_SUCCESS, "enum ibv_wc_status %d", wc.status);
		REQUIRE(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM, "opcode %d", wc.opcode);
		REQUIRE(wc.wc_flags & IBV_WC_WITH_IMM, "no immediate data");

		/* once this completion is reported, the data of its write are in place */
		chunk = ntohl(wc.imm_data);
		REQUIRE(chunk < CHUNKS && !(seen & 1u << chunk), "chunk %u", chunk);
		seen |= 1u << chunk;
		check_pattern(region + chunk * CHUNK_SIZE, CHUNK_SIZE, SEED + chunk, "a chunk");
	}

	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_conn_disconnect(conn));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_ep_shutdown(&ep));
	CHECK(rpma_mr_dereg(&recv_mr));
	CHECK(rpma_mr_dereg(&mr));
	free_pages(unused, 1);
	free_pages(region, REGION_SIZE);
	CHECK(rpma_peer_delete(&peer));

	verified("%d chunks of %d bytes, each in place when announced", CHUNKS, CHUNK_SIZE);
	return 0;
}
