/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * apm.c -- the appliance persistency method: a flush follows the writes, and the server's program takes no
 * part.
 */
#include "engine.h"

#include <errno.h>

static int
apm_init(struct thread_data *td)
{
	struct engine *e;
	int usage = RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;

	if (engine_new(td) != 0)
		return -1;
	e = td->io_ops_data;
	if (!e->is_server)
		return 0;
	if (engine_map(td) != 0)
		return -1;
	if (e->data.is_file)
		usage |= RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT;
	return engine_register(td, &e->data, usage) == 0 ? engine_listen(td) : -1;
}

/*
 * Now that fio has allocated its buffers, the client connects. The queue has room for a write and a flush for
 * each operation.
 */
static int
apm_post_init(struct thread_data *td)
{
	struct engine *e = td->io_ops_data;
	struct rpma_conn_req *req = NULL;

	if (e->is_server)
		return 0;
	if (engine_use_buffers(td) != 0 || engine_request(td, (struct queues){2 * e->room, 1}, &req) != 0 ||
		engine_establish(td, &req, 0) != 0)
		return -1;
	return engine_check_size(td);
}

static enum fio_q_status
apm_serve(struct thread_data *td, struct io_u *io_u)
{
	struct rpma_conn_req *req = NULL;

	if (engine_request(td, (struct queues){1, 1}, &req) != 0 || engine_establish(td, &req, 0) != 0 || engine_await_end(td) != 0)
		io_u->error = td->terminate ? 0 : EIO;
	td->done = true;
	return FIO_Q_COMPLETED;
}

static enum fio_q_status
apm_queue(struct thread_data *td, struct io_u *io_u)
{
	struct engine *e = td->io_ops_data;

	return e->is_server ? apm_serve(td, io_u) : engine_queue(td, io_u);
}

static int
flush_run(struct thread_data *td, const struct run *run)
{
	struct engine *e = td->io_ops_data;
	int ret = rpma_flush(e->conn, e->remote, run->begin, run->end - run->begin, e->flush_type, RPMA_F_COMPLETION_ALWAYS, run->last);

	return ret != 0 ? engine_failed(td, "rpma_flush", ret) : 0;
}

static int
apm_commit(struct thread_data *td)
{
	return engine_commit(td, flush_run);
}

/* A flush completes the last write of its run and all writes before it, because completions are in order. */
static int
apm_getevents(struct thread_data *td, unsigned min, unsigned max, const struct timespec *timeout)
{
	struct engine *e = td->io_ops_data;
	struct ibv_wc wc;
	int ret;

	(void)max, (void)timeout;
	while ((ret = engine_completion(td, &wc, e->n_done < min)) == 0) {
		bool good = wc.status == IBV_WC_SUCCESS;

		engine_done(e, NULL, good ? (struct io_u *)(uintptr_t)wc.wr_id : NULL, good ? 0 : EIO);
	}
	return ret < 0 ? -1 : (int)e->n_done;
}

struct ioengine_ops ioengine = {
	.name = "librpma_apm",
	ENGINE_COMMON,
	.init = apm_init,
	.post_init = apm_post_init,
	.queue = apm_queue,
	.commit = apm_commit,
	.getevents = apm_getevents,
};
