// SPDX-License-Identifier: BSD-3-Clause
//! The end of the process: it has no function of its own in rdma_cm.

extern "C" fn at_exit() {
    // Locks that check their order use thread-local data, which this thread has no more.
    if !cfg!(lock_order) {
        crate::cm::at_exit();
    }
}

// SAFETY: the loader calls what this section points to once, while the C library is still usable. The
// function relies on nothing else: other threads may run, and it waits for none of them without a limit.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
