/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpspm.c -- the general purpose server persistency method: a message follows the writes, and the server's
 * program makes the data persistent and answers. It also works where a flush cannot guarantee persistence.
 */
#include "engine.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Each message has its own slot; there are `room` slots each for requests and for receives. */
#define PLACE 64

struct request {
	uint64_t begin, end;
	uint32_t number; /* the slot of the request, which the answer frees */
};

struct answer {
	uint32_t number;
	int32_t error;
};

_Static_assert(sizeof(struct request) <= PLACE && sizeof(struct answer) <= PLACE, "messages fit into their slots");

/* The runs of unanswered requests, by slot; stored after the messages in the same memory. */
static struct run *
runs(struct engine *e)
{
	return (struct run *)(void *)(e->messages.ptr + e->messages.size);
}

static size_t
receive_place(struct engine *e, size_t i)
{
	return (e->room + i) * PLACE;
}

/* The messages to send, those to receive, and the runs. */
static int
make_messages(struct thread_data *td)
{
	struct engine *e = td->io_ops_data;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t size = (2 * e->room * PLACE + page - 1) / page * page;

	e->messages.ptr = aligned_alloc(page, (size + e->room * sizeof(struct run) + page - 1) / page * page);
	if (e->messages.ptr == NULL)
		return engine_failed(td, "aligned_alloc", RPMA_E_NOMEM);
	memset(e->messages.ptr, 0, size + e->room * sizeof(struct run));
	e->messages.size = size;
	return engine_register(td, &e->messages, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV);
}

static int
gpspm_init(struct thread_data *td)
{
	struct engine *e;

	if (engine_new(td) != 0)
		return -1;
	e = td->io_ops_data;
	if (make_messages(td) != 0)
		return -1;
	if (!e->is_server)
		return 0;
	if (engine_map(td) != 0 || engine_register(td, &e->data, RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST) != 0)
		return -1;
	return engine_listen(td);
}

/* Receives are posted before the connection is established, so that every message finds one. */
static int
connect_with_receives(struct thread_data *td, struct queues queues)
{
	struct engine *e = td->io_ops_data;
	struct rpma_conn_req *req = NULL;

	if (engine_request(td, queues, &req) != 0)
		return -1;
	for (size_t i = 0; i < e->room; i++) {
		int ret = rpma_conn_req_recv(req, e->messages.mr, receive_place(e, i), PLACE, (void *)(uintptr_t)i);

		if (ret != 0) {
			rpma_conn_req_delete(&req);
			return engine_failed(td, "rpma_conn_req_recv", ret);
		}
	}
	return engine_establish(td, &req, e->room);
}

static int
receive_again(struct thread_data *td, size_t i)
{
	struct engine *e = td->io_ops_data;
	int ret = rpma_recv(e->conn, e->messages.mr, receive_place(e, i), PLACE, (void *)(uintptr_t)i);

	return ret != 0 ? engine_failed(td, "rpma_recv", ret) : 0;
}

static int
gpspm_post_init(struct thread_data *td)
{
	struct engine *e = td->io_ops_data;

	if (e->is_server)
		return 0;
	/* a write and a request for each operation */
	if (engine_use_buffers(td) != 0 || connect_with_receives(td, (struct queues){2 * e->room, e->room}) != 0)
		return -1;
	if (e->depth < e->room) {
		log_err("fio: librpma: iodepth=%u exceeds the server's, which is %u\n", e->room, e->depth);
		td_verror(td, EINVAL, "iodepth");
		return -1;
	}
	return engine_check_size(td);
}

/* ---- the client ---- */

static int
request_run(struct thread_data *td, const struct run *run)
{
	struct engine *e = td->io_ops_data;
	struct request *request;
	size_t i = 0;
	int ret;

	/*
	 * there are as many slots as operations, and each unanswered request stands for one or more of them
	 */
	while (runs(e)[i].first != NULL)
		i++;
	runs(e)[i] = *run;
	request = (struct request *)(void *)(e->messages.ptr + i * PLACE);
	*request = (struct request){run->begin, run->end, (uint32_t)i};
	ret = rpma_send(e->conn, e->messages.mr, i * PLACE, sizeof(*request), RPMA_F_COMPLETION_ALWAYS, NULL);
	return ret != 0 ? engine_failed(td, "rpma_send", ret) : 0;
}

static int
gpspm_commit(struct thread_data *td)
{
	return engine_commit(td, request_run);
}

static int
take_answer(struct thread_data *td, size_t place)
{
	struct engine *e = td->io_ops_data;
	const struct answer answer = *(struct answer *)(void *)(e->messages.ptr + receive_place(e, place));
	struct run *run;

	if (answer.number >= e->room || runs(e)[answer.number].first == NULL) {
		log_err("fio: librpma: the server sent an answer without a request\n");
		td_verror(td, EPROTO, "answer");
		return -1;
	}
	run = &runs(e)[answer.number];
	engine_done(e, run->first, run->last, answer.error);
	run->first = NULL;
	return receive_again(td, place);
}

/*
 * An answer may arrive before the completion of its request, and a read may complete before the preceding
 * writes.
 */
static int
gpspm_getevents(struct thread_data *td, unsigned min, unsigned max, const struct timespec *timeout)
{
	struct engine *e = td->io_ops_data;
	struct ibv_wc wc;
	int ret;

	(void)max, (void)timeout;
	while ((ret = engine_completion(td, &wc, e->n_done < min)) == 0) {
		struct io_u *io_u = (struct io_u *)(uintptr_t)wc.wr_id;

		if (wc.status != IBV_WC_SUCCESS)
			engine_done(e, NULL, NULL, EIO);
		else if (wc.opcode == IBV_WC_RECV && take_answer(td, (size_t)wc.wr_id) != 0)
			return -1;
		else if (wc.opcode == IBV_WC_RDMA_READ)
			engine_done(e, io_u, io_u, 0);
	}
	return ret < 0 ? -1 : (int)e->n_done;
}

/* ---- the server ---- */

static int
persist(struct engine *e, const struct request *request)
{
	uint64_t mask = (uint64_t)sysconf(_SC_PAGESIZE) - 1;
	uint64_t begin = request->begin & ~mask;

	if (request->begin > request->end || request->end > e->data.size)
		return EINVAL;
	if (!e->data.is_file)
		return 0;
	return msync(e->data.ptr + begin, request->end - begin, MS_SYNC) == 0 ? 0 : errno;
}

static int
answer_request(struct thread_data *td, size_t place)
{
	struct engine *e = td->io_ops_data;
	const struct request request = *(struct request *)(void *)(e->messages.ptr + receive_place(e, place));
	/* the slot is free: the client received its previous answer before it reused the receive */
	struct answer *answer = (struct answer *)(void *)(e->messages.ptr + place * PLACE);
	int ret;

	*answer = (struct answer){request.number, persist(e, &request)};
	/* before the answer, because the answer permits the client to send another request */
	if (receive_again(td, place) != 0)
		return -1;
	ret = rpma_send(e->conn, e->messages.mr, place * PLACE, sizeof(*answer), RPMA_F_COMPLETION_ALWAYS, NULL);
	return ret != 0 ? engine_failed(td, "rpma_send", ret) : 0;
}

static int
serve(struct thread_data *td)
{
	struct engine *e = td->io_ops_data;
	struct ibv_wc wc;

	if (connect_with_receives(td, (struct queues){2 * e->room, 2 * e->room}) != 0)
		return -1;
	/* until the receives are flushed when the connection ends */
	for (;;) {
		if (engine_completion(td, &wc, true) != 0)
			return -1;
		if (wc.status != IBV_WC_SUCCESS)
			return engine_await_end(td);
		if (wc.opcode == IBV_WC_RECV && answer_request(td, (size_t)wc.wr_id) != 0)
			return -1;
	}
}

static enum fio_q_status
gpspm_queue(struct thread_data *td, struct io_u *io_u)
{
	struct engine *e = td->io_ops_data;

	if (!e->is_server)
		return engine_queue(td, io_u);
	if (serve(td) != 0)
		io_u->error = td->terminate ? 0 : EIO;
	td->done = true;
	return FIO_Q_COMPLETED;
}

struct ioengine_ops ioengine = {
	.name = "librpma_gpspm",
	ENGINE_COMMON,
	.init = gpspm_init,
	.post_init = gpspm_post_init,
	.queue = gpspm_queue,
	.commit = gpspm_commit,
	.getevents = gpspm_getevents,
};
