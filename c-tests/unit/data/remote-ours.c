/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * An access that the remote memory region does not permit is posted to the device like any other, with one
 * warning.
 */

#include "data.h"

static struct rpma_mr_remote *source;

static int setup(void **state)
{
	data_setup(state);
	source = fx_remote(RPMA_MR_USAGE_READ_SRC);
	fx_forget();
	return 0;
}

static int teardown(void **state)
{
	fx_remote_delete(&source);
	return data_teardown(state);
}

/* The only line in the log is a warning that contains this. */
#define WARNS(part) \
	do { \
		enum rpma_log_level level_ = RPMA_LOG_LEVEL_FATAL; \
		const char *line_ = mock_last_log(&level_); \
		if (line_ == NULL || level_ != RPMA_LOG_LEVEL_WARNING || strstr(line_, part) == NULL) \
			fail_msg("not a warning with \"%s\": %s", part, line_ != NULL ? line_ : "nothing"); \
		assert_int_equal(mock_logged(RPMA_LOG_LEVEL_WARNING), 1); \
	} while (0)

#define END REMOTE_SIZE

static void past_the_end(void **state)
{
	(void)state;
	assert_int_equal(rpma_write(d_conn, d_remote, END - 8, d_mr, 0, 9, ALWAYS, CONTEXT), 0);
	CALLS("post_send(qp0, 0xfedcba9876543210, WRITE, S--, 0x10000 9 0x101, remote 0x7008ff8 0x5678)");
	WARNS("rpma_write: 9 bytes at 36856 of a region of 36864; op_context 0xfedcba9876543210\n");
	assert_int_equal(rpma_write_with_imm(d_conn, d_remote, END + 1, d_mr, 0, 1, ALWAYS, 7, CONTEXT), 0);
	mock_forget_calls();
	WARNS("rpma_write_with_imm: 1 bytes at 36865 of");
	assert_int_equal(rpma_read(d_conn, d_mr, 0, d_remote, (size_t)-1, 2, ALWAYS, CONTEXT), 0);
	CALLS("post_send(qp0, 0xfedcba9876543210, READ, S--, 0x10000 2 0x101, remote 0x6ffffff 0x5678)");
	WARNS("rpma_read: 2 bytes at 18446744073709551615 of");
	assert_int_equal(rpma_flush(d_conn, d_remote, 0, END + 1, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, CONTEXT), 0);
	CALLS("post_send(qp0, 0xfedcba9876543210, READ, S--, page0+0 8 0x100, remote 0x7000000 0x5678)");
	WARNS("rpma_flush: 36865 bytes at 0 of");
	assert_int_equal(rpma_flush(d_conn, d_remote, END - 4, 4, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, CONTEXT), 0);
	mock_forget_calls();
	WARNS("rpma_flush: 8 bytes at 36860 of");
}

static void without_the_right(void **state)
{
	static const char eight[8];

	(void)state;
	assert_int_equal(rpma_write(d_conn, source, 0, d_mr, 0, 8, ALWAYS, CONTEXT), 0);
	mock_forget_calls();
	WARNS("rpma_write: 8 bytes at 0 of a region of 36864 that the remote peer has registered without RPMA_MR_USAGE_WRITE_DST;");
	assert_int_equal(rpma_atomic_write(d_conn, source, 8, eight, ALWAYS, CONTEXT), 0);
	mock_forget_calls();
	WARNS("rpma_atomic_write: 8 bytes at 8 of");
}

/* At the end, without bytes, and without a region. */
static void as_it_should_be(void **state)
{
	(void)state;
	assert_int_equal(rpma_write(d_conn, d_remote, END - 8, d_mr, 0, 8, ALWAYS, CONTEXT), 0);
	assert_int_equal(rpma_write(d_conn, d_remote, END + 9, d_mr, 0, 0, ALWAYS, CONTEXT), 0);
	assert_int_equal(rpma_write(d_conn, source, 0, d_mr, 0, 0, ALWAYS, CONTEXT), 0);
	assert_int_equal(rpma_write(d_conn, NULL, 0, NULL, 0, 0, ALWAYS, CONTEXT), 0);
	assert_int_equal(rpma_read(d_conn, d_mr, 0, source, 0, END, ALWAYS, CONTEXT), 0);
	assert_int_equal(rpma_flush(d_conn, d_remote, END - 8, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, CONTEXT), 0);
	SILENT();
	/* no warning for a rejected request */
	assert_int_equal(rpma_write(d_conn, d_remote, END, d_mr, 0, 8, 0, CONTEXT), RPMA_E_INVAL);
	assert_int_equal(rpma_write(d_conn, d_remote, END, NULL, 0, 8, ALWAYS, CONTEXT), RPMA_E_INVAL);
	SILENT();
	mock_forget_calls();
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(past_the_end),
		TEST(without_the_right),
		TEST(as_it_should_be),
	};

	return cmocka_run_group_tests_name("remote-ours", tests, NULL, NULL);
}
