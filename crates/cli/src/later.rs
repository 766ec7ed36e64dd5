//! Verbs and options kept for later versions: typed, they say so and exit 2.
//!
//! Absent: these verbs in help, completion and man pages.

use crate::problem::{Exit, Problem};
use std::ffi::OsString;

/// A word, and what comes nearest to it now.
type Verb = (&'static str, Option<&'static str>);

/// First words whose time has not come.
const VERBS: &[Verb] = &[
    ("auth", None),
    ("quota", None),
    ("qos", None),
    ("snap", None),
    ("trash", None),
    ("mds_partitioner", Some("`pando top --by subtree`, `setfattr -n ceph.dir.pin -v RANK DIR`")),
    ("balancer", Some("`pando subtree move PATH RANK`, or `pando fs set FS placement hash`")),
    ("profile", Some("`pando stats MNT`")),
    ("info", Some("`stat`, `pando status MNT`")),
    ("summary", Some("`du -s`, `find`")),
    ("rmr", Some("`rm -r`")),
    ("clone", Some("`cp -r`")),
    ("sync", Some("`rsync`")),
    ("scan", None),
    ("debug", Some("`pando perf dump`, `pando ops`, DIR/log/pando.log")),
    ("scrub", Some("`pando fsck DIR`, when nobody serves DIR")),
    ("damage", Some("`pando fsck DIR`, when nobody serves DIR")),
];

/// Second words whose time has not come, behind verbs that are here.
const BELOW: &[(&str, &[Verb])] = &[
    ("bench", &[("vdbench", None), ("compare", None)]),
    (
        "fs",
        &[
            (
                "authorize",
                Some("`pando serve DIR --limited PATH=ADDRESS`, `pando mount -o subdir=PATH,limited`"),
            ),
            ("subvolume", None),
            ("subvolumegroup", None),
            ("clone", Some("`cp -r`")),
        ],
    ),
    ("mds", &[("repaired", Some("`pando mds fail RANK`")), ("stat", Some("`pando fs status`"))]),
];

/// Options of present verbs whose time has not come.
const OPTIONS: &[(&str, &[&str])] =
    &[("serve", &["--tls-cert", "--tls-key", "--tls-ca", "--log-format"]), ("mount", &["--log-format"])];

/// Whether the command line names something of a later version; the verb and the problem.
#[must_use]
pub fn check(args: &[OsString]) -> Option<(String, Problem)> {
    let mut words = args.iter().skip(1).filter_map(|arg| arg.to_str());
    let mut verb = first_verb(&mut words)?;
    if verb == "help" {
        verb = first_verb(&mut words)?;
    }
    if let Some((_, nearest)) = VERBS.iter().find(|(name, _)| *name == verb) {
        let problem = not_yet("");
        return Some((verb.into(), Problem { step: nearest.map(Into::into), ..problem }));
    }
    if let Some((_, below)) = BELOW.iter().find(|(name, _)| *name == verb) {
        let mut second = first_verb(&mut words)?;
        if second == "help" {
            second = first_verb(&mut words)?;
        }
        let (_, nearest) = below.iter().find(|(name, _)| *name == second)?;
        let problem = Problem { step: nearest.map(Into::into), ..not_yet("") };
        return Some((format!("{verb} {second}"), problem));
    }
    let (_, options) = OPTIONS.iter().find(|(name, _)| *name == verb)?;
    for word in words.take_while(|word| *word != "--") {
        let name = word.split('=').next().unwrap_or(word);
        if options.contains(&name) {
            return Some((verb.into(), not_yet(name)));
        }
    }
    None
}

/// Skips global options and their values.
pub(crate) fn first_verb<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<&'a str> {
    while let Some(word) = words.next() {
        match word {
            "--format" | "--cluster" | "--conf" => drop(words.next()),
            _ if word.starts_with('-') => {}
            _ => return Some(word),
        }
    }
    None
}

fn not_yet(option: &str) -> Problem {
    let colon = if option.is_empty() { "" } else { ": " };
    Problem::new(Exit::Usage, format!("{option}{colon}not in this version"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    fn text(line: &str) -> Option<String> {
        let args: Vec<OsString> = line.split(' ').map(Into::into).collect();
        check(&args).map(|(verb, problem)| problem.text(&verb))
    }

    #[test]
    fn later_verbs_say_so() {
        assert_eq!(
            text("pando profile /m").as_deref(),
            Some("pando profile: not in this version\n  do: `pando stats MNT`\n")
        );
        assert_eq!(
            text("pando fs subvolume ls pandofs").as_deref(),
            Some("pando fs subvolume: not in this version\n")
        );
        assert_eq!(
            text("pando mds repaired 0").as_deref(),
            Some("pando mds repaired: not in this version\n  do: `pando mds fail RANK`\n")
        );
        for line in ["pando bench --json vdbench x", "pando bench help vdbench", "pando help bench vdbench"] {
            assert_eq!(text(line).as_deref(), Some("pando bench vdbench: not in this version\n"), "{line}");
        }
        assert_eq!(text("pando help quota").as_deref(), Some("pando quota: not in this version\n"));
        assert_eq!(
            text("pando --format json -q quota get /").as_deref(),
            Some("pando quota: not in this version\n")
        );
        let serve = text("pando serve /d --tls-cert=x");
        assert_eq!(serve.as_deref(), Some("pando serve: --tls-cert: not in this version\n"));
        assert_eq!(text("pando top --by subtree"), None);
    }

    #[test]
    fn present_verbs_pass() {
        assert_eq!(text("pando status"), None);
        assert_eq!(text("pando fs status"), None);
        assert_eq!(text("pando --cluster fs status"), None);
        for line in ["pando help", "pando help bench", "pando bench", "pando bench cold compare"] {
            assert_eq!(text(line), None, "{line}");
        }
        assert_eq!(text("pando serve /d --listen unix:/x"), None);
    }

    #[test]
    fn no_verb_is_both_present_and_later() {
        let command = Cli::command();
        for verb in command.get_subcommands() {
            let name = verb.get_name();
            assert!(VERBS.iter().all(|(later, _)| *later != name), "{name}");
            for (_, below) in BELOW.iter().filter(|(above, _)| *above == name) {
                assert!(
                    verb.get_subcommands()
                        .all(|verb| !below.iter().any(|(word, _)| *word == verb.get_name())),
                    "{name}"
                );
            }
        }
    }
}
