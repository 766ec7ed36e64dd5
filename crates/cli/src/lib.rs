//! Crate `cli`: the one binary `pando`. Parses the command line, finds the server or folder meant, calls
//! the crate that does the work, prints the result, and says what to do when there is none.
//!
//! Absent: any decision about the file system.

pub mod admin;
pub mod args;
pub mod busy;
pub mod conf;
pub mod daemon;
pub mod discover;
pub mod helper;
pub mod later;
pub mod mount_log;
pub mod mount_status;
pub mod mount_words;
pub mod mounts;
pub mod output;
pub mod overlap;
pub mod place;
pub mod problem;
pub mod source;
pub mod verbs;

use args::{Cli, Global, Verb};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use discover::Hints;
use output::{Format, Output};
use problem::{Exit, Problem, Verdict};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// How long a server may take to answer an operator's question.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Runs one command line (with the program's name first); the process's exit code.
#[must_use]
pub fn run(args: Vec<OsString>) -> u8 {
    if let Some(words) = helper::arguments(&args) {
        return helper::run(words);
    }
    if let Some((verb, problem)) = later::check(&args) {
        tell(&problem, &verb, wanted_format(&args));
        return problem.code;
    }
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return usage(&args, &error),
    };
    let Global { quiet, verbose, .. } = cli.global;
    let format = cli.global.form();
    let out = Output::new(format, quiet, verbose);
    match dispatch(&cli, &out) {
        Ok(code) => code,
        Err(problem) => {
            tell(&problem, name(&cli.verb), format);
            problem.code
        }
    }
}

/// An error, in the form that results have.
fn tell(problem: &Problem, verb: &str, format: Format) {
    match format {
        Format::Plain => output::write_err(&problem.text(verb)),
        Format::Json => output::write_err(&problem.json(verb).to_string()),
    }
}

/// The form asked for by a command line that cannot be read otherwise.
fn wanted_format(args: &[OsString]) -> Format {
    let words: Vec<&str> = args.iter().skip(1).filter_map(|arg| arg.to_str()).collect();
    let words = words.split(|word| *word == "--").next().unwrap_or_default();
    let short = words.iter().any(|word| ["--json", "--format=json"].contains(word));
    let json = short || words.windows(2).any(|pair| pair == ["--format", "json"]);
    if json { Format::Json } else { Format::Plain }
}

/// Help goes to stdout; a wrong command line is told in the form of every other problem.
fn usage(args: &[OsString], error: &clap::Error) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output::write_out(&error.to_string());
            0
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            output::write_err(&error.to_string());
            Exit::Usage as u8
        }
        _ => {
            let verb = later::first_verb(&mut args.iter().skip(1).filter_map(|arg| arg.to_str()));
            let text = error.to_string();
            let what = text.strip_prefix("error: ").unwrap_or(&text);
            let what = what.split("\n\nUsage:").next().unwrap_or(what);
            let what = what.split("\n\nFor more").next().unwrap_or(what).trim_end();
            let help = format!("`{} --help`", deepest(args).join(" "));
            let code = if verb == Some("fsck") { 16 } else { Exit::Usage as u8 };
            let problem = Problem { code, what: what.into(), step: Some(help) };
            tell(&problem, verb.unwrap_or_default(), wanted_format(args));
            code
        }
    }
}

/// The command, as far as its words are known: its help says what is wanted of the rest.
fn deepest(args: &[OsString]) -> Vec<String> {
    let mut words = args.iter().skip(1).filter_map(|arg| arg.to_str());
    let mut path = vec!["pando".to_owned()];
    let mut command = Cli::command();
    while let Some(below) = later::first_verb(&mut words).and_then(|word| command.find_subcommand(word)) {
        path.push(below.get_name().to_owned());
        command = below.clone();
    }
    path
}

fn dispatch(cli: &Cli, out: &Output) -> Verdict {
    let conf = cli.global.conf.as_deref();
    let server =
        |path: Option<&Path>| discover::find(&Hints { cluster: cli.global.cluster.as_deref(), path, conf });
    match &cli.verb {
        Verb::Format(args) => verbs::format::run(args, out),
        Verb::Mount(args) => verbs::mount::run(args, conf, out),
        Verb::Umount(args) => verbs::umount::run(args, out),
        Verb::Serve(args) => verbs::serve::run(args, conf, out),
        Verb::Status(args) => verbs::status::run(args.path.as_deref(), server(args.path.as_deref()), out),
        Verb::Health(args) => verbs::health::run(args, server(None), out),
        Verb::Fs(verb) => verbs::fs::run(verb, server(None), out),
        Verb::Mds(verb) => verbs::mds::run(verb, server(None), out),
        Verb::Tell(args) => verbs::mds::tell(args, || server(None), out),
        Verb::Subtree(verb) => verbs::subtree::run(verb, server, out),
        Verb::Dirfrag(verb) => verbs::dirfrag::run(verb, server, out),
        Verb::Top(args) => verbs::top::run(args, server(None), out),
        Verb::Stats(args) => verbs::stats::run(args, out),
        Verb::Ops(args) => verbs::ops::run(args, server(None), out),
        Verb::Perf(verb) => verbs::perf::run(verb, server(None), out),
        Verb::Cache(verb) => verbs::cache::run(verb, server(None), out),
        // The numbers of inodes are those of the mount that the path is in, and of no other server.
        Verb::Warmup(_) if cli.global.cluster.is_some() => Err(verbs::warmup::no_cluster()),
        Verb::Warmup(args) => {
            let hints = Hints { path: Some(&args.path), ..Hints::default() };
            verbs::warmup::run(args, discover::find(&hints), out)
        }
        Verb::Client(verb) => verbs::client::run(verb, server(None), out),
        Verb::Config(verb) => verbs::config::run(verb, conf, out),
        Verb::Bench(verb) => verbs::bench::run(verb, conf, out),
        Verb::Version => verbs::generate::version(out),
        Verb::Completion(args) => verbs::generate::completion(args),
        Verb::Man(args) => verbs::generate::man(&args.folder, out),
        Verb::Demo(args) => verbs::demo::run(args),
        Verb::Load(verb) => verbs::load::run(verb, out),
        Verb::Fsck(args) => verbs::fsck::run(args, out),
        Verb::Compact(args) => verbs::compact::run(args, || server(None), conf, out),
        Verb::Backup(verb) => verbs::backup::run(verb, conf, out),
        Verb::Journal(verb) => verbs::journal::run(verb, out),
    }
}

/// The verb as messages name it.
fn name(verb: &Verb) -> &'static str {
    match verb {
        Verb::Format(_) => "format",
        Verb::Mount(_) => "mount",
        Verb::Umount(_) => "umount",
        Verb::Serve(_) => "serve",
        Verb::Status(_) => "status",
        Verb::Health(_) => "health",
        Verb::Fs(_) => "fs",
        Verb::Mds(_) => "mds",
        Verb::Tell(_) => "tell",
        Verb::Subtree(_) => "subtree",
        Verb::Dirfrag(_) => "dirfrag",
        Verb::Top(_) => "top",
        Verb::Stats(_) => "stats",
        Verb::Ops(_) => "ops",
        Verb::Perf(_) => "perf",
        Verb::Cache(_) => "cache",
        Verb::Warmup(_) => "warmup",
        Verb::Fsck(_) => "fsck",
        Verb::Compact(_) => "compact",
        Verb::Backup(_) => "backup",
        Verb::Journal(_) => "journal",
        Verb::Config(_) => "config",
        Verb::Client(_) => "client",
        Verb::Bench(_) => "bench",
        Verb::Version => "version",
        Verb::Completion(_) => "completion",
        Verb::Man(_) => "man",
        Verb::Demo(_) => "demo",
        Verb::Load(_) => "load",
    }
}
