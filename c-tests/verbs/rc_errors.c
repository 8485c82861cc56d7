/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rc_errors.c -- reliable connections over RoCE without rdma_cm: errors of requests, states, and peers that
 * do not respond
 */
#include "rc.h"

#include <fcntl.h>
#include <unistd.h>
#include <unistd.h>
#include <signal.h>
#include <poll.h>

/* Connects, and keeps the connection until the initiator is done. */
static void
hold(struct side *side, struct rc_terms terms)
{
	struct rc rc;

	make_rc(&rc, side, terms);
	meet(&rc);
	close_rc(&rc);
}

static void
plain_t(struct side *side)
{
	hold(side, (struct rc_terms){0});
}

/* Without a posted receive, the sender repeats the message until there is one. */
static void
late_receive_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.rnr_timer = 13});
	await(side, 's');
	sleep_ms(100);
	for (uint64_t i = 0; i < 8; i++) {
		post_receive(&rc, 0, i, 0, 4096);
		expect_received(&rc, i, IBV_WC_SUCCESS);
		check_pattern(rc.memory, 4000, 1, "a message");
		memset(rc.memory, 0, 4096);
	}
	expect_nothing(rc.recv_cq);
	meet(&rc);
	close_rc(&rc);
}

static void
late_receive_i(struct side *side)
{
	uint64_t start;
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){0});
	fill_pattern(rc.memory, 4000, 1);
	start = now_ms();
	for (uint64_t i = 0; i < 8; i++)
		post(&rc, 0, IBV_WR_SEND, i, 0, 4000);
	notify(side, 's');
	for (uint64_t i = 0; i < 8; i++)
		expect_sent(&rc, i, IBV_WC_SUCCESS);
	EXPECT(now_ms() - start >= 95, "%llu ms", (unsigned long long)(now_ms() - start));
	meet(&rc);
	close_rc(&rc);
}

/* No receive is ever posted: RNR_RETRY_EXC_ERR after the retries, each after min_rnr_timer (61 ms). */
static void
no_receive_t(struct side *side)
{
	hold(side, (struct rc_terms){.rnr_timer = 25});
}

static void
no_receive_i(struct side *side)
{
	uint64_t start, ms;
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.rnr_retries = 3});
	start = now_ms();
	post(&rc, 0, IBV_WR_RDMA_WRITE, 1, 0, 8);
	post(&rc, 0, IBV_WR_SEND, 2, 0, 8);
	post(&rc, 0, IBV_WR_RDMA_READ, 3, 0, 8);
	expect_sent(&rc, 1, IBV_WC_SUCCESS);
	expect_sent(&rc, 2, IBV_WC_RNR_RETRY_EXC_ERR);
	ms = now_ms() - start;
	expect_sent(&rc, 3, IBV_WC_WR_FLUSH_ERR);
	EXPECT(ms >= 180 && ms < 2000, "%llu ms", (unsigned long long)ms);
	EXPECT(state_of(rc.qps[0]) == IBV_QPS_ERR, "%d", state_of(rc.qps[0]));
	meet(&rc);
	close_rc(&rc);
}

/* Requests that the target refuses, and their status: later requests are flushed, earlier ones executed. */
struct refused {
	enum ibv_wr_opcode opcode;
	uint32_t length;
	uint32_t rkey_change; /* XOR with the key */
	int64_t offset; /* of the target's memory */
	int access; /* of the target's queue pair */
	int region; /* of the target's region */
	enum ibv_wc_status status;
	enum ibv_event_type event; /* at the target */
};

static const struct refused refusals[] = {
	{IBV_WR_RDMA_WRITE, 64, 0x10, 0, RC_FULL, RC_FULL, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
	{IBV_WR_RDMA_READ, 64, 0x10, 0, RC_FULL, RC_FULL, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
	{IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0x10, 0, RC_FULL, RC_FULL, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
	/* beyond the end of the region, before its start, with many packets */
	{IBV_WR_RDMA_WRITE, 64, 0, 4096 - 63, RC_FULL, RC_FULL, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
	{IBV_WR_RDMA_READ, 64, 0, -1, RC_FULL, RC_FULL, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
	{IBV_WR_RDMA_WRITE, 4096, 0, 1, RC_FULL, RC_FULL, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
	/* a right that the region does not have */
	{IBV_WR_RDMA_WRITE, 64, 0, 0, RC_FULL, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
	{IBV_WR_RDMA_READ, 64, 0, 0, RC_FULL, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
	/* a right that the queue pair does not have; the last one, an unaligned word, is a separate test */
	{IBV_WR_RDMA_WRITE, 64, 0, 0, IBV_ACCESS_REMOTE_READ, RC_FULL, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
	{IBV_WR_RDMA_READ, 64, 0, 0, IBV_ACCESS_REMOTE_WRITE, RC_FULL, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
	{IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, 4, RC_FULL, RC_FULL, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
};

#define REFUSALS (sizeof(refusals) / sizeof(refusals[0]))

/* The cases from n to end. */
static void
refuse(struct side *side, size_t n, size_t end)
{
	for (; n < end; n++) {
		struct rc rc;

		make_rc(&rc, side, (struct rc_terms){.access = refusals[n].access, .region = refusals[n].region});
		post_receive(&rc, 0, 1, 0, 64);
		post_receive(&rc, 0, 2, 0, 64);
		meet(&rc);
		meet(&rc);
		expect_received(&rc, 1, IBV_WC_SUCCESS);
		check_pattern(rc.memory, 16, 5, "the message before it");
		check_bytes(rc.memory + 16, 4096 - 16, 0, "the destination of the refused request");
		/* rxe reports none */
		if (!on_device())
			expect_event(&rc, refusals[n].event);
		expect_received(&rc, 2, IBV_WC_WR_FLUSH_ERR);
		EXPECT(state_of(rc.qps[0]) == IBV_QPS_ERR, "%d", state_of(rc.qps[0]));
		meet(&rc);
		close_rc(&rc);
	}
}

static void
are_refused(struct side *side, size_t n, size_t end)
{
	for (; n < end; n++) {
		const struct refused *it = &refusals[n];
		struct ibv_sge entry;
		struct ibv_send_wr wr;
		struct rc rc;

		make_rc(&rc, side, (struct rc_terms){0});
		fill_pattern(rc.memory, 4096, 5);
		meet(&rc);
		post(&rc, 0, IBV_WR_SEND, 1, 0, 16);
		wr = request(&entry, &rc, it->opcode, 2, 0, it->length);
		if (it->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr.wr.atomic.remote_addr = rc.peer.addr + (uint64_t)it->offset;
			wr.wr.atomic.compare_add = 1;
			wr.wr.atomic.rkey = rc.peer.rkey ^ it->rkey_change;
		} else {
			wr.wr.rdma.remote_addr += (uint64_t)it->offset;
			wr.wr.rdma.rkey ^= it->rkey_change;
		}
		post_wr(&rc, 0, &wr);
		post(&rc, 0, IBV_WR_SEND, 3, 0, 16);
		post(&rc, 0, IBV_WR_RDMA_READ, 4, 0, 16);
		expect_sent(&rc, 1, IBV_WC_SUCCESS);
		{
			struct ibv_wc wc = next_of(rc.send_cq);

			EXPECT(wc.wr_id == 2 && wc.status == it->status, "refusal %zu: %s", n, ibv_wc_status_str(wc.status));
		}
		expect_sent(&rc, 3, IBV_WC_WR_FLUSH_ERR);
		expect_sent(&rc, 4, IBV_WC_WR_FLUSH_ERR);
		EXPECT(state_of(rc.qps[0]) == IBV_QPS_ERR, "%d", state_of(rc.qps[0]));
		meet(&rc);
		meet(&rc);
		close_rc(&rc);
	}
}

static void
refused_t(struct side *side)
{
	refuse(side, 0, REFUSALS - 1);
}

static void
refused_i(struct side *side)
{
	are_refused(side, 0, REFUSALS - 1);
}

static void
misaligned_t(struct side *side)
{
	refuse(side, REFUSALS - 1, REFUSALS);
}

static void
misaligned_i(struct side *side)
{
	are_refused(side, REFUSALS - 1, REFUSALS);
}

/* A message longer than the receive, of one packet and of several. */
static void
too_long_t(struct side *side)
{
	for (uint32_t room = 63; room < 4096; room += 4000) {
		struct rc rc;

		make_rc(&rc, side, (struct rc_terms){.length = 8192});
		post_receive(&rc, 0, 1, 0, room);
		post_receive(&rc, 0, 2, 0, room);
		meet(&rc);
		expect_received(&rc, 1, IBV_WC_LOC_LEN_ERR);
		expect_received(&rc, 2, IBV_WC_WR_FLUSH_ERR);
		check_bytes(rc.memory + room, 8192 - room, 0, "the bytes after a receive");
		meet(&rc);
		close_rc(&rc);
	}
}

static void
too_long_i(struct side *side)
{
	for (uint32_t room = 63; room < 4096; room += 4000) {
		struct rc rc;

		make_rc(&rc, side, (struct rc_terms){.length = 8192});
		fill_pattern(rc.memory, 8192, 1);
		meet(&rc);
		post(&rc, 0, IBV_WR_SEND, 1, 0, room + 1);
		post(&rc, 0, IBV_WR_SEND, 2, 0, 8);
		expect_sent(&rc, 1, IBV_WC_REM_INV_REQ_ERR);
		expect_sent(&rc, 2, IBV_WC_WR_FLUSH_ERR);
		meet(&rc);
		close_rc(&rc);
	}
}

/*
 * The peer is killed: RETRY_EXC_ERR of the first request without a response, after retry_cnt timeouts of T to
 * 4 T.
 */
static void
killed_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){0});
	meet(&rc);
	raise(SIGKILL);
}

static void
killed_i(struct side *side)
{
	char end;
	uint64_t start, ms;
	struct rc rc;

	/* 33 ms, three retries */
	make_rc(&rc, side, (struct rc_terms){.timeout = 13, .retries = 3});
	post(&rc, 0, IBV_WR_RDMA_WRITE, 1, 0, 8);
	expect_sent(&rc, 1, IBV_WC_SUCCESS);
	meet(&rc);
	EXPECT(read(side->sync, &end, 1) == 0, "the other process ends");
	start = now_ms();
	post(&rc, 0, IBV_WR_RDMA_WRITE, 2, 0, 8);
	post(&rc, 0, IBV_WR_RDMA_READ, 3, 0, 8);
	expect_sent(&rc, 2, IBV_WC_RETRY_EXC_ERR);
	ms = now_ms() - start;
	expect_sent(&rc, 3, IBV_WC_WR_FLUSH_ERR);
	/* four times 33 to 132 ms, and the delay of a busy machine */
	EXPECT(ms >= 130 && ms < 4 * 134 + 1000, "%llu ms", (unsigned long long)ms);
	EXPECT(state_of(rc.qps[0]) == IBV_QPS_ERR, "%d", state_of(rc.qps[0]));
	close_rc(&rc);
}

/* The peer is stopped for less than the timeouts: nothing is lost. */
static void
stopped_i(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){0});
	stop_process(*side->target_pid);
	for (uint64_t i = 0; i < 8; i++)
		post(&rc, 0, IBV_WR_RDMA_WRITE, i, 0, 4096);
	sleep_ms(150);
	expect_nothing(rc.send_cq);
	kill(*side->target_pid, SIGCONT);
	for (uint64_t i = 0; i < 8; i++)
		expect_sent(&rc, i, IBV_WC_SUCCESS);
	meet(&rc);
	close_rc(&rc);
}

/* The target makes no call: the device responds. */
static void
asleep_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){0});
	post_receive(&rc, 0, 1, 0, 64);
	meet(&rc);
	sleep_ms(1000);
	notify(side, 'a');
	expect_received(&rc, 1, IBV_WC_SUCCESS);
	meet(&rc);
	close_rc(&rc);
}

static void
asleep_i(struct side *side)
{
	int flags = fcntl(side->sync, F_GETFL);
	struct rc rc;
	char point;

	make_rc(&rc, side, (struct rc_terms){0});
	meet(&rc);
	sleep_ms(50); /* its engine sleeps, too */
	post(&rc, 0, IBV_WR_RDMA_WRITE, 1, 0, 4096);
	post(&rc, 0, IBV_WR_RDMA_READ, 2, 0, 4096);
	post(&rc, 0, IBV_WR_SEND, 3, 0, 64);
	for (uint64_t i = 1; i <= 3; i++)
		expect_sent(&rc, i, IBV_WC_SUCCESS);
	EXPECT(fcntl(side->sync, F_SETFL, flags | O_NONBLOCK) == 0, "");
	EXPECT(read(side->sync, &point, 1) == -1, "the target has slept meanwhile");
	EXPECT(fcntl(side->sync, F_SETFL, flags) == 0, "");
	await(side, 'a');
	meet(&rc);
	close_rc(&rc);
}

/* In ERR, new requests are flushed, as well as outstanding ones. */
static void
flushed(struct rc *rc, uint64_t number)
{
	EXPECT(state_of(rc->qps[0]) == IBV_QPS_ERR, "%d", state_of(rc->qps[0]));
	post_receive(rc, 0, number, 0, 64);
	post(rc, 0, IBV_WR_RDMA_WRITE, number, 0, 64);
	post(rc, 0, IBV_WR_SEND, number + 1, 0, 64);
	expect_received(rc, number, IBV_WC_WR_FLUSH_ERR);
	expect_sent(rc, number, IBV_WC_WR_FLUSH_ERR);
	expect_sent(rc, number + 1, IBV_WC_WR_FLUSH_ERR);
}

static void
error_i(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){0});
	post_receive(&rc, 0, 1, 0, 64);
	post_receive(&rc, 0, 2, 0, 64);
	set_state(rc.qps[0], IBV_QPS_ERR);
	expect_received(&rc, 1, IBV_WC_WR_FLUSH_ERR);
	expect_received(&rc, 2, IBV_WC_WR_FLUSH_ERR);
	flushed(&rc, 3);
	expect_nothing(rc.send_cq);
	expect_nothing(rc.recv_cq);
	meet(&rc);
	close_rc(&rc);
}

/* Both go to RESET, with requests outstanding or after an error, and are connected again. */
static void
reset_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.rnr_timer = 25});
	for (int n = 0; n < 4; n++) {
		meet(&rc);
		set_state(rc.qps[0], IBV_QPS_RESET);
		memset(rc.memory, 0, 4096);
		meet(&rc);
		connect_rc(&rc);
		post_receive(&rc, 0, 7, 0, 4096);
		expect_received(&rc, 7, IBV_WC_SUCCESS);
		check_pattern(rc.memory, 4096, (uint32_t)n, "a message");
	}
	meet(&rc);
	close_rc(&rc);
}

static void
reset_i(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){0});
	for (int n = 0; n < 4; n++) {
		post_receive(&rc, 0, 8, 0, 4096);
		if (n % 2 == 0) {
			/* the sends wait for receives */
			for (uint64_t i = 0; i < RC_REQUESTS; i++)
				post(&rc, 0, IBV_WR_SEND, i, 0, 16);
		} else {
			struct ibv_sge entry;
			struct ibv_send_wr wr = request(&entry, &rc, IBV_WR_RDMA_WRITE, 9, 0, 8);

			wr.wr.rdma.rkey ^= 0x10;
			post_wr(&rc, 0, &wr);
			/* RESET discards completions that were not polled */
			while (state_of(rc.qps[0]) != IBV_QPS_ERR)
				sleep_ms(1);
		}
		if (n == 1) {
			expect_sent(&rc, 9, IBV_WC_REM_ACCESS_ERR);
			expect_received(&rc, 8, IBV_WC_WR_FLUSH_ERR);
		}
		meet(&rc);
		set_state(rc.qps[0], IBV_QPS_RESET);
		EXPECT(state_of(rc.qps[0]) == IBV_QPS_RESET, "");
		expect_nothing(rc.send_cq);
		expect_nothing(rc.recv_cq);
		meet(&rc);
		connect_rc(&rc);
		fill_pattern(rc.memory, 4096, (uint32_t)n);
		post(&rc, 0, IBV_WR_SEND, 10, 0, 4096);
		expect_sent(&rc, 10, IBV_WC_SUCCESS);
	}
	meet(&rc);
	close_rc(&rc);
}

/*
 * In SQD no new request begins, and an event reports when those that have begun are complete. Requests of the
 * peer are executed.
 */
static void
drained_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){0});
	meet(&rc);
	check_bytes(rc.memory, 4096, 0, "memory of a request that has not begun");
	post(&rc, 0, IBV_WR_RDMA_READ, 1, 2048, 64);
	expect_sent(&rc, 1, IBV_WC_SUCCESS);
	meet(&rc);
	meet(&rc);
	check_pattern(rc.memory, 1024, 2, "memory of a request that has begun later");
	meet(&rc);
	close_rc(&rc);
}

static void
drained_i(struct side *side)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){0});
	DONE(ibv_modify_qp(rc.qps[0], &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	expect_event(&rc, IBV_EVENT_SQ_DRAINED);
	EXPECT(state_of(rc.qps[0]) == IBV_QPS_SQD, "%d", state_of(rc.qps[0]));
	fill_pattern(rc.memory, 1024, 2);
	post(&rc, 0, IBV_WR_RDMA_WRITE, 1, 0, 1024);
	sleep_ms(50);
	expect_nothing(rc.send_cq);
	meet(&rc);
	meet(&rc);
	expect_nothing(rc.send_cq);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_RTS};
	EXPECT(ibv_modify_qp(rc.qps[0], &attr, IBV_QP_STATE | IBV_QP_CUR_STATE) == EINVAL, "another current state");
	attr.cur_qp_state = IBV_QPS_SQD;
	DONE(ibv_modify_qp(rc.qps[0], &attr, IBV_QP_STATE | IBV_QP_CUR_STATE));
	expect_sent(&rc, 1, IBV_WC_SUCCESS);
	meet(&rc);
	meet(&rc);
	close_rc(&rc);
}

const struct test rc_errors[] = {
	{.name = "roce-late-receive", .target = late_receive_t, .initiator = late_receive_i, .missing = not_soft},
	{.name = "roce-no-receive", .target = no_receive_t, .initiator = no_receive_i, .missing = not_soft},
	{.name = "roce-refused", .target = refused_t, .initiator = refused_i, .missing = not_soft},
	{.name = "roce-misaligned", .target = misaligned_t, .initiator = misaligned_i, .missing = not_soft},
	{.name = "roce-too-long", .target = too_long_t, .initiator = too_long_i, .missing = not_soft},
	{.name = "roce-killed", .target = killed_t, .initiator = killed_i, .target_ends_by = SIGKILL, .missing = not_soft},
	{.name = "roce-stopped", .target = plain_t, .initiator = stopped_i, .missing = not_soft},
	{.name = "roce-asleep", .target = asleep_t, .initiator = asleep_i, .missing = not_soft},
	{.name = "roce-error", .target = plain_t, .initiator = error_i, .missing = not_soft},
	{.name = "roce-reset", .target = reset_t, .initiator = reset_i, .missing = not_soft},
	{.name = "roce-drained", .target = drained_t, .initiator = drained_i, .missing = not_soft},
	{.name = NULL},
};
