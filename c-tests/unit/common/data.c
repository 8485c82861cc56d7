/* SPDX-License-Identifier: BSD-3-Clause */

#include "data.h"

struct rpma_peer *d_peer;
struct rpma_conn *d_conn;
struct rpma_mr_local *d_mr;
struct rpma_mr_remote *d_remote;

/* Only the second bit counts; unknown bits are ignored. */
const struct flag_row flag_rows[] = {
	{RPMA_F_COMPLETION_ON_ERROR, '-'},
	{RPMA_F_COMPLETION_ALWAYS, 'S'},
	{2, 'S'},
	{4, '-'},
	{8 | 1, '-'},
	{7, 'S'},
	{-1, 'S'},
};
const int n_flag_rows = sizeof(flag_rows) / sizeof(flag_rows[0]);

int data_setup(void **state)
{
	mock_setup(state);
	d_peer = fx_peer();
	d_conn = fx_conn(d_peer, NULL);
	d_mr = fx_mr(d_peer, RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC);
	d_remote = fx_remote(RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST |
			RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
	return 0;
}

int data_teardown(void **state)
{
	fx_remote_delete(&d_remote);
	fx_mr_dereg(&d_mr);
	fx_conn_delete(&d_conn);
	fx_peer_delete(&d_peer);
	return mock_teardown(state);
}
