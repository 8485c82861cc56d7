/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 06-atomic-write, client: appends records to a log in the server's memory and counts them
 * atomically.
 */
#include "common.h"

#define RECORDS 64
#define RECORD_SIZE 1024

struct shared_log {
	uint64_t complete;
	char records[RECORDS][RECORD_SIZE];
};

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_mr_remote *remote = NULL;
	struct rpma_mr_local *src = NULL;
	struct rpma_cq *cq = NULL;
	size_t size;
	int ret;

	CHECK(rpma_conn_req_new(peer, args.addr, args.port, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	CHECK(rpma_conn_get_cq(conn, &cq));
	remote = remote_region(conn);
	CHECK(rpma_mr_remote_get_size(remote, &size));
	REQUIRE(size >= sizeof(struct shared_log), "the server's region has %zu bytes", size);

	char *record = alloc_pages(RECORD_SIZE);
	CHECK(rpma_mr_reg(peer, record, RECORD_SIZE, RPMA_MR_USAGE_WRITE_SRC, &src));

	/* the destination of an atomic write must be aligned */
	const uint64_t zero = 0;
	ret = rpma_atomic_write(conn, remote, 4, (const char *)&zero, RPMA_F_COMPLETION_ALWAYS, NULL);
	REQUIRE(ret == RPMA_E_INVAL, "unaligned atomic write: %s", rpma_err_2str(ret));

	for (uint64_t i = 0; i < RECORDS; i++) {
		size_t offset = offsetof(struct shared_log, records) + i * RECORD_SIZE;
		uint64_t complete = i + 1;

		/* write and flush the record first, so that it is in place before it is counted */
		fill_pattern(record, RECORD_SIZE, 600 + (uint32_t)i);
		CHECK(rpma_write(conn, remote, offset, src, 0, RECORD_SIZE,
			RPMA_F_COMPLETION_ON_ERROR, record));
		CHECK(rpma_flush(conn, remote, offset, RECORD_SIZE, RPMA_FLUSH_TYPE_VISIBILITY,
			RPMA_F_COMPLETION_ON_ERROR, NULL));

		/* the call copies the 8 bytes: they need not be registered or outlive it */
		CHECK(rpma_atomic_write(conn, remote, offsetof(struct shared_log, complete),
			(const char *)&complete, RPMA_F_COMPLETION_ON_ERROR, NULL));
		CHECK(rpma_flush(conn, remote, offsetof(struct shared_log, complete),
			sizeof(complete), RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS,
			&cq));
		/* completes after all of the above, so the record's buffer may be reused */
		wait_success(cq, &cq, IBV_WC_RDMA_READ);
	}

	CHECK(rpma_conn_disconnect(conn));
	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_mr_remote_delete(&remote));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_mr_dereg(&src));
	free_pages(record, RECORD_SIZE);
	CHECK(rpma_peer_delete(&peer));

	verified("%d records appended, each counted by one atomic write", RECORDS);
	return 0;
}
