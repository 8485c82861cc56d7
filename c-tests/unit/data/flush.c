/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_flush: a read of eight bytes after the writes */

#include "data.h"

#define PERSISTENT RPMA_FLUSH_TYPE_PERSISTENT
#define VISIBILITY RPMA_FLUSH_TYPE_VISIBILITY

#define FLUSH_READ(flags, remote) \
	"post_send(qp0, 0xfedcba9876543210, READ, " flags ", page0+0 8 0x100, remote " remote ")"

static struct rpma_mr_remote *both, *none, *persistent;

static int setup(void **state)
{
	data_setup(state);
	both = fx_remote(RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
	persistent = fx_remote(RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT | RPMA_MR_USAGE_WRITE_DST);
	none = fx_remote(0xff & ~(RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT |
			RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY));
	return 0;
}

static int teardown(void **state)
{
	fx_remote_delete(&both);
	fx_remote_delete(&persistent);
	fx_remote_delete(&none);
	return data_teardown(state);
}

static void allow_persistence(void)
{
	struct rpma_peer_cfg *pcfg = NULL;

	assert_int_equal(rpma_peer_cfg_new(&pcfg), 0);
	assert_int_equal(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true), 0);
	assert_int_equal(rpma_conn_apply_remote_peer_cfg(d_conn, pcfg), 0);
	assert_int_equal(rpma_peer_cfg_delete(&pcfg), 0);
	fx_forget();
}

static int flush(struct rpma_mr_remote *mr, enum rpma_flush_type type, int flags)
{
	return rpma_flush(d_conn, mr, 0x40, 256, type, flags, CONTEXT);
}

static void visibility(void **state)
{
	(void)state;
	assert_int_equal(flush(both, VISIBILITY, ALWAYS), 0);
	CALLS(FLUSH_READ("S--", "0x7000040 0x5678"));
	SILENT();
}

/* The same operation: the peer configuration permits direct writes to persistent memory. */
static void persistence(void **state)
{
	(void)state;
	allow_persistence();
	assert_int_equal(flush(both, PERSISTENT, ALWAYS), 0);
	CALLS(FLUSH_READ("S--", "0x7000040 0x5678"));
	assert_int_equal(flush(persistent, PERSISTENT, ALWAYS), 0);
	CALLS(FLUSH_READ("S--", "0x7000040 0x5678"));
	SILENT();
}

static void not_direct_write_to_pmem(void **state)
{
	(void)state;
	assert_int_equal(flush(both, PERSISTENT, ALWAYS), RPMA_E_NOSUPP);
	NO_CALLS();
	ONE_ERROR("");
	/* one reason is enough */
	assert_int_equal(flush(none, PERSISTENT, ALWAYS), RPMA_E_NOSUPP);
	NO_CALLS();
	ONE_ERROR("");
}

static void region_without_the_type(void **state)
{
	(void)state;
	allow_persistence();
	assert_int_equal(flush(none, PERSISTENT, ALWAYS), RPMA_E_NOSUPP);
	ONE_ERROR("");
	assert_int_equal(flush(d_remote, PERSISTENT, ALWAYS), RPMA_E_NOSUPP);
	ONE_ERROR("");
	assert_int_equal(flush(none, VISIBILITY, ALWAYS), RPMA_E_NOSUPP);
	ONE_ERROR("");
	/* persistence does not include visibility */
	assert_int_equal(flush(persistent, VISIBILITY, ALWAYS), RPMA_E_NOSUPP);
	ONE_ERROR("");
	NO_CALLS();
}

static void every_flag(void **state)
{
	char want[160];

	(void)state;
	for (int i = 0; i < n_flag_rows; i++) {
		assert_int_equal(flush(both, VISIBILITY, flag_rows[i].flags), 0);
		snprintf(want, sizeof(want), "post_send(qp0, 0xfedcba9876543210, READ, %c--, "
				"page0+0 8 0x100, remote 0x7000040 0x5678)", flag_rows[i].signalled);
		CALLS(want);
	}
}

/* Eight bytes are read whatever the length, also past the end of the region. */
static void length_is_ignored(void **state)
{
	static const size_t lens[] = {0, 1, 8, REMOTE_SIZE, UINT32_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		assert_int_equal(rpma_flush(d_conn, both, REMOTE_SIZE, lens[i], VISIBILITY, ALWAYS,
				CONTEXT), 0);
		CALLS(FLUSH_READ("S--", "0x7009000 0x5678"));
	}
}

static void fails(void **state)
{
	(void)state;
	mock_fail("post_send", 1, ENOMEM);
	assert_int_equal(flush(both, VISIBILITY, ALWAYS), RPMA_E_PROVIDER);
	CALLS(FLUSH_READ("S--", "0x7000040 0x5678") " ! ENOMEM");
	ONE_ERROR(strerror(ENOMEM));
}

/* Each connection reads into a separate buffer. */
static void buffer_of_each_connection(void **state)
{
	struct rpma_conn *other = fx_conn(d_peer, NULL);

	(void)state;
	assert_int_equal(rpma_flush(other, both, 0, 8, VISIBILITY, ALWAYS, CONTEXT), 0);
	CALLS("post_send(qp1, 0xfedcba9876543210, READ, S--, page1+0 8 0x102, "
		"remote 0x7000000 0x5678)");
	assert_int_equal(flush(both, VISIBILITY, ALWAYS), 0);
	CALLS(FLUSH_READ("S--", "0x7000040 0x5678"));
	fx_conn_delete(&other);
}

#define FLUSH_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		FLUSH_TEST(visibility),
		FLUSH_TEST(persistence),
		FLUSH_TEST(not_direct_write_to_pmem),
		FLUSH_TEST(region_without_the_type),
		FLUSH_TEST(every_flag),
		FLUSH_TEST(length_is_ignored),
		FLUSH_TEST(fails),
		FLUSH_TEST(buffer_of_each_connection),
	};

	return cmocka_run_group_tests_name("flush", tests, NULL, NULL);
}
