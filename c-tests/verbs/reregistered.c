/* SPDX-License-Identifier: BSD-3-Clause */
/* reregistered.c -- ibv_rereg_mr(3) */
#include "ends.h"

#include <poll.h>
#include <sys/mman.h>

#define SIZE 4096
#define FULL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define TRANSLATION IBV_REREG_MR_CHANGE_TRANSLATION
#define PD IBV_REREG_MR_CHANGE_PD
#define ACCESS IBV_REREG_MR_CHANGE_ACCESS

/* The keys stay, the memory changes, and the old memory can no longer be accessed. */
static void
translation_t(struct side *side)
{
	struct end end;
	char *old = pages(SIZE), *new = pages(2 * SIZE);
	struct place place;
	struct ibv_mr *mr;
	uint32_t lkey, rkey;

	accept_end(&end, side);
	mr = offer(&end, side, old, SIZE, FULL);
	lkey = mr->lkey;
	rkey = mr->rkey;
	await(side, 'o');
	DONE(ibv_rereg_mr(mr, TRANSLATION, NULL, new, 2 * SIZE, 0));
	EXPECT(mr->lkey == lkey && mr->rkey == rkey, "other keys");
	EXPECT(mr->addr == new && mr->length == 2 * SIZE && mr->pd == end.pd, "the object has not changed");
	place = (struct place){(uintptr_t)new, rkey, 2 * SIZE};
	send_bytes(side, &place, sizeof(place));
	await(side, 'd');
	check_bytes(old, SIZE, 'o', "the old memory");
	check_bytes(new, 2 * SIZE, 'n', "the new memory");
	close_with_memory(&end, mr);
}

static void
translation_i(struct side *side)
{
	struct end end;
	char *memory = pages(2 * SIZE);
	struct place old, new;
	struct ibv_mr *mr;

	mr = connect_with_memory(&end, side, memory, 2 * SIZE);
	receive_bytes(side, &old, sizeof(old));
	memset(memory, 'o', 2 * SIZE);
	EXPECT_TRANSFER(IBV_WC_SUCCESS, &end, IBV_WR_RDMA_WRITE, mr, memory, SIZE, old.addr, old.rkey);
	EXPECT_TRANSFER(IBV_WC_SUCCESS, &end, IBV_WR_RDMA_READ, mr, memory, 1, old.addr, old.rkey);
	notify(side, 'o');
	receive_bytes(side, &new, sizeof(new));
	memset(memory, 'n', 2 * SIZE);
	EXPECT_TRANSFER(IBV_WC_SUCCESS, &end, IBV_WR_RDMA_WRITE, mr, memory, 2 * SIZE, new.addr, new.rkey);
	EXPECT_TRANSFER(IBV_WC_SUCCESS, &end, IBV_WR_RDMA_READ, mr, memory, 1, new.addr, new.rkey);
	EXPECT_TRANSFER(IBV_WC_REM_ACCESS_ERR, &end, IBV_WR_RDMA_READ, mr, memory, SIZE, old.addr, old.rkey);
	notify(side, 'd');
	close_with_memory(&end, mr);
}

/*
 * A right is removed, or the protection domain changes: afterwards the connection can no longer access the
 * region.
 */
static void
narrowed_t(struct side *side, int flags)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_pd *other;
	struct ibv_mr *mr;

	accept_end(&end, side);
	other = ibv_alloc_pd(end.id->verbs);
	MADE(other);
	mr = offer(&end, side, memory, SIZE, FULL);
	await(side, 'r');
	DONE(ibv_rereg_mr(mr, flags, other, NULL, 0, flags & ACCESS ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0));
	EXPECT(mr->pd == (flags & PD ? other : end.pd) && mr->addr == memory && mr->length == SIZE, "");
	if (flags & PD)
		EXPECT(ibv_dealloc_pd(other) == EBUSY, "the region is not counted");
	notify(side, 'n');
	await(side, 'd');
	DONE(ibv_dereg_mr(mr));
	DONE(ibv_dealloc_pd(other));
	close_end(&end);
}

static void
narrowed_i(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct place place;
	struct ibv_mr *mr;

	mr = connect_with_memory(&end, side, memory, SIZE);
	receive_bytes(side, &place, sizeof(place));
	EXPECT_TRANSFER(IBV_WC_SUCCESS, &end, IBV_WR_RDMA_READ, mr, memory, SIZE, place.addr, place.rkey);
	notify(side, 'r');
	await(side, 'n');
	EXPECT_TRANSFER(IBV_WC_REM_ACCESS_ERR, &end, IBV_WR_RDMA_READ, mr, memory, SIZE, place.addr, place.rkey);
	notify(side, 'd');
	close_with_memory(&end, mr);
}

static void access_t(struct side *side) { narrowed_t(side, ACCESS); }
static void pd_t(struct side *side) { narrowed_t(side, PD); }
static void pd_access_t(struct side *side) { narrowed_t(side, PD | ACCESS); }

/* Invalid arguments leave the region unchanged. */
static void
input_t(struct side *side)
{
	struct end end;

	accept_end(&end, side);
	await(side, 'd');
	close_end(&end);
}

#define REFUSED(...) EXPECT(ibv_rereg_mr(mr, __VA_ARGS__) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL, "%s", strerror(errno))
static void
input_i(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_mr *mr, before;

	connect_end(&end, side);
	mr = REG_MR(end.pd, memory, SIZE, FULL);
	before = *mr;
	REFUSED(1 << 10, end.pd, memory, SIZE, FULL);
	REFUSED(TRANSLATION, NULL, memory, 0, 0);
	REFUSED(TRANSLATION, NULL, NULL, SIZE, 0);
	REFUSED(TRANSLATION, NULL, memory, SIZE, FULL);
	EXPECT(memcmp(mr, &before, sizeof(before)) == 0, "the object has changed");
	DONE(ibv_dereg_mr(mr));
	notify(side, 'd');
	close_end(&end);
}

/* The same for arguments that the device checks, not libibverbs. */
static void
device_input_i(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_mr *mr, before;

	connect_end(&end, side);
	mr = REG_MR(end.pd, memory, SIZE, FULL);
	before = *mr;
	REFUSED(0, end.pd, memory, SIZE, 0);
	REFUSED(0, end.pd, memory, SIZE, FULL);
	REFUSED(PD, NULL, NULL, 0, 0);
	REFUSED(ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE);
	REFUSED(TRANSLATION, NULL, memory, SIZE_MAX, 0);
	EXPECT(memcmp(mr, &before, sizeof(before)) == 0, "the object has changed");
	/* and it can still be changed */
	DONE(ibv_rereg_mr(mr, TRANSLATION | ACCESS | PD, end.pd, memory + 8, SIZE - 8, IBV_ACCESS_LOCAL_WRITE));
	EXPECT(mr->addr == memory + 8 && mr->length == SIZE - 8, "");
	/* unmapped memory: afterwards the region may only be deregistered */
	EXPECT(ibv_rereg_mr(mr, TRANSLATION, NULL, (void *)4096, SIZE, 0) == IBV_REREG_MR_ERR_CMD, "%s", strerror(errno));
	DONE(ibv_dereg_mr(mr));
	notify(side, 'd');
	close_end(&end);
}

/*
 * Several changes in one call. The region then has the new memory; with a change of the access flags a peer
 * may only read it, and with one of the protection domain this connection can no longer access it.
 */
static void
combined_t(struct side *side, int flags)
{
	struct end end;
	char *old = pages(SIZE), *new = pages(SIZE);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	struct place place;
	struct ibv_pd *other;
	struct ibv_mr *mr, before;

	memset(old, 'o', SIZE);
	memset(new, 'n', SIZE);
	accept_end(&end, side);
	other = ibv_alloc_pd(end.id->verbs);
	MADE(other);
	mr = offer(&end, side, old, SIZE, FULL);
	before = *mr;
	await(side, 'r');
	DONE(ibv_rereg_mr(mr, flags, flags & PD ? other : NULL, new, SIZE, flags & ACCESS ? access : 0));
	EXPECT(mr->pd == (flags & PD ? other : end.pd) && mr->addr == new && mr->length == SIZE, "");
	EXPECT(mr->lkey == before.lkey && mr->rkey == before.rkey && mr->context == before.context, "other keys");
	place = (struct place){(uintptr_t)new, mr->rkey, SIZE};
	send_bytes(side, &place, sizeof(place));
	await(side, 'd');
	check_bytes(old, SIZE, 'o', "the old memory");
	check_bytes(new, SIZE, 'n', "the new memory");
	DONE(ibv_dereg_mr(mr));
	DONE(ibv_dealloc_pd(other));
	close_end(&end);
}

static void
combined_i(struct side *side, int flags)
{
	struct end end;
	char *memory = pages(SIZE);
	struct place old, new;
	struct ibv_mr *mr;
	enum ibv_wc_status status;

	mr = connect_with_memory(&end, side, memory, SIZE);
	receive_bytes(side, &old, sizeof(old));
	EXPECT_TRANSFER(IBV_WC_SUCCESS, &end, IBV_WR_RDMA_READ, mr, memory, SIZE, old.addr, old.rkey);
	check_bytes(memory, SIZE, 'o', "what was read");
	notify(side, 'r');
	receive_bytes(side, &new, sizeof(new));
	status = transfer(&end, IBV_WR_RDMA_READ, mr, memory, SIZE, new.addr, new.rkey);
	if (flags & PD) {
		EXPECT(status == IBV_WC_REM_ACCESS_ERR, "%s", ibv_wc_status_str(status));
	} else {
		EXPECT(status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(status));
		check_bytes(memory, SIZE, 'n', "what was read");
		memset(memory, 'x', SIZE);
		status = transfer(&end, IBV_WR_RDMA_WRITE, mr, memory, SIZE, new.addr, new.rkey);
		/* a write may complete before it is refused: then the next request fails */
		if (status == IBV_WC_SUCCESS)
			status = transfer(&end, IBV_WR_RDMA_READ, mr, memory, 1, new.addr, new.rkey);
		EXPECT(status != IBV_WC_SUCCESS, "a region that may only be read was written");
	}
	notify(side, 'd');
	close_with_memory(&end, mr);
}

static void translation_access_t(struct side *side) { combined_t(side, TRANSLATION | ACCESS); }
static void translation_access_i(struct side *side) { combined_i(side, TRANSLATION | ACCESS); }
static void translation_pd_t(struct side *side) { combined_t(side, TRANSLATION | PD); }
static void translation_pd_i(struct side *side) { combined_i(side, TRANSLATION | PD); }
static void all_t(struct side *side) { combined_t(side, TRANSLATION | PD | ACCESS); }
static void all_i(struct side *side) { combined_i(side, TRANSLATION | PD | ACCESS); }

#define READS 3000
#define CHANGES 100
#define LONG (16 * SIZE)

/* Accesses that are permitted before and after a change are not refused during the change. */
static void
under_way_t(struct side *side)
{
	struct pollfd over = {.fd = side->sync, .events = POLLIN};
	struct end end;
	char *memory = pages(2 * LONG);
	struct ibv_mr *mr;
	unsigned changes = 0;

	fill_pattern(memory, 2 * LONG, 3);
	mr = accept_with_memory(&end, side, memory, 2 * LONG, FULL);
	for (; poll(&over, 1, 0) == 0; changes++) {
		bool narrow = changes % 2 == 0;

		DONE(ibv_rereg_mr(mr, TRANSLATION | ACCESS, NULL, memory, narrow ? LONG : 2 * LONG,
			narrow ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ : FULL));
		if (changes + 1 == CHANGES)
			notify(side, 'c');
	}
	await(side, 'd');
	EXPECT(changes >= CHANGES, "only %u changes", changes);
	close_with_memory(&end, mr);
}

static void
under_way_i(struct side *side)
{
	struct pollfd changed = {.fd = side->sync, .events = POLLIN};
	struct end end;
	char *memory = pages(LONG);
	struct place place;
	struct ibv_mr *mr;

	mr = connect_with_memory(&end, side, memory, LONG);
	receive_bytes(side, &place, sizeof(place));
	/* until both sides have reached their numbers */
	for (unsigned i = 0; i < READS || poll(&changed, 1, 0) == 0; i++) {
		enum ibv_wc_status status = transfer(&end, IBV_WR_RDMA_READ, mr, memory, LONG, place.addr, place.rkey);

		EXPECT(status == IBV_WC_SUCCESS, "read %u: %s", i, ibv_wc_status_str(status));
	}
	check_pattern(memory, LONG, 3, "what was read");
	await(side, 'c');
	notify(side, 'd');
	close_with_memory(&end, mr);
}

/*
 * After ERR_CMD the region cannot be used, neither by a peer nor by the program, nor changed again; it can
 * only be deregistered.
 */
static void
failed_t(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE), *gone = pages(SIZE);
	struct ibv_mr *mr;

	mr = accept_with_memory(&end, side, memory, SIZE, FULL);
	await(side, 'r');
	/* unmapped only now: a later mapping could get this address */
	DONE(munmap(gone, SIZE));
	EXPECT(ibv_rereg_mr(mr, TRANSLATION, NULL, gone, SIZE, 0) == IBV_REREG_MR_ERR_CMD && errno == EFAULT, "%s", strerror(errno));
	EXPECT(mr->addr == memory && mr->length == SIZE && mr->pd == end.pd, "the object has changed");
	EXPECT(ibv_rereg_mr(mr, TRANSLATION, NULL, memory, SIZE, 0) == IBV_REREG_MR_ERR_CMD, "the region is usable again");
	notify(side, 'f');
	await(side, 'd');
	close_with_memory(&end, mr);
}

static void
failed_i(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct place place;
	struct ibv_mr *mr;

	mr = connect_with_memory(&end, side, memory, SIZE);
	receive_bytes(side, &place, sizeof(place));
	notify(side, 'r');
	await(side, 'f');
	EXPECT_TRANSFER(IBV_WC_REM_ACCESS_ERR, &end, IBV_WR_RDMA_READ, mr, memory, SIZE, place.addr, place.rkey);
	notify(side, 'd');
	close_with_memory(&end, mr);
}

const struct test reregistered[] = {
	{.name = "rereg-mr-translation", .target = translation_t, .initiator = translation_i},
	{.name = "rereg-mr-access", .target = access_t, .initiator = narrowed_i},
	{.name = "rereg-mr-pd", .target = pd_t, .initiator = narrowed_i},
	{.name = "rereg-mr-pd-and-access", .target = pd_access_t, .initiator = narrowed_i},
	{.name = "rereg-mr-translation-and-access", .target = translation_access_t, .initiator = translation_access_i},
	{.name = "rereg-mr-translation-and-pd", .target = translation_pd_t, .initiator = translation_pd_i},
	{.name = "rereg-mr-all", .target = all_t, .initiator = all_i},
	{.name = "rereg-mr-under-way", .target = under_way_t, .initiator = under_way_i},
	{.name = "rereg-mr-failed", .target = failed_t, .initiator = failed_i},
	{.name = "rereg-mr-refuses", .target = input_t, .initiator = input_i},
	{.name = "rereg-mr-refuses-too", .target = input_t, .initiator = device_input_i},
	{.name = NULL},
};
