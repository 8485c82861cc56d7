// SPDX-License-Identifier: BSD-3-Clause
//! A text that says why the calling thread's last failed call failed.
//!
//! A call that fails has logged the reason, unless its error code says everything. Each error is recorded
//! here for the thread that logs it, regardless of the threshold; when the call fails, the name of the
//! function is put in front of it. Nothing is allocated, so that running out of memory can be reported.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int};
use std::fmt::{self, Write};

use rpma_log::text::{Lossy, Text, function_of};

use crate::error::{self, Error};

/// Longer texts are truncated.
const SIZE: usize = 512;

/// Why a call fails. Functions that are inlined into the data path return this, so that only the cold path
/// handles the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fail {
    Error(Error),
    /// The argument with this name is NULL.
    Null(&'static str),
    /// Why an argument is invalid.
    Invalid(&'static str),
}

impl From<Error> for Fail {
    #[inline(always)]
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Fail> for Error {
    #[cold]
    fn from(fail: Fail) -> Self {
        match fail {
            Fail::Error(error) => error,
            Fail::Null(name) => invalid(format_args!("{name} is NULL")),
            Fail::Invalid(why) => invalid(format_args!("{why}")),
        }
    }
}

struct Failure {
    /// The first error that was logged during the current call; empty if there was none.
    reason: Text<SIZE>,
    /// The text of the last failed call.
    text: Text<SIZE>,
}

thread_local! {
    // Without a destructor: the C library aborts the process if it has no memory to register one.
    static FAILURE: RefCell<Failure> = const { RefCell::new(Failure { reason: Text::new(), text: Text::new() }) };
}

/// Records an error that is being logged as the possible cause of failure of the current call. The first
/// error is the cause, the others follow from it.
pub fn reason(message: fmt::Arguments<'_>) {
    FAILURE.with(|failure| {
        // An error that is logged while the message is being formatted is not the cause.
        if let Ok(failure) = &mut failure.try_borrow_mut() {
            if failure.reason.as_bytes().is_empty() {
                // Writing to a Text never fails; if the Display of a value fails, the text is shorter.
                let _ = failure.reason.write_fmt(message);
            }
        }
    });
}

/// The error for an invalid argument; `why` names the argument. Not logged, because the caller supplied the
/// argument.
#[cold]
#[inline(never)]
pub fn invalid(why: fmt::Arguments<'_>) -> Error {
    FAILURE.with(|failure| {
        if let Ok(failure) = &mut failure.try_borrow_mut() {
            failure.reason = Text::new();
            let _ = failure.reason.write_fmt(why);
        }
    });
    Error::Inval
}

/// Logs a secondary error without recording it as the cause of failure of the current call.
pub fn aside(log: impl FnOnce()) {
    let is_told = || {
        FAILURE
            .with(|failure| failure.try_borrow().is_ok_and(|failure| !failure.reason.as_bytes().is_empty()))
    };
    let before = is_told();
    log();
    if !before && is_told() {
        FAILURE.with(|failure| {
            if let Ok(failure) = &mut failure.try_borrow_mut() {
                failure.reason = Text::new();
            }
        });
    }
}

/// Records that a call failed and returns the result of the call. `body` is the type name of the closure in
/// the exported function.
#[cold]
#[inline(never)]
pub fn note(error: Error, body: &'static str) -> c_int {
    if error == Error::None {
        return 0;
    }
    FAILURE.with(|failure| {
        if let Ok(failure) = &mut failure.try_borrow_mut() {
            let reason = std::mem::take(&mut failure.reason);
            let why = match reason.as_bytes() {
                b"" => error::text(error as i32).to_bytes(),
                logged => logged,
            };
            failure.text = Text::new();
            let _ = write!(failure.text, "{}: {}", function_of(body), Lossy(why));
        }
    });
    // If the compiler could see the result, the caller would save the error instead of making a tail call.
    std::hint::black_box(error as c_int)
}

/// Passes the text of why the current call failed to `then`, and forgets it.
pub fn take<T>(error: Error, then: impl FnOnce(&str) -> T) -> T {
    FAILURE.with(|failure| {
        let reason =
            failure.try_borrow_mut().map_or(Text::new(), |mut failure| std::mem::take(&mut failure.reason));
        match reason.as_bytes() {
            b"" => then(&error::text(error as i32).to_string_lossy()),
            logged => then(&String::from_utf8_lossy(logged)),
        }
    })
}

/// Same as [`note`] for an argument that is NULL.
#[cold]
#[inline(never)]
pub fn note_null(name: &'static str, body: &'static str) -> c_int {
    note(Fail::Null(name).into(), body)
}

/// Same as [`note`] for an argument that is invalid for another reason.
#[cold]
#[inline(never)]
pub fn note_invalid(why: &'static str, body: &'static str) -> c_int {
    note(Fail::Invalid(why).into(), body)
}

/// Records a failed completion or event that a call of the C function `function` has returned.
#[cold]
pub fn report(function: &str, what: fmt::Arguments<'_>) {
    FAILURE.with(|failure| {
        if let Ok(failure) = &mut failure.try_borrow_mut() {
            failure.text = Text::new();
            let _ = write!(failure.text, "{function}: {what}");
        }
    });
}

/// The text of the calling thread's last failed call, terminated; empty if none has failed. Its address is
/// constant as long as the thread lives, its content until the thread's next failed call.
pub fn last() -> *const c_char {
    FAILURE.with(|failure| {
        failure.try_borrow().map_or(c"".as_ptr(), |failure| CStr::as_ptr(failure.text.as_c_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        // SAFETY: `last` returns a terminated string, which stays valid until the next failure of this
        // thread.
        unsafe { CStr::from_ptr(last()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn the_first_reason_of_the_failed_call_is_told() {
        let body = "librpma::capi::mr::rpma_mr_reg::{{closure}}";
        assert_eq!(text(), "");
        assert_eq!(note(Error::Inval, body), Error::Inval as c_int);
        assert_eq!(text(), "rpma_mr_reg: Invalid argument");
        reason(format_args!("ibv_reg_mr(len=8) failed: {}", 5));
        reason(format_args!("another"));
        assert_eq!(text(), "rpma_mr_reg: Invalid argument", "no call has failed since");
        note(Error::Provider, body);
        assert_eq!(text(), "rpma_mr_reg: ibv_reg_mr(len=8) failed: 5");
        note(Error::NoMem, body);
        assert_eq!(text(), "rpma_mr_reg: Out of memory", "the reason was that of the call before");
        aside(|| reason(format_args!("only logged")));
        note(Error::Inval, body);
        assert_eq!(text(), "rpma_mr_reg: Invalid argument");
        reason(format_args!("the cause"));
        aside(|| reason(format_args!("only logged")));
        note(Error::Provider, body);
        assert_eq!(text(), "rpma_mr_reg: the cause");
        reason(format_args!("logged, but the call did not fail for it"));
        assert_eq!(note_null("mr_ptr", body), Error::Inval as c_int);
        assert_eq!(text(), "rpma_mr_reg: mr_ptr is NULL");
        note_invalid("usage is 0", body);
        assert_eq!(text(), "rpma_mr_reg: usage is 0");
        assert_eq!(note(Error::None, body), 0);
        assert_eq!(text(), "rpma_mr_reg: usage is 0", "no call has failed since");
    }

    #[test]
    fn a_long_reason_is_cut() {
        reason(format_args!("{}", "x".repeat(2 * SIZE)));
        note(Error::Provider, "a::f::{{closure}}");
        assert!(text().starts_with("f: xxx") && text().len() < SIZE);
    }
}
