/* SPDX-License-Identifier: BSD-3-Clause */
/* regions.c -- ibv_reg_mr(3) and ibv_dereg_mr(3) */
#include "ends.h"

#include <stdlib.h>
#include <sys/mman.h>

#define SIZE 4096
#define FULL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static void
stays_until_done(struct side *side)
{
	struct end end;

	accept_end(&end, side);
	await(side, 'd');
	close_end(&end);
}

/* Returns NULL and sets errno; remote writes require local ones. */
static void
refused_i(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);

	connect_end(&end, side);
	EXPECT(ibv_reg_mr(end.pd, memory, SIZE, IBV_ACCESS_REMOTE_WRITE) == NULL && errno == EINVAL, "%s", strerror(errno));
	EXPECT(ibv_reg_mr(end.pd, memory, SIZE, IBV_ACCESS_REMOTE_ATOMIC) == NULL && errno == EINVAL, "%s", strerror(errno));
	EXPECT(ibv_reg_mr(end.pd, (void *)4096, SIZE, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EFAULT, "%s", strerror(errno));
	DONE(mprotect(memory, SIZE, PROT_READ));
	EXPECT(ibv_reg_mr(end.pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EFAULT, "%s", strerror(errno));
	notify(side, 'd');
	close_end(&end);
}

/* The object describes the registration, and memory can be registered repeatedly. */
static void
object_i(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_mr *first, *second;

	connect_end(&end, side);
	first = REG_MR(end.pd, memory, SIZE, FULL);
	EXPECT(first->context == end.id->verbs && first->pd == end.pd && first->addr == memory && first->length == SIZE, "");
	second = REG_MR(end.pd, memory + 100, SIZE - 100, 0);
	EXPECT(first->rkey != second->rkey && first->lkey != second->lkey, "");
	DONE(ibv_dereg_mr(first));
	DONE(ibv_dereg_mr(second));
	notify(side, 'd');
	close_end(&end);
}

/*
 * Each remote right alone permits only its operation. A refused access ends the connection, so there is only
 * one.
 */
struct right {
	int access;
	enum ibv_wr_opcode permitted;
	enum ibv_wr_opcode refused;
};

static const struct right WRITE = {IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
static const struct right READ = {IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE};

static void
right_t(struct side *side, const struct right *right)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_mr *mr;

	accept_end(&end, side);
	memset(memory, 't', SIZE);
	mr = offer(&end, side, memory, SIZE, right->access);
	await(side, 'd');
	check_bytes(memory, SIZE, right->permitted == IBV_WR_RDMA_WRITE ? 'i' : 't', "the target's memory");
	close_with_memory(&end, mr);
}

static void
right_i(struct side *side, const struct right *right)
{
	struct end end;
	char *memory = pages(SIZE);
	struct place place;
	struct ibv_mr *mr;
	enum ibv_wc_status status;

	connect_end(&end, side);
	memset(memory, 'i', SIZE);
	mr = REG_MR(end.pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	receive_bytes(side, &place, sizeof(place));
	EXPECT_TRANSFER(IBV_WC_SUCCESS, &end, right->permitted, mr, memory, SIZE, place.addr, place.rkey);
	if (right->permitted == IBV_WR_RDMA_READ)
		check_bytes(memory, SIZE, 't', "what was read");
	memset(memory, 'x', SIZE);
	status = transfer(&end, right->refused, mr, memory, SIZE, place.addr, place.rkey);
	/* a write may complete before the peer refuses it: then the next request fails */
	if (status == IBV_WC_SUCCESS)
		status = transfer(&end, right->permitted, mr, memory, 1, place.addr, place.rkey);
	EXPECT(status != IBV_WC_SUCCESS, "");
	check_bytes(memory, SIZE, 'x', "the initiator's memory");
	notify(side, 'd');
	close_with_memory(&end, mr);
}

static void write_right_t(struct side *side) { right_t(side, &WRITE); }
static void write_right_i(struct side *side) { right_i(side, &WRITE); }
static void read_right_t(struct side *side) { right_t(side, &READ); }
static void read_right_i(struct side *side) { right_i(side, &READ); }

/*
 * A region with addresses from 0 or from an address of the program's choice: remote and local requests use
 * these.
 */
enum shift { ZERO_BASED, IOVA, IOVA2, IOVA2_ZERO };

static void
shifted_t(struct side *side, enum shift shift)
{
	struct end end;
	char *memory = pages(2 * SIZE);
	struct place place = {.addr = shift == IOVA || shift == IOVA2 ? 0x123450000 : 0, .length = SIZE};
	struct ibv_mr *mr;

	accept_end(&end, side);
	if (shift == ZERO_BASED)
		mr = ibv_reg_mr(end.pd, memory + SIZE, SIZE, FULL | IBV_ACCESS_ZERO_BASED);
	else if (shift == IOVA)
		mr = ibv_reg_mr_iova(end.pd, memory + SIZE, SIZE, place.addr, FULL);
	else
		mr = ibv_reg_mr_iova2(end.pd, memory + SIZE, SIZE, place.addr, FULL | IBV_ACCESS_RELAXED_ORDERING);
	MADE(mr);
	EXPECT(mr->addr == memory + SIZE && mr->length == SIZE, "the object does not contain the address of the memory");
	place.rkey = mr->rkey;
	send_bytes(side, &place, sizeof(place));
	await(side, 'd');
	check_bytes(memory, SIZE, 0, "the memory before the region");
	check_bytes(memory + SIZE, 64, 0, "the memory before the target");
	check_bytes(memory + SIZE + 64, 64, 'i', "the target");
	check_bytes(memory + SIZE + 128, SIZE - 128, 0, "the memory after the target");
	close_with_memory(&end, mr);
}

static void
shifted_i(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct place place;
	struct ibv_mr *mr;

	connect_end(&end, side);
	memset(memory + 10, 'i', 64);
	/* the local region has an iova, too */
	mr = ibv_reg_mr_iova(end.pd, memory, SIZE, 0x7770000000, IBV_ACCESS_LOCAL_WRITE);
	MADE(mr);
	receive_bytes(side, &place, sizeof(place));
	EXPECT_TRANSFER(IBV_WC_SUCCESS, &end, IBV_WR_RDMA_WRITE, mr, (void *)(uintptr_t)(0x7770000000 + 10), 64, place.addr + 64, place.rkey);
	EXPECT_TRANSFER(IBV_WC_SUCCESS, &end, IBV_WR_RDMA_READ, mr, (void *)(uintptr_t)(0x7770000000 + 100), 64, place.addr + 64, place.rkey);
	check_bytes(memory + 100, 64, 'i', "what was read");
	notify(side, 'd');
	close_with_memory(&end, mr);
}

static void zero_based_t(struct side *side) { shifted_t(side, ZERO_BASED); }
static void iova_t(struct side *side) { shifted_t(side, IOVA); }
static void iova2_t(struct side *side) { shifted_t(side, IOVA2); }
static void iova2_zero_t(struct side *side) { shifted_t(side, IOVA2_ZERO); }

/* One region for the whole address space, also for later mappings. */
static void
implicit_t(struct side *side)
{
	struct end end;
	struct place place = {.length = SIZE};
	struct ibv_mr *mr;
	char *memory;

	accept_end(&end, side);
	EXPECT(ibv_reg_mr(end.pd, NULL, SIZE_MAX, FULL) == NULL && errno == EINVAL, "%s", strerror(errno));
	mr = REG_MR(end.pd, NULL, SIZE_MAX, FULL | IBV_ACCESS_ON_DEMAND);
	memory = pages(SIZE); /* mapped after the registration */
	place.addr = (uintptr_t)memory;
	place.rkey = mr->rkey;
	send_bytes(side, &place, sizeof(place));
	await(side, 'w');
	check_bytes(memory, SIZE, 'i', "the target's memory");
	DONE(munmap(memory, SIZE));
	notify(side, 'u');
	await(side, 'd');
	close_with_memory(&end, mr);
}

static void
implicit_i(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct place place;
	struct ibv_mr *mr;
	enum ibv_wc_status status;

	connect_end(&end, side);
	memset(memory, 'i', SIZE);
	mr = REG_MR(end.pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	receive_bytes(side, &place, sizeof(place));
	EXPECT_TRANSFER(IBV_WC_SUCCESS, &end, IBV_WR_RDMA_WRITE, mr, memory, SIZE, place.addr, place.rkey);
	/* the read completes after the write was placed */
	EXPECT_TRANSFER(IBV_WC_SUCCESS, &end, IBV_WR_RDMA_READ, mr, memory, 1, place.addr, place.rkey);
	notify(side, 'w');
	await(side, 'u');
	status = transfer(&end, IBV_WR_RDMA_READ, mr, memory, SIZE, place.addr, place.rkey);
	EXPECT(status != IBV_WC_SUCCESS, "unmapped memory was read");
	notify(side, 'd');
	close_with_memory(&end, mr);
}

/* It has the rights of its registration, like any other. */
static void
implicit_right_t(struct side *side)
{
	struct end end;
	struct place place = {.length = SIZE};
	char *memory = pages(SIZE);
	struct ibv_mr *mr;

	accept_end(&end, side);
	memset(memory, 't', SIZE);
	mr = REG_MR(end.pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);
	place.addr = (uintptr_t)memory;
	place.rkey = mr->rkey;
	send_bytes(side, &place, sizeof(place));
	await(side, 'd');
	check_bytes(memory, SIZE, 't', "the target's memory");
	close_with_memory(&end, mr);
}

/* An unmapped range can be registered for on-demand paging only; accesses use its mapping at that time. */
static void
on_demand_t(struct side *side)
{
	struct end end;
	struct place place = {.length = SIZE};
	char *memory = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;

	EXPECT(memory != MAP_FAILED, "%s", strerror(errno));
	accept_end(&end, side);
	EXPECT(ibv_reg_mr(end.pd, memory, SIZE, FULL) == NULL && errno == EFAULT, "%s", strerror(errno));
	mr = REG_MR(end.pd, memory, SIZE, FULL | IBV_ACCESS_ON_DEMAND);
	place.addr = (uintptr_t)memory;
	place.rkey = mr->rkey;
	DONE(mprotect(memory, SIZE, PROT_READ | PROT_WRITE));
	send_bytes(side, &place, sizeof(place));
	await(side, 'w');
	check_bytes(memory, SIZE, 'i', "the target's memory");
	DONE(mprotect(memory, SIZE, PROT_NONE));
	notify(side, 'u');
	await(side, 'd');
	close_with_memory(&end, mr);
}

const struct test regions[] = {
	{.name = "reg-mr-refuses", .target = stays_until_done, .initiator = refused_i},
	{.name = "reg-mr-fills-the-object", .target = stays_until_done, .initiator = object_i},
	{.name = "remote-write-alone", .target = write_right_t, .initiator = write_right_i},
	{.name = "remote-read-alone", .target = read_right_t, .initiator = read_right_i},
	{.name = "zero-based", .target = zero_based_t, .initiator = shifted_i},
	{.name = "reg-mr-iova", .target = iova_t, .initiator = shifted_i},
	{.name = "reg-mr-iova2", .target = iova2_t, .initiator = shifted_i},
	{.name = "reg-mr-iova2-zero", .target = iova2_zero_t, .initiator = shifted_i},
	{.name = "implicit-on-demand", .target = implicit_t, .initiator = implicit_i},
	{.name = "implicit-on-demand-right", .target = implicit_right_t, .initiator = read_right_i},
	{.name = "on-demand", .target = on_demand_t, .initiator = implicit_i},
	{.name = NULL},
};
