/* SPDX-License-Identifier: BSD-3-Clause */
/* 08-flush-by-message, server: makes the range named in a message durable itself. */
#include "common.h"
#include "protocol.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define REGION_SIZE 32768
#define CHUNKS 8
#define SEED 800

/* msync requires page boundaries; the range has been checked to lie inside the region */
static int
persist(char *region, uint64_t offset, uint64_t length)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t begin = offset / page * page;

	return msync(region + begin, offset + length - begin, MS_SYNC) == 0 ? 0 : errno;
}

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, "FILE");
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	struct rpma_ep *ep = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_mr_local *region_mr = NULL;
	struct rpma_mr_local *messages_mr = NULL;
	struct rpma_cq *cq = NULL;
	char descriptor[UINT8_MAX];
	size_t descriptor_size;
	int request_here = 0;
	int answer_free = 1;
	int flushes = 0;

	char *region = map_file(args.extra, REGION_SIZE);
	CHECK(rpma_mr_reg(peer, region, REGION_SIZE, RPMA_MR_USAGE_WRITE_DST, &region_mr));
	CHECK(rpma_mr_get_descriptor_size(region_mr, &descriptor_size));
	REQUIRE(descriptor_size <= sizeof(descriptor), "descriptor of %zu bytes", descriptor_size);
	CHECK(rpma_mr_get_descriptor(region_mr, descriptor));

	struct {
		struct flush_request request;
		struct flush_answer answer;
	} *messages = alloc_pages(sizeof(*messages));
	size_t answer_offset = (size_t)((char *)&messages->answer - (char *)messages);
	CHECK(rpma_mr_reg(peer, messages, sizeof(*messages),
		RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_SEND, &messages_mr));

	CHECK(rpma_ep_listen(peer, args.addr, args.port, &ep));
	say_listening(&args);

	struct rpma_conn_private_data pdata = {descriptor, (uint8_t)descriptor_size};
	CHECK(rpma_ep_next_conn_req(ep, NULL, &req));
	CHECK(rpma_conn_req_recv(req, messages_mr, 0, sizeof(messages->request), &messages->request));
	CHECK(rpma_conn_req_connect(&req, &pdata, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	CHECK(rpma_conn_get_cq(conn, &cq));

	for (;;) {
		uint64_t offset;
		uint64_t length;
		uint64_t error;

		/* as in 07: a request, and the reply's buffer, complete in any order */
		while (!request_here || !answer_free) {
			struct ibv_wc wc;

			wait_wc(cq, &wc);
			REQUIRE(wc.status == IBV_WC_SUCCESS, "enum ibv_wc_status %d", wc.status);
			if (wc.wr_id == (uintptr_t)&messages->request) {
				REQUIRE(wc.byte_len == sizeof(messages->request),
					"a request of %u bytes", wc.byte_len);
				request_here = 1;
			} else {
				answer_free = 1;
			}
		}
		request_here = 0;
		offset = le64toh(messages->request.offset);
		length = le64toh(messages->request.length);
		if (length == 0)
			break;

		/* the numbers are untrusted: check them without sums that could wrap */
		if (length > REGION_SIZE || offset > REGION_SIZE - length)
			error = EINVAL;
		else
			error = (uint64_t)persist(region, offset, length);
		flushes += error == 0;

		CHECK(rpma_recv(conn, messages_mr, 0, sizeof(messages->request),
			&messages->request));
		messages->answer = (struct flush_answer){htole64(offset), htole64(length),
			htole64(error)};
		answer_free = 0;
		CHECK(rpma_send(conn, messages_mr, answer_offset, sizeof(messages->answer),
			RPMA_F_COMPLETION_ALWAYS, &messages->answer));
	}

	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_conn_disconnect(conn));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_ep_shutdown(&ep));
	CHECK(rpma_mr_dereg(&messages_mr));
	CHECK(rpma_mr_dereg(&region_mr));
	free_pages(messages, sizeof(*messages));
	free_pages(region, REGION_SIZE);

	void *content = alloc_pages(REGION_SIZE);
	read_file(args.extra, content, REGION_SIZE);
	check_pattern(content, REGION_SIZE, SEED, "the file");
	free_pages(content, REGION_SIZE);
	CHECK(rpma_peer_delete(&peer));

	REQUIRE(flushes == CHUNKS, "%d flushes", flushes);
	verified("%d bytes in the file after %d flushes", REGION_SIZE, flushes);
	return 0;
}
