/* SPDX-License-Identifier: BSD-3-Clause */
/* atomics.c -- compare-and-swap and fetch-and-add: ibv_post_send(3), ibv_wr_post(3) */
#include "ends.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 4096
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* Posts an operation on a word of the other side, and waits for its completion. */
static struct ibv_wc
change(struct end *end, enum ibv_wr_opcode opcode, struct ibv_mr *mr, uint64_t *result, uint64_t compare_add, uint64_t swap,
	uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)result, sizeof(*result), mr->lkey};
	struct ibv_send_wr wr = {.wr_id = remote_addr, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED, .wr.atomic = {remote_addr, compare_add, swap, rkey}};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	DONE(ibv_post_send(end->id->qp, &wr, &bad));
	wc = next_send(end);
	EXPECT(wc.wr_id == remote_addr, "another completion");
	return wc;
}

/* Executes an operation that must succeed. Returns the previous value of the word. */
static uint64_t
was(struct end *end, enum ibv_wr_opcode opcode, struct ibv_mr *mr, uint64_t *result, uint64_t compare_add, uint64_t swap,
	const struct place *place)
{
	struct ibv_wc wc = change(end, opcode, mr, result, compare_add, swap, place->addr, place->rkey);

	EXPECT(wc.status == IBV_WC_SUCCESS && wc.byte_len == 8, "%s, %u bytes", ibv_wc_status_str(wc.status), wc.byte_len);
	EXPECT(wc.opcode == (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP), "opcode %d", wc.opcode);
	return *result;
}

static void
both_t(struct side *side)
{
	struct end end;
	uint64_t *words = pages(SIZE);
	struct ibv_mr *mr;

	accept_end(&end, side);
	words[0] = 100;
	mr = offer(&end, side, words, SIZE, RIGHTS);
	await(side, 'd');
	EXPECT(words[0] == 77 && words[1] == 0, "%llu", (unsigned long long)words[0]);
	close_with_memory(&end, mr);
}

static void
both_i(struct side *side)
{
	const enum ibv_wr_opcode add = IBV_WR_ATOMIC_FETCH_AND_ADD, swap = IBV_WR_ATOMIC_CMP_AND_SWP;
	struct end end;
	uint64_t *words = pages(SIZE);
	struct ibv_sge entries[2];
	struct ibv_send_wr wr = {.sg_list = entries, .num_sge = 2, .opcode = add}, *bad;
	struct ibv_device_attr attr;
	struct place place;
	struct ibv_mr *mr;

	connect_end(&end, side);
	DONE(ibv_query_device(end.id->verbs, &attr));
	EXPECT(attr.atomic_cap != IBV_ATOMIC_NONE && attr.max_qp_init_rd_atom > 0, "the device has no atomic operations");
	receive_bytes(side, &place, sizeof(place));
	mr = REG_MR(end.pd, words, SIZE, IBV_ACCESS_LOCAL_WRITE);
	EXPECT(was(&end, add, mr, words + 5, 5, 0, &place) == 100, "%llu", (unsigned long long)words[5]);
	EXPECT(was(&end, add, mr, words, (uint64_t)-3, 0, &place) == 105, "%llu", (unsigned long long)words[0]);
	EXPECT(was(&end, swap, mr, words, 102, 70, &place) == 102, "%llu", (unsigned long long)words[0]);
	EXPECT(was(&end, swap, mr, words, 102, 1, &place) == 70, "%llu", (unsigned long long)words[0]);
	EXPECT(was(&end, add, mr, words, 7, 0, &place) == 70, "%llu", (unsigned long long)words[0]);

	/* the result is one entry of 8 bytes */
	entries[0] = (struct ibv_sge){(uintptr_t)words, 4, mr->lkey};
	entries[1] = (struct ibv_sge){(uintptr_t)words + 8, 4, mr->lkey};
	wr.wr.atomic.remote_addr = place.addr;
	wr.wr.atomic.rkey = place.rkey;
	EXPECT(ibv_post_send(end.id->qp, &wr, &bad) == EINVAL && bad == &wr, "two entries");
	wr.num_sge = 1;
	EXPECT(ibv_post_send(end.id->qp, &wr, &bad) == EINVAL && bad == &wr, "an entry of 4 bytes");
	notify(side, 'd');
	close_with_memory(&end, mr);
}

#define ROUNDS 400
#define BY_PROCESSOR ((uint64_t)1 << 32)

static volatile bool enough;

static void *
add_by_processor(void *word)
{
	uint64_t *count = word;

	for (; !enough; count[1]++)
		__atomic_fetch_add(count, BY_PROCESSOR, __ATOMIC_RELAXED);
	return NULL;
}

/*
 * Two connections and the processor add to one word at once. A peer on this host can map the memory of the
 * region that is registered while `file` is open, and executes the operations itself; those with the other
 * key are executed by this process.
 */
static void
at_once(struct side *side, uint64_t *words, int file)
{
	struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4, .rnr_retry_count = 7};
	struct end first, second = {0};
	struct ibv_mr *mrs[2];
	pthread_t thread;

	accept_end(&first, side);
	notify(side, 'L');
	DONE(rdma_get_request(first.listener, &second.id));
	DONE(rdma_accept(second.id, &param));
	second.pd = second.id->pd;
	notify(side, 'A');
	await(side, 'C');
	EXPECT(pthread_create(&thread, NULL, add_by_processor, words) == 0, "no thread");
	mrs[0] = offer(&first, side, words, SIZE, RIGHTS);
	if (file >= 0)
		close(file);
	mrs[1] = offer(&second, side, words, SIZE, RIGHTS);
	await(side, 'd');
	enough = true;
	pthread_join(thread, NULL);
	EXPECT(words[0] == words[1] * BY_PROCESSOR + 2 * ROUNDS, "%llx after %llu by the processor", (unsigned long long)words[0],
		(unsigned long long)words[1]);
	EXPECT(waitpid(-1, NULL, __WALL | WNOHANG) == -1 && errno == ECHILD, "a child process remains");
	DONE(ibv_dereg_mr(mrs[0]));
	DONE(ibv_dereg_mr(mrs[1]));
	close_end(&second);
	close_end(&first);
}

static void
at_once_t(struct side *side)
{
	at_once(side, pages(SIZE), -1);
}

static void
at_once_sealed_t(struct side *side)
{
	int file;
	uint64_t *words = sealed_pages(SIZE, &file);

	at_once(side, words, file);
}

struct adder {
	struct end end;
	struct place place;
};

static void *
add_by_connection(void *argument)
{
	struct adder *adder = argument;
	uint64_t *result = pages(SIZE), last = 0;
	struct ibv_mr *mr = ibv_reg_mr(adder->end.pd, result, SIZE, IBV_ACCESS_LOCAL_WRITE);

	MADE(mr);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t now = was(&adder->end, IBV_WR_ATOMIC_FETCH_AND_ADD, mr, result, 1, 0, &adder->place);

		EXPECT(i == 0 || (now >= last && (uint32_t)now > (uint32_t)last), "%llx after %llx", (unsigned long long)now,
			(unsigned long long)last);
		last = now;
	}
	DONE(ibv_dereg_mr(mr));
	return NULL;
}

static void
at_once_i(struct side *side)
{
	struct adder adders[2];
	pthread_t threads[2];

	connect_end(&adders[0].end, side);
	connect_end(&adders[1].end, side);
	for (int i = 0; i < 2; i++)
		receive_bytes(side, &adders[i].place, sizeof(adders[i].place));
	for (int i = 0; i < 2; i++)
		EXPECT(pthread_create(&threads[i], NULL, add_by_connection, &adders[i]) == 0, "no thread");
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	notify(side, 'd');
	close_end(&adders[0].end);
	close_end(&adders[1].end);
}

/* Operations on a word in memory that the initiator can map: the target takes no part. */
static void
stopped_t(struct side *side)
{
	struct end end;
	int file;
	uint64_t *words = sealed_pages(SIZE, &file);
	struct ibv_mr *mr;

	accept_end(&end, side);
	mr = offer(&end, side, words, SIZE, RIGHTS | IBV_ACCESS_REMOTE_WRITE);
	await(side, 'd'); /* here it is stopped */
	EXPECT(words[0] == 3 * (ROUNDS + 1), "%llu", (unsigned long long)words[0]);
	EXPECT(words[1] == ROUNDS, "%llu", (unsigned long long)words[1]);
	close_with_memory(&end, mr);
	close(file);
}

static void
stopped_i(struct side *side)
{
	const enum ibv_wr_opcode add = IBV_WR_ATOMIC_FETCH_AND_ADD, swap = IBV_WR_ATOMIC_CMP_AND_SWP;
	bool stops = maps_memory_of(*side->target_pid);
	uint64_t *words = pages(SIZE);
	struct place place, second;
	struct end end;
	struct ibv_mr *mr;

	mr = connect_with_memory(&end, side, words, SIZE);
	receive_bytes(side, &place, sizeof(place));
	second = place;
	second.addr += 8;
	/* the target has taken part in operations of both kinds, and is idle */
	EXPECT(was(&end, add, mr, words, 3, 0, &place) == 0, "%llu", (unsigned long long)words[0]);
	words[1] = 0;
	EXPECT_TRANSFER(IBV_WC_SUCCESS, &end, IBV_WR_RDMA_WRITE, mr, words + 1, 8, second.addr, second.rkey);
	sleep_ms(100);
	if (stops)
		stop_process(*side->target_pid);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		struct ibv_sge entry = {(uintptr_t)(words + 2), 8, mr->lkey};
		struct ibv_send_wr store = {.wr_id = i, .sg_list = &entry, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED, .wr.rdma = {second.addr, second.rkey}};
		struct ibv_send_wr *bad;
		struct ibv_wc wc;

		EXPECT(was(&end, add, mr, words, 3, 0, &place) == 3 * i, "%llu", (unsigned long long)words[0]);
		EXPECT(was(&end, swap, mr, words, i, 1000, &second) == i - 1, "%llu", (unsigned long long)words[0]);
		EXPECT(was(&end, swap, mr, words, i - 1, 1000, &second) == i - 1, "%llu", (unsigned long long)words[0]);
		/* the atomic write of librpma */
		words[2] = i;
		DONE(ibv_post_send(end.id->qp, &store, &bad));
		wc = next_send(&end);
		EXPECT(wc.wr_id == i && wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
	}
	if (stops)
		DONE(kill(*side->target_pid, SIGCONT));
	notify(side, 'd');
	close_with_memory(&end, mr);
}

/*
 * The target refuses an operation: its status; the word stays unchanged. The connection ends, so each case
 * has a separate one.
 */
static void
refusing(struct side *side, int access, bool unmapped)
{
	struct end end;
	uint64_t *words = pages(SIZE);
	struct ibv_mr *mr;

	accept_end(&end, side);
	words[0] = words[1] = 5;
	mr = offer(&end, side, words, SIZE, access);
	if (unmapped)
		DONE(mprotect(words, SIZE, PROT_NONE));
	notify(side, 'r');
	await(side, 'd');
	DONE(mprotect(words, SIZE, PROT_READ | PROT_WRITE));
	EXPECT(words[0] == 5 && words[1] == 5, "a word has changed");
	close_with_memory(&end, mr);
}

static void
refused(struct side *side, unsigned at, enum ibv_wc_status expected)
{
	struct end end;
	uint64_t *words = pages(SIZE);
	struct place place;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	connect_end(&end, side);
	receive_bytes(side, &place, sizeof(place));
	await(side, 'r');
	mr = REG_MR(end.pd, words, SIZE, IBV_ACCESS_LOCAL_WRITE);
	wc = change(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, mr, words, 1, 0, place.addr + at, place.rkey);
	EXPECT(wc.status == expected, "%s", ibv_wc_status_str(wc.status));
	wc = change(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, mr, words, 1, 0, place.addr, place.rkey);
	EXPECT(wc.status == IBV_WC_WR_FLUSH_ERR && words[0] == 0, "%s", ibv_wc_status_str(wc.status));
	notify(side, 'd');
	close_with_memory(&end, mr);
}

static void
misaligned_t(struct side *side)
{
	refusing(side, RIGHTS, false);
}

static void
misaligned_i(struct side *side)
{
	refused(side, 4, IBV_WC_REM_INV_REQ_ERR);
}

static void
without_right_t(struct side *side)
{
	refusing(side, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, false);
}

static void
without_right_i(struct side *side)
{
	refused(side, 0, IBV_WC_REM_ACCESS_ERR);
}

static void
unmapped_t(struct side *side)
{
	refusing(side, RIGHTS, true);
}

static void
unmapped_i(struct side *side)
{
	refused(side, 0, IBV_WC_REM_ACCESS_ERR);
}

/* A window of type 1 with the right to atomic operations only, on a region without remote rights. */
static void
window_t(struct side *side)
{
	struct end end;
	uint64_t *words = pages(SIZE);
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED};
	struct place place = {.length = 8};

	accept_end(&end, side);
	words[8] = 40;
	mr = REG_MR(end.pd, words, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(end.pd, IBV_MW_TYPE_1);
	MADE(mw);
	bind.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)(words + 8), 16, IBV_ACCESS_REMOTE_ATOMIC};
	DONE(ibv_bind_mw(end.id->qp, mw, &bind));
	EXPECT(next_send(&end).status == IBV_WC_SUCCESS, "");
	place.addr = (uintptr_t)(words + 8);
	place.rkey = mw->rkey;
	send_bytes(side, &place, sizeof(place));
	await(side, 'd');
	EXPECT(words[8] == 42, "%llu", (unsigned long long)words[8]);
	DONE(ibv_dealloc_mw(mw));
	close_with_memory(&end, mr);
}

static void
window_i(struct side *side)
{
	struct end end;
	uint64_t *words = pages(SIZE);
	struct place place;
	struct ibv_mr *mr;

	connect_end(&end, side);
	receive_bytes(side, &place, sizeof(place));
	mr = REG_MR(end.pd, words, SIZE, IBV_ACCESS_LOCAL_WRITE);
	EXPECT(was(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, mr, words, 1, 0, &place) == 40, "");
	EXPECT(was(&end, IBV_WR_ATOMIC_CMP_AND_SWP, mr, words, 41, 42, &place) == 41, "");
	EXPECT(transfer(&end, IBV_WR_RDMA_READ, mr, words, 8, place.addr, place.rkey) == IBV_WC_REM_ACCESS_ERR, "a read");
	notify(side, 'd');
	close_with_memory(&end, mr);
}

/* The same two operations with the functions of an extended queue pair. */
static void
extended_t(struct side *side)
{
	struct end end;
	uint64_t *words = pages(SIZE);
	struct ibv_mr *mr;

	accept_end(&end, side);
	words[0] = 10;
	mr = offer(&end, side, words, SIZE, RIGHTS);
	await(side, 'd');
	EXPECT(words[0] == 3, "%llu", (unsigned long long)words[0]);
	close_with_memory(&end, mr);
}

static void
extended_i(struct side *side)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
	struct ibv_qp_init_attr_ex attr = {.cap = {16, 16, 2, 2, 0}, .qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP};
	struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4, .retry_count = 7, .rnr_retry_count = 7};
	uint64_t *words = pages(SIZE), until = now_ms() + 10000;
	struct ibv_wc wc[2];
	struct rdma_cm_id *id;
	struct place place;
	struct ibv_qp_ex *qp;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	int got = 0;

	DONE(rdma_getaddrinfo(side->addr, side->port, &hints, &found));
	DONE(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	DONE(rdma_resolve_addr(id, NULL, found->ai_dst_addr, 2000));
	rdma_freeaddrinfo(found);
	pd = ibv_alloc_pd(id->verbs);
	MADE(pd);
	cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	MADE(cq);
	attr.pd = pd;
	attr.send_cq = attr.recv_cq = cq;
	await(side, 'L');
	DONE(rdma_resolve_route(id, 2000));
	DONE(rdma_create_qp_ex(id, &attr));
	DONE(rdma_connect(id, &param));
	await(side, 'A');
	notify(side, 'C');
	receive_bytes(side, &place, sizeof(place));
	mr = REG_MR(pd, words, SIZE, IBV_ACCESS_LOCAL_WRITE);
	qp = ibv_qp_to_qp_ex(id->qp);
	MADE(qp);

	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_fetch_add(qp, place.rkey, place.addr, 5);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)words, 8);
	qp->wr_id = 2;
	ibv_wr_atomic_cmp_swp(qp, place.rkey, place.addr, 15, 3);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)(words + 1), 8);
	DONE(ibv_wr_complete(qp));
	while (got < 2) {
		int n = ibv_poll_cq(cq, 2 - got, wc + got);

		EXPECT(n >= 0 && now_ms() < until, "no completion");
		got += n;
	}
	EXPECT(wc[0].wr_id == 1 && wc[0].status == IBV_WC_SUCCESS && wc[0].opcode == IBV_WC_FETCH_ADD && wc[0].byte_len == 8, "");
	EXPECT(wc[1].wr_id == 2 && wc[1].status == IBV_WC_SUCCESS && wc[1].opcode == IBV_WC_COMP_SWAP && wc[1].byte_len == 8, "");
	EXPECT(words[0] == 10 && words[1] == 15, "");

	/* the entry is missing */
	ibv_wr_start(qp);
	ibv_wr_atomic_fetch_add(qp, place.rkey, place.addr, 5);
	EXPECT(ibv_wr_complete(qp) == EINVAL, "no entry");
	notify(side, 'd');
	rdma_disconnect(id);
	rdma_destroy_qp(id);
	DONE(ibv_dereg_mr(mr));
	DONE(ibv_destroy_cq(cq));
	DONE(ibv_dealloc_pd(pd));
	rdma_destroy_id(id);
}

const struct test atomics[] = {
	{.name = "atomic-operations", .target = both_t, .initiator = both_i},
	{.name = "atomics-at-once", .target = at_once_t, .initiator = at_once_i},
	{.name = "atomics-at-once-ipv6", .target = at_once_t, .initiator = at_once_i, .addr = "::1"},
	{.name = "atomics-at-once-sealed", .target = at_once_sealed_t, .initiator = at_once_i},
	{.name = "atomics-stopped-target", .target = stopped_t, .initiator = stopped_i},
	{.name = "atomic-misaligned", .target = misaligned_t, .initiator = misaligned_i},
	{.name = "atomic-without-right", .target = without_right_t, .initiator = without_right_i},
	{.name = "atomic-unmapped", .target = unmapped_t, .initiator = unmapped_i},
	{.name = "atomic-through-window", .target = window_t, .initiator = window_i},
	{.name = "atomic-extended", .target = extended_t, .initiator = extended_i},
	{.name = NULL},
};
