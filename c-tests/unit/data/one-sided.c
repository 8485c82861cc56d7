/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_read, rpma_write, rpma_write_with_imm: one table, the same checks for each */

#include "data.h"

enum { IMM = 0x1a2b3c4d };

struct args {
	struct rpma_conn *conn;
	struct rpma_mr_local *local;
	size_t local_off;
	struct rpma_mr_remote *remote;
	size_t remote_off, len;
	int flags;
};

static int do_read(const struct args *a)
{
	return rpma_read(a->conn, a->local, a->local_off, a->remote, a->remote_off, a->len,
			a->flags, CONTEXT);
}

static int do_write(const struct args *a)
{
	return rpma_write(a->conn, a->remote, a->remote_off, a->local, a->local_off, a->len,
			a->flags, CONTEXT);
}

static int do_write_with_imm(const struct args *a)
{
	return rpma_write_with_imm(a->conn, a->remote, a->remote_off, a->local, a->local_off, a->len,
			a->flags, IMM, CONTEXT);
}

/* The immediate value is posted in network byte order. */
static const struct op {
	int (*call)(const struct args *a);
	const char *opcode, *imm;
} ops[] = {
	{do_read, "READ", ""},
	{do_write, "WRITE", ""},
	{do_write_with_imm, "WRITE_IMM", ", imm 1a2b3c4d"},
};

#define FOR_EACH_OP(op) \
	for (const struct op *op = ops; op < ops + sizeof(ops) / sizeof(ops[0]); op++)

static void expect_post(const struct op *op, const char *flags, const char *data,
		const char *remote, const char *end, int line)
{
	char want[256];

	snprintf(want, sizeof(want), "post_send(qp0, 0xfedcba9876543210, %s, %s, %s, remote %s%s)%s",
			op->opcode, flags, data, remote, op->imm, end);
	expect_calls_at((const char *const[]){want, NULL}, __FILE__, line);
}
#define POSTED(op, flags, data, remote) expect_post(op, flags, data, remote, "", __LINE__)

static void success(void **state)
{
	const struct args a = {d_conn, d_mr, 0x40, d_remote, 0x500, 100, ALWAYS};

	(void)state;
	FOR_EACH_OP(op) {
		assert_int_equal(op->call(&a), 0);
		POSTED(op, "S--", "0x10040 100 0x101", "0x7000500 0x5678");
		SILENT();
	}
}

static void every_flag(void **state)
{
	struct args a = {d_conn, d_mr, 0, d_remote, 0, 8, 0};

	(void)state;
	FOR_EACH_OP(op) {
		for (int i = 0; i < n_flag_rows; i++) {
			const char flags[] = {flag_rows[i].signalled, '-', '-', '\0'};
			a.flags = flag_rows[i].flags;
			assert_int_equal(op->call(&a), 0);
			POSTED(op, flags, "0x10000 8 0x101", "0x7000000 0x5678");
		}
	}
}

/* No region at all: an operation of zero bytes. */
static void without_memory(void **state)
{
	const struct args a = {d_conn, NULL, 0, NULL, 0, 0, ALWAYS};

	(void)state;
	FOR_EACH_OP(op) {
		assert_int_equal(op->call(&a), 0);
		POSTED(op, "S--", "no data", "0x0 0x0");
	}
}

static void length_zero(void **state)
{
	const struct args a = {d_conn, d_mr, 8, d_remote, 16, 0, ALWAYS};

	(void)state;
	FOR_EACH_OP(op) {
		assert_int_equal(op->call(&a), 0);
		POSTED(op, "S--", "0x10008 0 0x101", "0x7000010 0x5678");
	}
}

/* The provider checks offsets and lengths against the registrations. */
static void past_the_regions(void **state)
{
	const struct args a = {d_conn, d_mr, LOCAL_SIZE + 1, d_remote, REMOTE_SIZE + 1, UINT32_MAX,
		ALWAYS};

	(void)state;
	FOR_EACH_OP(op) {
		assert_int_equal(op->call(&a), 0);
		POSTED(op, "S--", "0x18001 4294967295 0x101", "0x7009001 0x5678");
	}
}

/* Latent bug of the original, fixed here: the length is truncated to 32 bits. */
static void length_past_32_bits(void **state)
{
	const struct args a = {d_conn, d_mr, 0, d_remote, 0, PAST_32_BITS, ALWAYS};

	(void)state;
	FOR_EACH_OP(op) {
		if (original()) {
			assert_int_equal(op->call(&a), 0);
			POSTED(op, "S--", "0x10000 8 0x101", "0x7000000 0x5678");
		} else {
			assert_int_equal(op->call(&a), RPMA_E_INVAL);
			NO_CALLS();
		}
	}
}

/* The return value of the post is the error, not errno. */
static void post_fails(void **state)
{
	static const int errs[] = {ENOMEM, EINVAL, EIO};
	const struct args a = {d_conn, d_mr, 0, d_remote, 0, 8, ALWAYS};

	(void)state;
	FOR_EACH_OP(op) {
		for (size_t i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
			char end[24];
			snprintf(end, sizeof(end), " ! %s", strerrorname_np(errs[i]));
			mock_fail_reset();
			mock_fail("post_send", 1, errs[i]);
			errno = EXDEV;
			assert_int_equal(op->call(&a), RPMA_E_PROVIDER);
			expect_post(op, "S--", "0x10000 8 0x101", "0x7000000 0x5678", end, __LINE__);
			ONE_ERROR(strerror(errs[i]));
		}
	}
}

/* A request must not contain fields of the previous one. */
static void mixed(void **state)
{
	struct args a = {d_conn, d_mr, 1, d_remote, 2, 3, ALWAYS};

	(void)state;
	for (int i = 0; i < 20; i++) {
		const struct op *op = &ops[i * 7 % 3];
		a.flags = i % 4 == 0 ? RPMA_F_COMPLETION_ON_ERROR : ALWAYS;
		assert_int_equal(op->call(&a), 0);
		POSTED(op, i % 4 == 0 ? "---" : "S--", "0x10001 3 0x101", "0x7000002 0x5678");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		DATA_TEST(success),
		DATA_TEST(every_flag),
		DATA_TEST(without_memory),
		DATA_TEST(length_zero),
		DATA_TEST(past_the_regions),
		DATA_TEST(length_past_32_bits),
		DATA_TEST(post_fails),
		DATA_TEST(mixed),
	};

	return cmocka_run_group_tests_name("one-sided", tests, NULL, NULL);
}
