//! Measures metadata operations per second on a directory: threads work in private directories, as mdtest does.
//! Absent: everything `pando bench` does; this compares transports under the null responder.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Instant;

const USAGE: &str = "usage: rates DIR [threads=4] [files=5000] [bytes=4096] [rounds=3]";

struct Plan {
    folder: PathBuf,
    threads: usize,
    files: usize,
    bytes: usize,
    rounds: usize,
}

type Step = fn(&Path, &[u8]) -> io::Result<()>;

const PHASES: [(&str, Step); 4] = [
    ("create", |path, data| {
        let mut file = File::create_new(path)?;
        if data.is_empty() { Ok(()) } else { file.write_all(data) }
    }),
    ("stat", |path, _| fs::symlink_metadata(path).map(drop)),
    ("open", |path, _| OpenOptions::new().read(true).open(path).map(drop)),
    ("remove", |path, _| fs::remove_file(path)),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let folder = PathBuf::from(words.next().ok_or(USAGE)?);
    let mut plan = Plan { folder, threads: 4, files: 5000, bytes: 4096, rounds: 3 };
    for word in words {
        match word.split_once('=').ok_or(USAGE)? {
            ("threads", value) => plan.threads = value.parse()?,
            ("files", value) => plan.files = value.parse()?,
            ("bytes", value) => plan.bytes = value.parse()?,
            ("rounds", value) => plan.rounds = value.parse()?,
            _ => return Err(USAGE.into()),
        }
    }
    let mut best = [0.0_f64; PHASES.len()];
    for _ in 0..plan.rounds {
        for (best, (_, step)) in best.iter_mut().zip(PHASES) {
            *best = best.max(rate(&plan, step)?);
        }
    }
    let line: Vec<String> =
        PHASES.iter().zip(best).map(|((name, _), rate)| format!("{name} {rate:.0}/s")).collect();
    println!("{} ", line.join("  "));
    Ok(())
}

/// Operations per second of one phase, from the first start to the last end.
fn rate(plan: &Plan, step: Step) -> io::Result<f64> {
    let data = vec![7_u8; plan.bytes];
    let barrier = Barrier::new(plan.threads + 1);
    let work = |thread: usize| -> io::Result<()> {
        let folder = plan.folder.join(format!("t{thread}"));
        let made = fs::create_dir_all(&folder);
        barrier.wait();
        made?;
        (0..plan.files).try_for_each(|file| step(&folder.join(format!("file.{file}")), &data))
    };
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads).map(|thread| scope.spawn(move || work(thread))).collect();
        barrier.wait();
        let start = Instant::now();
        for thread in threads {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked")))?;
        }
        Ok((plan.threads * plan.files) as f64 / start.elapsed().as_secs_f64())
    })
}
