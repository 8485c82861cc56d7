/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completions from two queues, in the format of the release (0.10 and 0.11) or in that of libibverbs (from
 * 0.11 on).
 */

#include "queue.h"

#if RELEASE >= 10

static struct rpma_cq *cqs[2];
static int fds[2];

static void
configure(struct rpma_conn_cfg *cfg)
{
	/* receives have a separate queue */
	OK(rpma_conn_cfg_set_rcq_size(cfg, 10));
}

static void
open_cqs(struct rpma_conn *conn)
{
	OK(rpma_conn_get_cq(conn, &cqs[SENDS]));
	OK(rpma_conn_get_rcq(conn, &cqs[RECEIVES]));
	EXPECT(cqs[RECEIVES] != NULL && cqs[RECEIVES] != cqs[SENDS], "there is no queue for receives");
	OK(rpma_cq_get_fd(cqs[SENDS], &fds[SENDS]));
	OK(rpma_cq_get_fd(cqs[RECEIVES], &fds[RECEIVES]));
}

static void
wait_cq(enum side side)
{
	wait_readable(fds[side]);
	OK(rpma_cq_wait(cqs[side]));
}

#if RELEASE <= 11

static int
take_own(enum side side, struct done *done)
{
	struct guarded guarded;
	int ret;

	guard(&guarded);
	ret = rpma_cq_get_completion(cqs[side], &guarded.completion);
	check_guard(&guarded, ret);
	if (ret == 0)
		*done = done_from(&guarded.completion);
	return ret;
}

const struct queue cq_queue = {
	.name = "cq", .configure = configure, .open = open_cqs, .wait = wait_cq, .take = take_own};

#endif

#if RELEASE >= 11

int
take_wc(struct rpma_cq *cq, struct done *done)
{
	struct ibv_wc wc;
	int got = -1;
	int ret = rpma_cq_get_wc(cq, 1, &wc, &got);

	if (ret == 0) {
		EXPECT(got == 1, "%d completions instead of one", got);
		*done = done_from_wc(&wc);
	}
	return ret;
}

static int
take(enum side side, struct done *done)
{
	return take_wc(cqs[side], done);
}

const struct queue wc_queue = {
	.name = "wc", .configure = configure, .open = open_cqs, .wait = wait_cq, .take = take};

#endif

#else
typedef int not_in_this_release;
#endif
