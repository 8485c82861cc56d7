/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rc_transfers.c -- all operations of a reliable connection over RoCE without rdma_cm, with the data verified
 */
#include "rc.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>

#define LARGEST (1 << 20)
#define GUARD 4096 /* bytes after the largest message, which must not change */

/* Empty messages, the sizes around one packet of each MTU, and many packets. */
static const uint32_t sizes[] = {0, 1, 3, 255, 256, 257, 1023, 1024, 1025, 4096, 4097, 32768, 32769, 65537, LARGEST};
static const enum ibv_mtu mtus[] = {IBV_MTU_256, IBV_MTU_1024, IBV_MTU_4096};

/*
 * 1.07 s. If replies take longer than the timeout, rxe repeats messages that have arrived. If the ACK of a
 * message arrives while it is being repeated, rxe sends it once more, empty, as a new one; and it ends a
 * queue pair during a repeated read.
 */
#define LONG_TIMEOUT 18

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Runs `part` with each MTU. */
static void
with_each_mtu(struct side *side, void (*part)(struct rc *rc))
{
	for (size_t i = 0; i < COUNT(mtus); i++) {
		struct rc rc;

		make_rc(&rc, side, (struct rc_terms){.mtu = mtus[i], .length = LARGEST + GUARD});
		part(&rc);
		meet(&rc);
		close_rc(&rc);
	}
}

/* The memory contains this message, followed by zeros. */
static void
check_message(struct rc *rc, uint32_t size, uint32_t seed, const char *what)
{
	check_pattern(rc->memory, size, seed, what);
	check_bytes(rc->memory + size, GUARD, 0, "the bytes after a message");
	memset(rc->memory, 0, size);
}

/*
 * Writes, followed by a write with immediate data as the notification; one such write contains the data
 * itself.
 */
static void
writes(struct rc *rc)
{
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		struct ibv_sge entry;
		struct ibv_send_wr wr;

		fill_pattern(rc->memory, sizes[i], i);
		post(rc, 0, IBV_WR_RDMA_WRITE, i, 0, sizes[i]);
		wr = request(&entry, rc, IBV_WR_RDMA_WRITE_WITH_IMM, 100 + i, 0, 0);
		wr.imm_data = htonl(i);
		post_wr(rc, 0, &wr);
		expect_sent(rc, i, IBV_WC_SUCCESS);
		expect_sent(rc, 100 + i, IBV_WC_SUCCESS);
		await(rc->side, 'v');
		wr = request(&entry, rc, IBV_WR_RDMA_WRITE_WITH_IMM, 200 + i, 0, sizes[i]);
		wr.imm_data = htonl(1000 + i);
		post_wr(rc, 0, &wr);
		expect_sent(rc, 200 + i, IBV_WC_SUCCESS);
		await(rc->side, 'v');
	}
}

static void
writes_arrive(struct rc *rc)
{
	for (uint32_t i = 0; i < COUNT(sizes); i++)
		for (uint32_t imm = i; imm <= 1000 + i; imm += 1000) {
			struct ibv_wc wc;

			post_receive(rc, 0, imm, 0, 0);
			wc = next_of(rc->recv_cq);
			EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == imm && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM, "%s",
				ibv_wc_status_str(wc.status));
			EXPECT((wc.wc_flags & IBV_WC_WITH_IMM) != 0 && wc.imm_data == htonl(imm), "%u", ntohl(wc.imm_data));
			EXPECT(wc.byte_len == (imm == i ? 0 : sizes[i]) && wc.qp_num == rc->qps[0]->qp_num, "%u bytes", wc.byte_len);
			check_message(rc, sizes[i], i, "what was written");
			notify(rc->side, 'v');
		}
}

static void
writes_t(struct side *side)
{
	with_each_mtu(side, writes_arrive);
}

static void
writes_i(struct side *side)
{
	with_each_mtu(side, writes);
}

static void
reads(struct rc *rc)
{
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		await(rc->side, 'f');
		post(rc, 0, IBV_WR_RDMA_READ, i, 0, sizes[i]);
		expect_sent(rc, i, IBV_WC_SUCCESS);
		check_message(rc, sizes[i], i, "what was read");
		notify(rc->side, 'v');
	}
}

static void
are_read(struct rc *rc)
{
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		fill_pattern(rc->memory, sizes[i], i);
		notify(rc->side, 'f');
		await(rc->side, 'v');
	}
}

static void
reads_t(struct side *side)
{
	with_each_mtu(side, are_read);
}

static void
reads_i(struct side *side)
{
	with_each_mtu(side, reads);
}

/* Sends of three entries, received into two; every second one has immediate data. */
static void
sends(struct rc *rc)
{
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		uintptr_t base = (uintptr_t)rc->memory;
		uint32_t third = sizes[i] / 3;
		struct ibv_sge entries[] = {{base, third, rc->mr->lkey}, {base + third, third, rc->mr->lkey},
			{base + 2 * third, sizes[i] - 2 * third, rc->mr->lkey}};
		struct ibv_send_wr wr = {.wr_id = i, .sg_list = entries, .num_sge = 3, .send_flags = IBV_SEND_SIGNALED,
			.opcode = i % 2 == 0 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM, .imm_data = htonl(i)};

		fill_pattern(rc->memory, sizes[i], i);
		await(rc->side, 'p');
		post_wr(rc, 0, &wr);
		expect_sent(rc, i, IBV_WC_SUCCESS);
	}
}

static void
sends_arrive(struct rc *rc)
{
	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		uintptr_t base = (uintptr_t)rc->memory;
		uint32_t half = sizes[i] / 2;
		struct ibv_sge entries[] = {{base, half, rc->mr->lkey}, {base + half, LARGEST + GUARD - half, rc->mr->lkey}};
		struct ibv_recv_wr wr = {.wr_id = i, .sg_list = entries, .num_sge = 2}, *bad;
		struct ibv_wc wc;

		DONE(ibv_post_recv(rc->qps[0], &wr, &bad));
		notify(rc->side, 'p');
		wc = next_of(rc->recv_cq);
		EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == i && wc.opcode == IBV_WC_RECV, "%s", ibv_wc_status_str(wc.status));
		EXPECT(wc.byte_len == sizes[i], "%u bytes instead of %u", wc.byte_len, sizes[i]);
		EXPECT(((wc.wc_flags & IBV_WC_WITH_IMM) != 0) == (i % 2 != 0) && (i % 2 == 0 || wc.imm_data == htonl(i)), "");
		check_message(rc, sizes[i], i, "what was sent");
	}
}

static void
sends_t(struct side *side)
{
	with_each_mtu(side, sends_arrive);
}

static void
sends_i(struct side *side)
{
	with_each_mtu(side, sends);
}

/* The program may change inline data when the call returns; they need no region. */
static void
inline_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){0});
	for (uint32_t i = 0; i <= RC_INLINE; i++)
		post_receive(&rc, 0, i, 2048, RC_INLINE);
	notify(side, 'p');
	for (uint32_t i = 0; i <= RC_INLINE; i++) {
		struct ibv_wc wc = next_of(rc.recv_cq);

		EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == i && wc.byte_len == i, "%s", ibv_wc_status_str(wc.status));
		check_pattern(rc.memory + 2048, i, i, "what was sent");
		check_pattern(rc.memory, i, 1000 + i, "what was written");
		notify(side, 'n');
	}
	meet(&rc);
	close_rc(&rc);
}

static void
inline_i(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){0});
	await(side, 'p');
	for (uint32_t i = 0; i <= RC_INLINE; i++) {
		char bytes[RC_INLINE + 1];
		struct ibv_sge entry;
		struct ibv_send_wr wr = request(&entry, &rc, IBV_WR_RDMA_WRITE, 1000 + i, 0, i);

		entry = (struct ibv_sge){(uintptr_t)bytes, i, 0xdead};
		wr.send_flags = IBV_SEND_INLINE;
		fill_pattern(bytes, i, 1000 + i);
		post_wr(&rc, 0, &wr);
		fill_pattern(bytes, i, i);
		wr.opcode = IBV_WR_SEND;
		wr.wr_id = i;
		wr.send_flags |= IBV_SEND_SIGNALED;
		post_wr(&rc, 0, &wr);
		memset(bytes, 0xee, sizeof(bytes));
		expect_sent(&rc, i, IBV_WC_SUCCESS);
		await(side, 'n');
	}
	meet(&rc);
	close_rc(&rc);
}

/* The initiator adds to a word of the target over several connections, and swaps another one. */
#define ATOMIC_QPS 4
#define ADDS 500
static void
atomics_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.qps = ATOMIC_QPS});
	meet(&rc);
	EXPECT(*(uint64_t *)rc.memory == 7ULL * ATOMIC_QPS * ADDS, "%llu", (unsigned long long)*(uint64_t *)rc.memory);
	EXPECT(*(uint64_t *)(rc.memory + 8) == ADDS, "%llu", (unsigned long long)*(uint64_t *)(rc.memory + 8));
	meet(&rc);
	close_rc(&rc);
}

static void
atomics_i(struct side *side)
{
	struct rc rc;
	uint64_t *found;
	uint64_t sum = 0;

	make_rc(&rc, side, (struct rc_terms){.qps = ATOMIC_QPS});
	found = (uint64_t *)(rc.memory + 1024);
	for (int n = 0; n < ADDS; n++) {
		for (int i = 0; i < ATOMIC_QPS; i++) {
			struct ibv_sge entry;
			struct ibv_send_wr wr = request(&entry, &rc, IBV_WR_ATOMIC_FETCH_AND_ADD, (uint64_t)i, 1024 + 8 * (size_t)i, 8);

			wr.wr.atomic.remote_addr = rc.peer.addr;
			wr.wr.atomic.rkey = rc.peer.rkey;
			wr.wr.atomic.compare_add = 7;
			post_wr(&rc, i, &wr);
		}
		for (int i = 0; i < ATOMIC_QPS; i++) {
			struct ibv_wc wc = next_of(rc.send_cq);

			EXPECT(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_FETCH_ADD && wc.byte_len == 8, "%s", ibv_wc_status_str(wc.status));
		}
		/* each value is returned once */
		for (int i = 0; i < ATOMIC_QPS; i++)
			sum += found[i];
	}
	EXPECT(sum == 7ULL * (ATOMIC_QPS * ADDS) * (ATOMIC_QPS * ADDS - 1) / 2, "%llu", (unsigned long long)sum);
	for (uint64_t n = 0; n < 2 * ADDS; n++) {
		struct ibv_sge entry;
		struct ibv_send_wr wr = request(&entry, &rc, IBV_WR_ATOMIC_CMP_AND_SWP, n, 1024, 8);

		/* every second one compares with another value */
		wr.wr.atomic.remote_addr = rc.peer.addr + 8;
		wr.wr.atomic.rkey = rc.peer.rkey;
		wr.wr.atomic.compare_add = n % 2 == 0 ? n / 2 : 1 << 20;
		wr.wr.atomic.swap = n / 2 + 1;
		post_wr(&rc, 0, &wr);
		expect_sent(&rc, n, IBV_WC_SUCCESS);
		EXPECT(found[0] == (n + 1) / 2, "%llu", (unsigned long long)found[0]);
	}
	meet(&rc);
	meet(&rc);
	close_rc(&rc);
}

static void
wait_until_shared(void)
{
	for (int i = 0; i < 500 && count_shared() == 0; i++)
		sleep_ms(10);
	EXPECT(count_shared() > 0, "no memory is shared");
}

/* Operations on words in memory that the initiator can map: the target takes no part. */
static void
stopped_words_t(struct side *side)
{
	struct rc rc;

	setenv("SOFTVERBS_LOCAL", "1", 1);
	make_rc(&rc, side, (struct rc_terms){.sealed = true});
	wait_until_shared();
	meet(&rc);
	await(side, 'e'); /* here it is stopped */
	EXPECT(*(uint64_t *)rc.memory == ADDS + 1, "%llu", (unsigned long long)*(uint64_t *)rc.memory);
	EXPECT(*(uint64_t *)(rc.memory + 8) == ADDS, "%llu", (unsigned long long)*(uint64_t *)(rc.memory + 8));
	close_rc(&rc);
}

static void
stopped_words_i(struct side *side)
{
	uint64_t *found, *number;
	bool stops;
	struct rc rc;

	setenv("SOFTVERBS_LOCAL", "1", 1);
	stops = maps_memory_of(*side->target_pid);
	make_rc(&rc, side, (struct rc_terms){0});
	wait_until_shared();
	meet(&rc);
	found = (uint64_t *)(rc.memory + 1024);
	number = (uint64_t *)(rc.memory + 8);
	for (uint64_t n = 0; n <= ADDS; n++) {
		struct ibv_sge entry;
		struct ibv_send_wr wr = request(&entry, &rc, IBV_WR_ATOMIC_FETCH_AND_ADD, n, 1024, 8);

		wr.wr.atomic.remote_addr = rc.peer.addr;
		wr.wr.atomic.rkey = rc.peer.rkey;
		wr.wr.atomic.compare_add = 1;
		post_wr(&rc, 0, &wr);
		expect_sent(&rc, n, IBV_WC_SUCCESS);
		EXPECT(*found == n, "%llu", (unsigned long long)*found);
		/* the target takes part in a write and an atomic operation; the first may go over UDP */
		if (n < 3) {
			post(&rc, 0, IBV_WR_RDMA_WRITE, 1000, 8, 8);
			expect_sent(&rc, 1000, IBV_WC_SUCCESS);
			sleep_ms(100);
			if (n == 2 && stops)
				stop_process(*side->target_pid);
			continue;
		}
		/* the atomic write of librpma */
		*number = n;
		wr = request(&entry, &rc, IBV_WR_RDMA_WRITE, n, 8, 8);
		wr.send_flags |= IBV_SEND_FENCE;
		post_wr(&rc, 0, &wr);
		expect_sent(&rc, n, IBV_WC_SUCCESS);
	}
	if (stops)
		EXPECT(kill(*side->target_pid, SIGCONT) == 0, "");
	notify(side, 'e');
	close_rc(&rc);
}

/* The messages of several connections arrive in one receive queue, those of each connection in order. */
#define EACH 200
#define SLOT 4096
#define SLOTS 64
static void
srq_t(struct side *side)
{
	uint32_t next[RC_QPS] = {0};
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.qps = RC_QPS, .shared = true, .length = SLOTS * SLOT, .timeout = LONG_TIMEOUT});
	for (uint64_t slot = 0; slot < SLOTS; slot++)
		post_receive(&rc, 0, slot, slot * SLOT, SLOT);
	notify(side, 'p');
	for (int n = 0; n < RC_QPS * EACH; n++) {
		struct ibv_wc wc = next_of(rc.recv_cq);
		uint32_t i = 0;

		while (i < RC_QPS && rc.qps[i]->qp_num != wc.qp_num)
			i++;
		EXPECT(wc.status == IBV_WC_SUCCESS && i < RC_QPS && wc.wr_id < SLOTS, "%s", ibv_wc_status_str(wc.status));
		EXPECT(wc.imm_data == htonl(i << 16 | next[i]), "message %#x instead of %#x", ntohl(wc.imm_data), i << 16 | next[i]);
		EXPECT(wc.byte_len == 1 + (next[i] * 37) % SLOT, "%u bytes", wc.byte_len);
		check_pattern(rc.memory + wc.wr_id * SLOT, wc.byte_len, i, "a message");
		next[i]++;
		post_receive(&rc, 0, wc.wr_id, wc.wr_id * SLOT, SLOT);
	}
	meet(&rc);
	close_rc(&rc);
}

/* Whether a connection has completed fewer than `number` requests. */
static bool
behind(const uint32_t done[RC_QPS], uint32_t number)
{
	for (int i = 0; i < RC_QPS; i++)
		if (done[i] < number)
			return true;
	return false;
}

/* Counts a completion, which is the next one of its connection. */
static void
count_one(struct rc *rc, uint32_t done[RC_QPS])
{
	struct ibv_wc wc = next_of(rc->send_cq);
	int i = 0;

	while (i < RC_QPS && rc->qps[i]->qp_num != wc.qp_num)
		i++;
	EXPECT(wc.status == IBV_WC_SUCCESS && i < RC_QPS && wc.wr_id == done[i], "%s", ibv_wc_status_str(wc.status));
	done[i]++;
}

static void
srq_i(struct side *side)
{
	uint32_t done[RC_QPS] = {0};
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.qps = RC_QPS, .length = RC_QPS * SLOT, .timeout = LONG_TIMEOUT});
	for (uint32_t i = 0; i < RC_QPS; i++)
		fill_pattern(rc.memory + i * SLOT, SLOT, i);
	await(side, 'p');
	for (uint32_t n = 0; n < EACH; n++) {
		for (uint32_t i = 0; i < RC_QPS; i++) {
			struct ibv_sge entry;
			struct ibv_send_wr wr = request(&entry, &rc, IBV_WR_SEND_WITH_IMM, n, i * SLOT, 1 + (n * 37) % SLOT);

			wr.imm_data = htonl(i << 16 | n);
			post_wr(&rc, (int)i, &wr);
		}
		/* at most 50 of each are outstanding */
		while (n >= 49 && behind(done, n - 49))
			count_one(&rc, done);
	}
	while (behind(done, EACH))
		count_one(&rc, done);
	expect_nothing(rc.send_cq);
	meet(&rc);
	close_rc(&rc);
}

/*
 * Both sides write, read, and send at the same time over all connections; each has a part of the other's
 * memory for each connection: for writes, reads and sends.
 */
#define PART 16384
#define ROUNDS 20
static void
exchange(struct rc *rc)
{
	const uint32_t seed = 1;

	for (uint32_t round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 0; i < RC_QPS; i++) {
			char *part = rc->memory + i * 5 * PART;

			fill_pattern(part, PART, seed + i + round); /* to be written, read and sent */
			memset(part + PART, 0, 4 * PART);
			post_receive(rc, (int)i, i, (size_t)(i * 5 + 3) * PART, PART);
		}
		meet(rc);
		for (uint32_t i = 0; i < RC_QPS; i++) {
			struct ibv_sge entry;
			struct ibv_send_wr wr = request(&entry, rc, IBV_WR_RDMA_WRITE, 0, i * 5 * PART, PART);

			wr.wr.rdma.remote_addr += PART;
			wr.send_flags = 0;
			post_wr(rc, (int)i, &wr);
			wr = request(&entry, rc, IBV_WR_RDMA_READ, 0, (size_t)(i * 5 + 2) * PART, PART);
			wr.wr.rdma.remote_addr -= 2 * PART;
			wr.send_flags = 0;
			post_wr(rc, (int)i, &wr);
			post(rc, (int)i, IBV_WR_SEND, i, i * 5 * PART, PART);
		}
		for (uint32_t n = 0; n < RC_QPS; n++) {
			struct ibv_wc received = next_of(rc->recv_cq);
			struct ibv_wc sent = next_of(rc->send_cq);

			EXPECT(received.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(received.status));
			EXPECT(sent.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(sent.status));
		}
		for (uint32_t i = 0; i < RC_QPS; i++) {
			char *part = rc->memory + i * 5 * PART;

			check_pattern(part + PART, PART, seed + i + round, "what was written");
			check_pattern(part + 2 * PART, PART, seed + i + round, "what was read");
			check_pattern(part + 3 * PART, PART, seed + i + round, "what was sent");
			check_bytes(part + 4 * PART, PART, 0, "the bytes after it");
		}
		meet(rc);
	}
}

static const struct rc_terms both_ways_terms = {.qps = RC_QPS, .length = RC_QPS * 5 * PART, .mtu = IBV_MTU_4096, .timeout = LONG_TIMEOUT};

static void
both_ways(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, both_ways_terms);
	exchange(&rc);
	close_rc(&rc);
}

/*
 * Two processes of one host share memory for each connection, if both permit it. The first exchange begins
 * before they have agreed on it.
 */
static void
local(struct side *side, const char *setting, unsigned shared)
{
	struct rc rc;

	setenv("SOFTVERBS_LOCAL", setting, 1);
	make_rc(&rc, side, both_ways_terms);
	exchange(&rc);
	for (int i = 0; i < 500 && count_shared() != shared; i++)
		sleep_ms(10);
	EXPECT(count_shared() == shared, "%u mappings", count_shared());
	meet(&rc);
	exchange(&rc);
	close_rc(&rc);
	EXPECT(count_shared() == 0, "%u mappings remain", count_shared());
}

static void
willing(struct side *side)
{
	local(side, "1", RC_QPS);
}

static void
willing_alone(struct side *side)
{
	local(side, "1", 0);
}

static void
unwilling(struct side *side)
{
	local(side, "0", 0);
}

/*
 * A stopped target does not read the shared memory, which becomes full: the requests fail after their
 * retries, as without acknowledgements, instead of waiting for room.
 */
#define STOPPED_LENGTH (1 << 20)
#define STOPPED_SENDS 30

static void
stopped_t(struct side *side)
{
	struct rc rc;

	setenv("SOFTVERBS_LOCAL", "1", 1);
	make_rc(&rc, side, (struct rc_terms){.length = STOPPED_LENGTH, .mtu = IBV_MTU_4096});
	for (uint64_t n = 0; n < 2 * STOPPED_SENDS; n++)
		post_receive(&rc, 0, n, 0, STOPPED_LENGTH);
	meet(&rc);
	for (uint64_t n = 0; n < STOPPED_SENDS; n++)
		expect_received(&rc, n, IBV_WC_SUCCESS);
	meet(&rc);
	await(side, 'e'); /* here it is stopped */
	close_rc(&rc);
}

static void
stopped_i(struct side *side)
{
	struct rc rc;

	setenv("SOFTVERBS_LOCAL", "1", 1);
	make_rc(&rc, side, (struct rc_terms){.length = STOPPED_LENGTH, .mtu = IBV_MTU_4096, .retries = 2});
	meet(&rc);
	for (int i = 0; i < 500 && count_shared() != 1; i++)
		sleep_ms(10);
	EXPECT(count_shared() == 1, "%u mappings", count_shared());
	for (uint64_t n = 0; n < STOPPED_SENDS; n++)
		post(&rc, 0, IBV_WR_SEND, n, 0, STOPPED_LENGTH);
	for (uint64_t n = 0; n < STOPPED_SENDS; n++)
		expect_sent(&rc, n, IBV_WC_SUCCESS);
	meet(&rc);
	stop_process(*side->target_pid);
	for (uint64_t n = 0; n < STOPPED_SENDS; n++)
		post(&rc, 0, IBV_WR_SEND, n, 0, STOPPED_LENGTH);
	expect_sent(&rc, 0, IBV_WC_RETRY_EXC_ERR);
	for (uint64_t n = 1; n < STOPPED_SENDS; n++)
		expect_sent(&rc, n, IBV_WC_WR_FLUSH_ERR);
	EXPECT(kill(*side->target_pid, SIGCONT) == 0, "");
	notify(side, 'e');
	close_rc(&rc);
}

/* A request with a fence after a read sends the data of the read. */
static void
fence_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.length = 3 * LARGEST});
	fill_pattern(rc.memory, LARGEST, 3);
	meet(&rc);
	meet(&rc);
	check_pattern(rc.memory + 2 * LARGEST, LARGEST, 3, "what was read and written back");
	meet(&rc);
	close_rc(&rc);
}

static void
fence_i(struct side *side)
{
	struct ibv_sge entries[2];
	struct ibv_send_wr wrs[2];
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.length = 3 * LARGEST});
	meet(&rc);
	wrs[0] = request(&entries[0], &rc, IBV_WR_RDMA_READ, 1, LARGEST, LARGEST);
	wrs[0].wr.rdma.remote_addr -= LARGEST;
	wrs[1] = request(&entries[1], &rc, IBV_WR_RDMA_WRITE, 2, LARGEST, LARGEST);
	wrs[1].wr.rdma.remote_addr += LARGEST;
	wrs[1].send_flags |= IBV_SEND_FENCE;
	wrs[0].next = &wrs[1];
	post_wr(&rc, 0, &wrs[0]);
	expect_sent(&rc, 1, IBV_WC_SUCCESS);
	expect_sent(&rc, 2, IBV_WC_SUCCESS);
	meet(&rc);
	meet(&rc);
	close_rc(&rc);
}

/* A queue that is armed for solicited completions raises an event for the second of two sends. */
static void
events_t(struct side *side)
{
	struct ibv_cq *cq;
	void *context;
	struct rc rc;
	struct pollfd fd;

	make_rc(&rc, side, (struct rc_terms){0});
	fd = (struct pollfd){.fd = rc.channel->fd, .events = POLLIN};
	post_receive(&rc, 0, 1, 0, 64);
	post_receive(&rc, 0, 2, 0, 64);
	DONE(ibv_req_notify_cq(rc.recv_cq, 1));
	meet(&rc);
	meet(&rc); /* the first has arrived */
	EXPECT(poll(&fd, 1, 100) == 0, "an event that is not solicited");
	meet(&rc);
	DONE(ibv_get_cq_event(rc.channel, &cq, &context));
	EXPECT(cq == rc.recv_cq, "");
	ibv_ack_cq_events(cq, 1);
	expect_received(&rc, 1, IBV_WC_SUCCESS);
	expect_received(&rc, 2, IBV_WC_SUCCESS);
	meet(&rc);
	close_rc(&rc);
}

static void
events_i(struct side *side)
{
	struct ibv_sge entry;
	struct ibv_send_wr wr;
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){0});
	meet(&rc);
	wr = request(&entry, &rc, IBV_WR_SEND, 1, 0, 8);
	post_wr(&rc, 0, &wr);
	expect_sent(&rc, 1, IBV_WC_SUCCESS);
	meet(&rc);
	meet(&rc);
	wr.wr_id = 2;
	wr.send_flags |= IBV_SEND_SOLICITED;
	post_wr(&rc, 0, &wr);
	expect_sent(&rc, 2, IBV_WC_SUCCESS);
	meet(&rc);
	close_rc(&rc);
}

const struct test rc_transfers[] = {
	{.name = "roce-writes", .target = writes_t, .initiator = writes_i, .missing = not_soft},
	{.name = "roce-reads", .target = reads_t, .initiator = reads_i, .missing = not_soft},
	{.name = "roce-sends", .target = sends_t, .initiator = sends_i, .missing = not_soft},
	{.name = "roce-inline", .target = inline_t, .initiator = inline_i, .missing = not_soft},
	{.name = "roce-atomics", .target = atomics_t, .initiator = atomics_i, .missing = not_soft},
	{.name = "roce-atomics-stopped-target", .target = stopped_words_t, .initiator = stopped_words_i, .missing = not_soft},
	{.name = "roce-srq", .target = srq_t, .initiator = srq_i, .missing = not_soft},
	{.name = "roce-both-ways", .target = both_ways, .initiator = both_ways, .missing = not_soft},
	{.name = "roce-local", .target = willing, .initiator = willing, .missing = not_soft},
	{.name = "roce-local-stopped-target", .target = stopped_t, .initiator = stopped_i, .missing = not_soft},
	{.name = "roce-local-unwilling-target", .target = unwilling, .initiator = willing_alone, .missing = not_soft},
	{.name = "roce-local-unwilling-initiator", .target = willing_alone, .initiator = unwilling, .missing = not_soft},
	{.name = "roce-fence", .target = fence_t, .initiator = fence_i, .missing = not_soft},
	{.name = "roce-events", .target = events_t, .initiator = events_i, .missing = not_soft},
	{.name = NULL},
};
