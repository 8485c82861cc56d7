/* SPDX-License-Identifier: BSD-3-Clause */

/* Every NULL and zero argument of the functions about objects, one test a function. */

#include "null.h"

RPMA_OBJECT_FUNCTIONS(NULL_DECLARE)

/* ---- utilities, logging ---- */

NULL_TEST(rpma_utils_get_ibv_context)
{
	INVAL(rpma_utils_get_ibv_context(NULL, RPMA_UTIL_IBV_CONTEXT_LOCAL, OUT(struct ibv_context **)));
	INVAL(rpma_utils_get_ibv_context(NULL, RPMA_UTIL_IBV_CONTEXT_REMOTE, OUT(struct ibv_context **)));
	INVAL(rpma_utils_get_ibv_context(ADDR, RPMA_UTIL_IBV_CONTEXT_LOCAL, NULL));
	INVAL(rpma_utils_get_ibv_context(NULL, RPMA_UTIL_IBV_CONTEXT_LOCAL, NULL));
}

NULL_TEST(rpma_utils_ibv_context_is_odp_capable)
{
	INVAL(rpma_utils_ibv_context_is_odp_capable(NULL, OUT(int *)));
	INVAL(rpma_utils_ibv_context_is_odp_capable(CTX, NULL));
	INVAL(rpma_utils_ibv_context_is_odp_capable(NULL, NULL));
}

/* No pointer goes in and there is always a text. */
NULL_TEST(rpma_utils_conn_event_2str)
{
	for (int i = -3; i < 8; i++)
		assert_non_null(rpma_utils_conn_event_2str((enum rpma_conn_event)i));
}

NULL_TEST(rpma_err_2str)
{
	for (int i = -3; i < 8; i++)
		assert_non_null(rpma_err_2str(i));
	for (int i = RPMA_E_NOT_SHARED_CHNL - 3; i < RPMA_E_UNKNOWN + 3; i++)
		assert_non_null(rpma_err_2str(i));
}

/* NULL is the built-in function. */
NULL_TEST(rpma_log_set_function)
{
	assert_int_equal(rpma_log_set_function(NULL), 0);
	assert_int_equal(rpma_log_set_function(mock_log_function), 0);
}

NULL_TEST(rpma_log_set_threshold)
{
	INVAL(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_MAX, RPMA_LOG_LEVEL_ERROR));
	INVAL(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, (enum rpma_log_level)6));
}

NULL_TEST(rpma_log_get_threshold)
{
	INVAL(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, NULL));
	INVAL(rpma_log_get_threshold(RPMA_LOG_THRESHOLD_AUX, NULL));
	INVAL(rpma_log_get_threshold(RPMA_LOG_THRESHOLD_MAX, OUT(enum rpma_log_level *)));
}

/* ---- peer ---- */

NULL_TEST(rpma_peer_new)
{
	INVAL(rpma_peer_new(NULL, OUT(struct rpma_peer **)));
	INVAL(rpma_peer_new(CTX, NULL));
	INVAL(rpma_peer_new(NULL, NULL));
}

/* Deleting nothing is fine, for every kind of object. */
#define DELETES_NOTHING(type, fn) \
	do { \
		struct type *none = NULL; \
		INVAL(fn(NULL)); \
		assert_int_equal(fn(&none), 0); \
		assert_null(none); \
		NO_CALLS(); \
		SILENT(); \
	} while (0)

NULL_TEST(rpma_peer_delete)
{
	DELETES_NOTHING(rpma_peer, rpma_peer_delete);
}

NULL_TEST(rpma_peer_cfg_new)
{
	INVAL(rpma_peer_cfg_new(NULL));
}

NULL_TEST(rpma_peer_cfg_delete)
{
	DELETES_NOTHING(rpma_peer_cfg, rpma_peer_cfg_delete);
}

NULL_TEST(rpma_peer_cfg_set_direct_write_to_pmem)
{
	INVAL(rpma_peer_cfg_set_direct_write_to_pmem(NULL, true));
	INVAL(rpma_peer_cfg_set_direct_write_to_pmem(NULL, false));
}

/* A getter or the like: two pointers, both needed. */
#define TWO_POINTERS(fn, object, out_type) \
	do { \
		INVAL(fn(NULL, OUT(out_type))); \
		INVAL(fn(object, NULL)); \
		INVAL(fn(NULL, NULL)); \
	} while (0)

NULL_TEST(rpma_peer_cfg_get_direct_write_to_pmem)
{
	TWO_POINTERS(rpma_peer_cfg_get_direct_write_to_pmem, n_pcfg, bool *);
}

NULL_TEST(rpma_peer_cfg_get_descriptor)
{
	TWO_POINTERS(rpma_peer_cfg_get_descriptor, n_pcfg, void *);
}

NULL_TEST(rpma_peer_cfg_get_descriptor_size)
{
	TWO_POINTERS(rpma_peer_cfg_get_descriptor_size, n_pcfg, size_t *);
}

NULL_TEST(rpma_peer_cfg_from_descriptor)
{
	INVAL(rpma_peer_cfg_from_descriptor(NULL, 1, OUT(struct rpma_peer_cfg **)));
	INVAL(rpma_peer_cfg_from_descriptor("x", 1, NULL));
	INVAL(rpma_peer_cfg_from_descriptor(NULL, 0, NULL));
}

/* ---- memory regions ---- */

NULL_TEST(rpma_mr_reg)
{
	INVAL(rpma_mr_reg(NULL, LOCAL_ADDR, 8, 1, OUT(struct rpma_mr_local **)));
	INVAL(rpma_mr_reg(d_peer, NULL, 8, 1, OUT(struct rpma_mr_local **)));
	INVAL(rpma_mr_reg(d_peer, LOCAL_ADDR, 0, 1, OUT(struct rpma_mr_local **)));
	INVAL(rpma_mr_reg(d_peer, LOCAL_ADDR, 8, 0, OUT(struct rpma_mr_local **)));
	INVAL(rpma_mr_reg(d_peer, LOCAL_ADDR, 8, 1, NULL));
	INVAL(rpma_mr_reg(NULL, NULL, 0, 0, NULL));
}

NULL_TEST(rpma_mr_dereg)
{
	DELETES_NOTHING(rpma_mr_local, rpma_mr_dereg);
}

NULL_TEST(rpma_mr_get_descriptor)
{
	TWO_POINTERS(rpma_mr_get_descriptor, d_mr, void *);
}

NULL_TEST(rpma_mr_get_descriptor_size)
{
	TWO_POINTERS(rpma_mr_get_descriptor_size, d_mr, size_t *);
}

NULL_TEST(rpma_mr_get_ptr)
{
	TWO_POINTERS(rpma_mr_get_ptr, d_mr, void **);
}

NULL_TEST(rpma_mr_get_size)
{
	TWO_POINTERS(rpma_mr_get_size, d_mr, size_t *);
}

NULL_TEST(rpma_mr_advise)
{
	if (!original()) /* it crashes: union, latent bugs */
		INVAL(rpma_mr_advise(NULL, 0, 8, 0, 0));
	assert_int_equal(rpma_mr_advise(d_mr, 0, 0, 0, 0), 0);
	mock_forget_calls();
}

NULL_TEST(rpma_mr_remote_from_descriptor)
{
	INVAL(rpma_mr_remote_from_descriptor(NULL, 21, OUT(struct rpma_mr_remote **)));
	INVAL(rpma_mr_remote_from_descriptor("x", 21, NULL));
	INVAL(rpma_mr_remote_from_descriptor(NULL, 0, NULL));
}

NULL_TEST(rpma_mr_remote_get_size)
{
	TWO_POINTERS(rpma_mr_remote_get_size, d_remote, size_t *);
}

NULL_TEST(rpma_mr_remote_get_flush_type)
{
	TWO_POINTERS(rpma_mr_remote_get_flush_type, d_remote, int *);
}

NULL_TEST(rpma_mr_remote_delete)
{
	DELETES_NOTHING(rpma_mr_remote, rpma_mr_remote_delete);
}

/* ---- configuration of connections ---- */

NULL_TEST(rpma_conn_cfg_new)
{
	INVAL(rpma_conn_cfg_new(NULL));
}

NULL_TEST(rpma_conn_cfg_delete)
{
	DELETES_NOTHING(rpma_conn_cfg, rpma_conn_cfg_delete);
}

NULL_TEST(rpma_conn_cfg_set_timeout)
{
	INVAL(rpma_conn_cfg_set_timeout(NULL, 0));
	INVAL(rpma_conn_cfg_set_timeout(n_cfg, -1));
}

NULL_TEST(rpma_conn_cfg_set_compl_channel)
{
	INVAL(rpma_conn_cfg_set_compl_channel(NULL, false));
}

NULL_TEST(rpma_conn_cfg_set_srq)
{
	INVAL(rpma_conn_cfg_set_srq(NULL, n_srq));
	INVAL(rpma_conn_cfg_set_srq(n_cfg, NULL));
	INVAL(rpma_conn_cfg_set_srq(NULL, NULL));
}

#define CFG_SET(name) \
	NULL_TEST(name) \
	{ \
		INVAL(name(NULL, 0)); \
		INVAL(name(NULL, 10)); \
	}
CFG_SET(rpma_conn_cfg_set_cq_size)
CFG_SET(rpma_conn_cfg_set_rcq_size)
CFG_SET(rpma_conn_cfg_set_sq_size)
CFG_SET(rpma_conn_cfg_set_rq_size)
CFG_SET(rpma_srq_cfg_set_rq_size)
CFG_SET(rpma_srq_cfg_set_rcq_size)

#define CFG_GET(name, cfg, type) \
	NULL_TEST(name) \
	{ \
		TWO_POINTERS(name, cfg, type); \
	}
CFG_GET(rpma_conn_cfg_get_timeout, n_cfg, int *)
CFG_GET(rpma_conn_cfg_get_cq_size, n_cfg, uint32_t *)
CFG_GET(rpma_conn_cfg_get_rcq_size, n_cfg, uint32_t *)
CFG_GET(rpma_conn_cfg_get_sq_size, n_cfg, uint32_t *)
CFG_GET(rpma_conn_cfg_get_rq_size, n_cfg, uint32_t *)
CFG_GET(rpma_conn_cfg_get_compl_channel, n_cfg, bool *)
CFG_GET(rpma_conn_cfg_get_srq, n_cfg, struct rpma_srq **)
CFG_GET(rpma_srq_cfg_get_rq_size, n_srq_cfg, uint32_t *)
CFG_GET(rpma_srq_cfg_get_rcq_size, n_srq_cfg, uint32_t *)

/* ---- shared receive queues ---- */

NULL_TEST(rpma_srq_cfg_new)
{
	INVAL(rpma_srq_cfg_new(NULL));
}

NULL_TEST(rpma_srq_cfg_delete)
{
	DELETES_NOTHING(rpma_srq_cfg, rpma_srq_cfg_delete);
}

NULL_TEST(rpma_srq_new)
{
	INVAL(rpma_srq_new(NULL, n_srq_cfg, OUT(struct rpma_srq **)));
	INVAL(rpma_srq_new(NULL, NULL, OUT(struct rpma_srq **)));
	INVAL(rpma_srq_new(d_peer, n_srq_cfg, NULL));
	INVAL(rpma_srq_new(NULL, NULL, NULL));
}

NULL_TEST(rpma_srq_delete)
{
	DELETES_NOTHING(rpma_srq, rpma_srq_delete);
}

NULL_TEST(rpma_srq_recv)
{
	INVAL(rpma_srq_recv(NULL, d_mr, 0, 8, CONTEXT));
	INVAL(rpma_srq_recv(n_srq, NULL, 0, 8, CONTEXT));
	INVAL(rpma_srq_recv(n_srq, NULL, 8, 0, CONTEXT));
	INVAL(rpma_srq_recv(NULL, NULL, 0, 0, NULL));
}

NULL_TEST(rpma_srq_get_rcq)
{
	TWO_POINTERS(rpma_srq_get_rcq, n_srq, struct rpma_cq **);
}

int main(void)
{
	const struct CMUnitTest tests[] = {RPMA_OBJECT_FUNCTIONS(NULL_ROW)};

	return cmocka_run_group_tests_name("null-objects", tests, NULL, NULL);
}
