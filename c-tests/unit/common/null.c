/* SPDX-License-Identifier: BSD-3-Clause */

#include "null.h"

union n_out n_out;
struct rpma_ep *n_ep;
struct rpma_conn_req *n_req;
struct rpma_conn_cfg *n_cfg;
struct rpma_srq_cfg *n_srq_cfg;
struct rpma_srq *n_srq;
struct rpma_peer_cfg *n_pcfg;
struct rpma_cq *n_cq;

enum { PATTERN = 0xee };

void n_inval_at(const char *expr, int ret, const char *file, int line)
{
	if (ret != RPMA_E_INVAL) {
		print_error("%s returned %d\n", expr, ret);
		_fail(file, line);
	}
	for (size_t i = 0; i < sizeof(n_out); i++) {
		if (n_out.bytes[i] != PATTERN) {
			print_error("%s wrote its output\n", expr);
			_fail(file, line);
		}
	}
	expect_calls_at((const char *const[]){NULL}, file, line);
	expect_silence_at(file, line);
}

int null_setup(void **state)
{
	data_setup(state);
	n_ep = fx_ep(d_peer);
	n_req = fx_req(d_peer, NULL);
	n_cfg = fx_cfg(10, 0, false, NULL);
	assert_int_equal(rpma_srq_cfg_new(&n_srq_cfg), 0);
	n_srq = fx_srq(d_peer, 0);
	assert_int_equal(rpma_peer_cfg_new(&n_pcfg), 0);
	assert_int_equal(rpma_conn_get_cq(d_conn, &n_cq), 0);
	memset(&n_out, PATTERN, sizeof(n_out));
	fx_forget();
	return 0;
}

int null_teardown(void **state)
{
	assert_int_equal(rpma_peer_cfg_delete(&n_pcfg), 0);
	fx_srq_delete(&n_srq);
	assert_int_equal(rpma_srq_cfg_delete(&n_srq_cfg), 0);
	fx_cfg_delete(&n_cfg);
	assert_int_equal(rpma_conn_req_delete(&n_req), 0);
	fx_ep_shutdown(&n_ep);
	return data_teardown(state);
}
