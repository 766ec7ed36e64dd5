//! The mount helper: `mount.fuse.pando SOURCE MNT [-sfnv] [-o OPTIONS] [-t TYPE]`, as mount(8) and systemd
//! call it. Never creates a file system, and speaks mount(8)'s exit codes.
//!
//! Absent: anything `pando mount` does not do.

use crate::args::Mount;
use crate::output::{Format, Output, write_err};
use crate::problem::Exit;
use crate::verbs;
use std::ffi::OsString;
use std::path::Path;

/// The names under which this program is the helper.
const NAMES: &[&str] = &["mount.fuse.pando", "mount.pando"];

/// What a remount may change.
const KERNEL_WORDS: &[&str] = &[
    "remount",
    "bind",
    "ro",
    "rw",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "atime",
    "noatime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "nodiratime",
    "diratime",
];

/// mount(8)'s exit codes.
const USAGE: u8 = 1;
const FAILED: u8 = 32;

/// The helper's arguments, if this command line calls it: by the program's name, or by the first argument.
#[must_use]
pub fn arguments(args: &[OsString]) -> Option<&[OsString]> {
    let is_name = |arg: &OsString| {
        let name = Path::new(arg).file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| NAMES.contains(&name))
    };
    match args {
        [program, rest @ ..] if is_name(program) => Some(rest),
        [_, verb, rest @ ..] if is_name(verb) => Some(rest),
        _ => None,
    }
}

/// Mounts; the exit code.
#[must_use]
pub fn run(args: &[OsString]) -> u8 {
    let (mount, fake) = match parse(args) {
        Ok(parsed) => parsed,
        Err(why) => {
            write_err(&format!(
                "mount.fuse.pando: {why}\n  do: `mount -t fuse.pando SOURCE MNT [-o OPTIONS]`\n"
            ));
            return USAGE;
        }
    };
    if fake {
        return 0;
    }
    if mount.options.iter().any(|text| text.split(',').any(|word| word == "remount")) {
        return remount(&mount);
    }
    let out = Output::new(Format::Plain, true, 0);
    match verbs::mount::run(&mount, None, &out) {
        Ok(code) => code,
        Err(problem) => {
            write_err(&problem.text("mount"));
            if problem.code == Exit::Usage as u8 { USAGE } else { FAILED }
        }
    }
}

/// Changing a standing mount (`-o remount,ro`) is between mount(8) and the kernel; our daemon goes on.
fn remount(mount: &Mount) -> u8 {
    let words: Vec<&str> = mount.options.iter().flat_map(|text| text.split(',')).collect();
    // Ours are not the kernel's: it would refuse them.
    let kernels: Vec<&str> = words.into_iter().filter(|word| KERNEL_WORDS.contains(word)).collect();
    let status = std::process::Command::new("mount")
        .args(["-i", "-o", &kernels.join(",")])
        .arg(&mount.places[1])
        .status();
    match status {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED),
        Err(error) => {
            write_err(&crate::problem::Problem::io("mount(8)", &error).text("mount"));
            FAILED
        }
    }
}

/// The arguments, and whether mount(8) only pretends (`-f`).
fn parse(args: &[OsString]) -> Result<(Mount, bool), String> {
    let mut places = Vec::new();
    let mut options = vec!["nocreate".to_string()];
    let mut fake = false;
    let mut words = args.iter().map(|arg| arg.to_string_lossy().into_owned());
    while let Some(word) = words.next() {
        match word.as_str() {
            "-o" => options.push(words.next().ok_or("-o: no options")?),
            // Types, namespaces: of no interest here, but they have a value.
            "-t" | "-N" => drop(words.next().ok_or_else(|| format!("{word}: no value"))?),
            _ if word.starts_with("-o") => options.push(word[2..].into()),
            _ if word.len() > 1 && word.starts_with('-') => {
                for flag in word[1..].chars() {
                    match flag {
                        'f' => fake = true,
                        's' | 'n' | 'v' => {}
                        'r' => options.push("ro".into()),
                        'w' => options.push("rw".into()),
                        _ => return Err(format!("unknown option -{flag}")),
                    }
                }
            }
            _ => places.push(word),
        }
    }
    if places.len() != 2 {
        return Err("SOURCE and MNT are wanted".into());
    }
    Ok((Mount { places, data: None, foreground: false, options, timeout: 30, daemon: false }, fake))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuse::adapter::Options;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(Into::into).collect()
    }

    #[test]
    fn both_ways_of_calling_are_known() {
        let by_name = words("/sbin/mount.fuse.pando /d /m");
        let by_word = words("pando mount.fuse.pando /d /m");
        assert_eq!(arguments(&by_name), Some(&words("/d /m")[..]));
        assert_eq!(arguments(&by_word), Some(&words("/d /m")[..]));
        assert_eq!(arguments(&words("pando mount /d /m")), None);
    }

    #[test]
    fn it_never_creates() {
        let (mount, fake) =
            parse(&words("/d /m -sn -o rw,noatime,x-systemd.requires=a -t fuse.pando")).expect("good");
        let options = Options::parse(&mount.options).expect("good");
        assert!(options.nocreate && !fake && !options.read_only);
        assert_eq!(mount.places, vec!["/d", "/m"]);
    }

    #[test]
    fn wrong_command_lines_are_named() {
        assert_eq!(parse(&words("/d")).map(drop), Err("SOURCE and MNT are wanted".into()));
        assert_eq!(parse(&words("/d /m -z")).map(drop), Err("unknown option -z".into()));
        assert_eq!(parse(&words("/d /m -o")).map(drop), Err("-o: no options".into()));
    }
}
