//! `pando demo DIR MNT`: steps 3 to 5 of `make run`: mount, work and measure, kill -9 and verify.
//!
//! Absent: benchmarks that mean something (`bench`); these figures are one short run on one machine.

mod work;

use crate::args::{Demo, Load, LoadWrite, Mount};
use crate::output::{Format, Output, grouped, write_out};
use crate::problem::{Exit, Problem, Verdict};
use crate::source::Source;
use crate::verbs::{load, mount, umount};
use crate::{admin, mounts};
use runtime::process;
use serde_json::json;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs the verb.
///
/// # Errors
/// Whatever step fails.
pub fn run(args: &Demo) -> Verdict {
    let quiet = Output::new(Format::Plain, true, 0);
    up(args, &quiet)?;
    let folder = args.mountpoint.join("demo");
    work::run(&folder, args.files, args.processes)?;
    kill_and_verify(args, &folder, &quiet)?;
    let (data, mnt) = (args.dir.display(), args.mountpoint.display());
    let pando = command(std::env::var_os("PATH").as_deref());
    write_out(&format!("Next: ls {mnt}/demo | {pando} status | {pando} umount {mnt} | rm -r {data}\n"));
    Ok(0)
}

/// How a person calls this program: by its name once it is installed, before that by its path.
fn command(path: Option<&OsStr>) -> String {
    let is_there = |folder: PathBuf| folder.join("pando").is_file();
    let installed = path.is_some_and(|path| std::env::split_paths(path).any(is_there));
    let own = std::env::current_exe().ok().filter(|_| !installed);
    own.map_or_else(|| "pando".into(), |path| mounts::shown(&path))
}

/// `[3/5] mount           ./pando-data at ./mnt                   0.2 s`
pub(super) fn line(step: u8, name: &str, what: &str, result: &str) {
    write_out(&format!("[{step}/5] {name:<15} {what:<42} {result}\n"));
}

fn up(args: &Demo, quiet: &Output) -> Result<(), Problem> {
    let what = format!("{} at {}", args.dir.display(), args.mountpoint.display());
    let start = Instant::now();
    let standing = mounts::at(&args.mountpoint).filter(|mount| !mounts::is_dead(&mount.path));
    match standing {
        Some(mount) if is_of(&mount, &args.dir) => line(3, "mount", &what, "reused"),
        Some(_) => {
            let place = args.mountpoint.display();
            return Err(Problem::new(Exit::State, format!("{place} is a mount of something else"))
                .do_this(format!("`pando umount {place}`")));
        }
        None => {
            mount_again(args, quiet)?;
            line(3, "mount", &what, &format!("{:.1} s", start.elapsed().as_secs_f64()));
        }
    }
    Ok(())
}

fn is_of(mount: &mounts::Mounted, dir: &Path) -> bool {
    let wanted = Source::Folder(dir.into()).absolute();
    Source::parse(&mount.source).is_ok_and(|source| source.socket() == wanted.socket())
}

fn mount_again(args: &Demo, quiet: &Output) -> Result<(), Problem> {
    let mount = Mount {
        places: vec![mounts::shown(&args.mountpoint)],
        // Not as SOURCE: a name without a slash could be read as a host.
        data: Some(mounts::shown(&args.dir)),
        foreground: false,
        options: Vec::new(),
        timeout: 60,
        daemon: false,
    };
    mount::run(&mount, None, quiet).map(drop)
}

/// Writers that note what they synced; the server is killed; a new mount; every noted file is looked at.
fn kill_and_verify(args: &Demo, folder: &Path, quiet: &Output) -> Result<(), Problem> {
    let acks = Acks::new(args.processes)?;
    let synced = folder.join("synced");
    let server = server_of(args)?;
    write_synced(args, &synced, &acks)?;
    kill(server)?;
    let start = Instant::now();
    umount_dead(args, quiet);
    mount_again(args, quiet)?;
    std::fs::metadata(&args.mountpoint).map_err(|error| Problem::io(args.mountpoint.display(), &error))?;
    let again = start.elapsed().as_secs_f64();
    let (mut good, mut bad) = (0, Vec::new());
    for ack in &acks.files {
        let (right, wrong) = load::verify(&synced, ack)?;
        good += right;
        bad.extend(wrong);
    }
    let total = good + bad.len() as u64;
    let verified = format!("{} of {} synced files verified", grouped(good), grouped(total));
    if let Some(first) = bad.first() {
        return Err(Problem::new(Exit::Failed, format!("after kill -9 {verified}: {first}")));
    }
    let checked = fsck(args)?;
    write_out(&format!("[5/5] {:<15} service again after {again:.2} s; {verified}, {checked}\n", "kill -9"));
    Ok(())
}

/// Where the writers note their numbers: outside of the mount, gone at the end.
struct Acks {
    folder: PathBuf,
    files: Vec<PathBuf>,
}

impl Acks {
    fn new(count: u64) -> Result<Self, Problem> {
        let folder = std::env::temp_dir().join(format!("pando-demo-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| Problem::io(folder.display(), &error))?;
        let files = (0..count).map(|writer| folder.join(writer.to_string())).collect();
        Ok(Self { folder, files })
    }
}

impl Drop for Acks {
    fn drop(&mut self) {
        let _leftover = std::fs::remove_dir_all(&self.folder);
    }
}

fn write_synced(args: &Demo, synced: &Path, acks: &Acks) -> Result<(), Problem> {
    let share = args.files.div_ceil(args.processes.max(1));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0_u64..)
            .zip(&acks.files)
            .map(|(writer, ack)| {
                let first = writer * share;
                let count = share.min(args.files.saturating_sub(first));
                let write = LoadWrite { folder: synced.into(), ack: ack.clone(), first, count, bytes: 4096 };
                let quiet = Output::default();
                scope.spawn(move || load::run(&Load::Write(write), &quiet).map(drop))
            })
            .collect();
        for writer in writers {
            writer.join().unwrap_or_else(|_| Err(Problem::new(Exit::Failed, "a writer panicked")))?;
        }
        Ok(())
    })
}

fn server_of(args: &Demo) -> Result<u64, Problem> {
    let source = Source::Folder(args.dir.clone());
    let answer = admin::ask(&source, &json!({"cmd": "status"}), crate::ANSWER_TIME)?;
    answer["pid"].as_u64().ok_or_else(|| Problem::failed(source, "the server does not say its pid"))
}

/// kill -9 of the server whose folder this is, and of nothing else.
fn kill(pid: u64) -> Result<(), Problem> {
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
    match killed {
        Ok(status) if status.success() => {
            umount::wait_until_gone(u32::try_from(pid).unwrap_or(u32::MAX), Duration::from_secs(10));
            Ok(())
        }
        Ok(status) => Err(Problem::failed(format!("kill -9 {pid}"), status)),
        Err(error) => Err(Problem::io("kill", &error)),
    }
}

/// The same mount again takes the dead one away by itself; this only spares its message.
fn umount_dead(args: &Demo, quiet: &Output) {
    let place = crate::args::Umount { mountpoint: args.mountpoint.clone(), force: false, lazy: true };
    let _done_by_mount = umount::run(&place, quiet);
}

/// The folder is served, so it is unmounted for the check and mounted again.
fn fsck(args: &Demo) -> Result<&'static str, Problem> {
    let quiet = Output::new(Format::Plain, true, 0);
    let place = crate::args::Umount { mountpoint: args.mountpoint.clone(), force: false, lazy: false };
    umount::run(&place, &quiet)?;
    let program = std::env::current_exe().map_err(|error| Problem::io("this program", &error))?;
    let checked = Command::new(program)
        .args(["fsck", "--quiet"])
        .arg(&args.dir)
        .output()
        .map_err(|error| Problem::io("fsck", &error))?;
    mount_again(args, &quiet)?;
    let _space = process::space_of(&args.mountpoint);
    match checked.status.code() {
        Some(0) => Ok("fsck clean"),
        _ => {
            let text = String::from_utf8_lossy(&checked.stdout).into_owned();
            Err(Problem::new(Exit::Failed, format!("fsck after kill -9: {}", text.trim_end())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_installed_is_called_by_its_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = std::env::current_exe().expect("a program");
        assert_eq!(command(Some(folder.path().as_os_str())), mounts::shown(&own));
        std::fs::write(folder.path().join("pando"), "").expect("installed");
        assert_eq!(command(Some(folder.path().as_os_str())), "pando");
    }
}
