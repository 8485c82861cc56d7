/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 04-flush-to-persistent, client: writes data and then makes them durable, without involving the
 * server program.
 */
#include "common.h"

#define SEED 4

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	struct rpma_peer_cfg *pcfg = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_conn_private_data pdata;
	struct rpma_mr_remote *remote = NULL;
	struct rpma_mr_local *src = NULL;
	struct rpma_cq *cq = NULL;
	size_t descriptor_size;
	size_t size;
	int flush_type;
	int ret;

	CHECK(rpma_conn_req_new(peer, args.addr, args.port, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	CHECK(rpma_conn_get_cq(conn, &cq));

	remote = remote_region(conn);
	CHECK(rpma_mr_remote_get_size(remote, &size));
	CHECK(rpma_mr_remote_get_flush_type(remote, &flush_type));
	REQUIRE(flush_type == RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT,
		"the region has the flush types 0x%x", flush_type);

	void *out = alloc_pages(size);
	fill_pattern(out, size, SEED);
	CHECK(rpma_mr_reg(peer, out, size, RPMA_MR_USAGE_WRITE_SRC, &src));

	/* until the server's peer configuration has been applied, a flush to persistence is not supported */
	ret = rpma_flush(conn, remote, 0, size, RPMA_FLUSH_TYPE_PERSISTENT,
		RPMA_F_COMPLETION_ALWAYS, NULL);
	REQUIRE(ret == RPMA_E_NOSUPP, "flushed without the server's word: %s", rpma_err_2str(ret));

	/* the server's configuration follows the region's descriptor, which is as long as our own */
	CHECK(rpma_conn_get_private_data(conn, &pdata));
	CHECK(rpma_mr_get_descriptor_size(src, &descriptor_size));
	REQUIRE(pdata.len > descriptor_size, "private data of %u bytes", pdata.len);
	CHECK(rpma_peer_cfg_from_descriptor((char *)pdata.ptr + descriptor_size,
		pdata.len - descriptor_size, &pcfg));
	CHECK(rpma_conn_apply_remote_peer_cfg(conn, pcfg));
	CHECK(rpma_peer_cfg_delete(&pcfg));

	/* once the flush has completed, the data of the preceding write are durable */
	CHECK(rpma_write(conn, remote, 0, src, 0, size, RPMA_F_COMPLETION_ON_ERROR, out));
	CHECK(rpma_flush(conn, remote, 0, size, RPMA_FLUSH_TYPE_PERSISTENT,
		RPMA_F_COMPLETION_ALWAYS, remote));
	/* the flush is executed as a read after the write, and completes as one */
	wait_success(cq, remote, IBV_WC_RDMA_READ);

	CHECK(rpma_conn_disconnect(conn));
	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_mr_remote_delete(&remote));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_mr_dereg(&src));
	free_pages(out, size);
	CHECK(rpma_peer_delete(&peer));

	verified("%zu bytes written and flushed to persistence", size);
	return 0;
}
