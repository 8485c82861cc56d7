/* SPDX-License-Identifier: BSD-3-Clause */
/* tables.c -- all tests */
#include "harness.h"

extern const struct test regions[], reregistered[], transfers[], atomics[], queues[], windows[], addresses[], hostile[], forks[],
	dontfork[], roce[], rc_transfers[], rc_flush[], rc_errors[], rc_events[], roce_uc[], roce_ud[], files[];

const struct test *const tables[] = {regions, reregistered, transfers, atomics, queues, windows, addresses, hostile, forks,
	dontfork, roce, rc_transfers, rc_flush, rc_errors, rc_events, roce_uc, roce_ud, files, NULL};
