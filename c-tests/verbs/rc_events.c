/* SPDX-License-Identifier: BSD-3-Clause */
/* rc_events.c -- asynchronous events of a RoCE device */
#include "rc.h"

#include <poll.h>

static void
expect_no_event(struct rc *rc)
{
	struct pollfd fd = {.fd = rc->device->async_fd, .events = POLLIN};

	EXPECT(poll(&fd, 1, 0) == 0, "an event");
}

/* The first request of the peer in RTR is an event: the program may go to RTS. In RTS none is. */
static void
established_t(struct side *side)
{
	struct rc rc;

	open_rc(&rc, side, (struct rc_terms){0});
	receive_rc(&rc);
	post_receive(&rc, 0, 1, 0, 64);
	post_receive(&rc, 0, 2, 0, 64);
	expect_no_event(&rc);
	meet(&rc);
	expect_event(&rc, IBV_EVENT_COMM_EST);
	expect_received(&rc, 1, IBV_WC_SUCCESS);
	send_rc(&rc);
	post(&rc, 0, IBV_WR_SEND, 3, 0, 64);
	expect_sent(&rc, 3, IBV_WC_SUCCESS);
	expect_received(&rc, 2, IBV_WC_SUCCESS);
	meet(&rc);
	expect_no_event(&rc);
	close_rc(&rc);
}

static void
established_i(struct side *side)
{
	struct rc rc;

	open_rc(&rc, side, (struct rc_terms){0});
	receive_rc(&rc);
	send_rc(&rc);
	post_receive(&rc, 0, 1, 0, 64);
	meet(&rc);
	post(&rc, 0, IBV_WR_SEND, 1, 0, 64);
	expect_sent(&rc, 1, IBV_WC_SUCCESS);
	expect_received(&rc, 1, IBV_WC_SUCCESS);
	post(&rc, 0, IBV_WR_SEND, 2, 0, 64);
	expect_sent(&rc, 2, IBV_WC_SUCCESS);
	meet(&rc);
	expect_no_event(&rc);
	close_rc(&rc);
}

/* In ERR a queue pair takes no more receives from its shared receive queue. */
static void
last_receive_i(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.shared = true});
	post_receive(&rc, 0, 1, 0, 64);
	expect_no_event(&rc);
	set_state(rc.qps[0], IBV_QPS_ERR);
	expect_event(&rc, IBV_EVENT_QP_LAST_WQE_REACHED);
	meet(&rc);
	expect_no_event(&rc);
	expect_nothing(rc.recv_cq);
	close_rc(&rc);
}

static void
plain_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){0});
	meet(&rc);
	close_rc(&rc);
}

const struct test rc_events[] = {
	{.name = "roce-established-event", .target = established_t, .initiator = established_i, .missing = not_soft},
	{.name = "roce-last-wqe-event", .target = plain_t, .initiator = last_receive_i, .missing = not_soft},
	{.name = NULL},
};
