/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ends.h -- two connected ends for tests on libibverbs and librdmacm: the usual set-up code of verbs
 * programs.
 */
#ifndef VERBS_ENDS_H
#define VERBS_ENDS_H 1

#include "harness.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <string.h>

/* A call that must return 0, or a pointer other than NULL. */
#define DONE(call) EXPECT((call) == 0, "%s", strerror(errno))
#define MADE(pointer) EXPECT((pointer) != NULL, "%s", strerror(errno))

/* The region that ibv_reg_mr() registers. */
#define REG_MR(...)                                                                                \
	__extension__({                                                                            \
		struct ibv_mr *made_ = ibv_reg_mr(__VA_ARGS__);                                    \
		MADE(made_);                                                                       \
		made_;                                                                             \
	})

/* A transfer() that must complete with this status. */
#define EXPECT_TRANSFER(expected, ...)                                                             \
	do {                                                                                       \
		enum ibv_wc_status status_ = transfer(__VA_ARGS__);                                \
		EXPECT(status_ == (expected), "%s", ibv_wc_status_str(status_));                   \
	} while (0)

/* One side of a connection; rdma_cm has created the completion queues of its queue pair. */
struct end {
	struct rdma_cm_id *listener; /* of the target */
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
};

/* The address and key of memory that one side offers. */
struct place {
	uint64_t addr;
	uint32_t rkey;
	uint32_t length;
};

/*
 * The target creates its end when the connection request arrives; both return when the connection is
 * established.
 */
void accept_end(struct end *end, struct side *side);
void connect_end(struct end *end, struct side *side);
void close_end(struct end *end);

/*
 * The same with a queue pair of these attributes, in the protection domain of the caller unless that is NULL.
 */
void accept_end_with(struct end *end, struct side *side, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
void connect_end_with(struct end *end, struct side *side, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);

/*
 * The initiator's side with an extended queue pair for these operations (ibv_wr_start and so on); it is in
 * end->id->qp.
 */
void connect_end_extended(struct end *end, struct side *side, uint64_t send_ops_flags);

/* Attributes as accept_end() and connect_end() use them. */
struct ibv_qp_init_attr end_attributes(void);

/* The device without a connection: that of an identifier whose address has been resolved. */
struct ibv_context *device_of(struct side *side, struct rdma_cm_id **id);

/* Whether the device is one of the kernel, not soft0. */
bool on_device(void);

/* For test.missing, of tests of soft0 only: "" on a real device. */
const char *not_soft(void);

/*
 * Whether this process may map a memfd of the other one, and direct access is on. Otherwise the target
 * executes operations on words.
 */
bool maps_memory_of(pid_t other);

/* Sends bytes to the other process, or receives them, over the socket of the harness. */
void send_bytes(struct side *side, const void *what, size_t size);
void receive_bytes(struct side *side, void *what, size_t size);

/* Registers memory and sends its address and key to the other side. */
struct ibv_mr *offer(struct end *end, struct side *side, void *memory, size_t length, int access);

/* The initiator's end with a local region, and the target's end with one that it offers; used together. */
struct ibv_mr *connect_with_memory(struct end *end, struct side *side, void *memory, size_t length);
struct ibv_mr *accept_with_memory(struct end *end, struct side *side, void *memory, size_t length, int access);
void close_with_memory(struct end *end, struct ibv_mr *mr);

/* A target that offers memory, and makes no call, until the initiator notifies 'd'. */
void offer_until_done(struct side *side, size_t length, int access);

/* Posts a signalled one-sided request with one entry, and waits for its completion. */
enum ibv_wc_status transfer(struct end *end, enum ibv_wr_opcode opcode, struct ibv_mr *mr, void *local, uint32_t length,
	uint64_t remote_addr, uint32_t rkey);

/* Waits for the next completion of requests, or of receives. */
struct ibv_wc next_send(struct end *end);
struct ibv_wc next_recv(struct end *end);

#endif /* VERBS_ENDS_H */
