// SPDX-License-Identifier: BSD-3-Clause
//! Writes the final values of the counters (`RPMA_METRICS`) when the program exits.

extern "C" fn at_exit() {
    rpma_metrics::at_exit();
}

// SAFETY: the loader calls what this section points to once, while the C library is still usable.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
