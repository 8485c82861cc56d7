/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * librpma.h - remote persistent memory access
 *
 * Generated from the library's sources; the comment of each function is its contract.
 *
 * Unless stated otherwise, arguments are checked in the order of the parameters, functions return 0 on success or a
 * negative RPMA_E_* code on failure, and the reason for a failed provider call is logged. Pointers that are not NULL
 * must be valid: a library object must have been created by this library and not been deleted, and the objects it
 * was created from must still exist.
 */

#ifndef LIBRPMA_H
#define LIBRPMA_H 1

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdbool.h>
#include <infiniband/verbs.h>

/** The first number of LIBRPMA_VERSION. */
#define LIBRPMA_VERSION_MAJOR (1)

/** The second number of LIBRPMA_VERSION. */
#define LIBRPMA_VERSION_MINOR (4)

/** The third number of LIBRPMA_VERSION. */
#define LIBRPMA_VERSION_PATCH (0)

/** The version of this header. rpma_version tells that of the library that is running. */
#define LIBRPMA_VERSION "1.4.0"

/** An unknown error occurred. */
#define RPMA_E_UNKNOWN (-100000)

/** The operation is not supported. */
#define RPMA_E_NOSUPP (-100001)

/** A provider call failed; the log message states which one and why. */
#define RPMA_E_PROVIDER (-100002)

/** Out of memory. */
#define RPMA_E_NOMEM (-100003)

/** An argument is invalid. */
#define RPMA_E_INVAL (-100004)

/** No completion is ready. */
#define RPMA_E_NO_COMPLETION (-100005)

/** No connection event or connection request is ready. */
#define RPMA_E_NO_EVENT (-100006)

/**
 * A temporary failure. Kept for source compatibility; no function returns it.
 */
#define RPMA_E_AGAIN (-100007)

/** The completion queue shares its completion channel. */
#define RPMA_E_SHARED_CHANNEL (-100008)

/** The connection has no shared completion channel. */
#define RPMA_E_NOT_SHARED_CHNL (-100009)

/**
 * The default timeout of address resolution and of route resolution, in
 * milliseconds.
 */
#define RPMA_DEFAULT_TIMEOUT_MS (1000)

/** Kept for source compatibility; no function uses it. */
#define RPMA_W_WAIT_FOR_COMPLETION (1)

/** Memory usage: source of RDMA reads by remote peers. */
#define RPMA_MR_USAGE_READ_SRC (1)

/** Memory usage: local destination of rpma_read. */
#define RPMA_MR_USAGE_READ_DST (2)

/** Memory usage: local source of rpma_write. */
#define RPMA_MR_USAGE_WRITE_SRC (4)

/** Memory usage: destination of RDMA writes by remote peers. */
#define RPMA_MR_USAGE_WRITE_DST (8)

/**
 * Memory usage: target of flushes of type RPMA_FLUSH_TYPE_VISIBILITY by remote
 * peers.
 */
#define RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY (16)

/**
 * Memory usage: target of flushes of type RPMA_FLUSH_TYPE_PERSISTENT by remote
 * peers.
 */
#define RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT (32)

/** Memory usage: source buffer of rpma_send. */
#define RPMA_MR_USAGE_SEND (64)

/** Memory usage: destination buffer of rpma_recv. */
#define RPMA_MR_USAGE_RECV (128)

/** Flag: a completion is generated only when the operation fails. */
#define RPMA_F_COMPLETION_ON_ERROR (1)

/** Flag: a completion is always generated. */
#define RPMA_F_COMPLETION_ALWAYS (3)

/** The required alignment of the remote offset of an atomic write, in bytes. */
#define RPMA_ATOMIC_WRITE_ALIGNMENT (8)

/** Connection events. */
enum rpma_conn_event {
	/** no event; never delivered */
	RPMA_CONN_UNDEFINED = -1,
	/** the connection is established */
	RPMA_CONN_ESTABLISHED = 0,
	/** the connection is closed */
	RPMA_CONN_CLOSED = 1,
	/** the connection was lost */
	RPMA_CONN_LOST = 2,
	/**
	 * the remote peer rejected the connection request, or nothing is listening at
	 * the address
	 */
	RPMA_CONN_REJECTED = 3,
	/** the remote peer did not respond in time */
	RPMA_CONN_UNREACHABLE = 4,
};

/**
 * The severity of a log message; as a threshold, the least severe level that is
 * logged.
 */
enum rpma_log_level {
	/** as a threshold: nothing is logged */
	RPMA_LOG_DISABLED = -1,
	/** the library cannot continue */
	RPMA_LOG_LEVEL_FATAL = 0,
	/** an operation failed */
	RPMA_LOG_LEVEL_ERROR = 1,
	/** an unexpected condition that did not cause the call to fail */
	RPMA_LOG_LEVEL_WARNING = 2,
	/** a normal but significant event */
	RPMA_LOG_LEVEL_NOTICE = 3,
	/** informational message */
	RPMA_LOG_LEVEL_INFO = 4,
	/** debugging detail */
	RPMA_LOG_LEVEL_DEBUG = 5,
};

/** The operation that a struct rpma_completion reports. */
enum rpma_op {
	/** rpma_read, and rpma_flush */
	RPMA_OP_READ = 0,
	/** rpma_write, rpma_write_with_imm, rpma_write_atomic and rpma_atomic_write */
	RPMA_OP_WRITE = 1,
	/** kept for source compatibility; a flush is reported as RPMA_OP_READ */
	RPMA_OP_FLUSH = 2,
	/** rpma_send and rpma_send_with_imm */
	RPMA_OP_SEND = 3,
	/** rpma_recv */
	RPMA_OP_RECV = 4,
	/** a receive consumed by an rpma_write_with_imm of the remote peer */
	RPMA_OP_RECV_RDMA_WITH_IMM = 5,
};

/**
 * Whether the address given to rpma_utils_get_ibv_context is local or remote.
 */
enum rpma_util_ibv_context_type {
	/** the address of an interface of this host */
	RPMA_UTIL_IBV_CONTEXT_LOCAL = 0,
	/** the address of a remote host */
	RPMA_UTIL_IBV_CONTEXT_REMOTE = 1,
};

/** The domain that the data written before a flush must reach. */
enum rpma_flush_type {
	/** the persistence domain: persistent memory or storage */
	RPMA_FLUSH_TYPE_PERSISTENT = 0,
	/** the visibility domain: visible to the remote host */
	RPMA_FLUSH_TYPE_VISIBILITY = 1,
};

/**
 * The threshold to set with rpma_log_set_threshold or to get with
 * rpma_log_get_threshold.
 */
enum rpma_log_threshold {
	/** the main threshold: which messages are passed to the log function */
	RPMA_LOG_THRESHOLD = 0,
	/**
	 * the auxiliary threshold: which messages the built-in function also prints to
	 * stderr
	 */
	RPMA_LOG_THRESHOLD_AUX = 1,
	/** the number of thresholds; not a threshold itself */
	RPMA_LOG_THRESHOLD_MAX = 2,
};

/** A connection to a remote peer. */
struct rpma_conn;

/** A connection configuration. */
struct rpma_conn_cfg;

/**
 * A connection request: outgoing and not sent yet, or incoming and not answered
 * yet.
 */
struct rpma_conn_req;

/** A completion queue. */
struct rpma_cq;

/** An endpoint that listens for connection requests. */
struct rpma_ep;

/** A local memory region, registered with a device. */
struct rpma_mr_local;

/** A memory region of a remote peer. */
struct rpma_mr_remote;

/**
 * A peer: a protection domain of a device, from which all other objects are
 * created.
 */
struct rpma_peer;

/**
 * A peer configuration: the properties that a peer declares to its remote peer.
 */
struct rpma_peer_cfg;

/**
 * A shared receive queue, from which several connections take their receives.
 */
struct rpma_srq;

/** A shared receive queue configuration. */
struct rpma_srq_cfg;

/** Private data exchanged by the peers while a connection is established. */
struct rpma_conn_private_data {
	/** the data, or NULL if there are none */
	void *ptr;
	/** the length in bytes, or 0 if there are none */
	uint8_t len;
};

/**
 * A completion reported by rpma_cq_get_completion and rpma_conn_completion_get.
 */
struct rpma_completion {
	/** the op_context of the operation */
	void *op_context;
	/** the operation; only set when op_status is IBV_WC_SUCCESS */
	enum rpma_op op;
	/**
	 * the number of bytes transferred; only set when op_status is IBV_WC_SUCCESS
	 */
	uint32_t byte_len;
	/** IBV_WC_SUCCESS, or the reason why the operation failed */
	enum ibv_wc_status op_status;
	/**
	 * the wc_flags of the work completion; only set when op_status is
	 * IBV_WC_SUCCESS
	 */
	unsigned int flags;
	/**
	 * the immediate data in host byte order; only set for a receive with
	 * IBV_WC_WITH_IMM in flags
	 */
	uint32_t imm;
};

#ifdef __cplusplus
extern "C" {
#endif /* __cplusplus */

/** Selects the built-in log function in rpma_log_set_function. */
#define RPMA_LOG_USE_DEFAULT_FUNCTION (NULL)

/**
 * A function that receives the library's log messages; see rpma_log_set_function.
 *
 * PARAMETERS
 * - level: the severity of the message
 * - file_name: the name of the source file that logs the message
 * - line_no: the line number in that file
 * - function_name: the name of the function that logs the message
 * - message_format: a printf format; the formatted message ends with a newline
 * - ...: the arguments of the format
 */
typedef void rpma_log_function(
	enum rpma_log_level level,
	const char *file_name,
	const int line_no,
	const char *function_name,
	const char *message_format,
	...);

/**
 * Gets the device context for an address.
 *
 * With RPMA_UTIL_IBV_CONTEXT_LOCAL it is the device of the local interface that
 * has this address; with RPMA_UTIL_IBV_CONTEXT_REMOTE it is the device through
 * which the remote address is reached. The environment variable RPMA_PROVIDER
 * selects the provider: "auto" (the default) uses an RDMA device if one serves
 * the address and the software device soft0 otherwise, in which case one log
 * message of level NOTICE states the choice and the reason; "rdma-core" uses
 * RDMA devices only; "soft" uses the software device only. All objects created
 * from the context use the same provider.
 *
 * PARAMETERS
 * - addr: in: an IPv4 or IPv6 address or a host name
 * - type: in: whether the address is local or remote
 * - ibv_ctx_ptr: out: the device context; the provider owns it, and it must not
 *   be closed
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: addr or ibv_ctx_ptr is NULL, or type is not a valid value
 * - RPMA_E_NOMEM: out of memory
 * - RPMA_E_PROVIDER: the address could not be translated, bound, or resolved
 *   within RPMA_DEFAULT_TIMEOUT_MS; no RDMA device serves it and "rdma-core" is
 *   selected, in which case the log states what is missing; or RPMA_PROVIDER
 *   has an unknown value or names a provider that is not part of this build
 *
 * THREADS
 * Thread safe if RPMA_PROVIDER is "soft". Otherwise not thread safe: librdmacm,
 * which does not guarantee thread safety, is called as well.
 */
int rpma_utils_get_ibv_context(const char *addr,
			       enum rpma_util_ibv_context_type type,
			       struct ibv_context **ibv_ctx_ptr);

/**
 * Gets whether a device supports on-demand paging.
 *
 * Memory that cannot be pinned, such as a file on a DAX file system, can be
 * registered only on such a device.
 *
 * PARAMETERS
 * - ibv_ctx: in: the device context
 * - is_odp_capable: out: 1 if on-demand paging is supported for both reads and
 *   writes, 0 otherwise; also set to 0 if the call fails with RPMA_E_PROVIDER
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 * - RPMA_E_PROVIDER: the device could not be queried
 *
 * THREADS
 * Thread safe.
 */
int rpma_utils_ibv_context_is_odp_capable(struct ibv_context *ibv_ctx,
					  int *is_odp_capable);

/**
 * Gets the string for a connection event.
 *
 * PARAMETERS
 * - conn_event: in: a connection event, or any other number
 *
 * RETURN VALUE
 * A constant string that must not be freed; never NULL.
 *
 * ERRORS
 * None; a string is also returned for a number that is not a connection event.
 *
 * THREADS
 * Thread safe.
 */
const char *rpma_utils_conn_event_2str(enum rpma_conn_event conn_event);

/**
 * Gets the string for an error code.
 *
 * PARAMETERS
 * - ret: in: the value returned by a function of this library, or any other
 *   number
 *
 * RETURN VALUE
 * A constant string that must not be freed; never NULL.
 *
 * ERRORS
 * None; a string is also returned for a number that is not an error code.
 *
 * THREADS
 * Thread safe.
 */
const char *rpma_err_2str(int ret);

/**
 * Gets the reason why the calling thread's last failed call failed.
 *
 * The text names the function that failed and the reason, for example the
 * failed provider call with its arguments and errno: "rpma_peer_new:
 * ibv_alloc_pd(context=0x55e0) failed: Cannot allocate memory (errno 12)". It
 * is meant for people: programs must not depend on its wording. It is available
 * regardless of the logging thresholds. RPMA_E_NO_COMPLETION and
 * RPMA_E_NO_EVENT do not count as failures. Since LIBRPMA_1.4.
 *
 * Some calls succeed but report that the connection or a request has failed;
 * the text then describes that failure. These are rpma_conn_next_event with
 * RPMA_CONN_REJECTED, RPMA_CONN_UNREACHABLE, RPMA_CONN_LOST, or
 * RPMA_CONN_CLOSED after an error; with the soft provider also rpma_cq_get_wc
 * with an unsuccessful completion, for which the text names the operation, its
 * length and addresses, wr_id, the address of the remote peer and the status.
 *
 * RETURN VALUE
 * A string without a newline that must not be freed; never NULL. It is empty if
 * no call of this thread has failed, and stays valid until the thread's next
 * failed call or its end.
 *
 * ERRORS
 * None.
 *
 * THREADS
 * Thread safe: each thread has its own text.
 */
const char *rpma_err_last(void);

/**
 * Gets the version of the library that is running.
 *
 * LIBRPMA_VERSION is the version of the header that the program was compiled
 * with. With RPMA_LOG=notice the library also logs the file that it was loaded
 * from. Since LIBRPMA_1.4.
 *
 * RETURN VALUE
 * A constant string "MAJOR.MINOR.PATCH" that must not be freed; never NULL.
 *
 * ERRORS
 * None.
 *
 * THREADS
 * Thread safe.
 */
const char *rpma_version(void);

/**
 * Creates a peer for a device: the object from which memory regions, endpoints
 * and connections are created.
 *
 * PARAMETERS
 * - ibv_ctx: in: the device context, from rpma_utils_get_ibv_context or opened
 *   by the application; it must outlive the peer
 * - peer_ptr: out: the peer, to be deleted with rpma_peer_delete
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 * - RPMA_E_NOMEM: out of memory
 * - RPMA_E_PROVIDER: the device could not be queried, the protection domain
 *   could not be allocated, or the environment variable RPMA_NATIVE has an
 *   invalid value (see librpma_providers(7))
 * - RPMA_E_UNKNOWN: the protection domain could not be allocated and the device
 *   reported no reason
 *
 * THREADS
 * Thread safe.
 */
int rpma_peer_new(struct ibv_context *ibv_ctx,
		  struct rpma_peer **peer_ptr);

/**
 * Deletes a peer.
 *
 * All objects created from the peer must have been deleted before.
 *
 * PARAMETERS
 * - peer_ptr: in, out: the peer; set to NULL, also on failure. If it is already
 *   NULL, the call has no effect.
 *
 * RETURN VALUE
 * 0 on success, or a negative error code. The peer is deleted in either case.
 *
 * ERRORS
 * - RPMA_E_INVAL: peer_ptr is NULL
 * - RPMA_E_PROVIDER: the protection domain could not be deallocated, for
 *   example because it is still in use
 *
 * THREADS
 * Thread safe for different peers.
 */
int rpma_peer_delete(struct rpma_peer **peer_ptr);

/**
 * Registers a memory region for the given usage.
 *
 * If the memory cannot be pinned and the device supports on-demand paging, the
 * memory is registered with on-demand paging. A region registered for either
 * type of flush can also be read by remote peers that hold its descriptor,
 * because a flush may be executed as a read.
 *
 * The kernel pins no memory that is mapped from a file on a DAX file system:
 * such memory can be registered only with on-demand paging, that is, if
 * rpma_utils_ibv_context_is_odp_capable reports it. Mappings of a whole device
 * (/dev/dax*) and of ordinary files do not need it. The soft provider pins
 * nothing.
 *
 * PARAMETERS
 * - peer: in: the peer
 * - ptr: in: the address of the memory; any alignment
 * - size: in: the size in bytes, not 0
 * - usage: in: a bitwise OR of one or more RPMA_MR_USAGE_* flags
 * - mr_ptr: out: the memory region, to be deregistered with rpma_mr_dereg
 *   before the memory is unmapped or freed
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL, size is 0, or usage is 0 or has undefined
 *   bits set
 * - RPMA_E_NOMEM: out of memory
 * - RPMA_E_PROVIDER: the device could not register the memory; the log message
 *   states the reason
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_reg(struct rpma_peer *peer,
		void *ptr,
		size_t size,
		int usage,
		struct rpma_mr_local **mr_ptr);

/**
 * Deregisters a memory region.
 *
 * Once the call has returned 0, no remote peer can read or write the memory
 * through this region.
 *
 * PARAMETERS
 * - mr_ptr: in, out: the memory region; set to NULL, also on failure. If it is
 *   already NULL, the call has no effect.
 *
 * RETURN VALUE
 * 0 on success, or a negative error code. The memory region object is deleted
 * in either case.
 *
 * ERRORS
 * - RPMA_E_INVAL: mr_ptr is NULL
 * - RPMA_E_PROVIDER: the memory region could not be deregistered. With the soft
 *   provider: a peer process on this host was stopped (by SIGSTOP or a
 *   debugger) in the middle of a copy to or from the region and did not
 *   continue within 5 seconds. Do not reuse the memory: the peer may still
 *   finish this one copy. All other remote access is denied. The region stays
 *   registered until the process ends, so rpma_peer_delete fails.
 *
 * THREADS
 * Thread safe for different regions.
 */
int rpma_mr_dereg(struct rpma_mr_local **mr_ptr);

/**
 * Writes the descriptor of a memory region to a buffer, for the application to
 * send to the remote peer.
 *
 * Any remote peer that holds the descriptor and has a connection to this peer
 * may access the region as its usage allows.
 *
 * PARAMETERS
 * - mr: in: the memory region
 * - desc: out: a buffer of the size returned by rpma_mr_get_descriptor_size;
 *   any alignment
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_get_descriptor(const struct rpma_mr_local *mr,
			   void *desc);

/**
 * Gets the size of a memory region's descriptor.
 *
 * PARAMETERS
 * - mr: in: the memory region
 * - desc_size: out: the size in bytes; always 21
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_get_descriptor_size(const struct rpma_mr_local *mr, size_t *desc_size);

/**
 * Gets the address of a memory region.
 *
 * PARAMETERS
 * - mr: in: the memory region
 * - ptr: out: the address of the first byte
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_get_ptr(const struct rpma_mr_local *mr, void **ptr);

/**
 * Gets the size of a memory region.
 *
 * PARAMETERS
 * - mr: in: the memory region
 * - size: out: the size in bytes
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_get_size(const struct rpma_mr_local *mr, size_t *size);

/**
 * Advises the device on the expected use of a part of a memory region.
 *
 * This is useful for memory regions with on-demand paging: prefetching pages
 * makes the first access to them faster.
 *
 * PARAMETERS
 * - mr: in: the memory region
 * - offset: in: the start of the part, in bytes from the start of the memory
 *   region
 * - len: in: the length of the part in bytes, at most UINT32_MAX
 * - advice: in: one of IB_UVERBS_ADVISE_MR_ADVICE_*
 * - flags: in: 0, or IB_UVERBS_ADVISE_MR_FLAG_FLUSH to block until the advice
 *   has been carried out
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: mr is NULL, len is too large, or the device rejected the
 *   range or the advice as invalid
 * - RPMA_E_NOSUPP: the device does not support memory advice
 * - RPMA_E_PROVIDER: the device rejected the advice for another reason
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_advise(struct rpma_mr_local *mr,
		   size_t offset,
		   size_t len,
		   int advice,
		   uint32_t flags);

/**
 * Creates a remote memory region from a descriptor received from the remote
 * peer.
 *
 * The call checks only the format of the descriptor and sends nothing. A region
 * that does not exist is detected when it is accessed.
 *
 * PARAMETERS
 * - desc: in: the descriptor; any alignment
 * - desc_size: in: the size of the descriptor in bytes, at least 21; any
 *   further bytes are ignored
 * - mr_ptr: out: the remote memory region, to be deleted with
 *   rpma_mr_remote_delete
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: desc or mr_ptr is NULL, desc_size is too small, the
 *   descriptor declares no usage, or the region it describes extends past the
 *   end of the 64-bit address space
 * - RPMA_E_NOMEM: out of memory
 *
 * THREADS
 * Thread safe.
 *
 * SECURITY
 * A descriptor is neither encrypted nor authenticated: it holds the address,
 * size and key of the region in the clear. Anyone who reads it in transit and
 * can connect to the remote peer can access the region as its usage allows.
 * Anyone who changes it in transit chooses which memory of the remote peer this
 * program reads and writes. On a network that others can reach, exchange
 * descriptors over a channel that authenticates both peers and protects the
 * data, for example TLS. Check the size that rpma_mr_remote_get_size returns
 * before relying on it.
 */
int rpma_mr_remote_from_descriptor(const void *desc,
				   size_t desc_size,
				   struct rpma_mr_remote **mr_ptr);

/**
 * Gets the size of a remote memory region.
 *
 * PARAMETERS
 * - mr: in: the remote memory region
 * - size: out: the size in bytes
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_remote_get_size(const struct rpma_mr_remote *mr, size_t *size);

/**
 * Gets the types of flush that a remote memory region supports.
 *
 * PARAMETERS
 * - mr: in: the remote memory region
 * - flush_type: out: 0, RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
 *   RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, or a bitwise OR of both
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_remote_get_flush_type(const struct rpma_mr_remote *mr,
				  int *flush_type);

/**
 * Deletes a remote memory region. The memory itself is not affected.
 *
 * PARAMETERS
 * - mr_ptr: in, out: the remote memory region; set to NULL. If it is already
 *   NULL, the call has no effect.
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: mr_ptr is NULL
 *
 * THREADS
 * Thread safe for different regions.
 */
int rpma_mr_remote_delete(struct rpma_mr_remote **mr_ptr);

/**
 * Creates a peer configuration: the properties that a peer declares to its
 * remote peer.
 *
 * By default, direct write to persistent memory is not declared.
 *
 * PARAMETERS
 * - pcfg_ptr: out: the configuration, to be deleted with rpma_peer_cfg_delete
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: pcfg_ptr is NULL
 * - RPMA_E_NOMEM: out of memory
 *
 * THREADS
 * Thread safe.
 */
int rpma_peer_cfg_new(struct rpma_peer_cfg **pcfg_ptr);

/**
 * Deletes a peer configuration.
 *
 * PARAMETERS
 * - pcfg_ptr: in, out: the configuration; set to NULL. If it is already NULL,
 *   the call has no effect.
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: pcfg_ptr is NULL
 *
 * THREADS
 * Thread safe for different configurations.
 */
int rpma_peer_cfg_delete(struct rpma_peer_cfg **pcfg_ptr);

/**
 * Declares whether remote writes to this peer's persistent memory bypass its
 * CPU caches.
 *
 * The remote peer can flush to persistence only if this is declared. On the
 * software device it may also be declared for shared file mappings: their data
 * are written back to the file before the flush completes.
 *
 * The library cannot examine the platform, so the administrator has to. Intel
 * Data Direct I/O (DDIO) places the writes of an adapter in the cache of the
 * processor. Unless the platform saves its caches on power failure (eADR), DDIO
 * must be disabled for the PCIe root port of the adapter, in the setup of the
 * firmware or in the register PERFCTRLSTS of the port, before direct write is
 * declared. Otherwise a flush to persistence completes even though the data can
 * still be lost on power failure.
 *
 * PARAMETERS
 * - pcfg: in: the configuration
 * - supported: in: whether direct write to persistent memory is declared
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: pcfg is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_peer_cfg_set_direct_write_to_pmem(struct rpma_peer_cfg *pcfg,
					   bool supported);

/**
 * Gets whether direct write to persistent memory is declared.
 *
 * PARAMETERS
 * - pcfg: in: the configuration
 * - supported: out: whether direct write to persistent memory is declared
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_peer_cfg_get_direct_write_to_pmem(const struct rpma_peer_cfg *pcfg, bool *supported);

/**
 * Writes the descriptor of a peer configuration to a buffer, for the
 * application to send to the remote peer.
 *
 * PARAMETERS
 * - pcfg: in: the configuration
 * - desc: out: a buffer of the size returned by
 *   rpma_peer_cfg_get_descriptor_size; any alignment
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_peer_cfg_get_descriptor(const struct rpma_peer_cfg *pcfg,
				 void *desc);

/**
 * Gets the size of a peer configuration's descriptor.
 *
 * PARAMETERS
 * - pcfg: in: the configuration
 * - desc_size: out: the size in bytes; always 1
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_peer_cfg_get_descriptor_size(const struct rpma_peer_cfg *pcfg, size_t *desc_size);

/**
 * Creates a peer configuration from a descriptor received from the remote peer.
 *
 * PARAMETERS
 * - desc: in: the descriptor; any alignment. A nonzero first byte declares
 *   direct write to persistent memory.
 * - desc_size: in: the size of the descriptor in bytes, at least 1; any further
 *   bytes are ignored
 * - pcfg_ptr: out: the configuration, to be deleted with rpma_peer_cfg_delete
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: desc or pcfg_ptr is NULL, or desc_size is 0
 * - RPMA_E_NOMEM: out of memory
 *
 * THREADS
 * Thread safe.
 *
 * SECURITY
 * A descriptor is neither encrypted nor authenticated. If it is changed in
 * transit, it may declare direct write to persistent memory for a remote peer
 * that has not declared it: flushes to persistence then complete although the
 * data are not durable. On a network that others can reach, exchange
 * descriptors over a channel that authenticates both peers and protects the
 * data, for example TLS.
 */
int rpma_peer_cfg_from_descriptor(const void *desc,
				  size_t desc_size,
				  struct rpma_peer_cfg **pcfg_ptr);

/**
 * Creates a connection configuration.
 *
 * The default values are: timeout RPMA_DEFAULT_TIMEOUT_MS; completion queue,
 * send queue and receive queue of 10 entries each; no separate receive
 * completion queue; no shared completion channel; no shared receive queue.
 *
 * PARAMETERS
 * - cfg_ptr: out: the configuration, to be deleted with rpma_conn_cfg_delete;
 *   set to NULL on RPMA_E_NOMEM
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg_ptr is NULL
 * - RPMA_E_NOMEM: out of memory
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_new(struct rpma_conn_cfg **cfg_ptr);

/**
 * Deletes a connection configuration. Connections created with it are not
 * affected.
 *
 * PARAMETERS
 * - cfg_ptr: in, out: the configuration; set to NULL. If it is already NULL,
 *   the call has no effect.
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg_ptr is NULL
 *
 * THREADS
 * Thread safe for different configurations.
 */
int rpma_conn_cfg_delete(struct rpma_conn_cfg **cfg_ptr);

/**
 * Sets the timeout that applies to address resolution and, separately, to route
 * resolution.
 *
 * On the software device it limits the time to establish the TCP connection.
 * SOFTVERBS_REPLY_TIMEOUT_MS limits the time that the remote program may then
 * take to accept or reject the request (see librpma_providers(7)).
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - timeout_ms: in: the timeout in milliseconds, not negative
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg is NULL, or timeout_ms is negative
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_set_timeout(struct rpma_conn_cfg *cfg,
			      int timeout_ms);

/**
 * Gets the timeout that applies to address resolution and, separately, to route
 * resolution.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - timeout_ms: out: the timeout in milliseconds
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_get_timeout(const struct rpma_conn_cfg *cfg, int *timeout_ms);

/**
 * Sets the size of a connection's main completion queue.
 *
 * It must hold all completions that can be outstanding: those of the send
 * queue, and those of the receive queue unless a separate receive completion
 * queue is used. On most devices the connection ends if a completion queue
 * overflows. librpma(7) describes how the queues of a connection depend on each
 * other.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - cq_size: in: the number of entries; values above INT_MAX are treated as
 *   INT_MAX
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_set_cq_size(struct rpma_conn_cfg *cfg,
			      uint32_t cq_size);

/**
 * Gets the size of a connection's main completion queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - cq_size: out: the number of entries
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_get_cq_size(const struct rpma_conn_cfg *cfg, uint32_t *cq_size);

/**
 * Sets the size of a connection's send queue.
 *
 * An entry is released when the completion of its work request, or of a later
 * one, has been collected. Operations posted with RPMA_F_COMPLETION_ON_ERROR
 * occupy entries as well.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - sq_size: in: the maximum number of outstanding work requests
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_set_sq_size(struct rpma_conn_cfg *cfg,
			      uint32_t sq_size);

/**
 * Gets the size of a connection's send queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - sq_size: out: the maximum number of outstanding work requests
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_get_sq_size(const struct rpma_conn_cfg *cfg, uint32_t *sq_size);

/**
 * Sets the size of a connection's receive queue.
 *
 * It must hold a receive for each message that the remote peer may send before
 * the program posts another one. It is not used with a shared receive queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - rq_size: in: the maximum number of outstanding receive work requests
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_set_rq_size(struct rpma_conn_cfg *cfg,
			      uint32_t rq_size);

/**
 * Gets the size of a connection's receive queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - rq_size: out: the maximum number of outstanding receive work requests
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_get_rq_size(const struct rpma_conn_cfg *cfg, uint32_t *rq_size);

/**
 * Sets the size of a connection's separate receive completion queue.
 *
 * Without one, receive completions are reported in the main completion queue.
 * The value is ignored if the connection uses a shared receive queue that has
 * its own completion queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - rcq_size: in: the number of entries; values above INT_MAX are treated as
 *   INT_MAX; 0 for no separate receive completion queue
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_set_rcq_size(struct rpma_conn_cfg *cfg,
			       uint32_t rcq_size);

/**
 * Gets the size of a connection's separate receive completion queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - rcq_size: out: the number of entries; 0 if there is no such queue
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_get_rcq_size(const struct rpma_conn_cfg *cfg, uint32_t *rcq_size);

/**
 * Sets whether a connection's completion queues share one completion channel.
 *
 * With a shared completion channel, rpma_conn_wait waits for the completions of
 * both queues, and rpma_cq_wait cannot be used.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - shared: in: whether the completion channel is shared
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_set_compl_channel(struct rpma_conn_cfg *cfg, bool shared);

/**
 * Gets whether a connection's completion queues share one completion channel.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - shared: out: whether the completion channel is shared
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_get_compl_channel(const struct rpma_conn_cfg *cfg, bool *shared);

/**
 * Sets the shared receive queue of a connection.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - srq: in: the shared receive queue; the caller keeps ownership, and it must
 *   outlive the connections created with this configuration. It can be replaced
 *   but not removed.
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_set_srq(struct rpma_conn_cfg *cfg,
			  struct rpma_srq *srq);

/**
 * Gets the shared receive queue of a connection.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - srq_ptr: out: the shared receive queue, which must not be deleted through
 *   this pointer; NULL if none is set
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_get_srq(const struct rpma_conn_cfg *cfg,
			  struct rpma_srq **srq_ptr);

/**
 * Creates a shared receive queue configuration.
 *
 * The default values are: shared receive queue of 20 entries; receive
 * completion queue of 20 entries.
 *
 * PARAMETERS
 * - cfg_ptr: out: the configuration, to be deleted with rpma_srq_cfg_delete;
 *   set to NULL on RPMA_E_NOMEM
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg_ptr is NULL
 * - RPMA_E_NOMEM: out of memory
 *
 * THREADS
 * Thread safe.
 */
int rpma_srq_cfg_new(struct rpma_srq_cfg **cfg_ptr);

/**
 * Deletes a shared receive queue configuration. Shared receive queues created
 * with it are not affected.
 *
 * PARAMETERS
 * - cfg_ptr: in, out: the configuration; set to NULL. If it is already NULL,
 *   the call has no effect.
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg_ptr is NULL
 *
 * THREADS
 * Thread safe for different configurations.
 */
int rpma_srq_cfg_delete(struct rpma_srq_cfg **cfg_ptr);

/**
 * Sets the size of a shared receive queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - rq_size: in: the maximum number of outstanding receive work requests
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_srq_cfg_set_rq_size(struct rpma_srq_cfg *cfg, uint32_t rq_size);

/**
 * Gets the size of a shared receive queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - rq_size: out: the maximum number of outstanding receive work requests
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_srq_cfg_get_rq_size(const struct rpma_srq_cfg *cfg, uint32_t *rq_size);

/**
 * Sets the size of the receive completion queue of a shared receive queue.
 *
 * Without one, receive completions are reported in a completion queue of the
 * connection that received the message.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - rcq_size: in: the number of entries; values above INT_MAX are treated as
 *   INT_MAX; 0 for no receive completion queue
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_srq_cfg_set_rcq_size(struct rpma_srq_cfg *cfg,
			      uint32_t rcq_size);

/**
 * Gets the size of the receive completion queue of a shared receive queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - rcq_size: out: the number of entries; 0 if there is no such queue
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_srq_cfg_get_rcq_size(const struct rpma_srq_cfg *cfg, uint32_t *rcq_size);

/**
 * Creates a shared receive queue, from which several connections can take their
 * receives.
 *
 * PARAMETERS
 * - peer: in: the peer; it must outlive the shared receive queue
 * - cfg: in: the configuration, or NULL for the default configuration
 * - srq_ptr: out: the shared receive queue, to be deleted with rpma_srq_delete;
 *   set to NULL on RPMA_E_NOMEM
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged, except as stated above.
 *
 * ERRORS
 * - RPMA_E_INVAL: peer or srq_ptr is NULL
 * - RPMA_E_NOMEM: out of memory
 * - RPMA_E_PROVIDER: the shared receive queue or its completion queue could not
 *   be created
 *
 * THREADS
 * Thread safe.
 */
int rpma_srq_new(struct rpma_peer *peer,
		 struct rpma_srq_cfg *cfg,
		 struct rpma_srq **srq_ptr);

/**
 * Deletes a shared receive queue.
 *
 * All connections that use it must have been deleted before.
 *
 * PARAMETERS
 * - srq_ptr: in, out: the shared receive queue; set to NULL, also on failure.
 *   If it is already NULL, the call has no effect.
 *
 * RETURN VALUE
 * 0 on success, or a negative error code: if more than one step fails, the
 * first error. The shared receive queue is deleted in either case.
 *
 * ERRORS
 * - RPMA_E_INVAL: srq_ptr is NULL
 * - RPMA_E_PROVIDER: a verbs or connection manager resource could not be
 *   destroyed
 *
 * THREADS
 * Thread safe for different queues.
 */
int rpma_srq_delete(struct rpma_srq **srq_ptr);

/**
 * Gets the receive completion queue of a shared receive queue.
 *
 * PARAMETERS
 * - srq: in: the shared receive queue
 * - rcq_ptr: out: the receive completion queue, owned by the shared receive
 *   queue; NULL if it has none
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_srq_get_rcq(const struct rpma_srq *srq,
		     struct rpma_cq **rcq_ptr);

/**
 * Creates an endpoint that listens for incoming connection requests.
 *
 * PARAMETERS
 * - peer: in: the peer; it must outlive the endpoint and the connections
 *   accepted through it
 * - addr: in: a local IPv4 or IPv6 address or host name
 * - port: in: the port number or service name
 * - ep_ptr: out: the listening endpoint, to be deleted with rpma_ep_shutdown
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 * - RPMA_E_NOMEM: out of memory
 * - RPMA_E_PROVIDER: the address could not be translated or bound, or listening
 *   on it failed
 *
 * THREADS
 * Thread safe for a peer of the soft provider. Not thread safe on other
 * devices, for which librdmacm does not guarantee it.
 */
int rpma_ep_listen(struct rpma_peer *peer,
		   const char *addr,
		   const char *port,
		   struct rpma_ep **ep_ptr);

/**
 * Stops listening and deletes the endpoint. Connections accepted through it,
 * and connection requests that rpma_ep_next_conn_req has returned, are not
 * affected.
 *
 * PARAMETERS
 * - ep_ptr: in, out: the endpoint; set to NULL, also on failure. If it is
 *   already NULL, the call has no effect.
 *
 * RETURN VALUE
 * 0 on success, or a negative error code. The endpoint is deleted in either
 * case.
 *
 * ERRORS
 * - RPMA_E_INVAL: ep_ptr is NULL
 * - RPMA_E_PROVIDER: the listening rdma_cm identifier could not be destroyed
 *
 * THREADS
 * Thread safe for different endpoints of the soft provider. Not thread safe on
 * other devices, for which librdmacm does not guarantee it.
 */
int rpma_ep_shutdown(struct rpma_ep **ep_ptr);

/**
 * Gets the next incoming connection request.
 *
 * Blocks until a request is pending, unless the file descriptor of the endpoint
 * (see rpma_ep_get_fd) is in non-blocking mode.
 *
 * PARAMETERS
 * - ep: in: the endpoint
 * - cfg: in: the connection configuration, or NULL for the default
 *   configuration
 * - req_ptr: out: the connection request, to be accepted with
 *   rpma_conn_req_connect or rejected with rpma_conn_req_delete; NULL if the
 *   event that delivered it could not be acknowledged
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged, except as stated above. A connection request that was received but
 * could not be set up has been rejected.
 *
 * ERRORS
 * - RPMA_E_INVAL: ep or req_ptr is NULL; the event on the endpoint is not a
 *   connection request; or the configuration combines a shared completion
 *   channel with a shared receive queue that has its own completion queue
 * - RPMA_E_NO_EVENT: the file descriptor is in non-blocking mode and no
 *   connection request is pending
 * - RPMA_E_NOMEM: out of memory
 * - RPMA_E_PROVIDER: a completion queue or the queue pair could not be created,
 *   for example because a queue is longer than the device allows, or the event
 *   could not be read or acknowledged
 *
 * THREADS
 * Thread safe for an endpoint of the soft provider: each request is returned to
 * exactly one thread. Not thread safe on other devices, for which librdmacm
 * does not guarantee it.
 */
int rpma_ep_next_conn_req(struct rpma_ep *ep,
			  const struct rpma_conn_cfg *cfg,
			  struct rpma_conn_req **req_ptr);

/**
 * Gets the file descriptor of an endpoint's event channel, which becomes
 * readable when a connection request is pending.
 *
 * The application may poll it and set it to non-blocking mode. The endpoint
 * owns it.
 *
 * PARAMETERS
 * - ep: in: the endpoint
 * - fd: out: the file descriptor
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_ep_get_fd(const struct rpma_ep *ep,
		   int *fd);

/**
 * Creates a connection request to a remote peer.
 *
 * Nothing is sent to the remote peer until rpma_conn_req_connect is called.
 *
 * PARAMETERS
 * - peer: in: the peer; it must outlive the connection request and its
 *   connection
 * - addr: in: the IPv4 or IPv6 address or host name of the remote peer
 * - port: in: the port number or service name
 * - cfg: in: the connection configuration, or NULL for the default
 *   configuration
 * - req_ptr: out: the connection request, to be consumed by
 *   rpma_conn_req_connect or deleted with rpma_conn_req_delete
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: peer, addr, port or req_ptr is NULL, or the configuration
 *   combines a shared completion channel with a shared receive queue that has
 *   its own completion queue
 * - RPMA_E_NOMEM: out of memory
 * - RPMA_E_PROVIDER: the address could not be translated, the address or the
 *   route could not be resolved within the timeout, or a completion queue or
 *   the queue pair could not be created, for example because the peer uses a
 *   device other than the one that reaches the address, or because a queue is
 *   longer than the device allows
 *
 * THREADS
 * Thread safe for a peer of the soft provider. Not thread safe on other
 * devices, for which librdmacm does not guarantee it.
 */
int rpma_conn_req_new(struct rpma_peer *peer,
		      const char *addr,
		      const char *port,
		      const struct rpma_conn_cfg *cfg,
		      struct rpma_conn_req **req_ptr);

/**
 * Deletes a connection request. An incoming request is rejected.
 *
 * PARAMETERS
 * - req_ptr: in, out: the connection request; set to NULL, also on failure. If
 *   it is already NULL, the call has no effect.
 *
 * RETURN VALUE
 * 0 on success, or a negative error code: if more than one step fails, the
 * first error. The connection request is deleted in either case.
 *
 * ERRORS
 * - RPMA_E_INVAL: req_ptr is NULL
 * - RPMA_E_PROVIDER: the rejection could not be sent, or a verbs or connection
 *   manager resource could not be destroyed
 *
 * THREADS
 * Thread safe for different requests of the soft provider. Not thread safe on
 * other devices, for which librdmacm does not guarantee it.
 */
int rpma_conn_req_delete(struct rpma_conn_req **req_ptr);

/**
 * Sends an outgoing connection request, or accepts an incoming one.
 *
 * The connection is ready for use once rpma_conn_next_event has delivered
 * RPMA_CONN_ESTABLISHED.
 *
 * PARAMETERS
 * - req_ptr: in, out: the connection request, which is consumed; set to NULL,
 *   also on failure
 * - pdata: in: the private data for the remote peer, or NULL for none; copied.
 *   len allows up to 255 bytes, but the provider may support fewer (56 for a
 *   request on InfiniBand, 251 on the software device).
 * - conn_ptr: out: the connection, to be deleted with rpma_conn_delete
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure conn_ptr is left
 * unchanged. Unless req_ptr or the connection request is NULL, the request is
 * consumed in either case; on failure an incoming request has been rejected or
 * its connection has been disconnected.
 *
 * ERRORS
 * - RPMA_E_INVAL: req_ptr, the connection request or conn_ptr is NULL, or pdata
 *   is not NULL and holds a NULL pointer or length 0
 * - RPMA_E_NOMEM: out of memory
 * - RPMA_E_PROVIDER: the connection request could not be sent or accepted, or a
 *   resource of the connection could not be created
 *
 * THREADS
 * Thread safe for different requests.
 */
int rpma_conn_req_connect(struct rpma_conn_req **req_ptr,
			  const struct rpma_conn_private_data *pdata,
			  struct rpma_conn **conn_ptr);

/**
 * Posts a receive work request before the connection is established, so that it
 * is in place for the first message.
 *
 * PARAMETERS
 * - req: in: the connection request
 * - dst: in: the local memory region for the message, registered with
 *   RPMA_MR_USAGE_RECV
 * - offset: in: the offset of the message buffer in the memory region, in bytes
 * - len: in: the length of the receive buffer in bytes, at most UINT32_MAX
 * - op_context: in: returned as the wr_id of the completion
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: req or dst is NULL, or len is too large
 * - RPMA_E_PROVIDER: the receive work request could not be posted
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_req_recv(struct rpma_conn_req *req,
		       struct rpma_mr_local *dst,
		       size_t offset,
		       size_t len,
		       const void *op_context);

/**
 * Gets the private data of a connection request.
 *
 * PARAMETERS
 * - req: in: the connection request
 * - pdata: out: the private data and their length; NULL and 0 if there are
 *   none, which is the case for every request created with rpma_conn_req_new.
 *   The connection request owns the data until rpma_conn_req_connect succeeds;
 *   then the connection does. The transport may pad them with zeros, so the
 *   length may be larger than the length that was sent.
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 *
 * SECURITY
 * Private data are neither encrypted nor authenticated: anyone on the path
 * between the two hosts can read and change them, and anyone who can connect
 * can send any data. Check their length and every value in them before use. The
 * page of rpma_mr_remote_from_descriptor states what follows if somebody else
 * reads or changes a descriptor; on a network that others can reach, exchange
 * descriptors over a channel that authenticates both peers and protects the
 * data, for example TLS.
 */
int rpma_conn_req_get_private_data(const struct rpma_conn_req *req,
				   struct rpma_conn_private_data *pdata);

/**
 * Deletes a connection, whether or not it has been disconnected.
 *
 * The completion queues, file descriptors and private data of the connection
 * are released with it; a shared receive queue is not.
 *
 * PARAMETERS
 * - conn_ptr: in, out: the connection; set to NULL, also on failure. If it is
 *   already NULL, the call has no effect.
 *
 * RETURN VALUE
 * 0 on success, or a negative error code: if more than one step fails, the
 * first error. The connection is deleted in either case.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn_ptr is NULL, or the memory that the connection uses for
 *   flushes cannot be unmapped
 * - RPMA_E_PROVIDER: a verbs or connection manager resource could not be
 *   destroyed
 *
 * THREADS
 * Thread safe for different connections.
 */
int rpma_conn_delete(struct rpma_conn **conn_ptr);

/**
 * Disconnects a connection.
 *
 * Both peers receive RPMA_CONN_CLOSED from rpma_conn_next_event. Outstanding
 * work requests complete; those that have not been executed complete in error.
 *
 * PARAMETERS
 * - conn: in: the connection
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn is NULL
 * - RPMA_E_PROVIDER: the provider call failed
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_disconnect(struct rpma_conn *conn);

/**
 * Gets the next event of a connection.
 *
 * Blocks until an event is available, unless the file descriptor of the event
 * channel (see rpma_conn_get_event_fd) is in non-blocking mode.
 * RPMA_CONN_CLOSED may be delivered twice.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - event: out: the event
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 * - RPMA_E_NO_EVENT: the file descriptor is in non-blocking mode and no event
 *   is pending
 * - RPMA_E_NOMEM: out of memory for the private data delivered with the event;
 *   the event is lost
 * - RPMA_E_PROVIDER: the event could not be read or acknowledged; if it could
 *   not be acknowledged, the private data of the connection are lost
 * - RPMA_E_UNKNOWN: the connection manager delivered an event that is not
 *   expected on a connection
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_next_event(struct rpma_conn *conn,
			 enum rpma_conn_event *event);

/**
 * Gets the file descriptor of a connection's event channel, which becomes
 * readable when a connection event is pending.
 *
 * The application may poll it and set it to non-blocking mode. The connection
 * owns it.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - fd: out: the file descriptor
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_get_event_fd(const struct rpma_conn *conn,
			   int *fd);

/**
 * Gets the private data sent by the remote peer.
 *
 * On the active side the private data are available once RPMA_CONN_ESTABLISHED
 * has been delivered; on the passive side, from the start.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - pdata: out: the private data and their length; NULL and 0 if there are
 *   none. The connection owns the data. The transport may pad them with zeros,
 *   so the length may be larger than the length that was sent.
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 *
 * SECURITY
 * Private data are neither encrypted nor authenticated: anyone on the path
 * between the two hosts can read and change them, and anyone who can connect
 * can send any data. Check their length and every value in them before use. The
 * page of rpma_mr_remote_from_descriptor states what follows if somebody else
 * reads or changes a descriptor; on a network that others can reach, exchange
 * descriptors over a channel that authenticates both peers and protects the
 * data, for example TLS.
 */
int rpma_conn_get_private_data(const struct rpma_conn *conn,
			       struct rpma_conn_private_data *pdata);

/**
 * Applies the configuration declared by the remote peer to a connection.
 *
 * Required before a flush to persistence, which is supported only if the remote
 * peer has declared direct write to persistent memory.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - pcfg: in: the remote peer's configuration, from
 *   rpma_peer_cfg_from_descriptor; its values are copied
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_apply_remote_peer_cfg(struct rpma_conn *conn,
				    const struct rpma_peer_cfg *pcfg);

/**
 * Gets the queue pair number of a connection, which identifies the connection
 * in work completions.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - qp_num: out: the queue pair number
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_get_qp_num(const struct rpma_conn *conn, uint32_t *qp_num);

/**
 * Gets the main completion queue of a connection.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - cq_ptr: out: the completion queue; the connection owns it
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_get_cq(const struct rpma_conn *conn, struct rpma_cq **cq_ptr);

/**
 * Gets the separate receive completion queue of a connection.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - rcq_ptr: out: the receive completion queue, owned by the connection; NULL
 *   if the connection has none, which includes the case where the shared
 *   receive queue has its own (see rpma_srq_get_rcq)
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_get_rcq(const struct rpma_conn *conn,
		      struct rpma_cq **rcq_ptr);

/**
 * Gets the file descriptor of a connection's shared completion channel, which
 * becomes readable when a completion event is pending.
 *
 * The application may poll it and set it to non-blocking mode. The connection
 * owns it.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - fd: out: the file descriptor
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 * - RPMA_E_NOT_SHARED_CHNL: the connection is not configured with a shared
 *   completion channel
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_get_compl_fd(const struct rpma_conn *conn,
			   int *fd);

/**
 * Waits for a completion event on a connection's shared completion channel.
 *
 * Blocks until an event is available, unless the file descriptor of the
 * completion channel (see rpma_conn_get_compl_fd) is in non-blocking mode, and
 * rearms the completion queue that reported the event. The completions are then
 * collected with rpma_cq_get_wc until it returns RPMA_E_NO_COMPLETION, and the
 * first call may already return it.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - flags: in: ignored
 * - cq: out: the completion queue that reported the event; NULL if it could not
 *   be rearmed
 * - is_rcq: out: whether cq is the receive completion queue; may be NULL
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the outputs are left
 * unchanged, except as stated above.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn or cq is NULL
 * - RPMA_E_NOT_SHARED_CHNL: the connection is not configured with a shared
 *   completion channel
 * - RPMA_E_NO_COMPLETION: no completion event could be read, for example
 *   because the file descriptor is in non-blocking mode and no event is pending
 * - RPMA_E_PROVIDER: the completion queue could not be rearmed; is_rcq is set
 * - RPMA_E_UNKNOWN: the event belongs to a completion queue that is not one of
 *   this connection's
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_wait(struct rpma_conn *conn,
		   int flags,
		   struct rpma_cq **cq,
		   bool *is_rcq);

/**
 * Posts an RDMA read from remote memory to local memory.
 *
 * If dst and src are NULL and both offsets and len are 0, the read transfers no
 * data.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - dst: in: the local memory region, registered with RPMA_MR_USAGE_READ_DST,
 *   or NULL
 * - dst_offset: in: the offset in the destination memory region, in bytes
 * - src: in: the remote memory region, registered with RPMA_MR_USAGE_READ_SRC,
 *   or NULL
 * - src_offset: in: the offset in the source memory region, in bytes
 * - len: in: the length in bytes, at most UINT32_MAX
 * - flags: in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
 * - op_context: in: returned as the wr_id of the completion
 *
 * RETURN VALUE
 * 0 if the work request was posted, or a negative error code. The completion
 * reports the outcome, including an access outside either memory region or
 * without RPMA_MR_USAGE_READ_SRC. An access that the size or usage of the
 * remote memory region forbids is also logged when it is posted, at level
 * WARNING.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn is NULL, flags is 0, len is too large, or dst or src is
 *   NULL while the other one is not NULL or an offset or len is not 0
 * - RPMA_E_PROVIDER: the work request could not be posted, for example because
 *   the send queue is full
 *
 * THREADS
 * Thread safe.
 */
int rpma_read(struct rpma_conn *conn,
	      struct rpma_mr_local *dst,
	      size_t dst_offset,
	      const struct rpma_mr_remote *src,
	      size_t src_offset,
	      size_t len,
	      int flags,
	      const void *op_context);

/**
 * Posts an RDMA write from local memory to remote memory.
 *
 * If dst and src are NULL and both offsets and len are 0, the write transfers
 * no data. The remote peer is not notified.
 *
 * The soft provider may hold back a write of at most 4096 bytes that follows at
 * least 16 others in close succession, to send it together with the next one.
 * It is sent by the next call that posts, that polls an empty completion queue
 * or that waits on the connection; otherwise a thread of the library sends it
 * within 0.8 milliseconds. That thread needs a CPU: while all CPUs are busy,
 * the write is delayed until the scheduler runs the thread (delays of around
 * 100 ms have been observed). A program that exits without calling
 * rpma_conn_disconnect may lose writes that were held back;
 * rpma_conn_disconnect sends them first.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - dst: in: the remote memory region, registered with RPMA_MR_USAGE_WRITE_DST,
 *   or NULL
 * - dst_offset: in: the offset in the destination memory region, in bytes
 * - src: in: the local memory region, registered with RPMA_MR_USAGE_WRITE_SRC,
 *   or NULL; the data must not change until the operation has completed
 * - src_offset: in: the offset in the source memory region, in bytes
 * - len: in: the length in bytes, at most UINT32_MAX
 * - flags: in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
 * - op_context: in: returned as the wr_id of the completion
 *
 * RETURN VALUE
 * 0 if the work request was posted, or a negative error code. The completion
 * reports the outcome, including an access outside the local memory region. An
 * access that the remote memory region does not permit ends the connection. On
 * an InfiniBand or RoCE device its completion has the status
 * IBV_WC_REM_ACCESS_ERR; over iWARP, which the soft provider uses, a write is
 * not acknowledged, so its completion may be successful. An access that the
 * size or usage of the remote memory region forbids is also logged when it is
 * posted, at level WARNING.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn is NULL, flags is 0, len is too large, or dst or src is
 *   NULL while the other one is not NULL or an offset or len is not 0
 * - RPMA_E_PROVIDER: the work request could not be posted, for example because
 *   the send queue is full
 *
 * THREADS
 * Thread safe.
 */
int rpma_write(struct rpma_conn *conn,
	       struct rpma_mr_remote *dst,
	       size_t dst_offset,
	       const struct rpma_mr_local *src,
	       size_t src_offset,
	       size_t len,
	       int flags,
	       const void *op_context);

/**
 * Posts an RDMA write from local memory to remote memory with immediate data,
 * which notifies the remote peer.
 *
 * The write consumes one receive work request of the remote peer, whose
 * completion has the opcode IBV_WC_RECV_RDMA_WITH_IMM and carries the immediate
 * data. If dst and src are NULL and both offsets and len are 0, only the
 * immediate data are sent.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - dst: in: the remote memory region, registered with RPMA_MR_USAGE_WRITE_DST,
 *   or NULL
 * - dst_offset: in: the offset in the destination memory region, in bytes
 * - src: in: the local memory region, registered with RPMA_MR_USAGE_WRITE_SRC,
 *   or NULL; the data must not change until the operation has completed
 * - src_offset: in: the offset in the source memory region, in bytes
 * - len: in: the length in bytes, at most UINT32_MAX
 * - flags: in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
 * - imm: in: the immediate data in host byte order; the remote work completion
 *   holds them in network byte order
 * - op_context: in: returned as the wr_id of the completion
 *
 * RETURN VALUE
 * 0 if the work request was posted, or a negative error code. The completion
 * reports the outcome, including an access outside the local memory region. An
 * access that the remote memory region does not permit ends the connection. On
 * an InfiniBand or RoCE device its completion has the status
 * IBV_WC_REM_ACCESS_ERR; over iWARP, which the soft provider uses, a write is
 * not acknowledged, so its completion may be successful. An access that the
 * size or usage of the remote memory region forbids is also logged when it is
 * posted, at level WARNING.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn is NULL, flags is 0, len is too large, or dst or src is
 *   NULL while the other one is not NULL or an offset or len is not 0
 * - RPMA_E_PROVIDER: the work request could not be posted, for example because
 *   the send queue is full
 *
 * THREADS
 * Thread safe.
 */
int rpma_write_with_imm(struct rpma_conn *conn,
			struct rpma_mr_remote *dst,
			size_t dst_offset,
			const struct rpma_mr_local *src,
			size_t src_offset,
			size_t len,
			int flags,
			uint32_t imm,
			const void *op_context);

/**
 * Posts an atomic write of 8 bytes to remote memory, executed after all
 * previously posted operations.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - dst: in: the remote memory region, registered with RPMA_MR_USAGE_WRITE_DST
 * - dst_offset: in: the offset in the remote memory region, in bytes; a
 *   multiple of RPMA_ATOMIC_WRITE_ALIGNMENT. The resulting remote address must
 *   be aligned as well.
 * - src: in: the 8 bytes to write; they are copied by the call and need not be
 *   registered
 * - flags: in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
 * - op_context: in: returned as the wr_id of the completion, whose opcode is
 *   IBV_WC_RDMA_WRITE, or IBV_WC_ATOMIC_WRITE if native atomic write is enabled
 *   (see librpma_providers(7))
 *
 * RETURN VALUE
 * 0 if the work request was posted, or a negative error code. The completion
 * reports the outcome. An access that the remote memory region does not permit
 * ends the connection. On an InfiniBand or RoCE device its completion has the
 * status IBV_WC_REM_ACCESS_ERR; over iWARP, which the soft provider uses, a
 * write is not acknowledged, so its completion may be successful. An access
 * that the size or usage of the remote memory region forbids is also logged
 * when it is posted, at level WARNING.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn, dst or src is NULL, flags is 0, or dst_offset is not
 *   aligned
 * - RPMA_E_PROVIDER: the work request could not be posted, for example because
 *   the send queue is full
 *
 * THREADS
 * Thread safe.
 */
int rpma_atomic_write(struct rpma_conn *conn,
		      struct rpma_mr_remote *dst,
		      size_t dst_offset,
		      const char src[8],
		      int flags,
		      const void *op_context);

/**
 * Posts a flush of data written to remote memory.
 *
 * When the flush has completed, all data previously written over this
 * connection to any part of the memory region have reached the domain selected
 * by type. The flush is executed as a read of 8 bytes at dst_offset and
 * completes with the opcode IBV_WC_RDMA_READ. librpma(7) describes what
 * persistence means for each kind of target. If native flush is enabled (see
 * librpma_providers(7)), the flush covers only the given range and its opcode
 * is IBV_WC_FLUSH.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - dst: in: the remote memory region, registered for this type of flush
 * - dst_offset: in: the start of the range, in bytes; at least 8 bytes of the
 *   memory region must follow
 * - len: in: the length of the range in bytes; ignored if the flush is executed
 *   as a read
 * - type: in: RPMA_FLUSH_TYPE_PERSISTENT or RPMA_FLUSH_TYPE_VISIBILITY; for
 *   other values the usage of the memory region is not checked
 * - flags: in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
 * - op_context: in: returned as the wr_id of the completion
 *
 * RETURN VALUE
 * 0 if the work request was posted, or a negative error code. The completion
 * reports the outcome, including a range that is not in the remote memory
 * region: a flush reads 8 bytes at dst_offset. Such a range is also logged when
 * it is posted, at level WARNING.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn or dst is NULL, flags is 0, or the flush is native and
 *   len does not fit in 32 bits
 * - RPMA_E_NOSUPP: the memory region is not registered for this type of flush,
 *   or the type is RPMA_FLUSH_TYPE_PERSISTENT and the remote peer has not
 *   declared direct write to persistent memory (see
 *   rpma_conn_apply_remote_peer_cfg)
 * - RPMA_E_PROVIDER: the work request could not be posted, for example because
 *   the send queue is full
 *
 * THREADS
 * Thread safe.
 */
int rpma_flush(struct rpma_conn *conn,
	       struct rpma_mr_remote *dst,
	       size_t dst_offset,
	       size_t len,
	       enum rpma_flush_type type,
	       int flags,
	       const void *op_context);

/**
 * Posts a send work request.
 *
 * The message consumes one receive work request of the remote peer, whose
 * buffer must be large enough. If src is NULL and offset and len are 0, the
 * message is empty.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - src: in: the local memory region that holds the message, registered with
 *   RPMA_MR_USAGE_SEND, or NULL; the data must not change until the operation
 *   has completed
 * - offset: in: the offset of the message buffer in the memory region, in bytes
 * - len: in: the length in bytes, at most UINT32_MAX
 * - flags: in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
 * - op_context: in: returned as the wr_id of the completion
 *
 * RETURN VALUE
 * 0 if the work request was posted, or a negative error code. The completion
 * reports the outcome.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn is NULL, flags is 0, len is too large, or src is NULL
 *   and offset or len is not 0
 * - RPMA_E_PROVIDER: the work request could not be posted, for example because
 *   the send queue is full
 *
 * THREADS
 * Thread safe.
 */
int rpma_send(struct rpma_conn *conn,
	      const struct rpma_mr_local *src,
	      size_t offset,
	      size_t len,
	      int flags,
	      const void *op_context);

/**
 * Posts a send work request with immediate data.
 *
 * Same as rpma_send, but the completion of the remote receive carries the
 * immediate data and has IBV_WC_WITH_IMM set in wc_flags.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - src: in: the local memory region that holds the message, registered with
 *   RPMA_MR_USAGE_SEND, or NULL; the data must not change until the operation
 *   has completed
 * - offset: in: the offset of the message buffer in the memory region, in bytes
 * - len: in: the length in bytes, at most UINT32_MAX
 * - flags: in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
 * - imm: in: the immediate data in host byte order; the remote work completion
 *   holds them in network byte order
 * - op_context: in: returned as the wr_id of the completion
 *
 * RETURN VALUE
 * 0 if the work request was posted, or a negative error code. The completion
 * reports the outcome.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn is NULL, flags is 0, len is too large, or src is NULL
 *   and offset or len is not 0
 * - RPMA_E_PROVIDER: the work request could not be posted, for example because
 *   the send queue is full
 *
 * THREADS
 * Thread safe.
 */
int rpma_send_with_imm(struct rpma_conn *conn,
		       const struct rpma_mr_local *src,
		       size_t offset,
		       size_t len,
		       int flags,
		       uint32_t imm,
		       const void *op_context);

/**
 * Posts a receive work request to the receive queue of a connection.
 *
 * Receives are consumed in the order in which they are posted. If dst is NULL
 * and offset and len are 0, the receive can hold only an empty message.
 *
 * PARAMETERS
 * - conn: in: the connection; if it uses a shared receive queue, receives are
 *   posted with rpma_srq_recv instead
 * - dst: in: the local memory region for the message, registered with
 *   RPMA_MR_USAGE_RECV, or NULL
 * - offset: in: the offset of the message buffer in the memory region, in bytes
 * - len: in: the length of the receive buffer in bytes, at most UINT32_MAX
 * - op_context: in: returned as the wr_id of the completion, which every
 *   receive generates
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn is NULL, len is too large, or dst is NULL and offset or
 *   len is not 0
 * - RPMA_E_PROVIDER: the receive work request could not be posted, for example
 *   because the receive queue is full
 *
 * THREADS
 * Thread safe.
 */
int rpma_recv(struct rpma_conn *conn,
	      struct rpma_mr_local *dst,
	      size_t offset,
	      size_t len,
	      const void *op_context);

/**
 * Posts a receive work request to a shared receive queue.
 *
 * The receive is consumed by a message from any of the connections that use the
 * shared receive queue. If dst is NULL and offset and len are 0, the receive
 * can hold only an empty message.
 *
 * PARAMETERS
 * - srq: in: the shared receive queue
 * - dst: in: the local memory region for the message, registered with
 *   RPMA_MR_USAGE_RECV, or NULL
 * - offset: in: the offset of the message buffer in the memory region, in bytes
 * - len: in: the length of the receive buffer in bytes, at most UINT32_MAX
 * - op_context: in: returned as the wr_id of the completion, which every
 *   receive generates
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: srq is NULL, len is too large, or dst is NULL and offset or
 *   len is not 0
 * - RPMA_E_PROVIDER: the receive work request could not be posted, for example
 *   because the shared receive queue is full
 *
 * THREADS
 * Thread safe.
 */
int rpma_srq_recv(struct rpma_srq *srq,
		  struct rpma_mr_local *dst,
		  size_t offset,
		  size_t len,
		  const void *op_context);

/**
 * Gets the file descriptor of a completion queue's completion channel, which
 * becomes readable when a completion event is pending.
 *
 * The application may poll it and set it to non-blocking mode. The completion
 * queue owns it, or the connection if its completion queues share the channel.
 *
 * PARAMETERS
 * - cq: in: the completion queue
 * - fd: out: the file descriptor
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_cq_get_fd(const struct rpma_cq *cq,
		   int *fd);

/**
 * Waits for a completion event.
 *
 * Blocks until an event is available, unless the file descriptor of the
 * completion channel (see rpma_cq_get_fd) is in non-blocking mode, and rearms
 * the completion queue. The completions are then collected with rpma_cq_get_wc
 * until it returns RPMA_E_NO_COMPLETION. The first call may already return it:
 * a completion may be collected before its event is read.
 *
 * PARAMETERS
 * - cq: in: the completion queue
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cq is NULL
 * - RPMA_E_SHARED_CHANNEL: the completion queue shares its completion channel;
 *   see rpma_conn_wait
 * - RPMA_E_NO_COMPLETION: no completion event could be read, for example
 *   because the file descriptor is in non-blocking mode and no event is pending
 * - RPMA_E_PROVIDER: the completion queue could not be rearmed
 *
 * THREADS
 * Thread safe.
 */
int rpma_cq_wait(struct rpma_cq *cq);

/**
 * Polls a completion queue for work completions. Never blocks.
 *
 * PARAMETERS
 * - cq: in: the completion queue
 * - num_entries: in: the maximum number of work completions to return, at least
 *   1
 * - wc: out: an array of at least num_entries work completions. For a failed
 *   operation only wr_id, status, qp_num and vendor_err are defined. wr_id is
 *   the op_context of the operation. A flush has the opcode IBV_WC_RDMA_READ.
 * - num_entries_got: out: the number of work completions returned; may be NULL
 *   if num_entries is 1
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure num_entries_got is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: cq or wc is NULL, num_entries is less than 1, or
 *   num_entries_got is NULL and num_entries is more than 1
 * - RPMA_E_NO_COMPLETION: the completion queue is empty
 * - RPMA_E_PROVIDER: the provider call failed
 * - RPMA_E_UNKNOWN: the provider returned more work completions than requested
 *
 * THREADS
 * Thread safe.
 */
int rpma_cq_get_wc(struct rpma_cq *cq,
		   int num_entries,
		   struct ibv_wc *wc,
		   int *num_entries_got);

/**
 * Sets the function that receives the library's log messages.
 *
 * A message is passed to the function if its level does not exceed the main
 * threshold (see rpma_log_set_threshold). The arguments are the level, the name
 * of the source file, the line number, the name of the function that logs, and
 * a printf format with its arguments; the formatted message ends with a
 * newline. The function runs in the thread that logs and must not call this
 * library. The built-in function writes to syslog (facility LOG_LOCAL7, name
 * "rpma"), and also to stderr if the level does not exceed the auxiliary
 * threshold.
 *
 * PARAMETERS
 * - log_function: in: the log function, or RPMA_LOG_USE_DEFAULT_FUNCTION for
 *   the built-in one; it must remain callable from any thread until it is
 *   replaced
 *
 * RETURN VALUE
 * 0.
 *
 * ERRORS
 * None.
 *
 * THREADS
 * Thread safe. A message that another thread is logging at the same time may
 * still be passed to the previous function.
 */
int rpma_log_set_function(rpma_log_function *log_function);

/**
 * Sets a logging threshold.
 *
 * The default main threshold is RPMA_LOG_LEVEL_WARNING; the default auxiliary
 * threshold is RPMA_LOG_DISABLED.
 *
 * PARAMETERS
 * - threshold: in: RPMA_LOG_THRESHOLD for the messages passed to the log
 *   function, RPMA_LOG_THRESHOLD_AUX for those that the built-in function also
 *   prints to stderr
 * - level: in: the least severe level that is logged, or RPMA_LOG_DISABLED for
 *   none
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: threshold or level is not a valid value
 *
 * THREADS
 * Thread safe.
 */
int rpma_log_set_threshold(enum rpma_log_threshold threshold,
			   enum rpma_log_level level);

/**
 * Gets a logging threshold.
 *
 * PARAMETERS
 * - threshold: in: RPMA_LOG_THRESHOLD or RPMA_LOG_THRESHOLD_AUX
 * - level: out: the least severe level that is logged, or RPMA_LOG_DISABLED for
 *   none
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: threshold is not a valid value, or level is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_log_get_threshold(enum rpma_log_threshold threshold, enum rpma_log_level *level);

/**
 * Gets the file descriptor of the main completion queue's completion channel.
 * New programs should use rpma_conn_get_cq and rpma_cq_get_fd.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - fd: out: the file descriptor; the connection owns it
 *
 * RETURN VALUE
 * 0 on success, or a negative error code; on failure the output is left
 * unchanged.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_get_completion_fd(const struct rpma_conn *conn,
				int *fd);

/**
 * Waits for a completion event of the main completion queue. New programs
 * should use rpma_conn_get_cq and rpma_cq_wait.
 *
 * PARAMETERS
 * - conn: in: the connection
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn is NULL
 * - RPMA_E_SHARED_CHANNEL: the connection's completion queues share their
 *   completion channel; see rpma_conn_wait
 * - RPMA_E_NO_COMPLETION: no completion event could be read, for example
 *   because the file descriptor is in non-blocking mode and no event is pending
 * - RPMA_E_PROVIDER: the completion queue could not be rearmed
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_completion_wait(struct rpma_conn *conn);

/**
 * Gets one completion from the main completion queue. New programs should use
 * rpma_conn_get_cq and rpma_cq_get_wc.
 *
 * Never blocks. Receives are not reported here if they have a separate
 * completion queue. A program built against release 0.9 gets the completion
 * structure of that release, which ends before flags.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - cmpl: out: the completion; for a failed operation only op_context and
 *   op_status are set
 *
 * RETURN VALUE
 * 0 on success, including the completion of a failed operation, or a negative
 * error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 * - RPMA_E_NO_COMPLETION: the completion queue is empty
 * - RPMA_E_NOSUPP: the completion has an unknown opcode; only op_context and
 *   op_status are set
 * - RPMA_E_PROVIDER: the provider call failed
 * - RPMA_E_UNKNOWN: the provider returned more work completions than requested
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_completion_get(struct rpma_conn *conn,
			     struct rpma_completion *cmpl);

/**
 * Gets one completion from a completion queue. New programs should use
 * rpma_cq_get_wc.
 *
 * Never blocks.
 *
 * PARAMETERS
 * - cq: in: the completion queue
 * - cmpl: out: the completion; for a failed operation only op_context and
 *   op_status are set
 *
 * RETURN VALUE
 * 0 on success, including the completion of a failed operation, or a negative
 * error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 * - RPMA_E_NO_COMPLETION: the completion queue is empty
 * - RPMA_E_NOSUPP: the completion has an unknown opcode; only op_context and
 *   op_status are set
 * - RPMA_E_PROVIDER: the provider call failed
 * - RPMA_E_UNKNOWN: the provider returned more work completions than requested
 *
 * THREADS
 * Thread safe.
 */
int rpma_cq_get_completion(struct rpma_cq *cq, struct rpma_completion *cmpl);

/**
 * Posts an atomic write of 8 bytes from a local memory region to remote memory,
 * executed after all previously posted operations. New programs should use
 * rpma_atomic_write.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - dst: in: the remote memory region, registered with RPMA_MR_USAGE_WRITE_DST
 * - dst_offset: in: the offset in the remote memory region, in bytes; a
 *   multiple of RPMA_ATOMIC_WRITE_ALIGNMENT. The resulting remote address must
 *   be aligned as well.
 * - src: in: the local memory region, registered with RPMA_MR_USAGE_WRITE_SRC
 * - src_offset: in: the offset in the source memory region, in bytes
 * - flags: in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
 * - op_context: in: returned as the op_context or wr_id of the completion
 *
 * RETURN VALUE
 * 0 on success, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn, dst or src is NULL, flags is 0, or dst_offset is not
 *   aligned
 * - RPMA_E_PROVIDER: the work request could not be posted
 *
 * THREADS
 * Thread safe.
 */
int rpma_write_atomic(struct rpma_conn *conn,
		      struct rpma_mr_remote *dst,
		      size_t dst_offset,
		      const struct rpma_mr_local *src,
		      size_t src_offset,
		      int flags,
		      const void *op_context);

#ifdef __cplusplus
} /* extern "C" */
#endif /* __cplusplus */

#endif  /* LIBRPMA_H */
