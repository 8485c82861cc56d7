/* SPDX-License-Identifier: BSD-3-Clause */
/* Completions from two queues that share a channel: from 1.0 on. */

#include "queue.h"

#if RELEASE >= 100

static struct rpma_conn *conn;
static struct rpma_cq *cqs[2];
static int fd;

static void
configure(struct rpma_conn_cfg *cfg)
{
	bool shared = false;

	OK(rpma_conn_cfg_set_rcq_size(cfg, 10));
	OK(rpma_conn_cfg_set_compl_channel(cfg, true));
	OK(rpma_conn_cfg_get_compl_channel(cfg, &shared));
	EXPECT(shared, "the configuration was not kept");
}

static void
open_channel(struct rpma_conn *of)
{
	int ret;

	conn = of;
	OK(rpma_conn_get_cq(conn, &cqs[SENDS]));
	OK(rpma_conn_get_rcq(conn, &cqs[RECEIVES]));
	EXPECT(cqs[RECEIVES] != NULL && cqs[RECEIVES] != cqs[SENDS], "there is no queue for receives");
	OK(rpma_conn_get_compl_fd(conn, &fd));
	ret = rpma_cq_wait(cqs[SENDS]);
	EXPECT(ret == RPMA_E_SHARED_CHANNEL, "waiting at a single queue: %s", rpma_err_2str(ret));
}

static void
wait_channel(enum side side)
{
	struct rpma_cq *cq = NULL;
	bool is_rcq = false;

	/* either queue: take functions poll their own before they wait again */
	(void)side;
	wait_readable(fd);
	OK(rpma_conn_wait(conn, 0, &cq, &is_rcq));
	EXPECT(cq == cqs[is_rcq ? RECEIVES : SENDS], "an event of an unknown queue");
}

static int
take(enum side side, struct done *done)
{
	return take_wc(cqs[side], done);
}

const struct queue channel_queue = {
	.name = "channel", .configure = configure, .open = open_channel, .wait = wait_channel, .take = take};

#else
typedef int not_in_this_release;
#endif
