//! What is generated from the command tree: completion scripts, man pages, the version text.
//!
//! Absent: anything about a file system.

use crate::args::{Cli, Completion};
use crate::mount_words;
use crate::output::Output;
use crate::problem::{Problem, Verdict};
use clap::CommandFactory;
use serde_json::json;
use std::path::Path;

/// `pando version`.
///
/// # Errors
/// None.
pub fn version(out: &Output) -> Verdict {
    let (version, format) = (env!("CARGO_PKG_VERSION"), proto::fsrecord::FORMAT);
    let protocol = proto::message::PROTOCOL;
    let text = format!("pando {version} (format {format}, protocol {protocol})");
    out.result(&text, json!({"version": version, "format": format, "protocol": protocol}));
    Ok(0)
}

/// `pando completion SHELL`.
///
/// # Errors
/// None.
pub fn completion(args: &Completion) -> Verdict {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "pando", &mut text);
    crate::output::write_out(&String::from_utf8_lossy(&text));
    Ok(0)
}

/// `pando man FOLDER`: pando.1, one page per verb, and mount.fuse.pando.8.
///
/// # Errors
/// The file system's.
pub fn man(folder: &Path, out: &Output) -> Verdict {
    let failed = |error: std::io::Error| Problem::io(folder.display(), &error);
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut command = Cli::command();
    command.build();
    let mut pages = vec![("pando".to_string(), command.clone())];
    collect(&command, "pando", &mut pages);
    for (name, command) in &pages {
        let mut page = Vec::new();
        let title: &'static str = Box::leak(name.clone().into_boxed_str());
        let is_mount = name == "pando-mount";
        // Its options are a section of their own: running text would flow them together.
        let command = if is_mount { command.clone().after_help("") } else { command.clone() };
        clap_mangen::Man::new(command.name(title)).render(&mut page).map_err(failed)?;
        if is_mount {
            page.extend_from_slice(mount_words::roff().as_bytes());
        }
        std::fs::write(folder.join(format!("{name}.1")), page).map_err(failed)?;
    }
    std::fs::write(folder.join("mount.fuse.pando.8"), helper_page()).map_err(failed)?;
    out.say(&format!("wrote {} pages into {}", pages.len() + 1, folder.display()));
    Ok(0)
}

fn collect(command: &clap::Command, prefix: &str, pages: &mut Vec<(String, clap::Command)>) {
    // clap's own `help` has no page; where a verb has that name there is no such one.
    let own_help = command.is_disable_help_subcommand_set();
    let is_shown = |verb: &&clap::Command| !verb.is_hide_set() && (own_help || verb.get_name() != "help");
    for verb in command.get_subcommands().filter(is_shown) {
        let name = format!("{prefix}-{}", verb.get_name());
        pages.push((name.clone(), verb.clone()));
        collect(verb, &name, pages);
    }
}

fn helper_page() -> String {
    HELPER_PAGE.replace(".SH EXIT STATUS", &format!("{}.SH EXIT STATUS", mount_words::roff()))
}

const HELPER_PAGE: &str = r".TH mount.fuse.pando 8
.SH NAME
mount.fuse.pando \- mount a PandoFS file system from fstab
.SH SYNOPSIS
.B mount \-t fuse.pando
.I SOURCE MNT
[\-o OPTIONS]
.SH DESCRIPTION
Called by mount(8). SOURCE is that of
.BR pando\-mount (1).
It never creates a file system: a disk that is not mounted must not become an empty one.
.SH EXIT STATUS
0 when mounted, 1 for a wrong command line, 32 when the mount failed.
.SH SEE ALSO
.BR pando\-mount (1),
.BR fstab (5)
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_pages_of_mounting_list_the_options() {
        let folder = tempfile::tempdir().expect("a folder");
        man(folder.path(), &Output { quiet: true, ..Output::default() }).expect("written");
        for page in ["pando-mount.1", "mount.fuse.pando.8"] {
            let text = std::fs::read_to_string(folder.path().join(page)).expect("a page");
            for line in ["MOUNT OPTIONS", "\n.B subdir=PATH\n", "\n.B locks=cluster|local\n"] {
                assert!(text.contains(line), "{line} is not in {page}");
            }
        }
        let is_there = |page: &str| folder.path().join(page).exists();
        assert!(is_there("pando-config-help.1") && !is_there("pando-help.1") && !is_there("pando-fs-help.1"));
    }

    #[test]
    fn every_argument_that_is_shown_is_described() {
        let mut command = Cli::command();
        command.build();
        let mut verbs = Vec::new();
        collect(&command, "pando", &mut verbs);
        for (name, verb) in verbs {
            for arg in verb.get_arguments().filter(|arg| !arg.is_hide_set()) {
                assert!(arg.get_help().is_some(), "{name}: {}", arg.get_id());
            }
        }
    }
}
