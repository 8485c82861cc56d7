/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * objects.c -- devices, peers, regions, configurations and the log; each row creates the objects that it
 * shares.
 */
#include "rows.h"

static struct rpma_peer_cfg *pcfg;
static struct rpma_conn_cfg *cfg;
static struct rpma_srq_cfg *srq_cfg;
static struct rpma_srq *srq;

/* The first calls of the process: all threads find the same device. */
static struct ibv_context *found[MAX_THREADS];

static void
find(unsigned thread)
{
	int odp = -1;

	for (unsigned i = 0; i < rounds; i++) {
		OK(rpma_utils_get_ibv_context(ADDR, i % 2 ? RPMA_UTIL_IBV_CONTEXT_LOCAL : RPMA_UTIL_IBV_CONTEXT_REMOTE,
			&found[thread]));
		OK(rpma_utils_ibv_context_is_odp_capable(found[thread], &odp));
		EXPECT(strlen(rpma_err_2str(RPMA_E_NOMEM)) > 0);
		EXPECT(strlen(rpma_utils_conn_event_2str(RPMA_CONN_CLOSED)) > 0);
		EXPECT(strlen(rpma_version()) > 0);
		EXPECT(rpma_peer_delete(NULL) == RPMA_E_INVAL);
		EXPECT(strcmp(rpma_err_last(), "rpma_peer_delete: peer_ptr is NULL") == 0);
	}
}

static void
found_one(void)
{
	for (unsigned i = 1; i < threads; i++)
		EXPECT(found[i] == found[0]);
}

static void
get_device(void)
{
	OK(rpma_utils_get_ibv_context(ADDR, RPMA_UTIL_IBV_CONTEXT_LOCAL, &device));
}

static void
get_peer(void)
{
	get_device();
	OK(rpma_peer_new(device, &peer));
}

static void
delete_peer(void)
{
	OK(rpma_peer_delete(&peer));
}

/* Changes thresholds and the log function while other threads log. */
static void
discard(enum rpma_log_level level, const char *file, const int at, const char *function, const char *format, ...)
{
	(void)level, (void)file, (void)at, (void)function, (void)format;
}

static void
quiet(void)
{
	get_device();
	OK(rpma_log_set_function(discard));
}

static void
change_log(unsigned thread)
{
	for (unsigned i = 0; i < rounds; i++) {
		enum rpma_log_level level = RPMA_LOG_DISABLED;
		struct ibv_context *none = NULL;

		OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, i % 2 ? RPMA_LOG_LEVEL_DEBUG : RPMA_LOG_LEVEL_ERROR));
		OK(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &level));
		EXPECT(level == RPMA_LOG_LEVEL_DEBUG || level == RPMA_LOG_LEVEL_ERROR);
		if (thread == 0)
			OK(rpma_log_set_function(discard));
		EXPECT(rpma_utils_get_ibv_context("198.51.100.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &none) == RPMA_E_PROVIDER);
	}
}

static void
default_log(void)
{
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED));
	OK(rpma_log_set_function(RPMA_LOG_USE_DEFAULT_FUNCTION));
}

static void
own_peers(unsigned thread)
{
	for (unsigned i = 0; i < rounds; i++) {
		struct rpma_peer *own = NULL;
		struct rpma_mr_local *region = NULL;

		OK(rpma_peer_new(device, &own));
		OK(rpma_mr_reg(own, memory[thread], SIZE, USAGE_ALL, &region));
		OK(rpma_mr_dereg(&region));
		OK(rpma_peer_delete(&own));
	}
}

static void
one_region(void)
{
	char desc[DESCRIPTOR_SIZE];

	get_peer();
	OK(rpma_mr_reg(peer, memory, sizeof(memory), USAGE_ALL, &mr));
	OK(rpma_mr_get_descriptor(mr, desc));
	OK(rpma_mr_remote_from_descriptor(desc, sizeof(desc), &remote));
}

static void
no_region(void)
{
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	delete_peer();
}

/* Separate regions of one peer, and calls on a shared one. */
static void
regions(unsigned thread)
{
	for (unsigned i = 0; i < rounds; i++) {
		struct rpma_mr_local *own = NULL;
		struct rpma_mr_remote *there = NULL;
		char desc[DESCRIPTOR_SIZE];
		size_t size = 0;
		void *ptr = NULL;
		int type = 0;

		OK(rpma_mr_reg(peer, memory[thread], SIZE, USAGE_ALL, &own));
		OK(rpma_mr_get_descriptor(mr, desc));
		OK(rpma_mr_get_descriptor_size(mr, &size));
		EXPECT(size == DESCRIPTOR_SIZE);
		OK(rpma_mr_get_ptr(mr, &ptr));
		EXPECT(ptr == memory);
		OK(rpma_mr_get_size(mr, &size));
		EXPECT(size == sizeof(memory));
		OK(rpma_mr_advise(mr, 0, SIZE, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH));
		OK(rpma_mr_remote_get_size(remote, &size));
		EXPECT(size == sizeof(memory));
		OK(rpma_mr_remote_get_flush_type(remote, &type));
		OK(rpma_mr_remote_from_descriptor(desc, sizeof(desc), &there));
		OK(rpma_mr_remote_delete(&there));
		OK(rpma_mr_dereg(&own));
	}
}

static void
new_configurations(void)
{
	get_peer();
	OK(rpma_peer_cfg_new(&pcfg));
	OK(rpma_conn_cfg_new(&cfg));
	OK(rpma_srq_cfg_new(&srq_cfg));
	OK(rpma_srq_new(peer, NULL, &srq));
}

static void
delete_configurations(void)
{
	OK(rpma_peer_cfg_delete(&pcfg));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_srq_cfg_delete(&srq_cfg));
	OK(rpma_srq_delete(&srq));
	delete_peer();
}

/* All set and get the same values of the same configurations: each value returned was set by some thread. */
static void
configurations(unsigned thread)
{
	for (unsigned i = 0; i < rounds; i++) {
		struct rpma_peer_cfg *own_pcfg = NULL;
		struct rpma_conn_cfg *own_cfg = NULL;
		struct rpma_srq_cfg *own_srq_cfg = NULL;
		struct rpma_srq *set = NULL;
		char desc[1];
		size_t size = 0;
		uint32_t value = 0;
		bool is = false;
		int timeout = 0;

		OK(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, (i + thread) % 2));
		OK(rpma_peer_cfg_get_direct_write_to_pmem(pcfg, &is));
		OK(rpma_peer_cfg_get_descriptor_size(pcfg, &size));
		EXPECT(size == sizeof(desc));
		OK(rpma_peer_cfg_get_descriptor(pcfg, desc));
		OK(rpma_peer_cfg_from_descriptor(desc, sizeof(desc), &own_pcfg));
		OK(rpma_peer_cfg_delete(&own_pcfg));
		OK(rpma_peer_cfg_new(&own_pcfg));
		OK(rpma_peer_cfg_delete(&own_pcfg));

		OK(rpma_conn_cfg_set_timeout(cfg, (int)thread + 1));
		OK(rpma_conn_cfg_get_timeout(cfg, &timeout));
		EXPECT(timeout >= 1 && timeout <= (int)threads);
		OK(rpma_conn_cfg_set_cq_size(cfg, thread + 1));
		OK(rpma_conn_cfg_get_cq_size(cfg, &value));
		EXPECT(value >= 1 && value <= threads);
		OK(rpma_conn_cfg_set_sq_size(cfg, thread + 1));
		OK(rpma_conn_cfg_get_sq_size(cfg, &value));
		EXPECT(value >= 1 && value <= threads);
		OK(rpma_conn_cfg_set_rq_size(cfg, thread + 1));
		OK(rpma_conn_cfg_get_rq_size(cfg, &value));
		EXPECT(value >= 1 && value <= threads);
		OK(rpma_conn_cfg_set_rcq_size(cfg, thread + 1));
		OK(rpma_conn_cfg_get_rcq_size(cfg, &value));
		EXPECT(value >= 1 && value <= threads);
		OK(rpma_conn_cfg_set_compl_channel(cfg, thread % 2));
		OK(rpma_conn_cfg_get_compl_channel(cfg, &is));
		OK(rpma_conn_cfg_set_srq(cfg, srq));
		OK(rpma_conn_cfg_get_srq(cfg, &set));
		EXPECT(set == srq);
		OK(rpma_conn_cfg_new(&own_cfg));
		OK(rpma_conn_cfg_delete(&own_cfg));

		OK(rpma_srq_cfg_set_rq_size(srq_cfg, thread + 1));
		OK(rpma_srq_cfg_get_rq_size(srq_cfg, &value));
		EXPECT(value >= 1 && value <= threads);
		OK(rpma_srq_cfg_set_rcq_size(srq_cfg, thread + 1));
		OK(rpma_srq_cfg_get_rcq_size(srq_cfg, &value));
		EXPECT(value >= 1 && value <= threads);
		OK(rpma_srq_cfg_new(&own_srq_cfg));
		OK(rpma_srq_cfg_delete(&own_srq_cfg));
	}
}

static void
one_srq(void)
{
	one_region();
	OK(rpma_srq_cfg_new(&srq_cfg));
	OK(rpma_srq_cfg_set_rq_size(srq_cfg, threads * rounds));
	OK(rpma_srq_new(peer, srq_cfg, &srq));
	OK(rpma_srq_cfg_delete(&srq_cfg));
}

/* Separate shared receive queues of one peer, and receives for a common one. */
static void
receive_queues(unsigned thread)
{
	for (unsigned i = 0; i < rounds; i++) {
		struct rpma_srq *own = NULL;
		struct rpma_cq *rcq = NULL;

		OK(rpma_srq_new(peer, NULL, &own));
		OK(rpma_srq_recv(own, mr, thread * SIZE, 64, NULL));
		OK(rpma_srq_recv(srq, mr, thread * SIZE, 64, NULL));
		OK(rpma_srq_get_rcq(srq, &rcq));
		OK(rpma_srq_delete(&own));
	}
}

static void
no_srq(void)
{
	OK(rpma_srq_delete(&srq));
	no_region();
}

const struct row object_rows[] = {
	{"devices", NULL, find, found_one},
	{"log", quiet, change_log, default_log},
	{"peers", get_device, own_peers, NULL},
	{"regions", one_region, regions, no_region},
	{"configurations", new_configurations, configurations, delete_configurations},
	{"receive-queues", one_srq, receive_queues, no_srq},
	{NULL, NULL, NULL, NULL},
};
