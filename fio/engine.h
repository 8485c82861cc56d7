/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * engine.h -- the common parts of the two fio engines: options, the memory that is read and written, and a
 * connection.
 *
 * A job with role=server offers memory of its size to one client at port + number of the subjob, and ends
 * with it. A job with role=client does the I/O. The server's private data describe its offer, the client's
 * are empty.
 */
#ifndef RPMA_FIO_ENGINE_H
#define RPMA_FIO_ENGINE_H 1

#include <librpma.h>

/* fio's headers depend on the results of its configure script. */
#include "config-host.h"

#include "fio.h"
#include "optgroup.h"

struct options {
	void *pad; /* fio takes the offset 0 for "no option" */
	char *role;
	char *serverip;
	char *port;
	unsigned direct_write_to_pmem;
	unsigned busy_wait_polling;
};

extern struct fio_option engine_options[];

/* The server's offer: its private data. */
struct offer {
	char magic[4];
	uint8_t persistent; /* the memory is a file */
	uint8_t region_len, config_len;
	uint8_t unused;
	uint32_t depth; /* the number of messages for which it has receives */
	char bytes[48]; /* the descriptors of the region, then of the peer configuration */
};

/* Memory and its registration. */
struct memory {
	char *ptr;
	size_t size;
	struct rpma_mr_local *mr;
	bool is_file;
};

struct engine {
	struct rpma_peer *peer;
	struct rpma_ep *ep;
	struct rpma_conn *conn;
	struct rpma_cq *cq;
	struct rpma_mr_remote *remote; /* client: the server's memory */
	size_t remote_size;
	unsigned depth; /* depth of the server's receive queue */
	enum rpma_flush_type flush_type;
	struct memory data; /* client: fio's buffers; server: the offered memory */
	struct memory messages; /* gpspm */
	/* client: operations that fio has queued, and those of them that were posted; both in order */
	struct io_u **queued, **posted, **done;
	unsigned n_queued, n_posted, n_done, room;
	bool is_server, established;
};

/* Logs which call failed, and why, and returns fio's error code. */
int engine_failed(struct thread_data *td, const char *call, int ret);

/* Whether the job is the server; -1 if the role is invalid. */
int engine_is_server(struct thread_data *td);

/* Queue sizes of a connection; the CQ has an entry for each entry of both queues. */
struct queues {
	unsigned send, receive;
};

/* All of these return 0, or an error that was logged. */
int engine_new(struct thread_data *td);
int engine_register(struct thread_data *td, struct memory *memory, int usage);
/* The server's memory: the file, unless its name is malloc, or else anonymous memory. */
int engine_map(struct thread_data *td);
int engine_listen(struct thread_data *td);
/* Between the two calls receives may be posted. */
int engine_request(struct thread_data *td, struct queues queues, struct rpma_conn_req **req);
int engine_establish(struct thread_data *td, struct rpma_conn_req **req, unsigned depth);
/* Client: registers fio's buffers; checks that the server's memory is as large as the job. */
int engine_use_buffers(struct thread_data *td);
int engine_check_size(struct thread_data *td);
/* Server: waits until the connection of the client has ended. */
int engine_await_end(struct thread_data *td);
/* Ends the connection, if there is one, and frees everything. */
void engine_delete(struct thread_data *td);

/* Functions that are the same for both engines. */
int engine_iomem_alloc(struct thread_data *td, size_t size);
void engine_iomem_free(struct thread_data *td);
int engine_get_file_size(struct thread_data *td, struct fio_file *f);
int engine_open_file(struct thread_data *td, struct fio_file *f);
int engine_close_file(struct thread_data *td, struct fio_file *f);
enum fio_q_status engine_queue(struct thread_data *td, struct io_u *io_u);
struct io_u *engine_event(struct thread_data *td, int event);

/* Writes that were posted together, and the bytes from the first to the last one that they write. */
struct run {
	struct io_u *first, *last;
	uint64_t begin, end;
};

/* Posts the reads and writes that fio has queued; `end_run` posts the operation that ends a run of writes. */
typedef int (*end_run)(struct thread_data *td, const struct run *run);
int engine_commit(struct thread_data *td, end_run end);
/*
 * Marks operations as done, in the order in which they were posted: from the first one, or the oldest if it
 * is NULL, to the last one, or the newest if it is NULL.
 */
void engine_done(struct engine *e, struct io_u *first, struct io_u *last, int error);
/* Gets the next completion; returns 1 if there is none. `wait`: blocks until there is one. */
int engine_completion(struct thread_data *td, struct ibv_wc *wc, bool wait);

/* The members of struct ioengine_ops that are the same for both engines. */
#define ENGINE_COMMON \
	.version = FIO_IOOPS_VERSION, \
	.flags = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL | FIO_ASYNCIO_SETS_ISSUE_TIME, \
	.event = engine_event, \
	.cleanup = engine_delete, \
	.open_file = engine_open_file, \
	.close_file = engine_close_file, \
	.get_file_size = engine_get_file_size, \
	.iomem_alloc = engine_iomem_alloc, \
	.iomem_free = engine_iomem_free, \
	.option_struct_size = sizeof(struct options), \
	.options = engine_options

#endif /* RPMA_FIO_ENGINE_H */
