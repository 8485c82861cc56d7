/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_mr_advise */

#include "fixture.h"

static struct rpma_peer *peer;
static struct rpma_mr_local *mr;

static int setup(void **state)
{
	mock_setup(state);
	peer = fx_peer();
	mr = fx_mr(peer, RPMA_MR_USAGE_WRITE_DST);
	return 0;
}

static int teardown(void **state)
{
	fx_mr_dereg(&mr);
	fx_peer_delete(&peer);
	return mock_teardown(state);
}

static void success(void **state)
{
	(void)state;
	assert_int_equal(rpma_mr_advise(mr, 0x20, 0x300, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
			IBV_ADVISE_MR_FLAG_FLUSH), 0);
	CALLS("ibv_advise_mr(pd0, 1, 0x1, {0x10020, 768, 0x100}, 1)");
	assert_int_equal(rpma_mr_advise(mr, 0, LOCAL_SIZE, IBV_ADVISE_MR_ADVICE_PREFETCH, 0), 0);
	CALLS("ibv_advise_mr(pd0, 0, 0x0, {0x10000, 32768, 0x100}, 1)");
	SILENT();
}

/* The provider checks advice and flags; the range is not checked here. */
static void passed_on_as_given(void **state)
{
	(void)state;
	assert_int_equal(rpma_mr_advise(mr, 0x1000000, 0, 77, 0xabcd), 0);
	CALLS("ibv_advise_mr(pd0, 77, 0xabcd, {0x1010000, 0, 0x100}, 1)");
}

static void errors(void **state)
{
	static const struct { int err, ret; } rows[] = {
		{EOPNOTSUPP, RPMA_E_NOSUPP},
		{ENOTSUP, RPMA_E_NOSUPP},
		{EFAULT, RPMA_E_INVAL},
		{EINVAL, RPMA_E_INVAL},
		{ENOMEM, RPMA_E_PROVIDER},
		{EIO, RPMA_E_PROVIDER},
	};
	char want[80];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		mock_fail("ibv_advise_mr", 1, rows[i].err);
		assert_int_equal(rpma_mr_advise(mr, 0, 64, IBV_ADVISE_MR_ADVICE_PREFETCH, 0),
				rows[i].ret);
		snprintf(want, sizeof(want), "ibv_advise_mr(pd0, 0, 0x0, {0x10000, 64, 0x100}, 1) ! %s",
				strerrorname_np(rows[i].err));
		CALLS(want);
		ONE_ERROR(strerror(rows[i].err));
	}
}

/* A provider without the operation. */
static void operation_absent(void **state)
{
	struct verbs_context *v = (struct verbs_context *)((char *)CTX -
			offsetof(struct verbs_context, context));

	(void)state;
	v->advise_mr = NULL;
	assert_int_equal(rpma_mr_advise(mr, 0, 64, IBV_ADVISE_MR_ADVICE_PREFETCH, 0), RPMA_E_NOSUPP);
	NO_CALLS();
	ONE_ERROR("");
}

static void context_not_extended(void **state)
{
	(void)state;
	CTX->abi_compat = NULL;
	assert_int_equal(rpma_mr_advise(mr, 0, 64, IBV_ADVISE_MR_ADVICE_PREFETCH, 0), RPMA_E_NOSUPP);
	NO_CALLS();
	ONE_ERROR("");
}

#define ADVISE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ADVISE_TEST(success),
		ADVISE_TEST(passed_on_as_given),
		ADVISE_TEST(errors),
		ADVISE_TEST(operation_absent),
		ADVISE_TEST(context_not_extended),
	};

	return cmocka_run_group_tests_name("mr-advise", tests, NULL, NULL);
}
