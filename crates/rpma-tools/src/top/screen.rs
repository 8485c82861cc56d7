// SPDX-License-Identifier: BSD-3-Clause
//! The terminal of `rpma top`: its alternate screen, without echo and line editing. It is restored when this
//! value is dropped, and when a thread panics.

use rustix::termios::{self, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, Once, PoisonError};

use super::view::{Line, Look};

/// Alternate screen, no cursor, no line wrap; and the opposite, in the opposite order.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";
/// The value of a special character that is disabled (termios(3)).
const DISABLED: u8 = 0;
/// The size if the terminal does not report one.
const SIZE: (usize, usize) = (80, 24);

/// The previous state of the terminal.
struct Saved {
    modes: Termios,
    input: File,
    output: File,
}

static SAVED: Mutex<Option<Saved>> = Mutex::new(None);

/// The terminal while the screen is shown.
pub(super) struct Screen {
    input: File,
    output: File,
}

/// Restores the terminal, if it is not yet restored. Failures are ignored: the terminal was closed.
fn restore() {
    let saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Saved { modes, input, mut output }) = saved {
        let _ = output.write_all(LEAVE);
        let _ = termios::tcsetattr(input, OptionalActions::Drain, &modes);
    }
}

fn duplicate(fd: BorrowedFd<'_>) -> io::Result<File> {
    fd.try_clone_to_owned().map(File::from)
}

impl Screen {
    /// Takes over a terminal.
    pub(super) fn enter(input: BorrowedFd<'_>, output: BorrowedFd<'_>) -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore();
                previous(info);
            }));
        });
        let screen = Self { input: duplicate(input)?, output: duplicate(output)? };
        screen.take_over()?;
        Ok(screen)
    }

    fn take_over(&self) -> io::Result<()> {
        let modes = termios::tcgetattr(&self.input)?;
        let mut raw = modes.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        // Ctrl-C stays a signal, which ends the wait for keys. These would not restore the terminal.
        raw.special_codes[SpecialCodeIndex::VSUSP] = DISABLED;
        raw.special_codes[SpecialCodeIndex::VQUIT] = DISABLED;
        let (input, output) = (duplicate(self.input.as_fd())?, duplicate(self.output.as_fd())?);
        *SAVED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Saved { modes, input, output });
        termios::tcsetattr(&self.input, OptionalActions::Drain, &raw)?;
        (&self.output).write_all(ENTER)
    }

    /// Restores the terminal, stops the process, and takes the terminal over again when it is continued.
    pub(super) fn stop(&self) -> io::Result<()> {
        restore();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TSTP)?;
        self.take_over()
    }

    /// The descriptor that is readable when a key was pressed.
    pub(super) fn keys(&self) -> RawFd {
        self.input.as_raw_fd()
    }

    /// The pending input; none if the terminal was closed.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut input = [0; 64];
        let n = (&self.input).read(&mut input)?;
        Ok(input[..n].to_vec())
    }

    /// The width and the height.
    pub(super) fn size(&self) -> (usize, usize) {
        match termios::tcgetwinsize(&self.output) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => SIZE,
        }
    }

    /// Shows lines, in one piece.
    pub(super) fn show(&self, lines: &[Line]) -> io::Result<()> {
        let mut text = "\x1b[H".to_owned();
        for (at, (line, look)) in lines.iter().enumerate() {
            text += if at > 0 { "\r\n" } else { "" };
            text += match look {
                Look::Plain => "",
                Look::Bold => "\x1b[1m",
                Look::Reverse => "\x1b[7m",
            };
            text += line;
            text += if *look == Look::Plain { "\x1b[K" } else { "\x1b[0m\x1b[K" };
        }
        text += "\x1b[J";
        (&self.output).write_all(text.as_bytes())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::OpenOptionsExt;

    /// Both ends of a terminal.
    fn terminal() -> (OwnedFd, File) {
        let controller = pty::openpt(pty::OpenptFlags::RDWR | pty::OpenptFlags::NOCTTY).unwrap();
        pty::grantpt(&controller).unwrap();
        pty::unlockpt(&controller).unwrap();
        let name = pty::ptsname(&controller, Vec::new()).unwrap();
        // A test that leads a session must not get it as its controlling terminal, whose end would end the
        // test.
        let mut options = File::options();
        let terminal =
            options.read(true).write(true).custom_flags(libc::O_NOCTTY).open(name.to_str().unwrap());
        let terminal = terminal.unwrap();
        (controller, terminal)
    }

    fn local_modes(terminal: &File) -> LocalModes {
        termios::tcgetattr(terminal).unwrap().local_modes
    }

    fn shown(controller: &OwnedFd) -> String {
        let mut text = [0; 4096];
        let n = rustix::io::read(controller, &mut text).unwrap();
        String::from_utf8_lossy(&text[..n]).into_owned()
    }

    #[test]
    fn the_terminal_is_restored_at_the_end_and_after_a_panic() {
        let (controller, terminal) = terminal();
        let before = local_modes(&terminal);
        let enter = || Screen::enter(terminal.as_fd(), terminal.as_fd()).unwrap();
        let screen = enter();
        assert!(!local_modes(&terminal).intersects(LocalModes::ICANON | LocalModes::ECHO));
        assert!(local_modes(&terminal).contains(LocalModes::ISIG));
        assert_eq!(shown(&controller), "\x1b[?1049h\x1b[?25l\x1b[?7l");
        assert_eq!(screen.size(), SIZE);
        screen.show(&[("a".to_owned(), Look::Bold), ("b".to_owned(), Look::Plain)]).unwrap();
        // The terminal itself adds a carriage return.
        assert_eq!(shown(&controller), "\x1b[H\x1b[1ma\x1b[0m\x1b[K\r\r\nb\x1b[K\x1b[J");
        drop(screen);
        assert_eq!(
            (shown(&controller), local_modes(&terminal)),
            ("\x1b[?7h\x1b[?25h\x1b[?1049l".to_owned(), before)
        );

        let screen = enter();
        shown(&controller);
        let panicked = std::thread::spawn(|| panic!("on purpose")).join();
        assert!(panicked.is_err());
        assert_eq!(
            (shown(&controller), local_modes(&terminal)),
            ("\x1b[?7h\x1b[?25h\x1b[?1049l".to_owned(), before)
        );
        drop(screen);
    }
}
