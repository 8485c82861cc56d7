/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_send, rpma_send_with_imm, rpma_recv */

#include "data.h"

enum { IMM = 0x00000001 };

static int do_send(struct rpma_conn *conn, struct rpma_mr_local *mr, size_t off, size_t len, int flags)
{
	return rpma_send(conn, mr, off, len, flags, CONTEXT);
}

static int do_send_with_imm(struct rpma_conn *conn, struct rpma_mr_local *mr, size_t off, size_t len,
		int flags)
{
	return rpma_send_with_imm(conn, mr, off, len, flags, IMM, CONTEXT);
}

static const struct op {
	int (*call)(struct rpma_conn *conn, struct rpma_mr_local *mr, size_t off, size_t len, int flags);
	const char *opcode, *imm;
} ops[] = {
	{do_send, "SEND", ""},
	{do_send_with_imm, "SEND_IMM", ", imm 00000001"},
};

#define FOR_EACH_OP(op) \
	for (const struct op *op = ops; op < ops + sizeof(ops) / sizeof(ops[0]); op++)

static void expect_post(const struct op *op, const char *flags, const char *data, const char *end,
		int line)
{
	char want[256];

	snprintf(want, sizeof(want), "post_send(qp0, 0xfedcba9876543210, %s, %s, %s%s)%s",
			op->opcode, flags, data, op->imm, end);
	expect_calls_at((const char *const[]){want, NULL}, __FILE__, line);
}
#define POSTED(op, flags, data) expect_post(op, flags, data, "", __LINE__)

static void send_success(void **state)
{
	(void)state;
	FOR_EACH_OP(op) {
		assert_int_equal(op->call(d_conn, d_mr, 0x10, 64, ALWAYS), 0);
		POSTED(op, "S--", "0x10010 64 0x101");
		assert_int_equal(op->call(d_conn, d_mr, 0, 0, ALWAYS), 0);
		POSTED(op, "S--", "0x10000 0 0x101");
		assert_int_equal(op->call(d_conn, d_mr, LOCAL_SIZE + 7, UINT32_MAX, ALWAYS), 0);
		POSTED(op, "S--", "0x18007 4294967295 0x101");
		SILENT();
	}
}

static void send_without_memory(void **state)
{
	(void)state;
	FOR_EACH_OP(op) {
		assert_int_equal(op->call(d_conn, NULL, 0, 0, ALWAYS), 0);
		POSTED(op, "S--", "no data");
	}
}

static void send_every_flag(void **state)
{
	(void)state;
	FOR_EACH_OP(op) {
		for (int i = 0; i < n_flag_rows; i++) {
			const char flags[] = {flag_rows[i].signalled, '-', '-', '\0'};
			assert_int_equal(op->call(d_conn, d_mr, 0, 8, flag_rows[i].flags), 0);
			POSTED(op, flags, "0x10000 8 0x101");
		}
	}
}

/* Latent bug of the original, fixed here: the length is truncated to 32 bits. */
static void send_length_past_32_bits(void **state)
{
	(void)state;
	FOR_EACH_OP(op) {
		if (original()) {
			assert_int_equal(op->call(d_conn, d_mr, 0, PAST_32_BITS, ALWAYS), 0);
			POSTED(op, "S--", "0x10000 8 0x101");
		} else {
			assert_int_equal(op->call(d_conn, d_mr, 0, PAST_32_BITS, ALWAYS), RPMA_E_INVAL);
			NO_CALLS();
		}
	}
}

static void send_fails(void **state)
{
	(void)state;
	FOR_EACH_OP(op) {
		mock_fail_reset();
		mock_fail("post_send", 1, ENOMEM);
		errno = EXDEV;
		assert_int_equal(op->call(d_conn, d_mr, 0, 8, ALWAYS), RPMA_E_PROVIDER);
		expect_post(op, "S--", "0x10000 8 0x101", " ! ENOMEM", __LINE__);
		ONE_ERROR(strerror(ENOMEM));
	}
}

/* Host byte order as the argument, network byte order in the request. */
static void immediate_value(void **state)
{
	static const struct { uint32_t imm; const char *text; } rows[] = {
		{0, "00000000"}, {0x80000000, "80000000"}, {0x000000ff, "000000ff"},
		{0x12345678, "12345678"}, {UINT32_MAX, "ffffffff"},
	};
	char want[128];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(rpma_send_with_imm(d_conn, NULL, 0, 0, ALWAYS, rows[i].imm, NULL), 0);
		snprintf(want, sizeof(want), "post_send(qp0, 0x0, SEND_IMM, S--, no data, imm %s)",
				rows[i].text);
		CALLS(want);
	}
}

/* ---- receiving ---- */

static void recv_success(void **state)
{
	(void)state;
	assert_int_equal(rpma_recv(d_conn, d_mr, 0x20, 300, CONTEXT), 0);
	CALLS("post_recv(qp0, 0xfedcba9876543210, 0x10020 300 0x101)");
	assert_int_equal(rpma_recv(d_conn, d_mr, 0, 0, NULL), 0);
	CALLS("post_recv(qp0, 0x0, 0x10000 0 0x101)");
	assert_int_equal(rpma_recv(d_conn, NULL, 0, 0, CONTEXT), 0);
	CALLS("post_recv(qp0, 0xfedcba9876543210, no data)");
	SILENT();
}

static void recv_fails(void **state)
{
	(void)state;
	mock_fail("post_recv", 1, EINVAL);
	errno = EXDEV;
	assert_int_equal(rpma_recv(d_conn, d_mr, 0, 8, CONTEXT), RPMA_E_PROVIDER);
	CALLS("post_recv(qp0, 0xfedcba9876543210, 0x10000 8 0x101) ! EINVAL");
	ONE_ERROR(strerror(EINVAL));
}

/* Latent bug of the original, fixed here: the length is truncated to 32 bits. */
static void recv_length_past_32_bits(void **state)
{
	(void)state;
	if (original()) {
		assert_int_equal(rpma_recv(d_conn, d_mr, 0, PAST_32_BITS, NULL), 0);
		CALLS("post_recv(qp0, 0x0, 0x10000 8 0x101)");
	} else {
		assert_int_equal(rpma_recv(d_conn, d_mr, 0, PAST_32_BITS, NULL), RPMA_E_INVAL);
		NO_CALLS();
	}
}

/* The library passes on a receive for a connection with an SRQ: the provider decides. */
static void recv_with_srq(void **state)
{
	struct rpma_srq *srq = fx_srq(d_peer, 20);
	struct rpma_conn_cfg *cfg = fx_cfg(10, 0, false, srq);
	struct rpma_conn *conn = fx_conn(d_peer, cfg);

	(void)state;
	assert_int_equal(rpma_recv(conn, d_mr, 0, 8, NULL), 0);
	CALLS("post_recv(qp1, 0x0, 0x10000 8 0x101)");
	fx_conn_delete(&conn);
	fx_cfg_delete(&cfg);
	fx_srq_delete(&srq);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		DATA_TEST(send_success),
		DATA_TEST(send_without_memory),
		DATA_TEST(send_every_flag),
		DATA_TEST(send_length_past_32_bits),
		DATA_TEST(send_fails),
		DATA_TEST(immediate_value),
		DATA_TEST(recv_success),
		DATA_TEST(recv_fails),
		DATA_TEST(recv_length_past_32_bits),
		DATA_TEST(recv_with_srq),
	};

	return cmocka_run_group_tests_name("send-recv", tests, NULL, NULL);
}
