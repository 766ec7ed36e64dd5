//! `pando bench`: performance runs. mdtest and rm work on any directory; survey, cold and memory open a data folder
//! in this process, without kernel and network; list, calls and crowd do so or go to a server.
//!
//! Absent: what a run does (crate `bench`), and any pass mark.

mod load;

use crate::args::{Bench, BenchCold, BenchFolder, BenchList, BenchMdtest, BenchMemory, BenchRm, BenchSurvey};
use crate::output::Output;
use crate::place;
use crate::problem::{Exit, Problem, Verdict};
use crate::source::Source;
use crate::{admin, conf};
use bench::report::{Phase, memory_peak, table};
use bench::{calls, cold, list, mdtest, memory, rm, survey};
use proto::{Errno, RankId};
use runtime::port::{Connector, PortError};
use runtime::{Addr, Config, SocketConnector};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use store::folder;

/// Runs the verb.
///
/// # Errors
/// What failed in the run, with its path.
pub fn run(verb: &Bench, conf: Option<&Path>, out: &Output) -> Verdict {
    match verb {
        Bench::Mdtest(args) => mdtest_run(args, out),
        Bench::MdtestTask { task } => mdtest::serve_task(*task).map(|()| 0).map_err(|e| failed(&e)),
        Bench::Rm(args) => rm_run(args, out),
        Bench::Survey(args) => {
            let bound = conf::read(conf)?.mds_rank_affinity;
            on_ranks(&args.folder, conf, args.ranks, |ranks| survey_run(args, bound, ranks, out))
        }
        Bench::Cold(args) => on_folder(&args.folder, conf, |rank| cold_run(args, &*rank, out)),
        Bench::Memory(args) => on_folder(&args.folder, conf, |rank| memory_run(args, &*rank, out)),
        Bench::List(args) => on_source(&args.source, conf, |rank, _| list_run(args, &*rank, out)),
        Bench::Step(args) => load::step(args, out),
        Bench::Calls(args) => load::calls(args, conf, out),
        Bench::CallsTask { task } => calls::serve_task(*task).map(|()| 0).map_err(|e| failed(&e)),
        Bench::Crowd(args) => load::crowd(args, conf, out),
        Bench::Sessions(args) => load::sessions(args, out),
        Bench::Steady(args) => load::steady(args, conf, out),
        Bench::Proxy(args) => load::proxy(args, out),
    }
}

fn failed(error: &impl std::fmt::Display) -> Problem {
    Problem::new(Exit::Failed, format!("{error:#}"))
}

/// A run on a folder of its own. What it makes must not be there yet, and its own errno would not say from where it is.
fn failed_on(
    folder: &BenchFolder,
    step: &str,
    errno: Option<&Errno>,
    error: &impl std::fmt::Display,
) -> Problem {
    match errno {
        Some(&Errno::EEXIST) => {
            let what = format!("{}: the files of an earlier run are there", folder.dir.display());
            Problem::new(Exit::State, what).do_this(step)
        }
        _ => failed(error),
    }
}

fn mdtest_run(args: &BenchMdtest, out: &Output) -> Verdict {
    let program = std::env::current_exe().map_err(|error| Problem::io("this program", &error))?;
    let worker = |task: u32| {
        let mut command = Command::new(&program);
        command.args(["bench", "mdtest-task", &task.to_string()]);
        command
    };
    let summary = mdtest::run(&args.options(), worker).map_err(|error| failed(&error))?;
    let mut text = String::new();
    for (i, phases) in summary.iterations.iter().enumerate() {
        text += &format!("iteration {} of {}\n{}", i + 1, summary.iterations.len(), table(phases));
    }
    out.result(&text, json!(summary));
    Ok(0)
}

fn rm_run(args: &BenchRm, out: &Output) -> Verdict {
    let phase = rm::run(&args.dir, args.files).map_err(|error| failed(&error))?;
    show(&[phase], out)
}

fn show(phases: &[Phase], out: &Output) -> Verdict {
    out.result(&table(phases), json!({ "phases": phases }));
    Ok(0)
}

fn survey_run(args: &BenchSurvey, bound: bool, ranks: &[Arc<dyn Connector>], out: &Output) -> Verdict {
    let plan = survey::Survey {
        threads: args.threads,
        dirs: args.dirs.unwrap_or(args.threads),
        files: args.files,
        depth: args.depth,
        bound,
        tests: args.tests.clone(),
    };
    let step = "name another `--prefix`, or another folder";
    let connectors: Vec<&dyn Connector> = ranks.iter().map(|rank| &**rank).collect();
    let phases = survey::run(&connectors, &plan, &args.prefix)
        .map_err(|error| failed_on(&args.folder, step, error.downcast_ref(), &error))?;
    let line = survey::line(&plan, ranks.len(), &phases);
    out.result(
        &format!("{line}\n{}{}\n", table(&phases), survey::counters(&phases)),
        json!({ "phases": phases, "memory_peak": memory_peak() }),
    );
    Ok(0)
}

fn cold_run(args: &BenchCold, rank: &dyn Connector, out: &Output) -> Verdict {
    let plan = cold::Cold {
        threads: args.threads,
        depth: args.depth,
        dirs: args.dirs,
        files: args.files,
        seconds: args.seconds,
        keep: args.keep,
    };
    let step = "`--keep` looks up those that are there; or name another folder";
    show(
        &cold::run(rank, &plan)
            .map_err(|error| failed_on(&args.folder, step, error.downcast_ref(), &error))?,
        out,
    )
}

fn memory_run(args: &BenchMemory, rank: &dyn Connector, out: &Output) -> Verdict {
    let step = "name another folder, or remove this one first";
    let memory = memory::run(rank, args.files, args.dirs, args.caps)
        .map_err(|error| failed_on(&args.folder, step, error.downcast_ref(), &error))?;
    let text = format!(
        "{} files: {} -> {} bytes of anonymous memory, {:.1} bytes per file\n",
        memory.files, memory.before, memory.after, memory.bytes_per_file
    );
    out.result(&text, json!(memory));
    Ok(0)
}

fn list_run(args: &BenchList, rank: &dyn Connector, out: &Output) -> Verdict {
    let plan = list::List {
        dir: args.dir.clone(),
        entries: args.entries,
        seconds: args.seconds,
        listers: args.listers,
        page_bytes: args.page_bytes,
        attrs: args.attrs,
        watch_pid: args.watch_pid,
    };
    let listed = list::run(rank, &plan).map_err(|error| failed_at(&error))?;
    let longest: Vec<String> =
        listed.phases.iter().map(|phase| format!("{} {:.0} us", phase.name, phase.max_us)).collect();
    let checked = if listed.listings > 0 { ", every staying name once in each" } else { "" };
    let cpu = listed.cpu_seconds.map_or_else(|| "-".into(), |cpu| format!("{cpu:.2}"));
    let text = format!(
        "{} listings, {} names in {:.1} s: {:.0} names/s{checked}; cpu {cpu} s, {} checkpoints\n{}longest: {}\n",
        listed.listings,
        listed.entries,
        listed.seconds,
        listed.entries_per_second,
        listed.checkpoints,
        table(&listed.phases),
        longest.join(", "),
    );
    out.result(&text, json!(listed));
    Ok(0)
}

/// Goes to the server there, whose address `work` gets as well; a folder that nobody serves is served in this process, for one
/// run.
fn on_source(
    text: &str,
    conf: Option<&Path>,
    work: impl FnOnce(Arc<dyn Connector>, Option<Addr>) -> Verdict,
) -> Verdict {
    let source = Source::parse(text).map_err(|why| usage(&why))?;
    let addr = match source.socket() {
        Some(socket) if matches!(source, Source::Unix(_)) || admin::is_alive(&socket) => Addr::Unix(socket),
        Some(_) => return on_folder(&BenchFolder { dir: text.into() }, conf, |rank| work(rank, None)),
        None => Addr::parse(text).map_err(|why| usage(&why.to_string()))?,
    };
    work(Arc::new(SocketConnector::new(addr.clone())), Some(addr))
}

fn usage(why: &str) -> Problem {
    Problem::new(Exit::Usage, why).do_this("`pando bench --help`")
}

/// A run on a server: nobody there is another exit code than a failure in it.
fn failed_at(error: &bench::Error) -> Problem {
    match error.downcast_ref() {
        Some(PortError::Unreachable { .. }) => Problem::new(Exit::Unreachable, format!("{error:#}")),
        _ => failed(&error),
    }
}

/// Serves the folder (made first if it is absent) in this process, for one run.
fn on_folder(
    args: &BenchFolder,
    conf_file: Option<&Path>,
    work: impl FnOnce(Arc<dyn Connector>) -> Verdict,
) -> Verdict {
    on_ranks(args, conf_file, 1, |ranks| match ranks {
        [first, ..] => work(first.clone()),
        [] => Err(usage("--ranks must be at least 1")),
    })
}

/// The same with so many active ranks, each reached as its own process.
fn on_ranks(
    args: &BenchFolder,
    conf_file: Option<&Path>,
    ranks: u16,
    work: impl FnOnce(&[Arc<dyn Connector>]) -> Verdict,
) -> Verdict {
    let dir: &PathBuf = &args.dir;
    // What a benchmark's client keeps is bounded by what it asks for.
    let config = Config { mds_max_caps_per_client: u64::from(u32::MAX), ..conf::read(conf_file)? };
    if fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none()) {
        folder::format(dir, &place::format_options()).map_err(|error| place::explain(&error))?;
    }
    let server = match ranks {
        1 => place::open_unheard(dir, &config)?,
        ranks => place::open_ranks(dir, &config, ranks)?,
    };
    let all: Vec<_> = (0..ranks).map(|rank| server.embedded_at(RankId(rank))).collect();
    let verdict = work(&all);
    server.stop().map_err(|error| Problem::failed(dir.display(), error))?;
    verdict
}
