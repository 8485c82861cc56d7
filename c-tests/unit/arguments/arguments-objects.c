/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Arguments that are NULL, zero or out of range: utilities, logging, peers, memory regions, configurations,
 * queues.
 */

#include "arguments.h"

#define SETS_A_SIZE(fn) REFUSED(fn, NIL, V(0)), REFUSED(fn, NIL, V(1)), REFUSED(fn, NIL, V(10))
#define LOCAL V(RPMA_UTIL_IBV_CONTEXT_LOCAL)
#define FOREIGN V(RPMA_UTIL_IBV_CONTEXT_REMOTE)
#define MAIN V(RPMA_LOG_THRESHOLD)
#define AUX V(RPMA_LOG_THRESHOLD_AUX)
#define NO_LEVEL(level) \
	REFUSED(rpma_log_set_threshold, MAIN, V(level)), REFUSED(rpma_log_set_threshold, AUX, V(level))
#define NO_THRESHOLD(which) \
	REFUSED(rpma_log_set_threshold, V(which), V(RPMA_LOG_LEVEL_ERROR)), \
	REFUSED(rpma_log_get_threshold, V(which), OUT), REFUSED(rpma_log_get_threshold, V(which), NIL)

static const struct row rows[] = {
	/* ---- utilities ---- */
	REFUSED(rpma_utils_get_ibv_context, NIL, LOCAL, OUT),
	REFUSED(rpma_utils_get_ibv_context, NIL, FOREIGN, OUT),
	REFUSED(rpma_utils_get_ibv_context, V(ADDR), LOCAL, NIL),
	REFUSED(rpma_utils_get_ibv_context, NIL, LOCAL, NIL),
	REFUSED(rpma_utils_get_ibv_context, NIL, FOREIGN, NIL),
	REFUSED(rpma_utils_get_ibv_context, V(ADDR), V(2), OUT),
	REFUSED(rpma_utils_get_ibv_context, V(ADDR), V(-1), OUT),
	REFUSED(rpma_utils_get_ibv_context, V(ADDR), V(77), OUT),
	REFUSED(rpma_utils_get_ibv_context, V(ADDR), V(INT32_MAX), OUT),
	TWO_POINTERS(rpma_utils_ibv_context_is_odp_capable, DEVICE),
	/* no pointer argument, and always a text */
	{ROW("rpma_utils_conn_event_2str", rpma_utils_conn_event_2str, V(-3)), .expected = TEXT, .last = 7},
	{ROW("rpma_err_2str", rpma_err_2str, V(-3)), .expected = TEXT, .last = 7},
	{ROW("rpma_err_2str", rpma_err_2str, V(RPMA_E_NOT_SHARED_CHNL - 3)), .expected = TEXT,
		.last = RPMA_E_UNKNOWN + 2},

	/* ---- logging; NULL is the built-in function ---- */
	ACCEPTED(rpma_log_set_function, NIL),
	ACCEPTED(rpma_log_set_function, V(mock_log_function)),
	NO_THRESHOLD(-1), NO_THRESHOLD(RPMA_LOG_THRESHOLD_MAX), NO_THRESHOLD(3), NO_THRESHOLD(INT32_MIN),
	NO_THRESHOLD(INT32_MAX),
	NO_LEVEL(-2), NO_LEVEL(6), NO_LEVEL(INT32_MIN), NO_LEVEL(INT32_MAX),
	REFUSED(rpma_log_get_threshold, MAIN, NIL),
	REFUSED(rpma_log_get_threshold, AUX, NIL),

	/* ---- peers ---- */
	TWO_POINTERS(rpma_peer_new, DEVICE),
	DELETES_NOTHING(rpma_peer_delete),
	REFUSED(rpma_peer_cfg_new, NIL),
	DELETES_NOTHING(rpma_peer_cfg_delete),
	REFUSED(rpma_peer_cfg_set_direct_write_to_pmem, NIL, V(true)),
	REFUSED(rpma_peer_cfg_set_direct_write_to_pmem, NIL, V(false)),
	TWO_POINTERS(rpma_peer_cfg_get_direct_write_to_pmem, PCFG),
	TWO_POINTERS(rpma_peer_cfg_get_descriptor, PCFG),
	TWO_POINTERS(rpma_peer_cfg_get_descriptor_size, PCFG),
	REFUSED(rpma_peer_cfg_from_descriptor, NIL, V(1), OUT),
	REFUSED(rpma_peer_cfg_from_descriptor, V("x"), V(1), NIL),
	/* pointers are checked before the size, which would be logged */
	REFUSED(rpma_peer_cfg_from_descriptor, NIL, V(0), OUT),
	REFUSED(rpma_peer_cfg_from_descriptor, V("x"), V(0), NIL),
	REFUSED(rpma_peer_cfg_from_descriptor, NIL, V(0), NIL),

	/* ---- memory regions ---- */
	REFUSED(rpma_mr_reg, NIL, V(LOCAL_ADDR), V(LOCAL_SIZE), V(1), OUT),
	REFUSED(rpma_mr_reg, PEER, NIL, V(LOCAL_SIZE), V(1), OUT),
	REFUSED(rpma_mr_reg, PEER, V(LOCAL_ADDR), V(0), V(1), OUT),
	REFUSED(rpma_mr_reg, PEER, V(LOCAL_ADDR), V(LOCAL_SIZE), V(1), NIL),
	REFUSED(rpma_mr_reg, NIL, V(LOCAL_ADDR), V(8), V(1), OUT),
	REFUSED(rpma_mr_reg, PEER, NIL, V(8), V(1), OUT),
	REFUSED(rpma_mr_reg, PEER, V(LOCAL_ADDR), V(8), V(0), OUT),
	REFUSED(rpma_mr_reg, PEER, V(LOCAL_ADDR), V(8), V(1), NIL),
	REFUSED(rpma_mr_reg, NIL, NIL, V(0), V(0), NIL),
	/* no usage, and undefined bits */
	REFUSED(rpma_mr_reg, PEER, V(LOCAL_ADDR), V(LOCAL_SIZE), V(0), OUT),
	REFUSED(rpma_mr_reg, PEER, V(LOCAL_ADDR), V(LOCAL_SIZE), V(0x100), OUT),
	REFUSED(rpma_mr_reg, PEER, V(LOCAL_ADDR), V(LOCAL_SIZE), V(0x101), OUT),
	REFUSED(rpma_mr_reg, PEER, V(LOCAL_ADDR), V(LOCAL_SIZE), V(-1), OUT),
	REFUSED(rpma_mr_reg, PEER, V(LOCAL_ADDR), V(LOCAL_SIZE), V(INT32_MIN), OUT),
	REFUSED(rpma_mr_reg, PEER, V(LOCAL_ADDR), V(LOCAL_SIZE), V(0x40000000), OUT),
	DELETES_NOTHING(rpma_mr_dereg),
	TWO_POINTERS(rpma_mr_get_descriptor, MR),
	TWO_POINTERS(rpma_mr_get_descriptor_size, MR),
	TWO_POINTERS(rpma_mr_get_ptr, MR),
	TWO_POINTERS(rpma_mr_get_size, MR),
	/* the original crashes with a NULL region, and truncates the length to 32 bits */
	{ROW("rpma_mr_advise", rpma_mr_advise, NIL, V(0), V(8), V(0), V(0)), .library = OURS},
	{ROW("rpma_mr_advise", rpma_mr_advise, NIL, V(0), V(64), V(IBV_ADVISE_MR_ADVICE_PREFETCH), V(0)), .library = OURS},
	{ROW("rpma_mr_advise", rpma_mr_advise, MR, V(0), V(1ul << 32), V(IBV_ADVISE_MR_ADVICE_PREFETCH), V(0)),
		.library = OURS},
	{ROW("rpma_mr_advise", rpma_mr_advise, MR, V(0), V((1ul << 32) + 5), V(0), V(0)), .library = ORIGINAL,
		.expected = NOTHING_DONE, .calls = "ibv_advise_mr(pd0, 0, 0x0, {0x10000, 5, 0x101}, 1)"},
	{ROW("rpma_mr_advise", rpma_mr_advise, MR, V(0), V(0), V(0), V(0)), .expected = NOTHING_DONE,
		.calls = "ibv_advise_mr(pd0, 0, 0x0, {0x10000, 0, 0x101}, 1)"},
	REFUSED(rpma_mr_remote_from_descriptor, NIL, V(21), OUT),
	REFUSED(rpma_mr_remote_from_descriptor, V(a_desc), V(21), NIL),
	REFUSED(rpma_mr_remote_from_descriptor, NIL, V(0), OUT),
	REFUSED(rpma_mr_remote_from_descriptor, V(a_desc), V(0), NIL),
	REFUSED(rpma_mr_remote_from_descriptor, NIL, V(0), NIL),
	TWO_POINTERS(rpma_mr_remote_get_size, REMOTE),
	TWO_POINTERS(rpma_mr_remote_get_flush_type, REMOTE),
	DELETES_NOTHING(rpma_mr_remote_delete),

	/* ---- configurations of connections ---- */
	REFUSED(rpma_conn_cfg_new, NIL),
	DELETES_NOTHING(rpma_conn_cfg_delete),
	REFUSED(rpma_conn_cfg_set_timeout, NIL, V(0)),
	REFUSED(rpma_conn_cfg_set_timeout, NIL, V(1)),
	REFUSED(rpma_conn_cfg_set_timeout, CFG, V(-1)),
	TWO_POINTERS(rpma_conn_cfg_get_timeout, CFG),
	SETS_A_SIZE(rpma_conn_cfg_set_cq_size),
	TWO_POINTERS(rpma_conn_cfg_get_cq_size, CFG),
	SETS_A_SIZE(rpma_conn_cfg_set_rcq_size),
	TWO_POINTERS(rpma_conn_cfg_get_rcq_size, CFG),
	SETS_A_SIZE(rpma_conn_cfg_set_sq_size),
	TWO_POINTERS(rpma_conn_cfg_get_sq_size, CFG),
	SETS_A_SIZE(rpma_conn_cfg_set_rq_size),
	TWO_POINTERS(rpma_conn_cfg_get_rq_size, CFG),
	REFUSED(rpma_conn_cfg_set_compl_channel, NIL, V(false)),
	REFUSED(rpma_conn_cfg_set_compl_channel, NIL, V(true)),
	TWO_POINTERS(rpma_conn_cfg_get_compl_channel, CFG),
	REFUSED(rpma_conn_cfg_set_srq, NIL, SRQ),
	REFUSED(rpma_conn_cfg_set_srq, CFG, NIL),
	REFUSED(rpma_conn_cfg_set_srq, NIL, NIL),
	TWO_POINTERS(rpma_conn_cfg_get_srq, CFG),

	/* ---- shared receive queues ---- */
	REFUSED(rpma_srq_cfg_new, NIL),
	DELETES_NOTHING(rpma_srq_cfg_delete),
	SETS_A_SIZE(rpma_srq_cfg_set_rq_size),
	TWO_POINTERS(rpma_srq_cfg_get_rq_size, SRQ_CFG),
	SETS_A_SIZE(rpma_srq_cfg_set_rcq_size),
	TWO_POINTERS(rpma_srq_cfg_get_rcq_size, SRQ_CFG),
	REFUSED(rpma_srq_new, NIL, SRQ_CFG, OUT),
	REFUSED(rpma_srq_new, NIL, NIL, OUT),
	REFUSED(rpma_srq_new, PEER, SRQ_CFG, NIL),
	REFUSED(rpma_srq_new, PEER, NIL, NIL),
	REFUSED(rpma_srq_new, NIL, NIL, NIL),
	DELETES_NOTHING(rpma_srq_delete),
	REFUSED(rpma_srq_recv, NIL, MR, V(0), V(8), TOKEN),
	REFUSED(rpma_srq_recv, NIL, NIL, V(0), V(0), TOKEN),
	REFUSED(rpma_srq_recv, SRQ, NIL, V(0), V(1), TOKEN),
	REFUSED(rpma_srq_recv, SRQ, NIL, V(1), V(0), TOKEN),
	REFUSED(rpma_srq_recv, SRQ, NIL, V(0), V(8), TOKEN),
	REFUSED(rpma_srq_recv, SRQ, NIL, V(8), V(0), TOKEN),
	TWO_POINTERS(rpma_srq_get_rcq, SRQ),
};

int main(void)
{
	return RUN_ROWS("arguments-objects", RPMA_OBJECT_FUNCTIONS, rows);
}
