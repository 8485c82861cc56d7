/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * rpma_atomic_write on a queue pair without inline data (the original cannot create such a connection), and
 * rpma_write_atomic, which the latest releases lack.
 */

#include "data.h"

static const char eight[8] = {1, 2, 3, 4, 5, 6, 7, '\x88'};

/* A connection whose device refused inline data; qp1, mr3 with a slot for each request. */
static struct rpma_conn *conn_without_inline(void)
{
	struct rpma_conn *conn = NULL;

	mock_fail("rdma_create_qp_ex", 1, EINVAL);
	struct rpma_conn_req *req = fx_req(d_peer, NULL);
	assert_int_equal(rpma_conn_req_connect(&req, NULL, &conn), 0);
	/* the provider granted 16 send requests; 10 were requested */
	CALLS("rdma_create_event_channel() = evch1", "rdma_migrate_id(id1, evch1)",
		"mmap(page, RW, shared) = page1", "ibv_reg_mr(pd0, page1+0, 8, LW) = mr2",
		"mmap(page, RW, shared) = page2", "ibv_reg_mr(pd0, page2+0, 128, LW) = mr3",
		"rdma_connect(id1, " PARAMS("NULL 0") ")");
	mock_forget_log();
	return conn;
}

/* The eight bytes at an offset of the connection's own registered memory. */
static void expect_copied(unsigned offset)
{
	assert_memory_equal((char *)mock_named("page2") + offset, eight, 8);
}

static void copied_before_posting(void **state)
{
	struct rpma_conn *conn = conn_without_inline();
	char value[8];

	(void)state;
	memcpy(value, eight, 8);
	assert_int_equal(rpma_atomic_write(conn, d_remote, 0x48, value, ALWAYS, CONTEXT), 0);
	CALLS("post_send(qp1, 0xfedcba9876543210, WRITE, SF-, page2+0 8 0x103, "
		"remote 0x7000048 0x5678)");
	memset(value, 0, sizeof(value)); /* the caller may reuse it immediately */
	expect_copied(0);
	SILENT();
	fx_conn_delete(&conn);
}

/* A slot is not reused while its request can be outstanding. */
static void place_for_each_request(void **state)
{
	struct rpma_conn *conn = conn_without_inline();
	char want[128];

	(void)state;
	for (unsigned i = 0; i < 16; i++) {
		assert_int_equal(rpma_atomic_write(conn, d_remote, 0, eight, ALWAYS, NULL), 0);
		snprintf(want, sizeof(want), "post_send(qp1, 0x0, WRITE, SF-, page2+%u 8 0x103, "
				"remote 0x7000000 0x5678)", i * 8);
		CALLS(want);
		expect_copied(i * 8);
	}
	fx_conn_delete(&conn);
}

static void failed_post_leaves_the_place_free(void **state)
{
	struct rpma_conn *conn = conn_without_inline();

	(void)state;
	mock_fail("post_send", 1, ENOMEM);
	assert_int_equal(rpma_atomic_write(conn, d_remote, 0, eight, ALWAYS, NULL), RPMA_E_PROVIDER);
	ONE_ERROR(strerror(ENOMEM));
	assert_int_equal(rpma_atomic_write(conn, d_remote, 0, eight, ALWAYS, NULL), 0);
	CALLS("post_send(qp1, 0x0, WRITE, SF-, page2+0 8 0x103, remote 0x7000000 0x5678) ! ENOMEM",
		"post_send(qp1, 0x0, WRITE, SF-, page2+0 8 0x103, remote 0x7000000 0x5678)");
	fx_conn_delete(&conn);
}

static void deleted_with_the_connection(void **state)
{
	struct rpma_conn *conn = conn_without_inline();

	(void)state;
	assert_int_equal(rpma_conn_delete(&conn), 0);
	CALLS("ibv_dereg_mr(mr2)", "munmap(page1)", "ibv_dereg_mr(mr3)", "munmap(page2)",
		"rdma_destroy_qp(id1)", "ibv_destroy_cq(cq1)", "ibv_destroy_comp_channel(chan1)",
		"rdma_destroy_id(id1)", "rdma_destroy_event_channel(evch1)");
}

/* The connection cannot be created without these slots: all is undone. */
static void registration_fails(void **state)
{
	struct rpma_conn *conn = UNTOUCHED;

	(void)state;
	mock_fail("rdma_create_qp_ex", 1, EINVAL);
	struct rpma_conn_req *req = fx_req(d_peer, NULL);
	mock_fail("ibv_reg_mr", 2, ENOMEM);
	assert_int_equal(rpma_conn_req_connect(&req, NULL, &conn), RPMA_E_PROVIDER);
	assert_null(req);
	assert_ptr_equal(conn, UNTOUCHED);
	CALLS("rdma_create_event_channel() = evch1", "rdma_migrate_id(id1, evch1)",
		"mmap(page, RW, shared) = page1", "ibv_reg_mr(pd0, page1+0, 8, LW) = mr2",
		"mmap(page, RW, shared) = page2", "ibv_reg_mr(pd0, page2+0, 128, LW) ! ENOMEM",
		"munmap(page2)", "ibv_dereg_mr(mr2)", "munmap(page1)",
		"rdma_migrate_id(id1, NULL)", "rdma_destroy_event_channel(evch1)",
		"rdma_destroy_qp(id1)", "ibv_destroy_cq(cq1)", "ibv_destroy_comp_channel(chan1)",
		"rdma_destroy_id(id1)");
	ONE_ERROR(strerror(ENOMEM));
}

/* ---- rpma_write_atomic ---- */

/* Eight bytes of a region, with a fence, not inline; the local offset need not be aligned. */
static void write_atomic_success(void **state)
{
	(void)state;
	assert_int_equal(rpma_write_atomic(d_conn, d_remote, 0x48, d_mr, 0x13, ALWAYS, CONTEXT), 0);
	CALLS("post_send(qp0, 0xfedcba9876543210, WRITE, SF-, 0x10013 8 0x101, "
		"remote 0x7000048 0x5678)");
	SILENT();
}

static void write_atomic_every_flag(void **state)
{
	char want[128];

	(void)state;
	for (int i = 0; i < n_flag_rows; i++) {
		assert_int_equal(rpma_write_atomic(d_conn, d_remote, 0, d_mr, 0, flag_rows[i].flags, NULL),
				0);
		snprintf(want, sizeof(want), "post_send(qp0, 0x0, WRITE, %cF-, 0x10000 8 0x101, "
				"remote 0x7000000 0x5678)", flag_rows[i].signalled);
		CALLS(want);
	}
}

static void write_atomic_fails(void **state)
{
	(void)state;
	mock_fail("post_send", 1, ENOMEM);
	assert_int_equal(rpma_write_atomic(d_conn, d_remote, 0, d_mr, 0, ALWAYS, NULL),
			RPMA_E_PROVIDER);
	mock_forget_calls();
	ONE_ERROR(strerror(ENOMEM));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		DATA_TEST(copied_before_posting),
		DATA_TEST(place_for_each_request),
		DATA_TEST(failed_post_leaves_the_place_free),
		DATA_TEST(deleted_with_the_connection),
		DATA_TEST(registration_fails),
		DATA_TEST(write_atomic_success),
		DATA_TEST(write_atomic_every_flag),
		DATA_TEST(write_atomic_fails),
	};

	return cmocka_run_group_tests_name("atomic_write-ours", tests, NULL, NULL);
}
