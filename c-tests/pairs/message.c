/* SPDX-License-Identifier: BSD-3-Clause */
/* message.c -- send and receive, immediate data. */
#include "link.h"

#include <arpa/inet.h>
#include <string.h>

#define SIZE 8192
#define LARGE (16u << 20)
#define MANY 2000

static const size_t lengths[] = {1, 3, 7, 8, 9, 100, 1459, 1460, 1461, 4096, 8191, 8192};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

struct setup {
	struct node node;
	struct link link;
	struct region in;
	struct region out;
};

static void
post_recv(struct setup *s, size_t size, uintptr_t context)
{
	OK(rpma_recv(s->link.conn, s->in.mr, 0, size, (void *)context));
}

/* The same on both sides; the target posts one receive of the whole region before it accepts. */
static void
begin(struct setup *s, struct side *side, bool is_target, size_t size, const struct rpma_conn_cfg *cfg)
{
	struct rpma_conn_req *req;

	(is_target ? open_target : open_initiator)(&s->node, side);
	region_new(&s->node, &s->in, size, RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_WRITE_DST);
	region_new(&s->node, &s->out, size, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_WRITE_SRC);
	req = (is_target ? next_req : new_req)(&s->node, cfg);
	if (is_target)
		OK(rpma_conn_req_recv(req, s->in.mr, 0, size, (void *)1));
	start_link(&s->link, &req, &s->in);
	finish_link(&s->link);
}

static void
end(struct setup *s, bool is_target)
{
	if (is_target)
		await_end(&s->link);
	else
		end_link(&s->link);
	region_free(&s->out);
	region_free(&s->in);
	close_node(&s->node);
}

static void
send_all(struct setup *s, size_t len, uintptr_t context)
{
	OK(rpma_send(s->link.conn, s->out.mr, 0, len, RPMA_F_COMPLETION_ALWAYS, (void *)context));
}

static void
expect_recv(struct setup *s, uint64_t wr_id, size_t len, enum ibv_wc_opcode opcode, bool with_imm,
	uint32_t imm)
{
	struct ibv_wc wc;

	next_wc(s->link.cq, &wc);
	EXPECT(wc.status == IBV_WC_SUCCESS, "status %d", wc.status);
	EXPECT(wc.wr_id == wr_id && wc.opcode == opcode, "operation %llu, opcode %d",
		(unsigned long long)wc.wr_id, wc.opcode);
	EXPECT(wc.byte_len == len, "%u bytes, expected %zu", wc.byte_len, len);
	EXPECT(!!(wc.wc_flags & IBV_WC_WITH_IMM) == with_imm, "flags 0x%x", wc.wc_flags);
	if (with_imm)
		EXPECT(ntohl(wc.imm_data) == imm, "0x%x, expected 0x%x", ntohl(wc.imm_data), imm);
}

/* The target receives every length and echoes it; buffers are larger than most messages. */
static void
echo_target(struct side *side)
{
	struct setup s;

	begin(&s, side, true, SIZE, NULL);
	for (uint32_t i = 0; i < LENGTHS; i++) {
		expect_recv(&s, 1, lengths[i], IBV_WC_RECV, false, 0);
		check_pattern(s.in.ptr, lengths[i], 10 + i, "a message");
		check_bytes(s.in.ptr + lengths[i], SIZE - lengths[i], i == 0 ? 0 : 0xee,
			"after a message");
		memcpy(s.out.ptr, s.in.ptr, lengths[i]);
		memset(s.in.ptr, 0xee, SIZE);
		post_recv(&s, SIZE, 1);
		OK(rpma_send(s.link.conn, s.out.mr, 0, lengths[i], RPMA_F_COMPLETION_ALWAYS, (void *)2));
		if (i + 1 < LENGTHS)
			await(side, 'e');
		expect_wc(s.link.cq, 2, IBV_WC_SEND);
		if (i + 1 < LENGTHS)
			notify(side, 's');
	}
	end(&s, true);
}

static void
echo_initiator(struct side *side)
{
	struct setup s;

	begin(&s, side, false, SIZE, NULL);
	for (uint32_t i = 0; i < LENGTHS; i++) {
		memset(s.in.ptr, 0xaa, SIZE);
		post_recv(&s, SIZE, 3);
		fill_pattern(s.out.ptr, SIZE, 10 + i);
		send_all(&s, lengths[i], 4);
		/* both completions, in either order */
		for (int seen = 0; seen != 3;) {
			struct ibv_wc wc;

			next_wc(s.link.cq, &wc);
			EXPECT(wc.status == IBV_WC_SUCCESS, "status %d", wc.status);
			EXPECT(wc.wr_id == (wc.opcode == IBV_WC_SEND ? 4 : 3) && !(seen & (int)(wc.wr_id - 2)),
				"operation %llu", (unsigned long long)wc.wr_id);
			seen |= (int)(wc.wr_id - 2);
			if (wc.wr_id == 3)
				EXPECT(wc.byte_len == lengths[i], "%u bytes", wc.byte_len);
		}
		check_pattern(s.in.ptr, lengths[i], 10 + i, "an echo");
		check_bytes(s.in.ptr + lengths[i], SIZE - lengths[i], 0xaa, "after an echo");
		if (i + 1 < LENGTHS) {
			notify(side, 'e');
			await(side, 's');
		}
	}
	end(&s, false);
}

static void
large_target(struct side *side)
{
	struct setup s;

	begin(&s, side, true, LARGE, NULL);
	expect_recv(&s, 1, LARGE, IBV_WC_RECV, false, 0);
	check_pattern(s.in.ptr, LARGE, 20, "16 MiB");
	end(&s, true);
}

static void
large_initiator(struct side *side)
{
	struct setup s;

	begin(&s, side, false, LARGE, NULL);
	fill_pattern(s.out.ptr, LARGE, 20);
	send_all(&s, LARGE, 4);
	expect_wc(s.link.cq, 4, IBV_WC_SEND);
	end(&s, false);
}

/* A stream of messages in numbered order, with receives posted well ahead and a credit for each hundred. */
static void
many_target(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(512, 0, 512, 0);
	struct setup s;

	begin(&s, side, true, SIZE, cfg);
	OK(rpma_conn_cfg_delete(&cfg));
	/* the receive from before is used by the initiator's first message, which has no number */
	for (uintptr_t i = 0; i < 200; i++)
		OK(rpma_recv(s.link.conn, s.in.mr, i * 8, 8, (void *)(100 + i)));
	expect_recv(&s, 1, 8, IBV_WC_RECV, false, 0);
	notify(side, 'r');
	for (uint64_t i = 0; i < MANY; i++) {
		uint64_t number;

		expect_recv(&s, 100 + i % 200, 8, IBV_WC_RECV, false, 0);
		memcpy(&number, s.in.ptr + i % 200 * 8, 8);
		EXPECT(number == i, "message %llu, expected %llu", (unsigned long long)number,
			(unsigned long long)i);
		OK(rpma_recv(s.link.conn, s.in.mr, i % 200 * 8, 8, (void *)(uintptr_t)(100 + i % 200)));
		if (i % 100 == 99)
			notify(side, 'c');
	}
	end(&s, true);
}

static void
many_initiator(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(512, 512, 0, 0);
	struct setup s;

	begin(&s, side, false, SIZE, cfg);
	OK(rpma_conn_cfg_delete(&cfg));
	send_all(&s, 8, 4);
	expect_wc(s.link.cq, 4, IBV_WC_SEND);
	await(side, 'r');
	for (uint64_t i = 0; i < MANY; i++) {
		size_t at = i % 200 * 8;

		/* at most 200 outstanding: the second hundred is sent while the first is received */
		if (i >= 200 && i % 100 == 0)
			await(side, 'c');
		memcpy(s.out.ptr + at, &i, 8);
		OK(rpma_send(s.link.conn, s.out.mr, at, 8, RPMA_F_COMPLETION_ALWAYS, (void *)(uintptr_t)i));
		if (i % 100 == 99)
			for (uint64_t n = i - 99; n <= i; n++)
				expect_wc(s.link.cq, n, IBV_WC_SEND);
	}
	await(side, 'c');
	await(side, 'c');
	end(&s, false);
}

/* Messages without payload, with and without regions, with and without immediate data. */
static void
zero_target(struct side *side)
{
	struct setup s;

	begin(&s, side, true, SIZE, NULL);
	memset(s.in.ptr, 0xee, SIZE);
	OK(rpma_recv(s.link.conn, NULL, 0, 0, (void *)2));
	OK(rpma_recv(s.link.conn, s.in.mr, SIZE, 0, (void *)3));
	OK(rpma_recv(s.link.conn, NULL, 0, 0, (void *)4));
	RETURNS(RPMA_E_INVAL, rpma_recv(s.link.conn, NULL, 0, 1, (void *)5));
	RETURNS(RPMA_E_INVAL, rpma_recv(s.link.conn, NULL, 1, 0, (void *)5));
	notify(side, 'r');
	expect_recv(&s, 1, 0, IBV_WC_RECV, false, 0);
	expect_recv(&s, 2, 0, IBV_WC_RECV, false, 0);
	expect_recv(&s, 3, 0, IBV_WC_RECV, true, 0xffffffffu);
	expect_recv(&s, 4, 0, IBV_WC_RECV, true, 0);
	check_bytes(s.in.ptr, SIZE, 0xee, "the receive buffer");
	end(&s, true);
}

static void
zero_initiator(struct side *side)
{
	struct setup s;

	begin(&s, side, false, SIZE, NULL);
	await(side, 'r');
	send_all(&s, 0, 1);
	OK(rpma_send(s.link.conn, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, (void *)2));
	OK(rpma_send_with_imm(s.link.conn, s.out.mr, 0, 0, RPMA_F_COMPLETION_ALWAYS, 0xffffffffu, (void *)3));
	OK(rpma_send_with_imm(s.link.conn, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, 0, (void *)4));
	RETURNS(RPMA_E_INVAL, rpma_send(s.link.conn, NULL, 0, 1, RPMA_F_COMPLETION_ALWAYS, NULL));
	for (uint64_t i = 1; i <= 4; i++)
		expect_wc(s.link.cq, i, IBV_WC_SEND);
	end(&s, false);
}

static void
send_imm_target(struct side *side)
{
	struct setup s;

	begin(&s, side, true, SIZE, NULL);
	for (uint32_t i = 0; i < LENGTHS; i++) {
		expect_recv(&s, 1, lengths[i], IBV_WC_RECV, i % 3 != 2, 0xa0b0c000u + i);
		check_pattern(s.in.ptr, lengths[i], 30 + i, "a message with immediate data");
		post_recv(&s, SIZE, 1);
		notify(side, 'n');
	}
	end(&s, true);
}

static void
send_imm_initiator(struct side *side)
{
	struct setup s;

	begin(&s, side, false, SIZE, NULL);
	for (uint32_t i = 0; i < LENGTHS; i++) {
		fill_pattern(s.out.ptr, SIZE, 30 + i);
		/* one in three without, so that a value of the previous message would be detected */
		if (i % 3 == 2)
			send_all(&s, lengths[i], 4);
		else
			OK(rpma_send_with_imm(s.link.conn, s.out.mr, 0, lengths[i],
				RPMA_F_COMPLETION_ALWAYS, 0xa0b0c000u + i, (void *)4));
		expect_wc(s.link.cq, 4, IBV_WC_SEND);
		await(side, 'n');
	}
	end(&s, false);
}

/*
 * The buffer of the receive, if it has one, stays unchanged: the write determines where the data are placed.
 */
static void
write_imm_target(struct side *side)
{
	struct region unused;
	struct setup s;

	begin(&s, side, true, SIZE, NULL);
	region_new(&s.node, &unused, SIZE, RPMA_MR_USAGE_RECV);
	memset(unused.ptr, 0xee, SIZE);
	for (uint32_t i = 0; i < LENGTHS; i++) {
		expect_recv(&s, 1, lengths[i], IBV_WC_RECV_RDMA_WITH_IMM, true, ~i);
		check_pattern(s.in.ptr, lengths[i], 40 + i, "what was written with immediate data");
		if (i % 2 == 0)
			OK(rpma_recv(s.link.conn, unused.mr, 0, SIZE, (void *)1));
		else
			OK(rpma_recv(s.link.conn, NULL, 0, 0, (void *)1));
		notify(side, 'n');
	}
	expect_recv(&s, 1, 0, IBV_WC_RECV_RDMA_WITH_IMM, true, 7);
	check_bytes(unused.ptr, SIZE, 0xee, "the receive buffer");
	region_free(&unused);
	end(&s, true);
}

static void
write_imm_initiator(struct side *side)
{
	struct setup s;

	begin(&s, side, false, SIZE, NULL);
	for (uint32_t i = 0; i < LENGTHS; i++) {
		fill_pattern(s.out.ptr, SIZE, 40 + i);
		OK(rpma_write_with_imm(s.link.conn, s.link.remote, 0, s.out.mr, 0, lengths[i],
			RPMA_F_COMPLETION_ALWAYS, ~i, (void *)4));
		expect_wc(s.link.cq, 4, IBV_WC_RDMA_WRITE);
		await(side, 'n');
	}
	OK(rpma_write_with_imm(s.link.conn, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, 7, (void *)4));
	expect_wc(s.link.cq, 4, IBV_WC_RDMA_WRITE);
	end(&s, false);
}

/* The data of every write before a message are placed when the message arrives. */
static void
write_send_target(struct side *side)
{
	struct setup s;

	begin(&s, side, true, SIZE, NULL);
	for (uint32_t i = 0; i < 300; i++) {
		struct region *in = &s.in;

		expect_recv(&s, 1, 1, IBV_WC_RECV, false, 0);
		check_pattern(in->ptr + 8, SIZE - 8, 50 + i, "the write before the message");
		post_recv(&s, 8, 1);
		notify(side, 'n');
	}
	end(&s, true);
}

static void
write_send_initiator(struct side *side)
{
	struct setup s;

	begin(&s, side, false, SIZE, NULL);
	for (uint32_t i = 0; i < 300; i++) {
		fill_pattern(s.out.ptr, SIZE, 50 + i);
		OK(rpma_write(s.link.conn, s.link.remote, 8, s.out.mr, 0, SIZE - 8,
			RPMA_F_COMPLETION_ON_ERROR, NULL));
		send_all(&s, 1, 4);
		expect_wc(s.link.cq, 4, IBV_WC_SEND);
		await(side, 'n');
	}
	end(&s, false);
}

/* A message longer than its receive: the receive completes with an error, and the connection ends. */
static void
too_long_target(struct side *side)
{
	struct rpma_conn_req *req;
	struct region in;
	struct node node;
	struct link link;
	struct ibv_wc wc;

	open_target(&node, side);
	region_new(&node, &in, SIZE, RPMA_MR_USAGE_RECV);
	memset(in.ptr, 0xee, SIZE);
	req = next_req(&node, NULL);
	OK(rpma_conn_req_recv(req, in.mr, 0, 100, (void *)1));
	OK(rpma_conn_req_recv(req, in.mr, 200, 100, (void *)2));
	start_link(&link, &req, NULL);
	finish_link(&link);
	next_wc(link.cq, &wc);
	EXPECT(wc.wr_id == 1 && wc.status != IBV_WC_SUCCESS, "status %d", wc.status);
	next_wc(link.cq, &wc);
	EXPECT(wc.wr_id == 2 && wc.status == IBV_WC_WR_FLUSH_ERR, "status %d", wc.status);
	expect_no_wc(link.cq);
	check_bytes(in.ptr + 100, SIZE - 100, 0xee, "after the receive's buffer");
	expect_broken(&link);
	delete_link(&link);
	close_with_region(&node, &in);
}

static void
too_long_initiator(struct side *side)
{
	struct region out;
	struct node node;
	struct link link;
	struct ibv_wc wc;

	connect_with_region(&node, &link, &out, side, SIZE, RPMA_MR_USAGE_SEND, NULL);
	OK(rpma_send(link.conn, out.mr, 0, 101, RPMA_F_COMPLETION_ALWAYS, (void *)4));
	/* it may have been sent before it was refused; it completes once in any case */
	next_wc(link.cq, &wc);
	EXPECT(wc.wr_id == 4);
	end_broken(&link);
	expect_no_wc(link.cq);
	delete_link(&link);
	close_with_region(&node, &out);
}

/*
 * A message that arrives before its receive is posted waits for it, as with the infinite retries that librpma
 * requests; so do all operations posted after it.
 */
static void
early_target(struct side *side)
{
	struct region in;
	struct node node;
	struct link link;

	accept_with_region(&node, &link, &in, side, SIZE, USAGE_ALL, NULL);
	for (uint32_t i = 0; i < 5; i++) {
		await(side, 's');
		sleep_ms(50);
		check_bytes(in.ptr, SIZE, 0, "before there was a receive");
		OK(rpma_recv(link.conn, in.mr, 0, SIZE / 2, (void *)1));
		expect_wc(link.cq, 1, IBV_WC_RECV);
		check_pattern(in.ptr, SIZE / 2, 60 + i, "the early message");
		notify(side, 'r');
		await(side, 'w');
		check_pattern(in.ptr + SIZE / 2, SIZE / 2, 60 + i, "the write after it");
		memset(in.ptr, 0, SIZE);
		notify(side, 'n');
	}
	/* another message, for which no receive is ever posted, does not prevent the end of the connection */
	expect_broken(&link);
	expect_no_wc(link.cq);
	check_bytes(in.ptr, SIZE, 0, "without a receive");
	delete_link(&link);
	close_with_region(&node, &in);
}

static void
early_initiator(struct side *side)
{
	struct region out;
	struct node node;
	struct link link;
	struct ibv_wc wc;

	connect_with_region(&node, &link, &out, side, SIZE, USAGE_ALL, NULL);
	for (uint32_t i = 0; i < 5; i++) {
		fill_pattern(out.ptr, SIZE / 2, 60 + i);
		OK(rpma_send(link.conn, out.mr, 0, SIZE / 2, RPMA_F_COMPLETION_ON_ERROR, (void *)4));
		OK(rpma_write(link.conn, link.remote, SIZE / 2, out.mr, 0, SIZE / 2,
			RPMA_F_COMPLETION_ON_ERROR, (void *)5));
		OK(rpma_read(link.conn, out.mr, SIZE / 2, link.remote, SIZE / 2, SIZE / 2,
			RPMA_F_COMPLETION_ALWAYS, (void *)6));
		notify(side, 's');
		await(side, 'r');
		expect_wc(link.cq, 6, IBV_WC_RDMA_READ);
		check_pattern(out.ptr + SIZE / 2, SIZE / 2, 60 + i, "the read after both");
		notify(side, 'w');
		await(side, 'n');
	}
	OK(rpma_send(link.conn, out.mr, 0, 64, RPMA_F_COMPLETION_ALWAYS, (void *)7));
	sleep_ms(50);
	OK(rpma_conn_disconnect(link.conn));
	next_wc(link.cq, &wc);
	EXPECT(wc.wr_id == 7);
	expect_event(&link, RPMA_CONN_CLOSED);
	expect_no_wc(link.cq);
	delete_link(&link);
	close_with_region(&node, &out);
}

const struct test message_tests[] = {
	{"send-receive", echo_target, echo_initiator},
	{"send-receive-ipv6", echo_target, echo_initiator, .addr = "::1"},
	{"send-16-mib", large_target, large_initiator},
	{"send-2000-in-order", many_target, many_initiator},
	{"send-receive-zero-length", zero_target, zero_initiator},
	{"send-with-imm", send_imm_target, send_imm_initiator},
	{"write-with-imm", write_imm_target, write_imm_initiator},
	{"message-behind-write", write_send_target, write_send_initiator},
	{"message-longer-than-receive", too_long_target, too_long_initiator},
	{"message-before-receive", early_target, early_initiator},
	{.name = NULL},
};
