// SPDX-License-Identifier: BSD-3-Clause
//! The log of librpma and of libsoftverbs.so: the setting `RPMA_LOG`, the lines, and where they go. Nothing
//! here allocates, except to open a file.

mod environment;
mod errno;
mod level;
mod line;
mod output;
#[cfg(feature = "records")]
mod record;
mod setting;
pub mod text;

pub use environment::value_of;
pub use errno::Saved as SavedErrno;
pub use level::Level;
pub use line::{MESSAGE_SIZE, Place, Subject};
pub use output::Output;
#[cfg(feature = "records")]
pub use record::{level_of, with_record};
pub use setting::{Destination, Invalid, Setting, with_setting};
