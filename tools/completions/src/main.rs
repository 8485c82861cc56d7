// SPDX-License-Identifier: BSD-3-Clause
//! Writes the completions of the command line of `rpma`, for bash, zsh and fish.
//!
//! `cargo run -p completions -- DIR` writes `DIR/rpma.bash`, `DIR/_rpma` and `DIR/rpma.fish`. The same source
//! gives the same bytes.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use clap_complete::Shell;

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let (Some(out), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: completions DIR\n\nWrites DIR/rpma.bash, DIR/_rpma and DIR/rpma.fish.");
        return ExitCode::from(2);
    };
    match write(Path::new(&out)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("completions: {}: {why}", out.to_string_lossy());
            ExitCode::FAILURE
        }
    }
}

fn write(out: &Path) -> io::Result<()> {
    fs::create_dir_all(out)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut rpma_tools::command(), "rpma", out)?;
    }
    Ok(())
}
