/* SPDX-License-Identifier: BSD-3-Clause */

/* The same over software RDMA: its first use and its memory table, from many threads. */

#include "mt.h"

enum { ROUNDS = 300 };

static char memory[THREADS][4096];
static struct ibv_context *context;
static struct rpma_peer *peer;

/* All find the same device, also if theirs are the first calls. */
static struct ibv_context *found[THREADS];

static void first_use(int index)
{
	EXPECT(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &found[index]) == 0);
}

static void one_device(void **state)
{
	(void)state;
	mt_run(first_use);
	assert_non_null(found[0]);
	for (int i = 1; i < THREADS; i++)
		assert_ptr_equal(found[i], found[0]);
	context = found[0];
	NO_CALLS();
}

/* Keys of live regions are all different. */
static void regions_of_a_thread(int index)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct rpma_mr_local *a = NULL, *b = NULL;
		unsigned char da[21], db[21];
		EXPECT(rpma_mr_reg(peer, memory[index], 2048, RPMA_MR_USAGE_WRITE_DST, &a) == 0);
		EXPECT(rpma_mr_reg(peer, memory[index] + 2048, 2048, RPMA_MR_USAGE_READ_SRC, &b) == 0);
		EXPECT(rpma_mr_get_descriptor(a, da) == 0 && rpma_mr_get_descriptor(b, db) == 0);
		EXPECT(memcmp(da + 16, db + 16, 4) != 0);
		EXPECT(rpma_mr_dereg(&a) == 0 && rpma_mr_dereg(&b) == 0);
	}
}

static void regions_of_one_peer(void **state)
{
	(void)state;
	assert_int_equal(rpma_peer_new(context, &peer), 0);
	mt_run(regions_of_a_thread);
	assert_int_equal(rpma_peer_delete(&peer), 0);
	NO_CALLS();
}

static void peers_of_a_thread(int index)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct rpma_peer *mine = NULL;
		struct rpma_mr_local *mr = NULL;
		struct rpma_srq *srq = NULL;
		EXPECT(rpma_peer_new(context, &mine) == 0);
		EXPECT(rpma_mr_reg(mine, memory[index], 4096, RPMA_MR_USAGE_RECV, &mr) == 0);
		EXPECT(rpma_srq_new(mine, NULL, &srq) == 0);
		EXPECT(rpma_srq_recv(srq, mr, 0, 64, NULL) == 0);
		EXPECT(rpma_srq_delete(&srq) == 0);
		EXPECT(rpma_mr_dereg(&mr) == 0);
		EXPECT(rpma_peer_delete(&mine) == 0);
	}
}

static void own_peers(void **state)
{
	(void)state;
	mt_run(peers_of_a_thread);
	NO_CALLS();
}

static int setup(void **state)
{
	mock_setup(state);
	mock_ignore_memory(); /* the device of the process remains */
	setenv("RPMA_PROVIDER", "soft", 1);
	return 0;
}

static int teardown(void **state)
{
	mock_forget_log();
	return mock_teardown(state);
}

#define SOFT_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		SOFT_TEST(one_device),
		SOFT_TEST(regions_of_one_peer),
		SOFT_TEST(own_peers),
	};

	return cmocka_run_group_tests_name("mt-soft-ours", tests, NULL, NULL);
}
