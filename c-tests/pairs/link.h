/* SPDX-License-Identifier: BSD-3-Clause */
/* link.h -- the steps that most tests need to set up a connection and a remote memory region. */
#ifndef PAIRS_LINK_H
#define PAIRS_LINK_H 1

#include "harness.h"

#include <librpma.h>

#define DESCRIPTOR_SIZE 21

/* all usages of a region */
#define USAGE_ALL                                                                                  \
	(RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC |               \
		RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY |                    \
		RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV)

/* The objects of one process: a peer and, at the target, an endpoint. */
struct node {
	struct side *side;
	struct rpma_peer *peer;
	struct rpma_ep *ep;
};

struct region {
	char *ptr;
	size_t size;
	struct rpma_mr_local *mr;
};

struct link {
	struct rpma_conn *conn;
	struct rpma_cq *cq;
	struct rpma_mr_remote *remote; /* the region that the other side offers, or NULL */
	size_t remote_size;
	char descriptor[DESCRIPTOR_SIZE]; /* its descriptor */
};

/* The target listens and notifies the other process, which waits for that. */
void open_target(struct node *node, struct side *side);
void open_initiator(struct node *node, struct side *side);
/* Opens only a peer, without waiting. */
void open_peer(struct node *node, struct side *side);
void close_node(struct node *node);

/* Whether the provider is rdma_core, whose behaviour differs in some cases. */
bool on_device(void);
/* Whether connections are those of RoCE: padded private data, and a failed queue pair does not end them. */
bool over_roce(void);
/* For .missing: "" if a device takes part in this run. */
const char *not_soft(void);

/*
 * New zeroed memory, registered; freed with region_free(). With PAIRS_MEMORY=memfd it is a memfd that cannot
 * shrink, as region_sealed() always gives. Existing memory is registered in place.
 */
void region_new(struct node *node, struct region *region, size_t size, int usage);
void region_sealed(struct node *node, struct region *region, size_t size, int usage);
void region_reg(struct node *node, struct region *region, void *ptr, size_t size, int usage);
void region_free(struct region *region);

/* A connection configuration with these queue sizes; 0 leaves the default. */
struct rpma_conn_cfg *sizes(uint32_t cq, uint32_t sq, uint32_t rq, uint32_t rcq);

/*
 * Accept and connect in steps, so that receives can be posted in between. The private data have the
 * descriptor of `offer`, which may be NULL, and a peer configuration that allows direct writes to pmem.
 */
struct rpma_conn_req *next_req(struct node *node, const struct rpma_conn_cfg *cfg);
struct rpma_conn_req *new_req(struct node *node, const struct rpma_conn_cfg *cfg);
/* Returns the result of rpma_conn_req_connect(), which fails if the peer of a request has disconnected. */
int try_link(struct link *link, struct rpma_conn_req **req, const struct region *offer);
void start_link(struct link *link, struct rpma_conn_req **req, const struct region *offer);
/* Waits for ESTABLISHED and reads the other side's offer and peer configuration. */
void finish_link(struct link *link);

/* All steps at once. */
void accept_link(struct node *node, struct link *link, const struct rpma_conn_cfg *cfg,
	const struct region *offer);
void connect_link(struct node *node, struct link *link, const struct rpma_conn_cfg *cfg,
	const struct region *offer);

/*
 * A node with a new region and one connection; only the target offers its region. After the connection has
 * ended, close_with_region() closes both.
 */
void accept_with_region(struct node *node, struct link *link, struct region *region, struct side *side, size_t size,
	int usage, const struct rpma_conn_cfg *cfg);
void connect_with_region(struct node *node, struct link *link, struct region *region, struct side *side, size_t size,
	int usage, const struct rpma_conn_cfg *cfg);
void close_with_region(struct node *node, struct region *region);

void expect_event(struct link *link, enum rpma_conn_event expected);
/* Expects CLOSED or LOST: a broken connection may end with either. */
void expect_broken(struct link *link);
/*
 * The same at the side with the failed operation: on a device the connection stays open until that side ends
 * it.
 */
void end_broken(struct link *link);
/* Deletes the connection and the remote region. */
void delete_link(struct link *link);
/* Ends the connection from this side, or waits until the other side ends it; then deletes it. */
void end_link(struct link *link);
void await_end(struct link *link);

/* Waits for the next completion; expect_wc() also checks its fields. */
void next_wc(struct rpma_cq *cq, struct ibv_wc *wc);
void expect_wc(struct rpma_cq *cq, uint64_t wr_id, enum ibv_wc_opcode opcode);
/* Checks that there is no completion, and that none arrives within a while. */
void expect_no_wc(struct rpma_cq *cq);

/* One operation including its completion, on a part of both regions. */
void read_part(struct link *link, struct region *dst, size_t dst_offset, size_t src_offset, size_t len);
void write_part(struct link *link, size_t dst_offset, struct region *src, size_t src_offset, size_t len);
/* Whether SOFTVERBS_LOCAL permits direct copies between the two processes. */
bool direct_copies_are_on(void);
/*
 * Returns when copies between these bytes and the peer's are direct. The peer exports the key when it has
 * processed a write and a read in shared memory; over RoCE the first ones may be sent over UDP.
 */
void await_direct(struct link *link, struct region *local, size_t len);

/* A target that offers a region to one connection and makes no call until that has ended. */
void serve(struct side *side, size_t size, uint32_t seed_before, uint32_t seed_after);
/* The same with 4096 bytes and all rights, without a check of the contents. */
void serve_anything(struct side *side);

#endif /* PAIRS_LINK_H */
