// SPDX-License-Identifier: BSD-3-Clause
//! The built-in log function: syslog, and stderr for messages that pass the auxiliary threshold, unless
//! `RPMA_LOG` selects another destination.
//!
//! `RPMA_LOG` is read when the library is loaded, so whatever the program sets afterwards takes precedence.
//! syslog is opened when the library is loaded, not with the first message, so that a program which opens
//! syslog with its own name afterwards keeps that name. Opening it sends nothing and opens no file
//! descriptor.

use rpma_log::text::Lossy;
use rpma_log::{Destination, Invalid, Output, Place, Setting, Subject};

use crate::abi::rpma_log_level;
use crate::error::Errno;
use crate::log;

static OUTPUT: Output = Output::syslog();

fn write(level: rpma_log_level, place: &Place<'_>, subject: &Subject<'_>, message: &[u8]) {
    OUTPUT.write(level.into(), place, subject, message, log::to_stderr(level));
}

/// Applies `RPMA_LOG`. An invalid value is reported on stderr, to which messages from WARNING up then go.
fn apply(setting: Result<Setting<'_>, Invalid<'_>>) {
    let setting = match setting {
        Ok(setting) => setting,
        Err(why) => {
            log::set_both(rpma_log_level::RPMA_LOG_LEVEL_WARNING);
            OUTPUT.use_stderr();
            log_warning!("RPMA_LOG: {why}");
            return;
        }
    };
    let level = setting.level.into();
    let opened = OUTPUT.apply(&setting);
    if OUTPUT.is_stderr() {
        log::set_both(level);
    } else {
        log::set_main(level);
    }
    if let (Err(errno), Destination::File(path)) = (opened, setting.to) {
        log_warning!("RPMA_LOG: cannot open {}: {}; logging to stderr", Lossy(path), Errno(errno));
    }
}

extern "C" fn at_load() {
    // SAFETY: the name is a literal that lives as long as the library, and at_unload closes syslog before
    // that ends.
    unsafe { libc::openlog(c"rpma".as_ptr(), libc::LOG_PID, libc::LOG_LOCAL7) };
    log::install(write);
    rpma_log::with_setting(apply);
}

extern "C" fn at_unload() {
    rpma_metrics::at_exit();
    log::switch_off();
    // SAFETY: no arguments; needed because syslog keeps a pointer to the name given to openlog.
    unsafe { libc::closelog() };
}

// SAFETY: the loader calls the functions that these sections point to, once each. It guarantees only that the
// C library is usable, and both functions rely on nothing else. Miri has no syslog.
#[used]
#[cfg_attr(not(miri), unsafe(link_section = ".init_array"))]
static AT_LOAD: extern "C" fn() = at_load;

// SAFETY: the loader calls `at_unload` once, while the C library is still usable; the function relies on
// nothing else.
#[used]
#[cfg_attr(not(miri), unsafe(link_section = ".fini_array"))]
static AT_UNLOAD: extern "C" fn() = at_unload;
