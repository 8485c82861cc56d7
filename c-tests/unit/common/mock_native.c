/* SPDX-License-Identifier: BSD-3-Clause */

/* The extended queue pair, and its two additional operations. */

#include <inttypes.h>

#include "mock_impl.h"

/* Also with an installed header that lacks the last two. */
struct native_qp {
	char head[offsetof(struct ibv_qp_ex, wr_abort) + sizeof(void *)];
	void (*atomic_write)(struct ibv_qp_ex *, uint32_t, uint64_t, const void *);
	void (*flush)(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t, uint8_t);
};

static struct ibv_qp_ex *started;
static int requests;
static char request[160];
static bool without_operations;

size_t mock_qp_size(void)
{
	return sizeof(struct native_qp);
}

void mock_native_reset(void)
{
	started = NULL;
	without_operations = false;
}

void mock_native_missing(void)
{
	without_operations = true;
}

static void wr_start(struct ibv_qp_ex *qp)
{
	if (started != NULL)
		mock_misuse("wr_start: the last one was not completed");
	started = qp;
	requests = 0;
}

static void add(struct ibv_qp_ex *qp, const char *fmt, ...)
{
	va_list ap;

	if (started != qp)
		mock_misuse("a request outside of wr_start and wr_complete");
	requests++;
	va_start(ap, fmt);
	vsnprintf(request, sizeof(request), fmt, ap);
	va_end(ap);
}

static void wr_atomic_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, const void *value)
{
	const unsigned char *b = value;

	add(qp, "ATOMIC_WRITE, remote 0x%" PRIx64 " 0x%x, %02x%02x%02x%02x%02x%02x%02x%02x", addr, rkey,
			b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]);
}

static void wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, size_t len, uint8_t type,
		uint8_t level)
{
	add(qp, "FLUSH, remote 0x%" PRIx64 " 0x%x, %zu, type %d, level %d", addr, rkey, len, type, level);
}

static int wr_complete(struct ibv_qp_ex *qp)
{
	if (started != qp || requests != 1)
		mock_misuse("wr_complete: not one request since wr_start");
	started = NULL;
	int err = mock_call("wr_complete(%s, 0x%" PRIx64 ", %s%s%s, %s)", nm(qp), qp->wr_id,
			qp->wr_flags & IBV_SEND_SIGNALED ? "S" : "-", qp->wr_flags & IBV_SEND_FENCE ? "F" : "-",
			qp->wr_flags & ~(unsigned)(IBV_SEND_SIGNALED | IBV_SEND_FENCE) ? "?" : "", request);

	obj_use(qp, "qp");
	mock_done(-1);
	return err < 0 ? 0 : err;
}

void mock_native_qp(struct ibv_qp *qp, uint64_t ops)
{
	struct ibv_qp_ex *ex = (struct ibv_qp_ex *)qp;
	struct native_qp *native = (struct native_qp *)qp;

	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	if (without_operations)
		return;
	if (ops & MOCK_QP_ATOMIC_WRITE)
		native->atomic_write = wr_atomic_write;
	if (ops & MOCK_QP_FLUSH)
		native->flush = wr_flush;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	int err = mock_call("ibv_qp_to_qp_ex(%s)", nm(qp));

	obj_use(qp, "qp");
	mock_done(-1);
	return err < 0 ? (struct ibv_qp_ex *)qp : NULL;
}
