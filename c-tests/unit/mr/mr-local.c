/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_mr_get_ptr, rpma_mr_get_size, rpma_mr_get_descriptor, rpma_mr_get_descriptor_size */

#include "fixture.h"

static struct rpma_peer *peer;
static struct rpma_mr_local *mr;

static int setup(void **state)
{
	mock_setup(state);
	peer = fx_peer();
	mr = fx_mr(peer, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT);
	return 0;
}

static int teardown(void **state)
{
	fx_mr_dereg(&mr);
	fx_peer_delete(&peer);
	return mock_teardown(state);
}

static void ptr_and_size(void **state)
{
	void *ptr = NULL;
	size_t size = 0;

	(void)state;
	assert_int_equal(rpma_mr_get_ptr(mr, &ptr), 0);
	assert_ptr_equal(ptr, LOCAL_ADDR);
	assert_int_equal(rpma_mr_get_size(mr, &size), 0);
	assert_int_equal(size, LOCAL_SIZE);
	NO_CALLS();
	SILENT();
}

static void descriptor_size(void **state)
{
	size_t size = 0;

	(void)state;
	assert_int_equal(rpma_mr_get_descriptor_size(mr, &size), 0);
	assert_int_equal(size, 21);
}

/* 21 bytes, little endian, at any alignment; the byte after them is not written. */
static void descriptor(void **state)
{
	unsigned char buf[32], want[21];

	(void)state;
	fx_descriptor(want, 0x10000, LOCAL_SIZE, 0x200, 8 | 32);
	for (int align = 0; align < 8; align++) {
		memset(buf, 0xee, sizeof(buf));
		assert_int_equal(rpma_mr_get_descriptor(mr, buf + align), 0);
		assert_memory_equal(buf + align, want, sizeof(want));
		for (int i = 0; i < align; i++)
			assert_int_equal(buf[i], 0xee);
		for (size_t i = (size_t)align + sizeof(want); i < sizeof(buf); i++)
			assert_int_equal(buf[i], 0xee);
	}
	NO_CALLS();
	SILENT();
}

/* Every bit of every field is encoded, and the usage is the requested one. */
static void descriptor_of_every_usage(void **state)
{
	unsigned char got[21], want[21];
	void *addr = (void *)(uintptr_t)0xfedcba9876543210;
	size_t size = 0x0123456789;
	struct rpma_mr_local *other = NULL;

	(void)state;
	for (int usage = 1; usage <= 0xff; usage++) {
		assert_int_equal(rpma_mr_reg(peer, addr, size, usage, &other), 0);
		struct ibv_mr *verbs = mock_latest("mr");
		verbs->rkey = 0x80c0a000u + (unsigned)usage;
		fx_descriptor(want, 0xfedcba9876543210, size, verbs->rkey, (uint8_t)usage);
		assert_int_equal(rpma_mr_get_descriptor(other, got), 0);
		assert_memory_equal(got, want, sizeof(want));
		fx_mr_dereg(&other);
	}
}

#define LOCAL_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOCAL_TEST(ptr_and_size),
		LOCAL_TEST(descriptor_size),
		LOCAL_TEST(descriptor),
		LOCAL_TEST(descriptor_of_every_usage),
	};

	return cmocka_run_group_tests_name("mr-local", tests, NULL, NULL);
}
