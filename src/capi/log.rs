// SPDX-License-Identifier: BSD-3-Clause
//! Logging control.

use std::ffi::c_int;

use super::convert::{out, status};
use rpma::abi::arg::{LogLevelArg, LogThresholdArg, rpma_log_function};
use rpma::abi::rpma_log_level;
use rpma::log;

/// Chooses the function that gets the library's messages.
///
/// A message reaches the function if its level is not above the main threshold (see rpma_log_set_threshold). The
/// function gets the level, the name of a source file, a line, the name of a function, and a printf format with its
/// arguments; the formatted message ends with a newline. It is called in the thread that logs and must not call
/// this library. The built-in function writes to syslog (facility LOG_LOCAL7, name "rpma"), and what is not above
/// the auxiliary threshold to stderr too.
///
/// # Parameters
/// * log_function - in: the function, or RPMA_LOG_USE_DEFAULT_FUNCTION for the built-in one; it must stay callable
///   from any thread until it is replaced
///
/// # Return value
/// 0.
///
/// # Errors
/// None.
///
/// # Threads
/// Thread safe. A message that is being logged in another thread may still reach the function that was set before.
///
/// # Safety
/// The function is NULL or callable as described.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_log_set_function(log_function: *mut rpma_log_function) -> c_int {
    log::set_function(log_function);
    0
}

/// Sets a logging threshold.
///
/// The main threshold is RPMA_LOG_LEVEL_WARNING at first, the auxiliary one RPMA_LOG_DISABLED.
///
/// # Parameters
/// * threshold - in: RPMA_LOG_THRESHOLD for the messages that reach the log function, RPMA_LOG_THRESHOLD_AUX for
///   those of them that the built-in function also prints to stderr
/// * level - in: the last level that passes, or RPMA_LOG_DISABLED for none
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - threshold or level is not one of its values
///
/// # Threads
/// Thread safe.
#[unsafe(no_mangle)]
pub extern "C" fn rpma_log_set_threshold(threshold: LogThresholdArg, level: LogLevelArg) -> c_int {
    status(|| log::set_threshold(threshold, level))
}

/// Tells a logging threshold.
///
/// # Parameters
/// * threshold - in: RPMA_LOG_THRESHOLD or RPMA_LOG_THRESHOLD_AUX
/// * level - out: the last level that passes
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - threshold is not one of its values, or level is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_log_get_threshold(
    threshold: LogThresholdArg,
    level: *mut rpma_log_level,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let current = log::get_threshold(threshold)?;
        out(level)?.set(current);
        Ok(())
    })
}
