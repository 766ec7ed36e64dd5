//! `pando serve`: serves a data folder in the foreground until a signal ends it.
//!
//! Absent: making a file system (`pando format`); TLS.

use crate::args::Serve;
use crate::output::Output;
use crate::problem::{Exit, Problem, Verdict, chain, plain};
use crate::{conf, place};
use ::mount::{Fs, Mount};
use proto::message::ClientInfo;
use proto::{Cred, Errno, FileKind, Ino};
use runtime::process::{self, Endings};
use runtime::{Addr, SocketConnector};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
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
    let usage = |why: String| Problem::new(Exit::Usage, why).do_this("`pando serve --help`");
    let mut listen = Vec::new();
    for text in &args.listen {
        listen.push(Addr::parse(text).map_err(|why| usage(why.to_string()))?);
    }
    listen.extend(config.listen.iter().cloned());
    let limited: Vec<Limited> =
        args.limited.iter().map(|text| Limited::parse(text)).collect::<Result<_, _>>().map_err(usage)?;
    // Refused before the folder is touched.
    let all = listen.iter().chain(limited.iter().map(|limited| &limited.at));
    if let Some(at) = all.into_iter().find(|at| matches!(at, Addr::Tcp(_))).filter(|_| !args.insecure) {
        return Err(place::insecure(&at.to_string()));
    }
    let endings = Endings::hold().map_err(|error| Problem::io("signals", &error))?;
    process::raise_file_limit();
    let by = place::By::Server { ranks: args.ranks };
    let served =
        place::serve((&args.dir, by), &config, false, &listen, args.insecure, Instant::now() + CLEARING)?;
    let mut places: Vec<String> = served.addrs.iter().map(ToString::to_string).collect();
    if let Err(problem) = places_of(&served, &limited, &mut places) {
        served.stop()?;
        return Err(problem);
    }
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

/// An address at which mounts get one directory and nothing else.
struct Limited {
    path: String,
    at: Addr,
}

impl Limited {
    fn parse(text: &str) -> Result<Self, String> {
        let wanted = || format!("{text}: PATH=unix:SOCK or PATH=HOST:PORT is wanted, with a PATH below /");
        // A path may have one in it; an address has none but in the name of a socket.
        let at = text.find("=unix:").or_else(|| text.rfind('=')).ok_or_else(wanted)?;
        let (path, at) = (&text[..at], Addr::parse(&text[at + 1..]).map_err(|why| why.to_string())?);
        if !path.split('/').any(|part| !part.is_empty() && part != ".") || !fuse::adapter::stays_inside(path)
        {
            return Err(wanted());
        }
        Ok(Self { path: path.to_owned(), at })
    }
}

/// Listens for those that get a directory and nothing else. Which one that is a mount finds out, because another rank may have it.
fn places_of(served: &place::Served, limited: &[Limited], places: &mut Vec<String>) -> Result<(), Problem> {
    if limited.is_empty() {
        return Ok(());
    }
    let own =
        served.addrs.first().cloned().ok_or_else(|| Problem::new(Exit::Failed, "nothing is listened at"))?;
    let info = ClientInfo { host: process::host_name(), pid: std::process::id(), ..ClientInfo::default() };
    let mount = Mount::open(Arc::new(SocketConnector::new(own)), info)
        .map_err(|error| Problem::failed("--limited", chain(&error)))?;
    let fs = Fs::new(Arc::clone(&mount), Cred::ROOT);
    let mut found = Vec::new();
    for Limited { path, at } in limited {
        found.push((directory(&fs, path)?, at));
    }
    mount.close();
    for (dir, at) in found {
        let bound = served.server.listen_limited(std::slice::from_ref(at), dir);
        let bound = bound.map_err(|error| place::explain_listen(&error))?;
        places.extend(bound.iter().map(ToString::to_string));
    }
    Ok(())
}

fn directory(fs: &Fs, path: &str) -> Result<Ino, Problem> {
    let why = match fs.stat(path) {
        Ok(attr) if attr.kind() == FileKind::Directory => return Ok(attr.ino),
        Ok(_) => Errno::ENOTDIR,
        Err(errno) => errno,
    };
    let why = plain(&std::io::Error::from_raw_os_error(why.0));
    Err(Problem::new(Exit::Failed, format!("--limited {path}: {why}"))
        .do_this("name a directory of the file system"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_address_has_a_directory_below_the_root() {
        let parse = |text: &str| Limited::parse(text).map(|limited| (limited.path, limited.at.to_string()));
        assert_eq!(parse("/a=unix:/s.sock"), Ok(("/a".into(), "unix:/s.sock".into())));
        assert_eq!(parse("/a=b=unix:/s=t.sock"), Ok(("/a=b".into(), "unix:/s=t.sock".into())));
        assert_eq!(parse("a/b=127.0.0.1:7420"), Ok(("a/b".into(), "127.0.0.1:7420".into())));
        for odd in ["", "unix:/s", "=unix:/s", "/=unix:/s", "/.=unix:/s", "/a/..=unix:/s", "/a=", "/a"] {
            assert!(parse(odd).is_err(), "{odd}");
        }
    }
}
