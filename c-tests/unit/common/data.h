/* SPDX-License-Identifier: BSD-3-Clause */

/* A connection with a local and a remote region, for data path operations. */
#ifndef DATA_H
#define DATA_H

#include "fixture.h"

extern struct rpma_peer *d_peer;
extern struct rpma_conn *d_conn;      /* qp0, cq0 */
extern struct rpma_mr_local *d_mr;    /* mr1 at 0x10000, lkey 0x101 (mr0 is the flush buffer) */
extern struct rpma_mr_remote *d_remote; /* 0x7000000, rkey 0x5678 */

int data_setup(void **state);
int data_teardown(void **state);
#define DATA_TEST(f) cmocka_unit_test_setup_teardown(f, data_setup, data_teardown)

#define CONTEXT ((void *)(uintptr_t)0xfedcba9876543210)
#define ALWAYS RPMA_F_COMPLETION_ALWAYS
#define PAST_32_BITS (((size_t)1 << 32) + 8)

/* Posted completion flags: 'S' signalled, '-' not. 0 is not in the list: it is rejected. */
struct flag_row {
	int flags;
	char signalled;
};
extern const struct flag_row flag_rows[];
extern const int n_flag_rows;

#endif /* DATA_H */
