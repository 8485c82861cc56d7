/* SPDX-License-Identifier: BSD-3-Clause */

/* Threads create and delete peers, regions and configurations at the same time. */

#include "mt.h"

enum { PEERS = 60, REGIONS = 150, DESCRIPTORS = 3000, CFGS = 20000 };

/* ---- peers: each thread its own ---- */

static void peers_of_a_thread(int index)
{
	(void)index;
	for (int i = 0; i < PEERS; i++) {
		struct rpma_peer *peer = NULL;
		struct rpma_mr_local *mr = NULL;
		size_t size = 0;
		EXPECT(rpma_peer_new(CTX, &peer) == 0 && peer != NULL);
		EXPECT(rpma_mr_reg(peer, LOCAL_ADDR, (size_t)i + 1, RPMA_MR_USAGE_SEND, &mr) == 0);
		EXPECT(rpma_mr_get_size(mr, &size) == 0 && size == (size_t)i + 1);
		EXPECT(rpma_mr_dereg(&mr) == 0 && mr == NULL);
		EXPECT(rpma_peer_delete(&peer) == 0 && peer == NULL);
	}
}

static void peers(void **state)
{
	(void)state;
	mock_quiet();
	mt_run(peers_of_a_thread);
	assert_int_equal(mock_called("ibv_alloc_pd"), THREADS * PEERS);
	assert_int_equal(mock_called("ibv_dealloc_pd"), THREADS * PEERS);
	assert_int_equal(mock_called("ibv_dereg_mr"), THREADS * PEERS);
}

/* ---- regions of one peer ---- */

static void regions_of_a_thread(int index)
{
	char *base = (char *)LOCAL_ADDR + index * 0x1000;

	for (int i = 0; i < REGIONS; i++) {
		struct rpma_mr_local *mr = NULL;
		unsigned char desc[21];
		void *ptr = NULL;
		EXPECT(rpma_mr_reg(d_peer, base + i, 64, RPMA_MR_USAGE_WRITE_DST, &mr) == 0);
		EXPECT(rpma_mr_get_ptr(mr, &ptr) == 0 && ptr == base + i);
		EXPECT(rpma_mr_get_descriptor(mr, desc) == 0 && desc[20] == RPMA_MR_USAGE_WRITE_DST);
		EXPECT(desc[0] == (unsigned char)(uintptr_t)(base + i));
		EXPECT(rpma_mr_dereg(&mr) == 0);
	}
}

static void regions_of_one_peer(void **state)
{
	(void)state;
	mock_quiet();
	int before = mock_called("ibv_reg_mr");
	mt_run(regions_of_a_thread);
	assert_int_equal(mock_called("ibv_reg_mr") - before, THREADS * REGIONS);
	assert_int_equal(mock_called("ibv_dereg_mr"), THREADS * REGIONS);
}

/* ---- descriptors ---- */

static void descriptors_of_a_thread(int index)
{
	for (int i = 0; i < DESCRIPTORS; i++) {
		struct rpma_mr_remote *mr = NULL;
		struct rpma_peer_cfg *pcfg = NULL;
		unsigned char desc[21], byte = (unsigned char)(i & 1);
		size_t size = 0;
		bool direct = !byte;
		fx_descriptor(desc, (uint64_t)index << 32, (uint64_t)i + 1, 7, 1);
		EXPECT(rpma_mr_remote_from_descriptor(desc, 21, &mr) == 0);
		EXPECT(rpma_mr_remote_get_size(mr, &size) == 0 && size == (size_t)i + 1);
		EXPECT(rpma_mr_remote_delete(&mr) == 0);
		EXPECT(rpma_peer_cfg_from_descriptor(&byte, 1, &pcfg) == 0);
		EXPECT(rpma_peer_cfg_get_direct_write_to_pmem(pcfg, &direct) == 0 && direct == byte);
		EXPECT(rpma_peer_cfg_delete(&pcfg) == 0);
	}
}

static void descriptors(void **state)
{
	(void)state;
	mt_run(descriptors_of_a_thread);
}

/* ---- one configuration for all ---- */

static struct rpma_conn_cfg *conn_cfg;
static struct rpma_srq_cfg *srq_cfg;
static struct rpma_peer_cfg *peer_cfg;

/* A value is always one that some thread set, never a mix of two. */
static bool one_of_ours(uint32_t value)
{
	return value % 0x01010101 == 0 && value / 0x01010101 < THREADS + 1;
}

static void cfg_of_a_thread(int index)
{
	uint32_t mine = 0x01010101u * (uint32_t)index, got = 0;
	bool flag;
	int timeout;

	for (int i = 0; i < CFGS; i++) {
		EXPECT(rpma_conn_cfg_set_cq_size(conn_cfg, mine) == 0);
		EXPECT(rpma_conn_cfg_get_cq_size(conn_cfg, &got) == 0 && one_of_ours(got));
		EXPECT(rpma_conn_cfg_set_timeout(conn_cfg, (int)mine) == 0);
		EXPECT(rpma_conn_cfg_get_timeout(conn_cfg, &timeout) == 0 && one_of_ours((uint32_t)timeout));
		EXPECT(rpma_conn_cfg_set_compl_channel(conn_cfg, index & 1) == 0);
		EXPECT(rpma_conn_cfg_get_compl_channel(conn_cfg, &flag) == 0);
		EXPECT(rpma_srq_cfg_set_rq_size(srq_cfg, mine) == 0);
		EXPECT(rpma_srq_cfg_get_rq_size(srq_cfg, &got) == 0 && one_of_ours(got));
		EXPECT(rpma_peer_cfg_set_direct_write_to_pmem(peer_cfg, index & 1) == 0);
		EXPECT(rpma_peer_cfg_get_direct_write_to_pmem(peer_cfg, &flag) == 0);
		EXPECT(rpma_conn_apply_remote_peer_cfg(d_conn, peer_cfg) == 0);
	}
}

static void one_configuration(void **state)
{
	uint32_t got = 77;

	(void)state;
	assert_int_equal(rpma_conn_cfg_new(&conn_cfg), 0);
	assert_int_equal(rpma_srq_cfg_new(&srq_cfg), 0);
	assert_int_equal(rpma_peer_cfg_new(&peer_cfg), 0);
	assert_int_equal(rpma_conn_cfg_set_cq_size(conn_cfg, 0), 0);
	assert_int_equal(rpma_conn_cfg_set_timeout(conn_cfg, 0), 0);
	assert_int_equal(rpma_srq_cfg_set_rq_size(srq_cfg, 0), 0);
	mt_run(cfg_of_a_thread);
	/* the adjacent value is unchanged */
	assert_int_equal(rpma_conn_cfg_get_sq_size(conn_cfg, &got), 0);
	assert_int_equal(got, 10);
	assert_int_equal(rpma_conn_cfg_delete(&conn_cfg), 0);
	assert_int_equal(rpma_srq_cfg_delete(&srq_cfg), 0);
	assert_int_equal(rpma_peer_cfg_delete(&peer_cfg), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOCK_TEST(peers),
		DATA_TEST(regions_of_one_peer),
		MOCK_TEST(descriptors),
		DATA_TEST(one_configuration),
	};

	return cmocka_run_group_tests_name("mt-objects", tests, NULL, NULL);
}
