/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 03-read-write-file, client: `write` fills the server's file and reads it back; `check`, run against a
 * second server on the same file, reads it only.
 */
#include "common.h"

#define SEED 3

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, "write|check");
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_mr_remote *remote = NULL;
	struct rpma_mr_local *src = NULL;
	struct rpma_mr_local *dst = NULL;
	struct rpma_cq *cq = NULL;
	int writing = strcmp(args.extra, "write") == 0;
	size_t size;

	REQUIRE(writing || strcmp(args.extra, "check") == 0, "neither write nor check");

	CHECK(rpma_conn_req_new(peer, args.addr, args.port, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	CHECK(rpma_conn_get_cq(conn, &cq));
	remote = remote_region(conn);
	CHECK(rpma_mr_remote_get_size(remote, &size));

	/* separate buffers to write from and to read into, so that the check cannot pass by chance */
	void *out = alloc_pages(size);
	void *in = alloc_pages(size);
	CHECK(rpma_mr_reg(peer, out, size, RPMA_MR_USAGE_WRITE_SRC, &src));
	CHECK(rpma_mr_reg(peer, in, size, RPMA_MR_USAGE_READ_DST, &dst));

	if (writing) {
		/*
		 * The read is executed after the write on the same connection, so it returns the written
		 * data without a wait in between. The write generates a completion only on error.
		 */
		fill_pattern(out, size, SEED);
		CHECK(rpma_write(conn, remote, 0, src, 0, size, RPMA_F_COMPLETION_ON_ERROR, out));
	}
	CHECK(rpma_read(conn, dst, 0, remote, 0, size, RPMA_F_COMPLETION_ALWAYS, in));
	wait_success(cq, in, IBV_WC_RDMA_READ);
	check_pattern(in, size, SEED, "the server's file");

	CHECK(rpma_conn_disconnect(conn));
	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_mr_remote_delete(&remote));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_mr_dereg(&dst));
	CHECK(rpma_mr_dereg(&src));
	free_pages(in, size);
	free_pages(out, size);
	CHECK(rpma_peer_delete(&peer));

	if (writing)
		verified("%zu bytes written to the server's file and read back", size);
	else
		verified("%zu bytes of an earlier run read from the file of a new server", size);
	return 0;
}
