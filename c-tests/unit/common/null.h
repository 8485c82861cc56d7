/* SPDX-License-Identifier: BSD-3-Clause */

/* For null/: one test a function, made from names.h, so that none can be left out. */
#ifndef NULL_H
#define NULL_H

#include "data.h"
#include "names.h"

/* A place for every output, with a pattern that must survive. */
extern union n_out {
	unsigned char bytes[64];
	void *ptr;
	uint32_t u32;
	uint64_t u64;
	int i;
	size_t size;
	bool b;
	struct rpma_conn_private_data pdata;
	enum rpma_conn_event event;
	enum rpma_log_level level;
	struct ibv_wc wc;
} n_out;
#define OUT(type) ((type)(void *)&n_out)

void n_inval_at(const char *expr, int ret, const char *file, int line);
/* The call is refused with RPMA_E_INVAL: no call made, nothing logged, no output written. */
#define INVAL(expr) n_inval_at(#expr, (expr), __FILE__, __LINE__)

int null_setup(void **state);
int null_teardown(void **state);

#define NULL_ROW(name) \
	{#name, null_##name, null_setup, null_teardown, NULL},
#define NULL_DECLARE(name) static void null_##name(void **state);
#define NULL_TEST(name) static void null_##name(void **state __attribute__((unused)))

/* Objects beside those of data.h. */
extern struct rpma_ep *n_ep;
extern struct rpma_conn_req *n_req;
extern struct rpma_conn_cfg *n_cfg;
extern struct rpma_srq_cfg *n_srq_cfg;
extern struct rpma_srq *n_srq;
extern struct rpma_peer_cfg *n_pcfg;
extern struct rpma_cq *n_cq;

#endif /* NULL_H */
