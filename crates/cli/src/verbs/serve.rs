//! `pando serve`: serves a data folder in the foreground until a signal ends it.
//!
//! Absent: making a file system (`pando format`); TLS.

use crate::args::Serve;
use crate::output::Output;
use crate::problem::{Exit, Problem, Verdict};
use crate::{conf, place};
use runtime::Addr;
use runtime::process::{self, Endings};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a server that was killed is waited for until the system has cleared it away: whoever starts another at once does not
/// fail for that.
const CLEARING: Duration = Duration::from_secs(10);

/// Runs the verb.
///
/// # Errors
/// Those of docs/CLI.md; the texts are golden.
pub fn run(args: &Serve, conf_file: Option<&Path>, out: &Output) -> Verdict {
    let mut config = conf::read(conf_file)?;
    if let Some(at) = &args.metrics {
        (config.metrics, config.metrics_must) = (Some(place::metrics(at)?), true);
    }
    let mut listen = Vec::new();
    for text in &args.listen {
        let usage = |why: String| Problem::new(Exit::Usage, why).do_this("`pando serve --help`");
        listen.push(Addr::parse(text).map_err(|why| usage(why.to_string()))?);
    }
    listen.extend(config.listen.iter().cloned());
    // Refused before the folder is touched.
    if let Some(at) = listen.iter().find(|at| matches!(at, Addr::Tcp(_))).filter(|_| !args.insecure) {
        return Err(place::insecure(&at.to_string()));
    }
    let endings = Endings::hold().map_err(|error| Problem::io("signals", &error))?;
    process::raise_file_limit();
    let by = place::By::Server { ranks: args.ranks };
    let served =
        place::serve((&args.dir, by), &config, false, &listen, args.insecure, Instant::now() + CLEARING)?;
    let places: Vec<String> = served.addrs.iter().map(ToString::to_string).collect();
    let text = format!("{} is served at {} (pid {})", served.name, places.join(", "), std::process::id());
    let mut json =
        json!({"name": served.name, "fsid": served.fsid, "listen": places, "pid": std::process::id()});
    if let Some(at) = &served.metrics {
        json["metrics"] = json!(at);
        out.say(&format!("metrics at http://{at}/metrics"));
    }
    out.result(&text, json);
    endings.wait().map_err(|error| Problem::io("signals", &error))?;
    served.stop()?;
    Ok(0)
}
