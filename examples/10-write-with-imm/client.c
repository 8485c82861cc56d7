/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 10-write-with-imm, client: writes chunks in an arbitrary order; immediate data notify the server of
 * each one.
 */
#include "common.h"

#define CHUNKS 8
#define CHUNK_SIZE 4096
#define REGION_SIZE (CHUNKS * CHUNK_SIZE)
#define SEED 1000

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_mr_remote *remote = NULL;
	struct rpma_mr_local *mr = NULL;
	struct rpma_cq *cq = NULL;
	size_t size;

	CHECK(rpma_conn_req_new(peer, args.addr, args.port, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	CHECK(rpma_conn_get_cq(conn, &cq));
	remote = remote_region(conn);
	CHECK(rpma_mr_remote_get_size(remote, &size));
	REQUIRE(size >= REGION_SIZE, "the server's region has %zu bytes", size);

	char *out = alloc_pages(REGION_SIZE);
	CHECK(rpma_mr_reg(peer, out, REGION_SIZE, RPMA_MR_USAGE_WRITE_SRC, &mr));

	for (uint32_t i = 0; i < CHUNKS; i++) {
		uint32_t chunk = i * 3 % CHUNKS;
		size_t offset = (size_t)chunk * CHUNK_SIZE;

		fill_pattern(out + offset, CHUNK_SIZE, SEED + chunk);
		CHECK(rpma_write_with_imm(conn, remote, offset, mr, offset, CHUNK_SIZE,
			RPMA_F_COMPLETION_ALWAYS, chunk, out + offset));
		wait_success(cq, out + offset, IBV_WC_RDMA_WRITE);
	}

	CHECK(rpma_conn_disconnect(conn));
	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_mr_remote_delete(&remote));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_mr_dereg(&mr));
	free_pages(out, REGION_SIZE);
	CHECK(rpma_peer_delete(&peer));

	verified("%d chunks of %d bytes written, each with its number", CHUNKS, CHUNK_SIZE);
	return 0;
}
