//! `pando bench step`, `calls`, `crowd`, `sessions`, `steady` and `proxy`: what puts load on a server, steps the rank alone, or stands between.
//!
//! Absent: what a run does (crate `bench`).

use super::{failed, failed_at, on_source, usage};
use crate::args::{BenchCalls, BenchCrowd, BenchProxy, BenchSessions, BenchSteady, BenchStep};
use crate::output::{Format, Output, write_out};
use crate::problem::{Exit, Problem, Verdict};
use crate::source::Source;
use bench::crowd::Place;
use bench::proxy::Proxy;
use bench::report::table;
use bench::{calls, crowd, sessions, steady, step};
use runtime::{Addr, SocketConnector, process};
use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The rank alone.
pub(super) fn step(args: &BenchStep, out: &Output) -> Verdict {
    let plan = step::Step {
        files: args.files,
        dirs: args.dirs,
        batch: args.batch,
        held: args.held,
        random: args.random,
        tests: args.tests.clone(),
    };
    let stepped = step::run(&plan).map_err(|error| failed(&error))?;
    let mut text = table(&stepped.phases);
    for around in &stepped.counters {
        text += &format!(
            "{}: {} steps, {} replies, {} bytes of journal, {} checkpoints, {:.2} s in the store beside\n",
            around.name,
            around.steps,
            around.replies,
            around.journal_bytes,
            around.checkpoints,
            around.store_seconds
        );
    }
    out.result(&text, json!(stepped));
    Ok(0)
}

/// What each second brings: one line at a time, or all of it as JSON in the end.
pub(super) fn steady(args: &BenchSteady, conf: Option<&Path>, out: &Output) -> Verdict {
    let plan = steady::Steady {
        groups: args.groups.clone(),
        to: args.to.clone(),
        dirs: args.dirs.clone(),
        clients: args.clients,
        seconds: args.seconds,
        calls: args.calls.clone(),
    };
    on_source(&args.source, conf, |rank, _| {
        let told = |second: &steady::Second| {
            if out.format == Format::Plain {
                write_out(&second.line());
            }
        };
        let steadied = steady::run(&rank, &plan, told).map_err(|error| failed_at(&error))?;
        let mut text = format!("{} directories\n", steadied.dirs);
        for all in &steadied.all {
            text += &format!("all: {}\n", all.line());
        }
        if let Some(error) = &steadied.first_error {
            text += &format!("first error: {error}\n");
        }
        out.result(&text, json!(steadied));
        Ok(0)
    })
}

/// Programs on the Rust API.
pub(super) fn calls(args: &BenchCalls, conf: Option<&Path>, out: &Output) -> Verdict {
    let program = std::env::current_exe().map_err(|error| Problem::io("this program", &error))?;
    let worker = |task: u32| {
        let mut command = Command::new(&program);
        command.args(["bench", "calls-task", &task.to_string()]);
        command
    };
    on_source(&args.source, conf, |rank, addr| {
        let plan = calls::Calls {
            at: addr.map(|addr| addr.to_string()),
            procs: args.procs,
            threads: args.threads,
            depth: args.depth,
            files: args.files,
            shared: args.shared,
            paths: args.paths,
            nowsync: args.nowsync,
            tests: args.tests.clone(),
            prefix: args.prefix.clone(),
            watch_pid: args.watch_pid,
        };
        let called = calls::run(rank, &plan, worker).map_err(|error| failed_at(&error))?;
        let used: Vec<String> = called
            .phases
            .iter()
            .zip(&called.client_cpu_seconds)
            .map(|(phase, cpu)| format!("{} {:.2}", phase.name, cpu.unwrap_or_default()))
            .collect();
        let text = format!("{}cpu s of the clients: {}\n", table(&called.phases), used.join(", "));
        out.result(&text, json!(called));
        Ok(0)
    })
}

/// Many clients that list.
pub(super) fn crowd(args: &BenchCrowd, conf: Option<&Path>, out: &Output) -> Verdict {
    let plan = crowd::Crowd {
        dir: args.dir.clone(),
        entries: args.entries,
        listers: args.listers,
        seconds: args.seconds,
        watch_pid: args.watch_pid,
    };
    match (&args.path, &args.source) {
        (Some(path), _) => crowd_at(&Place::Path(path.clone()), &plan, out),
        (None, Some(source)) => on_source(source, conf, |rank, _| crowd_at(&Place::Server(rank), &plan, out)),
        (None, None) => Err(usage("neither SOURCE nor --path")),
    }
}

fn crowd_at(place: &Place, plan: &crowd::Crowd, out: &Output) -> Verdict {
    let done = crowd::run(place, plan).map_err(|error| failed_at(&error))?;
    let mut text = format!("{:.0} names/s listed\n{}", done.names_per_second, table(&done.phases));
    if let Some(cpu) = done.cpu_seconds {
        text += &format!("cpu s of the server: {cpu:.2}\n");
    }
    if let Some(rank) = &done.rank {
        text += &format!(
            "rank: {} turns, the longest {:.0} us, {} over 5 ms; {} waits for it, {:.0} us each, {} over 5 ms\n\
             queue: {} requests, {:.0} us each, the longest {:.0} us, {} over 5 ms: {:.3} % of the requests\n",
            rank.turns,
            rank.turn_longest_us,
            rank.turns_over_5ms,
            rank.waits,
            rank.wait_average_us,
            rank.waits_over_5ms,
            rank.queued,
            rank.queue_average_us,
            rank.queue_longest_us,
            rank.queue_over_5ms,
            rank.late_percent
        );
    }
    out.result(&text, json!(done));
    Ok(0)
}

/// Idle sessions, and their way back.
pub(super) fn sessions(args: &BenchSessions, out: &Output) -> Verdict {
    // A connection takes two of them here.
    process::raise_file_limit();
    let plan = sessions::Sessions {
        sessions: args.sessions,
        opens: args.opens,
        files: args.files,
        caps: args.caps,
        tail: args.tail,
        threads: args.threads,
        watch_pid: args.watch_pid,
    };
    let source = Source::parse(&args.source).map_err(|why| usage(&why))?;
    let addr = match source.socket() {
        Some(socket) => Addr::Unix(socket),
        None => Addr::parse(&args.source).map_err(|why| usage(&why.to_string()))?,
    };
    let ready = || out.say("ready");
    let held = sessions::run(&SocketConnector::new(addr), &plan, ready).map_err(|error| failed_at(&error))?;
    let mut text = format!(
        "{} sessions with {} files open each: {} -> {} bytes of anonymous memory, {:.0} bytes per session; cpu {:.2} s\n",
        held.sessions,
        held.opens,
        held.before_bytes,
        held.after_bytes,
        held.bytes_per_session,
        held.cpu_seconds.unwrap_or_default()
    );
    if let Some(back) = &held.back {
        text += &format!(
            "lost at {:.6}; first answer after {:.3} s at {:.6}, first change after {:.3} s at {:.6}, all sessions after {:.3} s\n",
            back.lost_at,
            back.read_seconds,
            back.read_at,
            back.change_seconds,
            back.change_at,
            back.all_seconds
        );
    }
    out.result(&text, json!(held));
    Ok(0)
}

/// Until a signal ends it.
pub(super) fn proxy(args: &BenchProxy, out: &Output) -> Verdict {
    process::raise_file_limit();
    let parse = |text: &str| Addr::parse(text).map_err(|why| usage(&why.to_string()));
    let (listen, to) = (parse(&args.listen)?, parse(&args.to)?);
    let proxy = Proxy::bind(&listen, to.clone(), Duration::from_micros(args.delay_us))
        .map_err(|error| Problem::new(Exit::Failed, format!("{error:#}")))?;
    let at = match (&listen, proxy.port()) {
        (Addr::Tcp(at), Some(port)) => match at.rsplit_once(':') {
            Some((host, _)) => format!("{host}:{port}"),
            None => at.clone(),
        },
        _ => listen.to_string(),
    };
    let text = format!("{at} leads to {to}, {} us later each way", args.delay_us);
    out.result(
        &text,
        json!({ "listen": at, "to": to.to_string(), "delay_us": args.delay_us, "pid": std::process::id() }),
    );
    proxy.run(|error| out.say(&format!("{error:#}")));
    Ok(0)
}
