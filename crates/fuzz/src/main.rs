//! `fuzz`: runs the targets, replays one input, writes the seed corpus.
//!
//! Absent: the targets and the loop (the library).

use fuzz::engine::{Failure, Outcome, Watch, execute, run};
use fuzz::{ALL, Target, corpus, find, memory};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "usage:
  fuzz run --seconds N [--target T] [--seed S] [--keep]
  fuzz replay TARGET FILE
  fuzz seed-corpus
  fuzz targets";

/// One execution longer than this is a hang.
const HANG_SECONDS: u64 = 20;

struct Options {
    seconds: u64,
    targets: Vec<Target>,
    seed: u64,
    keep: bool,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["run", rest @ ..] => parse(rest).and_then(|options| run_all(&options)),
        ["replay", target, file] => replay(target, file),
        ["seed-corpus"] => seed_corpus(),
        ["targets"] => {
            ALL.iter().for_each(|target| println!("{}", target.name));
            Ok(true)
        }
        _ => Err("no such command".to_owned()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(what) => {
            eprintln!("fuzz: {what}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(words: &[&str]) -> Result<Options, String> {
    let mut options = Options { seconds: 0, targets: ALL.to_vec(), seed: 1, keep: false };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text}: not a number"));
        match *word {
            "--seconds" => options.seconds = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--target" => {
                let name = value()?;
                options.targets = vec![find(name).ok_or(format!("{name}: no such target"))?];
            }
            "--keep" => options.keep = true,
            other => return Err(format!("{other}: no such option")),
        }
    }
    if options.seconds == 0 { Err("--seconds N is needed".to_owned()) } else { Ok(options) }
}

fn run_all(options: &Options) -> Result<bool, String> {
    let share = Duration::from_secs(options.seconds) / options.targets.len().max(1) as u32;
    let (mut passed, mut failed) = (0, 0);
    for target in &options.targets {
        let pool = corpus::load(target).map_err(|error| error.to_string())?;
        let pool: Vec<Vec<u8>> = pool.into_iter().map(|(_, bytes)| bytes).collect();
        let inputs = pool.len();
        let outcome = watched(target, pool, options.seed, share);
        let good = outcome.failures.is_empty();
        (passed, failed) = if good { (passed + 1, failed) } else { (passed, failed + 1) };
        println!(
            "{:<18} {:>10} executions, {inputs} kept inputs, {} classes: {} passed, {} failed",
            target.name,
            outcome.executions,
            outcome.classes.len(),
            outcome.executions - outcome.failures.len() as u64,
            outcome.failures.len(),
        );
        outcome.failures.iter().for_each(|failure| report(target, failure));
        if options.keep {
            keep(target, &outcome)?;
        }
    }
    println!("result: {passed} passed, {failed} failed");
    Ok(failed == 0)
}

/// Runs a target while another thread looks whether one input takes too long.
fn watched(target: &Target, pool: Vec<Vec<u8>>, seed: u64, share: Duration) -> Outcome {
    let (watch, done, start) = (Watch::default(), AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                std::thread::park_timeout(Duration::from_secs(1));
                if let Some(input) = watch.hanging(HANG_SECONDS) {
                    report(target, &Failure { input, what: format!("runs longer than {HANG_SECONDS} s") });
                    println!("result: 0 passed, 1 failed");
                    std::process::exit(1);
                }
            }
        });
        // The clock is asked rarely: a decoder takes less time than the question.
        let mut go_on = |executions: u64| !executions.is_multiple_of(16) || start.elapsed() < share;
        let outcome = run(target, pool, seed, &watch, &mut go_on);
        done.store(true, Ordering::Release);
        watcher.thread().unpark();
        outcome
    })
}

fn report(target: &Target, failure: &Failure) {
    println!("{}: {}", target.name, failure.what);
    match corpus::fail(target, &failure.input) {
        Ok(path) => println!("  replay {} {}", target.name, path.display()),
        Err(error) => println!("  not written: {error}"),
    }
    println!("  hex {}", corpus::hex(&failure.input));
}

/// Adds what reached something new to the corpus, the shortest first, while there is room.
fn keep(target: &Target, outcome: &Outcome) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let (mut count, mut bytes) =
        (corpus::load(target).map_err(text)?.len(), corpus::total(ALL).map_err(text)?);
    let mut found: Vec<&Vec<u8>> = outcome.found.iter().collect();
    found.sort_by_key(|input| input.len());
    for input in found {
        bytes += input.len() as u64;
        if input.len() > corpus::KEPT_BYTES_MAX
            || count >= corpus::KEPT_MAX
            || bytes > corpus::CORPUS_BYTES_MAX
        {
            break;
        }
        corpus::keep(target, &corpus::name_of(input), input).map_err(text)?;
        count += 1;
    }
    Ok(())
}

fn replay(name: &str, file: &str) -> Result<bool, String> {
    let target = find(name).ok_or(format!("{name}: no such target"))?;
    let input = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
    let before = memory::peak();
    let verdict = execute(&target, &input);
    println!("memory: {} KiB more at the peak", (memory::peak() - before) >> 10);
    match &verdict {
        Ok(class) => println!("{class}\nresult: 1 passed, 0 failed"),
        Err(what) => println!("{what}\nhex {}\nresult: 0 passed, 1 failed", corpus::hex(&input)),
    }
    Ok(verdict.is_ok())
}

fn seed_corpus() -> Result<bool, String> {
    for target in ALL {
        let mut seen = BTreeSet::new();
        let seeds = (target.seeds)();
        for (name, bytes) in seeds.iter().filter(|(_, bytes)| bytes.len() <= corpus::KEPT_BYTES_MAX) {
            if seen.insert(bytes.clone()) {
                let name = format!("seed-{name}");
                corpus::keep(target, &name, bytes).map_err(|error| error.to_string())?;
            }
        }
        println!("{:<18} {} seeds", target.name, seen.len());
    }
    let bytes = corpus::total(ALL).map_err(|error| error.to_string())?;
    println!("{bytes} bytes in all");
    Ok(bytes <= corpus::CORPUS_BYTES_MAX)
}
