// SPDX-License-Identifier: BSD-3-Clause
//! The error type; its discriminants are the error codes of the C interface.

use std::ffi::{CStr, c_int};
use std::fmt;

use rpma_log::text::Lossy;

use crate::abi::*;

/// Why a call failed.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No error: an out-of-line call succeeded. It is reported as an error so that the inlined path to
    /// success need not check for it.
    None = 0,
    /// The provider behaved unexpectedly.
    Unknown = RPMA_E_UNKNOWN,
    /// Not supported.
    NoSupp = RPMA_E_NOSUPP,
    /// A provider call failed; the failure has been logged.
    Provider = RPMA_E_PROVIDER,
    /// Out of memory.
    NoMem = RPMA_E_NOMEM,
    /// An argument is invalid.
    Inval = RPMA_E_INVAL,
    /// No completion is ready.
    NoCompletion = RPMA_E_NO_COMPLETION,
    /// No event is ready.
    NoEvent = RPMA_E_NO_EVENT,
    /// The completion channel is shared.
    SharedChannel = RPMA_E_SHARED_CHANNEL,
    /// There is no shared completion channel.
    NotSharedChnl = RPMA_E_NOT_SHARED_CHNL,
}

/// The result type of the crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The string for a return value of the library; `ret` may be any number.
pub fn text(ret: c_int) -> &'static CStr {
    match ret {
        0 => c"Success",
        RPMA_E_NOSUPP => c"Not supported",
        RPMA_E_PROVIDER => c"Provider error occurred",
        RPMA_E_NOMEM => c"Out of memory",
        RPMA_E_INVAL => c"Invalid argument",
        RPMA_E_NO_COMPLETION => c"No next completion available",
        RPMA_E_NO_EVENT => c"No next event available",
        RPMA_E_AGAIN => c"Temporary error, try again",
        RPMA_E_SHARED_CHANNEL => c"Completion channel is shared",
        RPMA_E_NOT_SHARED_CHNL => c"Completion channel is not shared",
        _ => c"Unknown error",
    }
}

/// An errno value, displayed as its text and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub c_int);

impl Errno {
    /// The calling thread's errno.
    pub fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Providers return errno values of either sign; the text is the same.
        let number = self.0.saturating_abs();
        let mut text = [0_u8; 128];
        // SAFETY: writes a terminated string of at most the given length, for unknown numbers as well.
        let _ = unsafe { libc::strerror_r(number, text.as_mut_ptr().cast(), text.len()) };
        let text = CStr::from_bytes_until_nul(&text).unwrap_or(c"");
        write!(f, "{} (errno {number})", Lossy(text.to_bytes()))
    }
}

/// The first error of several steps that were all attempted.
pub fn first_error<const N: usize>(steps: [Result<()>; N]) -> Result<()> {
    steps.into_iter().find(Result::is_err).unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_interface_literals() {
        let expected = [
            (0, "Success"),
            (-100000, "Unknown error"),
            (-100001, "Not supported"),
            (-100002, "Provider error occurred"),
            (-100003, "Out of memory"),
            (-100004, "Invalid argument"),
            (-100005, "No next completion available"),
            (-100006, "No next event available"),
            (-100007, "Temporary error, try again"),
            (-100008, "Completion channel is shared"),
            (-100009, "Completion channel is not shared"),
            (-100010, "Unknown error"),
            (1, "Unknown error"),
            (c_int::MIN, "Unknown error"),
        ];
        for (code, literal) in expected {
            assert_eq!(text(code).to_str().unwrap(), literal, "{code}");
        }
    }

    #[test]
    fn discriminants_are_the_abi_values() {
        assert_eq!(Error::Unknown as c_int, -100000);
        assert_eq!(Error::NotSharedChnl as c_int, -100009);
    }

    #[test]
    fn the_first_error_wins() {
        assert_eq!(first_error([Ok(()), Ok(())]), Ok(()));
        assert_eq!(first_error([Ok(()), Err(Error::NoMem), Err(Error::Inval)]), Err(Error::NoMem));
    }

    #[test]
    fn errno_is_printed_with_text_and_number() {
        assert_eq!(Errno(libc::ENOMEM).to_string(), Errno(-libc::ENOMEM).to_string());
        assert!(Errno(libc::ENOMEM).to_string().contains("Cannot allocate memory"));
    }
}
