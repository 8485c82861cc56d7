/* SPDX-License-Identifier: BSD-3-Clause */
/* The common part of all ways to get completions. */

#include <poll.h>
#include <string.h>

#include "queue.h"

static const struct queue *const queues[] = {
#if RELEASE <= 10
	&conn_queue,
#endif
#if RELEASE == 10 || RELEASE == 11
	&cq_queue,
#endif
#if RELEASE >= 11
	&wc_queue,
#endif
#if RELEASE >= 100
	&channel_queue,
#endif
};

static const struct queue *queue;
static bool waited;

const struct queue *
find_queue(const char *name)
{
	for (size_t i = 0; i < sizeof(queues) / sizeof(queues[0]); i++)
		if (strcmp(queues[i]->name, name) == 0)
			return queues[i];
	return NULL;
}

void
open_queue(const struct queue *of, struct rpma_conn *conn)
{
	queue = of;
	queue->open(conn);
}

void
expect_nothing(enum side side)
{
	struct done done;
	int ret = queue->take(side, &done);

	EXPECT(ret == RPMA_E_NO_COMPLETION, "an empty queue returns \"%s\"", rpma_err_2str(ret));
}

static enum side
side_of(const struct done *done)
{
	return done->kind == RECV || done->kind == RECV_WRITE_WITH_IMM ? RECEIVES : SENDS;
}

int
take_next(enum side side, struct done *done)
{
	/* Sends and receives are not ordered: in a common queue, a reply may complete before the send. */
	static struct done other;
	static bool has_other;
	int ret;

	if (has_other && side_of(&other) == side) {
		*done = other;
		has_other = false;
		return 0;
	}

	/* The first one always raises an event; later ones may complete before the wait. */
	if (!waited) {
		queue->wait(side);
		waited = true;
	}
	for (;;) {
		ret = queue->take(side, done);
		if (ret == RPMA_E_NO_COMPLETION) {
			queue->wait(side);
		} else if (ret == 0 && side_of(done) != side) {
			EXPECT(!has_other, "an unexpected completion");
			other = *done;
			has_other = true;
		} else {
			return ret;
		}
	}
}

struct done
expect_done(enum side side, enum kind kind, const void *context)
{
	struct done done;

	OK(take_next(side, &done));
	EXPECT(done.status == IBV_WC_SUCCESS, "the operation failed: %s", ibv_wc_status_str(done.status));
	EXPECT(done.kind == kind, "completion of kind %d instead of %d", done.kind, kind);
	EXPECT(done.context == context, "context %p instead of %p", done.context, context);
	return done;
}

void
wait_readable(int fd)
{
	struct pollfd fds = {.fd = fd, .events = POLLIN};

	EXPECT(poll(&fds, 1, 10000) == 1 && fds.revents == POLLIN, "the descriptor is not readable");
}

#if RELEASE <= 11

#define UNTOUCHED 0xa5

#if RELEASE <= 9
#define FIELDS_END (offsetof(struct rpma_completion, op_status) + sizeof(enum ibv_wc_status))
#else
#define FIELDS_END (offsetof(struct rpma_completion, imm) + sizeof(uint32_t))
#endif

void
guard(struct guarded *guarded)
{
	memset(guarded, UNTOUCHED, sizeof(*guarded));
}

void
check_guard(const struct guarded *guarded, int ret)
{
	size_t end = ret == RPMA_E_NO_COMPLETION ? 0 : FIELDS_END;

	check_bytes((const char *)guarded + end, sizeof(*guarded) - end, UNTOUCHED,
			"memory after the fields of the completion");
}

struct done
done_from(const struct rpma_completion *completion)
{
	struct done done = {.context = completion->op_context, .status = completion->op_status};

	switch (completion->op) {
	case RPMA_OP_READ:
		done.kind = READ;
		break;
	case RPMA_OP_WRITE:
		done.kind = WRITE;
		break;
	case RPMA_OP_SEND:
		done.kind = SEND;
		break;
	case RPMA_OP_RECV:
		done.kind = RECV;
		break;
#if RELEASE >= 10
	case RPMA_OP_RECV_RDMA_WITH_IMM:
		done.kind = RECV_WRITE_WITH_IMM;
		break;
#endif
	default:
		EXPECT(false, "operation %d", completion->op);
	}
	if (done.kind == RECV || done.kind == RECV_WRITE_WITH_IMM) {
		done.byte_len = completion->byte_len;
#if RELEASE >= 10
		done.has_imm = (completion->flags & IBV_WC_WITH_IMM) != 0;
		done.imm = done.has_imm ? completion->imm : 0;
#endif
	}
	return done;
}

#endif

#if RELEASE >= 11

#include <arpa/inet.h>

struct done
done_from_wc(const struct ibv_wc *wc)
{
	struct done done = {.context = (const void *)(uintptr_t)wc->wr_id, .status = wc->status};

	switch (wc->opcode) {
	case IBV_WC_RDMA_READ:
		done.kind = READ;
		break;
	case IBV_WC_RDMA_WRITE:
		done.kind = WRITE;
		break;
	case IBV_WC_SEND:
		done.kind = SEND;
		break;
	case IBV_WC_RECV:
		done.kind = RECV;
		break;
	case IBV_WC_RECV_RDMA_WITH_IMM:
		done.kind = RECV_WRITE_WITH_IMM;
		break;
	default:
		EXPECT(false, "opcode %d", wc->opcode);
	}
	if (done.kind == RECV || done.kind == RECV_WRITE_WITH_IMM) {
		done.byte_len = wc->byte_len;
		done.has_imm = (wc->wc_flags & IBV_WC_WITH_IMM) != 0;
		done.imm = done.has_imm ? ntohl(wc->imm_data) : 0;
	}
	return done;
}

#endif
