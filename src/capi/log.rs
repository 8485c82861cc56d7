// SPDX-License-Identifier: BSD-3-Clause
//! Logging control.

use std::ffi::c_int;

use super::convert::{out, status};
use rpma_core::abi::arg::{LogLevelArg, LogThresholdArg, rpma_log_function};
use rpma_core::abi::rpma_log_level;
use rpma_core::log;

/// Sets the function that receives the library's log messages.
///
/// A message is passed to the function if its level does not exceed the main threshold (see
/// rpma_log_set_threshold). The arguments are the level, the name of the source file, the line number, the
/// name of the function that logs, and a printf format with its arguments; the formatted message ends with a
/// newline. The function runs in the thread that logs and must not call this library. The built-in function
/// writes to syslog (facility LOG_LOCAL7, name "rpma"), and also to stderr if the level does not exceed the
/// auxiliary threshold.
///
/// # Parameters
/// * log_function - in: the log function, or RPMA_LOG_USE_DEFAULT_FUNCTION for the built-in one; it must
///   remain callable from any thread until it is replaced
///
/// # Return value
/// 0.
///
/// # Errors
/// None.
///
/// # Threads
/// Thread safe. A message that another thread is logging at the same time may still be passed to the previous
/// function.
///
/// # Safety
/// `log_function` must be NULL or callable as described.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_log_set_function(log_function: *mut rpma_log_function) -> c_int {
    log::set_function(log_function);
    0
}

/// Sets a logging threshold.
///
/// The default main threshold is RPMA_LOG_LEVEL_WARNING; the default auxiliary threshold is
/// RPMA_LOG_DISABLED.
///
/// # Parameters
/// * threshold - in: RPMA_LOG_THRESHOLD for the messages passed to the log function, RPMA_LOG_THRESHOLD_AUX
///   for those that the built-in function also prints to stderr
/// * level - in: the least severe level that is logged, or RPMA_LOG_DISABLED for none
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - threshold or level is not a valid value
///
/// # Threads
/// Thread safe.
#[unsafe(no_mangle)]
pub extern "C" fn rpma_log_set_threshold(threshold: LogThresholdArg, level: LogLevelArg) -> c_int {
    status(|| log::set_threshold(threshold, level))
}

/// Gets a logging threshold.
///
/// # Parameters
/// * threshold - in: RPMA_LOG_THRESHOLD or RPMA_LOG_THRESHOLD_AUX
/// * level - out: the least severe level that is logged, or RPMA_LOG_DISABLED for none
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - threshold is not a valid value, or level is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_log_get_threshold(
    threshold: LogThresholdArg,
    level: *mut rpma_log_level,
) -> c_int {
    // SAFETY: `level` is NULL or writable.
    status(|| unsafe {
        let current = log::get_threshold(threshold)?;
        out(level, "level")?.set(current);
        Ok(())
    })
}
