/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_mr_reg */

#include "fixture.h"

enum { ALL_USAGES = 0xff };

/* The access rights that a usage bit requires, as the log names them. */
static unsigned rights(int usage, bool iwarp)
{
	unsigned lw = IBV_ACCESS_LOCAL_WRITE, rw = IBV_ACCESS_REMOTE_WRITE,
		rr = IBV_ACCESS_REMOTE_READ, access = 0;

	access |= usage & RPMA_MR_USAGE_READ_SRC ? rr : 0;
	access |= usage & RPMA_MR_USAGE_READ_DST ? (iwarp ? lw | rw : lw) : 0;
	access |= usage & RPMA_MR_USAGE_WRITE_SRC ? lw : 0;
	access |= usage & RPMA_MR_USAGE_WRITE_DST ? rw | lw : 0;
	access |= usage & RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY ? rr : 0;
	access |= usage & RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT ? rr : 0;
	access |= usage & RPMA_MR_USAGE_RECV ? lw : 0;
	return access;
}

static const char *rights_text(unsigned access)
{
	static const char *const text[] = {"0", "LW", "RW", "LW|RW", "RR", "LW|RR", "RW|RR",
		"LW|RW|RR"};

	return text[access & 7];
}

static void every_usage_on(enum ibv_transport_type transport)
{
	struct rpma_mr_local *mr = NULL;
	char want[2][80];

	mock_transport(transport);
	struct rpma_peer *peer = fx_peer();
	for (int usage = 1; usage <= ALL_USAGES; usage++) {
		assert_int_equal(rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, usage, &mr), 0);
		snprintf(want[0], sizeof(want[0]), "ibv_reg_mr(pd0, 0x10000, 32768, %s) = mr%d",
				rights_text(rights(usage, transport == IBV_TRANSPORT_IWARP)), usage - 1);
		snprintf(want[1], sizeof(want[1]), "ibv_dereg_mr(mr%d)", usage - 1);
		assert_int_equal(rpma_mr_dereg(&mr), 0);
		CALLS(want[0], want[1]);
	}
	SILENT();
	fx_peer_delete(&peer);
}

static void every_usage(void **state)
{
	(void)state;
	every_usage_on(IBV_TRANSPORT_IB);
}

/* An iWARP device writes the data of a read as a remote write. */
static void every_usage_iwarp(void **state)
{
	(void)state;
	every_usage_on(IBV_TRANSPORT_IWARP);
}

/* Only iWARP is a special case. */
static void every_usage_other_transport(void **state)
{
	(void)state;
	every_usage_on(IBV_TRANSPORT_USNIC);
}

/* Nothing is rounded or aligned. */
static void address_and_size_as_given(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_mr_local *mr = NULL;

	(void)state;
	assert_int_equal(rpma_mr_reg(peer, (void *)(uintptr_t)0x12345, 1, RPMA_MR_USAGE_SEND, &mr),
			0);
	CALLS("ibv_reg_mr(pd0, 0x12345, 1, 0) = mr0");
	fx_mr_dereg(&mr);
	fx_peer_delete(&peer);
}

static void fails(void **state)
{
	static const int errs[] = {EIO, ENOMEM, EACCES, EAGAIN, EINVAL};
	struct rpma_peer *peer = fx_peer();
	struct rpma_mr_local *mr = UNTOUCHED;
	char want[80];

	(void)state;
	for (size_t i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		mock_fail("ibv_reg_mr", 1, errs[i]);
		assert_int_equal(rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, RPMA_MR_USAGE_READ_SRC, &mr),
				RPMA_E_PROVIDER);
		assert_ptr_equal(mr, UNTOUCHED);
		snprintf(want, sizeof(want), "ibv_reg_mr(pd0, 0x10000, 32768, RR) ! %s",
				strerrorname_np(errs[i]));
		CALLS(want);
		ONE_ERROR(strerror(errs[i]));
	}
	fx_peer_delete(&peer);
}

/* The retry with on-demand paging is made only if the device had it when the peer was created. */
static void not_supported_without_odp(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_mr_local *mr = UNTOUCHED;

	(void)state;
	mock_odp(IBV_ODP_SUPPORT, IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ);
	mock_fail("ibv_reg_mr", 1, EOPNOTSUPP);
	assert_int_equal(rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, RPMA_MR_USAGE_WRITE_DST, &mr),
			RPMA_E_PROVIDER);
	assert_ptr_equal(mr, UNTOUCHED);
	CALLS("ibv_reg_mr(pd0, 0x10000, 32768, LW|RW) ! EOPNOTSUPP");
	ONE_ERROR(strerror(EOPNOTSUPP));
	fx_peer_delete(&peer);
}

static struct rpma_peer *odp_peer(void)
{
	mock_odp(IBV_ODP_SUPPORT, IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ);
	return fx_peer();
}

static void odp_retry(void **state)
{
	struct rpma_peer *peer = odp_peer();
	struct rpma_mr_local *mr = NULL;

	(void)state;
	mock_fail("ibv_reg_mr", 1, EOPNOTSUPP);
	assert_int_equal(rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, RPMA_MR_USAGE_WRITE_DST, &mr), 0);
	CALLS("ibv_reg_mr(pd0, 0x10000, 32768, LW|RW) ! EOPNOTSUPP",
		"ibv_reg_mr(pd0, 0x10000, 32768, LW|RW|ODP) = mr0");
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
	fx_mr_dereg(&mr);
	fx_peer_delete(&peer);
}

static void odp_retry_fails(void **state)
{
	struct rpma_peer *peer = odp_peer();
	struct rpma_mr_local *mr = UNTOUCHED;

	(void)state;
	mock_fail("ibv_reg_mr", 1, EOPNOTSUPP);
	mock_fail("ibv_reg_mr", 2, EFAULT);
	assert_int_equal(rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, RPMA_MR_USAGE_READ_SRC, &mr),
			RPMA_E_PROVIDER);
	assert_ptr_equal(mr, UNTOUCHED);
	CALLS("ibv_reg_mr(pd0, 0x10000, 32768, RR) ! EOPNOTSUPP",
		"ibv_reg_mr(pd0, 0x10000, 32768, RR|ODP) ! EFAULT");
	ONE_ERROR(strerror(EFAULT));
	fx_peer_delete(&peer);
}

/* On a device with on-demand paging no other errno leads to a retry. */
static void odp_no_retry_for_other_errors(void **state)
{
	struct rpma_peer *peer = odp_peer();
	struct rpma_mr_local *mr = UNTOUCHED;

	(void)state;
	mock_fail("ibv_reg_mr", 1, EIO);
	assert_int_equal(rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, RPMA_MR_USAGE_READ_SRC, &mr),
			RPMA_E_PROVIDER);
	assert_ptr_equal(mr, UNTOUCHED);
	CALLS("ibv_reg_mr(pd0, 0x10000, 32768, RR) ! EIO");
	fx_peer_delete(&peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOCK_TEST(every_usage),
		MOCK_TEST(every_usage_iwarp),
		MOCK_TEST(every_usage_other_transport),
		MOCK_TEST(address_and_size_as_given),
		MOCK_TEST(fails),
		MOCK_TEST(not_supported_without_odp),
		MOCK_TEST(odp_retry),
		MOCK_TEST(odp_retry_fails),
		MOCK_TEST(odp_no_retry_for_other_errors),
	};

	return cmocka_run_group_tests_name("mr-reg", tests, NULL, NULL);
}
