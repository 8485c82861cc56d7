/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 06-atomic-write, server: watches a log in its own memory to which the client appends. The first 8 bytes
 * count the complete records; the client updates them only with atomic writes.
 */
#include "common.h"

#include <errno.h>
#include <poll.h>

#define RECORDS 64
#define RECORD_SIZE 1024

struct shared_log {
	uint64_t complete; /* at an offset that is a multiple of RPMA_ATOMIC_WRITE_ALIGNMENT */
	char records[RECORDS][RECORD_SIZE];
};

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
	uint64_t seen = 0;
	int closed = 0;

	struct shared_log *log = alloc_pages(sizeof(*log));
	CHECK(rpma_mr_reg(peer, log, sizeof(*log),
		RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, &mr));
	CHECK(rpma_mr_get_descriptor_size(mr, &descriptor_size));
	REQUIRE(descriptor_size <= sizeof(descriptor), "descriptor of %zu bytes", descriptor_size);
	CHECK(rpma_mr_get_descriptor(mr, descriptor));

	CHECK(rpma_ep_listen(peer, args.addr, args.port, &ep));
	say_listening(&args);

	struct rpma_conn_private_data pdata = {descriptor, (uint8_t)descriptor_size};
	struct pollfd event = {.events = POLLIN};
	CHECK(rpma_ep_next_conn_req(ep, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, &pdata, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	CHECK(rpma_conn_get_event_fd(conn, &event.fd));

	for (;;) {
		uint64_t complete = __atomic_load_n(&log->complete, __ATOMIC_ACQUIRE);

		/* every counted record must be complete */
		REQUIRE(complete >= seen && complete <= RECORDS, "%" PRIu64 " records after %" PRIu64,
			complete, seen);
		for (; seen < complete; seen++)
			check_pattern(log->records[seen], RECORD_SIZE, 600 + (uint32_t)seen,
				"a record that was announced");
		if (closed)
			break;

		/* check the memory again soon, at the latest when a connection event is pending */
		REQUIRE(poll(&event, 1, 1) >= 0 || errno == EINTR, "poll: %s", strerror(errno));
		if (event.revents & POLLIN) {
			wait_event(conn, RPMA_CONN_CLOSED);
			closed = 1;
		}
	}
	REQUIRE(seen == RECORDS, "only %" PRIu64 " records", seen);

	CHECK(rpma_conn_disconnect(conn));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_ep_shutdown(&ep));
	CHECK(rpma_mr_dereg(&mr));
	free_pages(log, sizeof(*log));
	CHECK(rpma_peer_delete(&peer));

	verified("%d records of %d bytes, each complete when it was counted", RECORDS, RECORD_SIZE);
	return 0;
}
