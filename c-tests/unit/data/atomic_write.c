/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_atomic_write */

#include "data.h"

static const char eight[8] = {1, 2, 3, 4, 5, 6, 7, '\x88'};

/* A write of eight bytes, inline and with a fence. */
static void success(void **state)
{
	(void)state;
	assert_int_equal(rpma_atomic_write(d_conn, d_remote, 0x48, eight, ALWAYS, CONTEXT), 0);
	CALLS("post_send(qp0, 0xfedcba9876543210, WRITE, SFI, inline 0102030405060788, "
		"remote 0x7000048 0x5678)");
	SILENT();
}

static void every_flag(void **state)
{
	char want[128];

	(void)state;
	for (int i = 0; i < n_flag_rows; i++) {
		assert_int_equal(rpma_atomic_write(d_conn, d_remote, 0, eight, flag_rows[i].flags, NULL),
				0);
		snprintf(want, sizeof(want), "post_send(qp0, 0x0, WRITE, %cFI, inline 0102030405060788, "
				"remote 0x7000000 0x5678)", flag_rows[i].signalled);
		CALLS(want);
	}
}

/* The source is plain memory, at any address. */
static void unaligned_source(void **state)
{
	char buf[16];

	(void)state;
	for (int i = 0; i < 8; i++) {
		memcpy(buf + i, eight, 8);
		assert_int_equal(rpma_atomic_write(d_conn, d_remote, 8, buf + i, ALWAYS, NULL), 0);
		CALLS("post_send(qp0, 0x0, WRITE, SFI, inline 0102030405060788, remote 0x7000008 0x5678)");
	}
}

/* Only the offset is checked, not the resulting address. */
static void region_at_odd_address(void **state)
{
	unsigned char desc[21];
	struct rpma_mr_remote *odd = NULL;

	(void)state;
	fx_descriptor(desc, 0x7000003, REMOTE_SIZE, REMOTE_RKEY, 8);
	assert_int_equal(rpma_mr_remote_from_descriptor(desc, 21, &odd), 0);
	assert_int_equal(rpma_atomic_write(d_conn, odd, 8, eight, ALWAYS, NULL), 0);
	CALLS("post_send(qp0, 0x0, WRITE, SFI, inline 0102030405060788, remote 0x700000b 0x5678)");
	fx_remote_delete(&odd);
}

static void fails(void **state)
{
	(void)state;
	mock_fail("post_send", 1, ENOMEM);
	assert_int_equal(rpma_atomic_write(d_conn, d_remote, 0, eight, ALWAYS, NULL), RPMA_E_PROVIDER);
	CALLS("post_send(qp0, 0x0, WRITE, SFI, inline 0102030405060788, remote 0x7000000 0x5678) "
		"! ENOMEM");
	ONE_ERROR(strerror(ENOMEM));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		DATA_TEST(success),
		DATA_TEST(every_flag),
		DATA_TEST(unaligned_source),
		DATA_TEST(region_at_odd_address),
		DATA_TEST(fails),
	};

	return cmocka_run_group_tests_name("atomic_write", tests, NULL, NULL);
}
