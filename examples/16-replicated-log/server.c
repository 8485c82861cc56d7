/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 16-replicated-log, server: the replica. It maps its copy of the log, says to each primary how far it goes,
 * and sleeps while the primary appends to it. It ends when a primary has gone and the log has all records.
 */
#include "common.h"
#include "log.h"

static struct rpma_peer *peer;
static struct rpma_ep *ep;
static struct rpma_peer_cfg *pcfg;
static struct rpma_mr_local *mr;
static const char *log_memory;

/* what a primary needs to know, as private data of its connection: region, configuration, end of the log */
static struct rpma_conn_private_data
describe(const struct position *end)
{
	static char data[UINT8_MAX];
	size_t mr_size;
	size_t pcfg_size;

	CHECK(rpma_mr_get_descriptor_size(mr, &mr_size));
	CHECK(rpma_peer_cfg_get_descriptor_size(pcfg, &pcfg_size));
	REQUIRE(mr_size + pcfg_size + sizeof(*end) <= sizeof(data), "descriptors too large");
	CHECK(rpma_mr_get_descriptor(mr, data));
	CHECK(rpma_peer_cfg_get_descriptor(pcfg, data + mr_size));
	memcpy(data + mr_size + pcfg_size, end, sizeof(*end));
	return (struct rpma_conn_private_data){data,
		(uint8_t)(mr_size + pcfg_size + sizeof(*end))};
}

/*
 * Serves one primary until it is gone, by itself or with its process or host. Another one waits until then,
 * so the log has never two writers.
 */
static void
serve_primary(void)
{
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct position end;
	struct rpma_conn_private_data pdata;

	CHECK(rpma_ep_next_conn_req(ep, NULL, &req));
	end = log_recover(log_memory);
	pdata = describe(&end);
	CHECK(rpma_conn_req_connect(&req, &pdata, &conn));
	do {
		CHECK(rpma_conn_next_event(conn, &event));
	} while (event == RPMA_CONN_ESTABLISHED);

	/* a primary that was killed while it connected is no error */
	REQUIRE(event == RPMA_CONN_CLOSED || event == RPMA_CONN_LOST ||
		event == RPMA_CONN_REJECTED || event == RPMA_CONN_UNREACHABLE, "%s",
		rpma_utils_conn_event_2str(event));
	(void)rpma_conn_disconnect(conn);
	CHECK(rpma_conn_delete(&conn));

	end = log_recover(log_memory);
	printf("a primary has gone, the log has %" PRIu64 " records\n", end.number);
}

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, "FILE");
	void *mapping = map_file(args.extra, LOG_SIZE);
	struct position end;
	uint64_t found;

	log_memory = mapping;
	end = log_recover(log_memory);
	found = end.number;
	printf("%s has %" PRIu64 " records\n", args.extra, found);

	peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	CHECK(rpma_mr_reg(peer, mapping, LOG_SIZE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC |
		RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, &mr));
	/*
	 * true with the soft provider; with a device it depends on the platform, see 04-flush-to-persistent
	 */
	CHECK(rpma_peer_cfg_new(&pcfg));
	CHECK(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true));
	CHECK(rpma_ep_listen(peer, args.addr, args.port, &ep));
	say_listening(&args);

	do {
		serve_primary();
		end = log_recover(log_memory);
	} while (end.number < RECORDS);

	CHECK(rpma_ep_shutdown(&ep));
	CHECK(rpma_peer_cfg_delete(&pcfg));
	CHECK(rpma_mr_dereg(&mr));
	free_pages(mapping, LOG_SIZE);

	char *content = alloc_pages(LOG_SIZE);
	read_file(args.extra, content, LOG_SIZE);
	REQUIRE(log_has(content, &end), "the file has another log than the memory");
	free_pages(content, LOG_SIZE);
	CHECK(rpma_peer_delete(&peer));

	verified("%" PRIu64 " records in the replica, %" PRIu64 " of them from before its start",
		end.number, found);
	return 0;
}
