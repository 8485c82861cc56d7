/* SPDX-License-Identifier: BSD-3-Clause */
/* Completions from the connection itself: releases 0.9 and 0.10. */

#include "queue.h"

#if RELEASE <= 10

static struct rpma_conn *conn;
static int fd;

static void
configure(struct rpma_conn_cfg *cfg)
{
	/* one queue for all completions, so it needs room for all */
	OK(rpma_conn_cfg_set_cq_size(cfg, 20));
}

static void
open_conn(struct rpma_conn *of)
{
	conn = of;
	OK(rpma_conn_get_completion_fd(conn, &fd));
}

static void
wait_conn(enum side side)
{
	(void)side;
	wait_readable(fd);
	OK(rpma_conn_completion_wait(conn));
}

static int
take(enum side side, struct done *done)
{
	struct guarded guarded;
	int ret;

	(void)side;
	guard(&guarded);
	ret = rpma_conn_completion_get(conn, &guarded.completion);
	check_guard(&guarded, ret);
	if (ret == 0)
		*done = done_from(&guarded.completion);
	return ret;
}

const struct queue conn_queue = {
	.name = "conn", .configure = configure, .open = open_conn, .wait = wait_conn, .take = take};

#else
typedef int not_in_this_release;
#endif
