/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rc.h -- queue pairs without rdma_cm, for tests on libibverbs: the two processes exchange queue pair
 * numbers, PSNs and GIDs, and call ibv_modify_qp(3), as most RDMA programs do: reliable or unreliable
 * connections, or datagrams. soft0 is a RoCE device.
 */
#ifndef VERBS_RC_H
#define VERBS_RC_H 1

#include "ends.h"

#define RC_QPS 16
#define RC_REQUESTS 160
#define RC_INLINE 128
#define RC_QKEY 0x11223344
#define RC_HEADER 40 /* bytes before the data of a datagram */
#define RC_FULL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* The parameters of both sides; open_rc() replaces a zero by the default. */
struct rc_terms {
	enum ibv_qp_type type; /* IBV_QPT_RC; or IBV_QPT_UC, IBV_QPT_UD */
	int qps; /* 1 */
	size_t length; /* length of the memory: 4096 */
	bool file; /* the memory is that of a file */
	bool sealed; /* it is a memfd that cannot shrink */
	enum ibv_mtu mtu; /* IBV_MTU_1024 */
	int access; /* access flags of the queue pairs: RC_FULL */
	int region; /* access flags of the region: RC_FULL */
	uint8_t timeout; /* 14 */
	uint8_t retries; /* 7 */
	uint8_t rnr_retries; /* 7 */
	uint8_t rnr_timer; /* 1: 10 us */
	bool shared; /* all queue pairs have a shared receive queue */
	uint64_t operations; /* send_ops_flags: extended queue pairs for these operations */
};

/* One side of one or several connections. */
struct rc {
	struct side *side;
	struct rc_terms terms;
	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel; /* that of recv_cq */
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp *qps[RC_QPS];
	uint32_t numbers[RC_QPS]; /* those of the queue pairs of the other side */
	struct ibv_ah *ah; /* to the other side, for datagrams */
	uint32_t connects; /* the number of times they were connected */
	char *memory;
	struct ibv_mr *mr;
	struct place peer; /* the region of the other side */
};

/*
 * The RoCE device of this side, and the index of PAIRS_GID in its GID table. On soft0 that is 127.0.0.1 by
 * default.
 */
struct ibv_context *roce_device(void);
uint8_t gid_index(struct ibv_context *device);

/* Creates the objects; the queue pairs are in RESET. */
void open_rc(struct rc *rc, struct side *side, struct rc_terms terms);

/* From RESET to RTR on both sides, and from there to RTS. */
void receive_rc(struct rc *rc);
void send_rc(struct rc *rc);

/* From RESET to RTS on both sides; both return when both are in RTS. */
void connect_rc(struct rc *rc);

/* Both. */
void make_rc(struct rc *rc, struct side *side, struct rc_terms terms);
void close_rc(struct rc *rc);

/* Waits until the other side calls it, too. */
void meet(struct rc *rc);

void set_state(struct ibv_qp *qp, enum ibv_qp_state state);
enum ibv_qp_state state_of(struct ibv_qp *qp);

/* Sets the destination of a datagram. */
void address(struct rc *rc, int i, struct ibv_send_wr *wr);

/*
 * A signalled request with one entry at this offset of the memory, for the same offset in that of the other
 * side.
 */
struct ibv_send_wr request(struct ibv_sge *entry, struct rc *rc, enum ibv_wr_opcode opcode, uint64_t wr_id, size_t offset, uint32_t length);
void post(struct rc *rc, int i, enum ibv_wr_opcode opcode, uint64_t wr_id, size_t offset, uint32_t length);
void post_wr(struct rc *rc, int i, struct ibv_send_wr *wr);

/* A receive with one entry; on the shared queue, if there is one. */
void post_receive(struct rc *rc, int i, uint64_t wr_id, size_t offset, uint32_t length);

/* The next completion, which must arrive within 10 seconds. */
struct ibv_wc next_of(struct ibv_cq *cq);

/* The next completion of a request is this one, with this status. */
void expect_sent(struct rc *rc, uint64_t wr_id, enum ibv_wc_status status);
void expect_received(struct rc *rc, uint64_t wr_id, enum ibv_wc_status status);
void expect_nothing(struct ibv_cq *cq);

/* The next asynchronous event must be this one, of the first queue pair. */
void expect_event(struct rc *rc, enum ibv_event_type type);

#endif /* VERBS_RC_H */
