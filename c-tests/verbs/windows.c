/* SPDX-License-Identifier: BSD-3-Clause */
/* windows.c -- memory windows of both types, and Send with Invalidate */
#include "ends.h"

#define SIZE 4096
#define AT 1024 /* the offset of a window, and its length */
#define LENGTH 64
#define RIGHTS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* A window of the target, on a region without remote rights. */
struct view {
	char *memory;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
};

static void
open_view(struct view *view, struct end *end, enum ibv_mw_type type)
{
	view->memory = pages(SIZE);
	view->mr = REG_MR(end->pd, view->memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	view->mw = ibv_alloc_mw(end->pd, type);
	MADE(view->mw);
	EXPECT(view->mw->context == end->id->verbs && view->mw->pd == end->pd && view->mw->type == type, "");
}

static struct ibv_mw_bind_info
part(struct view *view, uint64_t offset, uint64_t length, unsigned access)
{
	return (struct ibv_mw_bind_info){.mr = view->mr, .addr = (uintptr_t)view->memory + offset, .length = length,
		.mw_access_flags = access};
}

static void
expect_done(struct end *end, uint64_t wr_id, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = next_send(end);

	EXPECT(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
	EXPECT(wc.wr_id == wr_id && wc.opcode == opcode, "request %llu, opcode %d", (unsigned long long)wc.wr_id, wc.opcode);
}

/* Type 1: the device chooses the rkey. */
static void
bind_1(struct end *end, struct view *view, uint64_t wr_id, struct ibv_mw_bind_info info)
{
	struct ibv_mw_bind bind = {.wr_id = wr_id, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
	uint32_t before = view->mw->rkey;

	DONE(ibv_bind_mw(end->id->qp, view->mw, &bind));
	expect_done(end, wr_id, IBV_WC_BIND_MW);
	EXPECT(view->mw->rkey != before, "the same key");
}

/* Type 2: the program chooses the lowest 8 bits. */
static uint32_t
post_bind_2(struct end *end, struct view *view, uint64_t wr_id, struct ibv_mw_bind_info info)
{
	struct ibv_send_wr wr = {.wr_id = wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;

	wr.bind_mw.mw = view->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(view->mw->rkey);
	wr.bind_mw.bind_info = info;
	DONE(ibv_post_send(end->id->qp, &wr, &bad));
	return wr.bind_mw.rkey;
}

static uint32_t
bind_2(struct end *end, struct view *view, uint64_t wr_id, struct ibv_mw_bind_info info)
{
	uint32_t rkey = post_bind_2(end, view, wr_id, info);

	expect_done(end, wr_id, IBV_WC_BIND_MW);
	view->mw->rkey = rkey;
	return rkey;
}

static void
tell_place(struct side *side, uint64_t addr, uint32_t rkey)
{
	struct place place = {addr, rkey, LENGTH};

	send_bytes(side, &place, sizeof(place));
}

/* The region cannot be deregistered or changed while a window is bound to it. */
static void
expect_busy(struct view *view)
{
	int ret = ibv_dereg_mr(view->mr);

	/* rxe returns another errno than the manual page specifies */
	EXPECT(ret == EBUSY || (on_device() && ret == EINVAL), "%s", strerror(ret));
	if (!on_device())
		EXPECT(ibv_rereg_mr(view->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EBUSY,
			"%s", strerror(errno));
}

/* The objects with which the initiator accesses a window. */
struct seen {
	struct end end;
	struct ibv_mr *mr;
	char *memory;
};

static void
look(struct seen *seen, struct side *side)
{
	connect_end(&seen->end, side);
	seen->memory = pages(SIZE);
	memset(seen->memory, 'i', SIZE);
	seen->mr = REG_MR(seen->end.pd, seen->memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
}

static enum ibv_wc_status
access_at(struct seen *seen, enum ibv_wr_opcode opcode, uint64_t addr, uint32_t rkey, uint32_t length)
{
	return transfer(&seen->end, opcode, seen->mr, seen->memory, length, addr, rkey);
}

static void
expect_access(struct seen *seen, struct place place)
{
	enum ibv_wc_status status = access_at(seen, IBV_WR_RDMA_WRITE, place.addr, place.rkey, LENGTH);

	EXPECT(status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(status));
	/* after the write, which has been placed then */
	status = access_at(seen, IBV_WR_RDMA_READ, place.addr, place.rkey, LENGTH);
	EXPECT(status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(status));
}

/* The access is refused, and ends the connection. */
static void
expect_refused(struct seen *seen, struct place place)
{
	enum ibv_wc_status status = access_at(seen, IBV_WR_RDMA_READ, place.addr, place.rkey, place.length);

	EXPECT(status == IBV_WC_REM_ACCESS_ERR, "%s", ibv_wc_status_str(status));
}

static void
look_away(struct seen *seen)
{
	DONE(ibv_dereg_mr(seen->mr));
	close_end(&seen->end);
}

/* A window of type 1: bound, bound to another range, unbound. */
static void
rebound_t(struct side *side, bool names_region)
{
	struct ibv_mw_bind_info nothing = {.mr = NULL};
	struct view view;
	struct end end;

	accept_end(&end, side);
	open_view(&view, &end, IBV_MW_TYPE_1);
	bind_1(&end, &view, 1, part(&view, AT, LENGTH, RIGHTS | IBV_ACCESS_LOCAL_WRITE));
	expect_busy(&view);
	tell_place(side, (uintptr_t)view.memory + AT, view.mw->rkey);
	await(side, 'w');
	check_bytes(view.memory, AT, 0, "the memory before the window");
	check_bytes(view.memory + AT, LENGTH, 'i', "the window");
	check_bytes(view.memory + AT + LENGTH, SIZE - AT - LENGTH, 0, "the memory after the window");

	bind_1(&end, &view, 2, part(&view, 2 * AT, LENGTH, RIGHTS));
	expect_busy(&view);
	tell_place(side, (uintptr_t)view.memory + 2 * AT, view.mw->rkey);
	await(side, 'w');
	check_bytes(view.memory + 2 * AT, LENGTH, 'i', "the window");

	/* a length of 0 unbinds the window, with any region */
	if (names_region)
		nothing.mr = view.mr;
	bind_1(&end, &view, 3, nothing);
	DONE(ibv_dereg_mr(view.mr));
	tell_place(side, (uintptr_t)view.memory + 2 * AT, view.mw->rkey);
	await(side, 'd');
	DONE(ibv_dealloc_mw(view.mw));
	close_end(&end);
}

static void type_1_t(struct side *side) { rebound_t(side, true); }
static void no_region_t(struct side *side) { rebound_t(side, false); }

static void
type_1_i(struct side *side)
{
	struct seen seen;
	struct place place;

	look(&seen, side);
	for (int i = 0; i < 2; i++) {
		receive_bytes(side, &place, sizeof(place));
		expect_access(&seen, place);
		notify(side, 'w');
	}
	receive_bytes(side, &place, sizeof(place));
	expect_refused(&seen, place);
	notify(side, 'd');
	look_away(&seen);
}

/*
 * Each of these ends the connection: an access outside the window or without the right, and its former key.
 * The region stays busy until the window is deallocated.
 */
enum excess { BEHIND, OLD_KEY, OWN_KEY, NO_RIGHT };

static void
excess_t(struct side *side, enum excess excess)
{
	struct place place = {.length = LENGTH};
	struct view view;
	struct end end;

	accept_end(&end, side);
	open_view(&view, &end, IBV_MW_TYPE_1);
	bind_1(&end, &view, 1, part(&view, AT, LENGTH, RIGHTS));
	place.addr = (uintptr_t)view.memory + AT + (excess == BEHIND ? 8 : 0);
	place.rkey = view.mw->rkey;
	if (excess == OLD_KEY || excess == NO_RIGHT)
		bind_1(&end, &view, 2, part(&view, AT, LENGTH, excess == NO_RIGHT ? IBV_ACCESS_REMOTE_WRITE : RIGHTS));
	if (excess == NO_RIGHT)
		place.rkey = view.mw->rkey;
	if (excess == OWN_KEY)
		place.rkey = view.mr->rkey;
	send_bytes(side, &place, sizeof(place));
	await(side, 'd');
	expect_busy(&view);
	DONE(ibv_dealloc_mw(view.mw));
	DONE(ibv_dereg_mr(view.mr));
	close_end(&end);
}

static void behind_t(struct side *side) { excess_t(side, BEHIND); }
static void old_key_t(struct side *side) { excess_t(side, OLD_KEY); }
static void own_key_t(struct side *side) { excess_t(side, OWN_KEY); }
static void no_right_t(struct side *side) { excess_t(side, NO_RIGHT); }

static void
excess_i(struct side *side)
{
	struct seen seen;
	struct place place;

	look(&seen, side);
	receive_bytes(side, &place, sizeof(place));
	expect_refused(&seen, place);
	notify(side, 'd');
	look_away(&seen);
}

/*
 * A window of type 2 is bound by a work request, and invalidated by one: locally, or by a message of the
 * peer.
 */
static void
invalidated_t(struct side *side, bool by_peer)
{
	struct ibv_send_wr invalidation = {.wr_id = 2, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED}, *bad_send;
	struct ibv_recv_wr receive = {.wr_id = 3}, *bad_receive;
	struct view view;
	struct end end;
	uint32_t rkey;

	accept_end(&end, side);
	open_view(&view, &end, IBV_MW_TYPE_2);
	rkey = bind_2(&end, &view, 1, part(&view, AT, LENGTH, RIGHTS | IBV_ACCESS_LOCAL_WRITE));
	expect_busy(&view);
	DONE(ibv_post_recv(end.id->qp, &receive, &bad_receive));
	tell_place(side, (uintptr_t)view.memory + AT, rkey);
	await(side, 'w');
	check_bytes(view.memory, AT, 0, "the memory before the window");
	check_bytes(view.memory + AT, LENGTH, 'i', "the window");
	check_bytes(view.memory + AT + LENGTH, SIZE - AT - LENGTH, 0, "the memory after the window");
	if (by_peer) {
		struct ibv_wc wc = next_recv(&end);

		EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == 3, "%s", ibv_wc_status_str(wc.status));
		/* rxe hands the kernel's flag on, which is another bit */
		EXPECT(wc.opcode == IBV_WC_RECV && wc.wc_flags & (on_device() ? 1U << 2 : IBV_WC_WITH_INV) && wc.invalidated_rkey == rkey, "flags 0x%x, key 0x%x, not 0x%x",
			wc.wc_flags, wc.invalidated_rkey, rkey);
	} else {
		expect_busy(&view);
		invalidation.invalidate_rkey = rkey;
		DONE(ibv_post_send(end.id->qp, &invalidation, &bad_send));
		expect_done(&end, 2, IBV_WC_LOCAL_INV);
		notify(side, 'v');
	}
	/* no window is bound to the region */
	DONE(ibv_dereg_mr(view.mr));
	notify(side, 'g');
	await(side, 'd');
	DONE(ibv_dealloc_mw(view.mw));
	close_end(&end);
}

static void local_inv_t(struct side *side) { invalidated_t(side, false); }
static void send_inv_t(struct side *side) { invalidated_t(side, true); }

static void
local_inv_i(struct side *side)
{
	struct seen seen;
	struct place place;

	look(&seen, side);
	receive_bytes(side, &place, sizeof(place));
	expect_access(&seen, place);
	notify(side, 'w');
	await(side, 'v');
	await(side, 'g');
	expect_refused(&seen, place);
	notify(side, 'd');
	look_away(&seen);
}

static void
send_inv_i(struct side *side)
{
	struct ibv_send_wr wr = {.wr_id = 9, .opcode = IBV_WR_SEND_WITH_INV, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct seen seen;
	struct place place;

	look(&seen, side);
	receive_bytes(side, &place, sizeof(place));
	expect_access(&seen, place);
	notify(side, 'w');
	wr.invalidate_rkey = place.rkey;
	DONE(ibv_post_send(seen.end.id->qp, &wr, &bad));
	expect_done(&seen.end, 9, IBV_WC_SEND);
	await(side, 'g');
	expect_refused(&seen, place);
	notify(side, 'd');
	look_away(&seen);
}

/* The same through an extended queue pair. */
static void
wr_send_inv_i(struct side *side)
{
	struct ibv_qp_ex *qp;
	struct ibv_pd *pd;
	struct seen seen;
	struct place place;

	connect_end_extended(&seen.end, side, IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ);
	pd = seen.end.pd;
	seen.memory = pages(SIZE);
	memset(seen.memory, 'i', SIZE);
	seen.mr = REG_MR(pd, seen.memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	receive_bytes(side, &place, sizeof(place));
	expect_access(&seen, place);
	notify(side, 'w');
	qp = ibv_qp_to_qp_ex(seen.end.id->qp);
	MADE(qp);
	ibv_wr_start(qp);
	qp->wr_id = 10;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_inv(qp, place.rkey);
	ibv_wr_set_sge(qp, seen.mr->lkey, (uintptr_t)seen.memory, 0);
	DONE(ibv_wr_complete(qp));
	expect_done(&seen.end, 10, IBV_WC_SEND);
	await(side, 'g');
	expect_refused(&seen, place);
	notify(side, 'd');
	look_away(&seen);
	DONE(ibv_dealloc_pd(pd));
}

/*
 * A window that is already bound, a region without IBV_ACCESS_MW_BIND, a range past the region: the bind
 * fails and ends the connection; earlier binds remain.
 */
enum mistake { BOUND, NOT_FOR_WINDOWS, TOO_LONG, NO_LOCAL_WRITE };

static void
mistake_t(struct side *side, enum mistake mistake)
{
	struct ibv_mr *other = NULL;
	struct ibv_mw_bind_info info;
	struct view view;
	struct ibv_wc wc;
	struct end end;

	accept_end(&end, side);
	open_view(&view, &end, IBV_MW_TYPE_2);
	info = part(&view, AT, mistake == TOO_LONG ? SIZE : LENGTH, RIGHTS);
	if (mistake == BOUND)
		bind_2(&end, &view, 1, info);
	if (mistake == NOT_FOR_WINDOWS || mistake == NO_LOCAL_WRITE) {
		other = REG_MR(end.pd, view.memory, SIZE, mistake == NO_LOCAL_WRITE ? IBV_ACCESS_MW_BIND : IBV_ACCESS_LOCAL_WRITE);
		info.mr = other;
	}
	post_bind_2(&end, &view, 2, info);
	wc = next_send(&end);
	EXPECT(wc.wr_id == 2 && wc.status == IBV_WC_MW_BIND_ERR, "%s", ibv_wc_status_str(wc.status));
	if (mistake == BOUND)
		expect_busy(&view);
	DONE(ibv_dealloc_mw(view.mw));
	DONE(ibv_dereg_mr(view.mr));
	if (other != NULL)
		DONE(ibv_dereg_mr(other));
	notify(side, 'd');
	close_end(&end);
}

static void bound_t(struct side *side) { mistake_t(side, BOUND); }
static void not_for_windows_t(struct side *side) { mistake_t(side, NOT_FOR_WINDOWS); }
static void too_long_t(struct side *side) { mistake_t(side, TOO_LONG); }
static void no_local_write_t(struct side *side) { mistake_t(side, NO_LOCAL_WRITE); }

static void
waits_i(struct side *side)
{
	struct end end;

	connect_end(&end, side);
	await(side, 'd');
	close_end(&end);
}

/*
 * Refused immediately: a window of the wrong type, a region and a window of different protection domains,
 * flags that a window cannot have.
 */
static void
refused_t(struct side *side)
{
	struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED};
	struct ibv_mw *elsewhere;
	struct ibv_pd *pd;
	struct view one, two;
	struct end end;
	uint32_t rkey;

	accept_end(&end, side);
	open_view(&one, &end, IBV_MW_TYPE_1);
	open_view(&two, &end, IBV_MW_TYPE_2);
	pd = ibv_alloc_pd(end.id->verbs);
	MADE(pd);
	elsewhere = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	MADE(elsewhere);
	EXPECT(ibv_dealloc_pd(pd) == EBUSY, "the window is not counted");
	bind.bind_info = part(&two, 0, LENGTH, RIGHTS);
	EXPECT(ibv_bind_mw(end.id->qp, two.mw, &bind) == EINVAL, "a window of type 2");
	bind.bind_info = part(&one, 0, LENGTH, RIGHTS);
	rkey = elsewhere->rkey;
	EXPECT(ibv_bind_mw(end.id->qp, elsewhere, &bind) == EPERM, "a region of another protection domain");
	EXPECT(elsewhere->rkey == rkey, "another key after a failed bind");
	bind.bind_info.mr = NULL;
	EXPECT(ibv_bind_mw(end.id->qp, one.mw, &bind) == EINVAL, "a range without a region");
	/* no window is bound, and the connection has not ended */
	DONE(ibv_dereg_mr(one.mr));
	DONE(ibv_dereg_mr(two.mr));
	DONE(ibv_dealloc_mw(elsewhere));
	DONE(ibv_dealloc_mw(one.mw));
	DONE(ibv_dealloc_mw(two.mw));
	DONE(ibv_dealloc_pd(pd));
	notify(side, 'd');
	close_end(&end);
}

const struct test windows[] = {
	{.name = "window-1", .target = type_1_t, .initiator = type_1_i},
	{.name = "window-1-unbound-of-no-region", .target = no_region_t, .initiator = type_1_i},
	{.name = "window-1-behind-its-end", .target = behind_t, .initiator = excess_i},
	{.name = "window-1-old-key", .target = old_key_t, .initiator = excess_i},
	{.name = "window-1-key-of-the-region", .target = own_key_t, .initiator = excess_i},
	{.name = "window-1-right-it-lacks", .target = no_right_t, .initiator = excess_i},
	{.name = "window-2-local-invalidate", .target = local_inv_t, .initiator = local_inv_i},
	{.name = "window-2-send-with-invalidate", .target = send_inv_t, .initiator = send_inv_i},
	{.name = "window-2-extended-send-with-invalidate", .target = send_inv_t, .initiator = wr_send_inv_i},
	{.name = "window-2-bound-twice", .target = bound_t, .initiator = waits_i},
	{.name = "window-2-region-not-for-windows", .target = not_for_windows_t, .initiator = waits_i},
	{.name = "window-2-longer-than-the-region", .target = too_long_t, .initiator = waits_i},
	{.name = "window-2-region-not-writable", .target = no_local_write_t, .initiator = waits_i},
	{.name = "window-refused-at-once", .target = refused_t, .initiator = waits_i},
	{.name = NULL},
};
