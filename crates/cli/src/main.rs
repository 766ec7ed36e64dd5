//! The binary `pando`: hands its arguments to the library and exits with the code it gets.
//!
//! Absent: everything else.

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::process::bound_heaps();
    ExitCode::from(cli::run(std::env::args_os().collect()))
}
