// SPDX-License-Identifier: BSD-3-Clause
//! Opens the file of `rpma run --fail-on-misuse` when the library is loaded.

extern "C" fn at_load() {
    softverbs::attach_findings();
}

// SAFETY: the loader calls what this section points to once, when the library is loaded, after the C library
// was initialised, which is all that the function needs.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;
