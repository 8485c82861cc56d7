/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_peer_cfg_*: one bool and its one-byte encoding */

#include "fixture.h"

static struct rpma_peer_cfg *pcfg;

static int setup(void **state)
{
	mock_setup(state);
	return rpma_peer_cfg_new(&pcfg);
}

static int teardown(void **state)
{
	assert_int_equal(rpma_peer_cfg_delete(&pcfg), 0);
	return mock_teardown(state);
}

static void new_and_delete(void **state)
{
	struct rpma_peer_cfg *other = NULL;

	(void)state;
	assert_int_equal(rpma_peer_cfg_new(NULL), RPMA_E_INVAL);
	assert_int_equal(rpma_peer_cfg_delete(NULL), RPMA_E_INVAL);
	assert_int_equal(rpma_peer_cfg_delete(&other), 0);
	assert_null(other);
	assert_int_equal(rpma_peer_cfg_new(&other), 0);
	assert_non_null(other);
	assert_int_equal(rpma_peer_cfg_delete(&other), 0);
	assert_null(other);
	NO_CALLS();
	SILENT();
}

static void direct_write_to_pmem(void **state)
{
	unsigned char out[2] = {0xee, 0xee};

	(void)state;
	assert_int_equal(rpma_peer_cfg_get_direct_write_to_pmem(pcfg, (bool *)out), 0);
	assert_int_equal(out[0], 0);
	assert_int_equal(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true), 0);
	assert_int_equal(rpma_peer_cfg_get_direct_write_to_pmem(pcfg, (bool *)out), 0);
	assert_int_equal(out[0], 1);
	assert_int_equal(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, false), 0);
	assert_int_equal(rpma_peer_cfg_get_direct_write_to_pmem(pcfg, (bool *)out), 0);
	assert_int_equal(out[0], 0);
	assert_int_equal(out[1], 0xee);
	NO_CALLS();
	SILENT();
}

static void descriptor(void **state)
{
	unsigned char desc[2] = {0xee, 0xee};
	size_t size = 77;

	(void)state;
	assert_int_equal(rpma_peer_cfg_get_descriptor_size(pcfg, &size), 0);
	assert_int_equal(size, 1);
	assert_int_equal(rpma_peer_cfg_get_descriptor(pcfg, desc), 0);
	assert_int_equal(desc[0], 0);
	assert_int_equal(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true), 0);
	assert_int_equal(rpma_peer_cfg_get_descriptor(pcfg, desc), 0);
	assert_int_equal(desc[0], 1);
	assert_int_equal(desc[1], 0xee);
	SILENT();
}

/* Any byte other than 0 means true, and is encoded as 1; later bytes are ignored. */
static void from_every_descriptor(void **state)
{
	(void)state;
	for (int byte = 0; byte <= 0xff; byte++) {
		const unsigned char desc[3] = {(unsigned char)byte, 1, 0xff};
		unsigned char again = 0xee;
		for (size_t size = 1; size <= sizeof(desc); size++) {
			struct rpma_peer_cfg *other = NULL;
			bool supported = byte == 0;
			assert_int_equal(rpma_peer_cfg_from_descriptor(desc, size, &other), 0);
			assert_int_equal(rpma_peer_cfg_get_direct_write_to_pmem(other, &supported), 0);
			assert_int_equal(supported, byte != 0);
			assert_int_equal(rpma_peer_cfg_get_descriptor(other, &again), 0);
			assert_int_equal(again, byte != 0);
			assert_int_equal(rpma_peer_cfg_delete(&other), 0);
			assert_int_equal(mock_logged(RPMA_LOG_LEVEL_INFO), 1);
		}
	}
	NO_CALLS();
}

static void from_empty_descriptor(void **state)
{
	const unsigned char desc[1] = {1};
	struct rpma_peer_cfg *other = UNTOUCHED;

	(void)state;
	assert_int_equal(rpma_peer_cfg_from_descriptor(desc, 0, &other), RPMA_E_INVAL);
	assert_ptr_equal(other, UNTOUCHED);
	ONE_ERROR("");
}

#define PCFG_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PCFG_TEST(new_and_delete),
		PCFG_TEST(direct_write_to_pmem),
		PCFG_TEST(descriptor),
		PCFG_TEST(from_every_descriptor),
		PCFG_TEST(from_empty_descriptor),
	};

	return cmocka_run_group_tests_name("peer_cfg", tests, NULL, NULL);
}
