/* SPDX-License-Identifier: BSD-3-Clause */

/* Every NULL and zero argument of the functions about connections, one test a function. */

#include "null.h"

RPMA_CONNECTION_FUNCTIONS(NULL_DECLARE)

#define TWO_POINTERS(fn, object, out_type) \
	do { \
		INVAL(fn(NULL, OUT(out_type))); \
		INVAL(fn(object, NULL)); \
		INVAL(fn(NULL, NULL)); \
	} while (0)

#define DELETES_NOTHING(type, fn) \
	do { \
		struct type *none = NULL; \
		INVAL(fn(NULL)); \
		assert_int_equal(fn(&none), 0); \
		assert_null(none); \
		NO_CALLS(); \
		SILENT(); \
	} while (0)

/* ---- endpoints ---- */

NULL_TEST(rpma_ep_listen)
{
	INVAL(rpma_ep_listen(NULL, ADDR, PORT, OUT(struct rpma_ep **)));
	INVAL(rpma_ep_listen(d_peer, NULL, PORT, OUT(struct rpma_ep **)));
	INVAL(rpma_ep_listen(d_peer, ADDR, NULL, OUT(struct rpma_ep **)));
	INVAL(rpma_ep_listen(d_peer, ADDR, PORT, NULL));
	INVAL(rpma_ep_listen(NULL, NULL, NULL, NULL));
}

NULL_TEST(rpma_ep_shutdown)
{
	DELETES_NOTHING(rpma_ep, rpma_ep_shutdown);
}

NULL_TEST(rpma_ep_get_fd)
{
	TWO_POINTERS(rpma_ep_get_fd, n_ep, int *);
}

NULL_TEST(rpma_ep_next_conn_req)
{
	INVAL(rpma_ep_next_conn_req(NULL, n_cfg, OUT(struct rpma_conn_req **)));
	INVAL(rpma_ep_next_conn_req(NULL, NULL, OUT(struct rpma_conn_req **)));
	INVAL(rpma_ep_next_conn_req(n_ep, n_cfg, NULL));
	INVAL(rpma_ep_next_conn_req(NULL, NULL, NULL));
}

/* ---- requests ---- */

NULL_TEST(rpma_conn_req_new)
{
	INVAL(rpma_conn_req_new(NULL, ADDR, PORT, n_cfg, OUT(struct rpma_conn_req **)));
	INVAL(rpma_conn_req_new(d_peer, NULL, PORT, n_cfg, OUT(struct rpma_conn_req **)));
	INVAL(rpma_conn_req_new(d_peer, ADDR, NULL, n_cfg, OUT(struct rpma_conn_req **)));
	INVAL(rpma_conn_req_new(d_peer, ADDR, PORT, n_cfg, NULL));
	INVAL(rpma_conn_req_new(NULL, NULL, NULL, NULL, NULL));
}

NULL_TEST(rpma_conn_req_delete)
{
	DELETES_NOTHING(rpma_conn_req, rpma_conn_req_delete);
}

/* What happens to a request beside bad arguments is in unit/conn_req. */
NULL_TEST(rpma_conn_req_connect)
{
	struct rpma_conn_req *none = NULL;
	const struct rpma_conn_private_data bad = {NULL, 0};

	INVAL(rpma_conn_req_connect(NULL, NULL, OUT(struct rpma_conn **)));
	INVAL(rpma_conn_req_connect(&none, NULL, OUT(struct rpma_conn **)));
	INVAL(rpma_conn_req_connect(&none, &bad, OUT(struct rpma_conn **)));
	INVAL(rpma_conn_req_connect(NULL, NULL, NULL));
	INVAL(rpma_conn_req_connect(&none, NULL, NULL));
	assert_null(none);
}

NULL_TEST(rpma_conn_req_recv)
{
	INVAL(rpma_conn_req_recv(NULL, d_mr, 0, 8, CONTEXT));
	INVAL(rpma_conn_req_recv(n_req, NULL, 0, 8, CONTEXT));
	INVAL(rpma_conn_req_recv(n_req, NULL, 0, 0, CONTEXT));
	INVAL(rpma_conn_req_recv(NULL, NULL, 0, 0, NULL));
}

NULL_TEST(rpma_conn_req_get_private_data)
{
	TWO_POINTERS(rpma_conn_req_get_private_data, n_req, struct rpma_conn_private_data *);
}

/* ---- connections ---- */

NULL_TEST(rpma_conn_get_event_fd)
{
	TWO_POINTERS(rpma_conn_get_event_fd, d_conn, int *);
}

NULL_TEST(rpma_conn_next_event)
{
	TWO_POINTERS(rpma_conn_next_event, d_conn, enum rpma_conn_event *);
}

NULL_TEST(rpma_conn_get_private_data)
{
	TWO_POINTERS(rpma_conn_get_private_data, d_conn, struct rpma_conn_private_data *);
}

NULL_TEST(rpma_conn_apply_remote_peer_cfg)
{
	INVAL(rpma_conn_apply_remote_peer_cfg(NULL, n_pcfg));
	INVAL(rpma_conn_apply_remote_peer_cfg(d_conn, NULL));
	INVAL(rpma_conn_apply_remote_peer_cfg(NULL, NULL));
}

NULL_TEST(rpma_conn_disconnect)
{
	INVAL(rpma_conn_disconnect(NULL));
}

NULL_TEST(rpma_conn_delete)
{
	DELETES_NOTHING(rpma_conn, rpma_conn_delete);
}

NULL_TEST(rpma_conn_get_qp_num)
{
	TWO_POINTERS(rpma_conn_get_qp_num, d_conn, uint32_t *);
}

NULL_TEST(rpma_conn_get_cq)
{
	TWO_POINTERS(rpma_conn_get_cq, d_conn, struct rpma_cq **);
}

NULL_TEST(rpma_conn_get_rcq)
{
	TWO_POINTERS(rpma_conn_get_rcq, d_conn, struct rpma_cq **);
}

NULL_TEST(rpma_conn_get_compl_fd)
{
	TWO_POINTERS(rpma_conn_get_compl_fd, d_conn, int *);
}

NULL_TEST(rpma_conn_wait)
{
	INVAL(rpma_conn_wait(NULL, 0, OUT(struct rpma_cq **), NULL));
	INVAL(rpma_conn_wait(d_conn, 0, NULL, OUT(bool *)));
	INVAL(rpma_conn_wait(NULL, 0, NULL, NULL));
}

/* ---- operations: pointers, flags, and the halves of a zero-byte form ---- */

NULL_TEST(rpma_read)
{
	INVAL(rpma_read(NULL, d_mr, 0, d_remote, 0, 8, ALWAYS, CONTEXT));
	INVAL(rpma_read(d_conn, NULL, 0, d_remote, 0, 8, ALWAYS, CONTEXT));
	INVAL(rpma_read(d_conn, d_mr, 0, NULL, 0, 8, ALWAYS, CONTEXT));
	INVAL(rpma_read(d_conn, d_mr, 0, d_remote, 0, 8, 0, CONTEXT));
	INVAL(rpma_read(d_conn, NULL, 0, NULL, 0, 8, ALWAYS, CONTEXT));
	INVAL(rpma_read(NULL, NULL, 0, NULL, 0, 0, 0, NULL));
}

NULL_TEST(rpma_write)
{
	INVAL(rpma_write(NULL, d_remote, 0, d_mr, 0, 8, ALWAYS, CONTEXT));
	INVAL(rpma_write(d_conn, NULL, 0, d_mr, 0, 8, ALWAYS, CONTEXT));
	INVAL(rpma_write(d_conn, d_remote, 0, NULL, 0, 8, ALWAYS, CONTEXT));
	INVAL(rpma_write(d_conn, d_remote, 0, d_mr, 0, 8, 0, CONTEXT));
	INVAL(rpma_write(d_conn, NULL, 0, NULL, 0, 8, ALWAYS, CONTEXT));
	INVAL(rpma_write(NULL, NULL, 0, NULL, 0, 0, 0, NULL));
}

NULL_TEST(rpma_write_with_imm)
{
	INVAL(rpma_write_with_imm(NULL, d_remote, 0, d_mr, 0, 8, ALWAYS, 1, CONTEXT));
	INVAL(rpma_write_with_imm(d_conn, NULL, 0, d_mr, 0, 8, ALWAYS, 1, CONTEXT));
	INVAL(rpma_write_with_imm(d_conn, d_remote, 0, NULL, 0, 8, ALWAYS, 1, CONTEXT));
	INVAL(rpma_write_with_imm(d_conn, d_remote, 0, d_mr, 0, 8, 0, 1, CONTEXT));
	INVAL(rpma_write_with_imm(d_conn, NULL, 0, NULL, 0, 8, ALWAYS, 1, CONTEXT));
	INVAL(rpma_write_with_imm(NULL, NULL, 0, NULL, 0, 0, 0, 0, NULL));
}

NULL_TEST(rpma_atomic_write)
{
	INVAL(rpma_atomic_write(NULL, d_remote, 0, "1234567", ALWAYS, CONTEXT));
	INVAL(rpma_atomic_write(d_conn, NULL, 0, "1234567", ALWAYS, CONTEXT));
	INVAL(rpma_atomic_write(d_conn, d_remote, 0, NULL, ALWAYS, CONTEXT));
	INVAL(rpma_atomic_write(d_conn, d_remote, 0, "1234567", 0, CONTEXT));
	INVAL(rpma_atomic_write(NULL, NULL, 0, NULL, 0, NULL));
}

NULL_TEST(rpma_flush)
{
	INVAL(rpma_flush(NULL, d_remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, CONTEXT));
	INVAL(rpma_flush(d_conn, NULL, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, CONTEXT));
	INVAL(rpma_flush(d_conn, d_remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, 0, CONTEXT));
	INVAL(rpma_flush(d_conn, d_remote, 0, 8, RPMA_FLUSH_TYPE_PERSISTENT, 0, CONTEXT));
	INVAL(rpma_flush(NULL, NULL, 0, 0, RPMA_FLUSH_TYPE_PERSISTENT, 0, NULL));
}

NULL_TEST(rpma_send)
{
	INVAL(rpma_send(NULL, d_mr, 0, 8, ALWAYS, CONTEXT));
	INVAL(rpma_send(d_conn, NULL, 0, 8, ALWAYS, CONTEXT));
	INVAL(rpma_send(d_conn, NULL, 8, 0, ALWAYS, CONTEXT));
	INVAL(rpma_send(d_conn, d_mr, 0, 8, 0, CONTEXT));
	INVAL(rpma_send(NULL, NULL, 0, 0, 0, NULL));
}

NULL_TEST(rpma_send_with_imm)
{
	INVAL(rpma_send_with_imm(NULL, d_mr, 0, 8, ALWAYS, 1, CONTEXT));
	INVAL(rpma_send_with_imm(d_conn, NULL, 0, 8, ALWAYS, 1, CONTEXT));
	INVAL(rpma_send_with_imm(d_conn, NULL, 8, 0, ALWAYS, 1, CONTEXT));
	INVAL(rpma_send_with_imm(d_conn, d_mr, 0, 8, 0, 1, CONTEXT));
	INVAL(rpma_send_with_imm(NULL, NULL, 0, 0, 0, 0, NULL));
}

NULL_TEST(rpma_recv)
{
	INVAL(rpma_recv(NULL, d_mr, 0, 8, CONTEXT));
	INVAL(rpma_recv(d_conn, NULL, 0, 8, CONTEXT));
	INVAL(rpma_recv(d_conn, NULL, 8, 0, CONTEXT));
	INVAL(rpma_recv(NULL, NULL, 0, 0, NULL));
}

/* ---- completion queues ---- */

NULL_TEST(rpma_cq_get_fd)
{
	TWO_POINTERS(rpma_cq_get_fd, n_cq, int *);
}

NULL_TEST(rpma_cq_wait)
{
	INVAL(rpma_cq_wait(NULL));
}

NULL_TEST(rpma_cq_get_wc)
{
	int n;

	INVAL(rpma_cq_get_wc(NULL, 1, OUT(struct ibv_wc *), &n));
	INVAL(rpma_cq_get_wc(n_cq, 0, OUT(struct ibv_wc *), &n));
	INVAL(rpma_cq_get_wc(n_cq, 1, NULL, &n));
	INVAL(rpma_cq_get_wc(n_cq, 2, OUT(struct ibv_wc *), NULL));
	INVAL(rpma_cq_get_wc(NULL, 0, NULL, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {RPMA_CONNECTION_FUNCTIONS(NULL_ROW)};

	return cmocka_run_group_tests_name("null-connections", tests, NULL, NULL);
}
