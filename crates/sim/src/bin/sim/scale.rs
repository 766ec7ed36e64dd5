//! `sim scale`: reads the options, runs each number of ranks, prints the table, writes files.
//!
//! Absent: the runs (the library's `scale`).

use sim::scale::{self, ClientCpus, Costs, Hosts, Phase, Placement, Settings, Tasks, Workload};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// As `VERBS` has them.
pub(crate) const FLAGS: &[&str] = &[
    "--ranks",
    "--workload",
    "--placement",
    "--hosts",
    "--hosts-per-rank",
    "--tasks",
    "--tasks-total",
    "--in-flight",
    "--dirs",
    "--files",
    "--client-batch-ns",
    "--client-message-ns",
    "--client-cpus",
    "--network-us",
    "--store-us",
    "--store-workers",
    "--journal-us",
    "--journal-mb-s",
    "--writer-us",
    "--writer-records-s",
    "--cache-mib",
    "--journal-mib",
    "--seconds",
    "--warm-seconds",
    "--operations",
    "--seed",
    "--costs",
    "--csv",
    "--svg",
];

/// What is asked for.
struct Asked {
    ranks: Vec<u16>,
    settings: Settings,
    /// None: the workload's own.
    placement: Option<Placement>,
    csv: Option<PathBuf>,
    svg: Option<PathBuf>,
}

/// Runs it; the text is what is wrong with the options, or with the run.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let asked = parse(args)?;
    let begin = Instant::now();
    let mut phases: Vec<Phase> = Vec::new();
    for ranks in &asked.ranks {
        let settings = Settings { ranks: *ranks, ..asked.settings.clone() };
        phases.extend(scale::run(&settings).map_err(|why| format!("{ranks} ranks: {why}"))?);
        eprintln!("{ranks} ranks: {:.0} s", begin.elapsed().as_secs_f64());
    }
    let title = scale::title(&asked.settings);
    print!("# {title}\n{}", scale::table(&phases));
    if let Some(dir) = asked.csv {
        write(&dir, "scale.csv", &scale::csv(&phases))?;
    }
    if let Some(dir) = asked.svg {
        for (name, picture) in scale::plots(&phases, &title) {
            write(&dir, name, &picture)?;
        }
    }
    Ok(())
}

fn write(dir: &Path, name: &str, text: &str) -> Result<(), String> {
    let path = dir.join(name);
    let written = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&path, text));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

fn parse(args: &[String]) -> Result<Asked, String> {
    let mut asked = Asked {
        ranks: vec![1, 2, 4, 8, 16],
        settings: Settings::new(Workload::Mdtest, 1),
        placement: None,
        csv: None,
        svg: None,
    };
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        if !FLAGS.contains(&flag.as_str()) {
            return Err(format!("{flag} is no option"));
        }
        let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
        set(&mut asked, flag, value).ok_or_else(|| format!("{flag} {value}: no such value"))??;
    }
    asked.settings.placement = asked.placement.unwrap_or_else(|| asked.settings.workload.placement());
    Ok(asked)
}

/// `None`: the value is none of that option.
fn set(asked: &mut Asked, flag: &str, value: &str) -> Option<Result<(), String>> {
    let settings = &mut asked.settings;
    let number = || value.parse::<u64>().ok().filter(|number| *number > 0);
    let micros =
        || value.parse::<f64>().ok().filter(|us| (0.0..1e9).contains(us)).map(|us| (us * 1e3) as u64);
    let seconds = || value.parse::<f64>().ok().filter(|s| (0.0..1e4).contains(s)).map(|s| (s * 1e9) as u64);
    match flag {
        "--ranks" => {
            let list: Option<Vec<u16>> = value.split(',').map(|number| number.parse().ok()).collect();
            asked.ranks = list.filter(|list| list.iter().all(|ranks| (1..=256).contains(ranks)))?;
        }
        "--workload" => settings.workload = named(&Workload::ALL, value)?,
        "--placement" => asked.placement = Some(named(&Placement::ALL, value)?),
        "--hosts" => settings.hosts = Hosts::All(number()?),
        "--hosts-per-rank" => settings.hosts = Hosts::EachRank(number()?),
        "--tasks" => settings.tasks = Tasks::EachRank(number()?),
        "--tasks-total" => settings.tasks = Tasks::Total(number()?),
        "--dirs" => settings.directories = number()?,
        "--files" => settings.files = number()?,
        "--client-batch-ns" => settings.client.batch_ns = number()?,
        "--client-message-ns" => settings.client.message_ns = number()?,
        "--client-cpus" => settings.client.cpus = named(&ClientCpus::ALL, value)?,
        "--in-flight" => settings.in_flight = number()?,
        "--network-us" => settings.network_ns = micros()?,
        "--store-us" => settings.store_ns = micros()?,
        "--store-workers" => settings.store_workers = number()?,
        "--journal-us" => settings.journal_ns = micros()?,
        "--journal-mb-s" => settings.journal_bytes_per_s = number()?.saturating_mul(1_000_000),
        "--writer-us" => settings.writer_ns = micros()?,
        "--writer-records-s" => settings.writer_records_per_s = number()?,
        "--cache-mib" => settings.cache_bytes = number()?.saturating_mul(1 << 20),
        "--journal-mib" => settings.journal_bytes = number()?.saturating_mul(1 << 20),
        "--seconds" => settings.measured_ns = seconds()?,
        "--warm-seconds" => settings.warm_ns = seconds()?,
        "--operations" => settings.operations = number()?,
        "--seed" => settings.seed = value.parse().ok()?,
        "--csv" => asked.csv = Some(value.into()),
        "--svg" => asked.svg = Some(value.into()),
        "--costs" => {
            let text = std::fs::read_to_string(value).map_err(|error| format!("{value}: {error}"));
            let costs = text.and_then(|text| Costs::parse(&text).map_err(|why| format!("{value}: {why}")));
            match costs {
                Ok(costs) => settings.costs = costs,
                Err(why) => return Some(Err(why)),
            }
        }
        _ => return None,
    }
    Some(Ok(()))
}

fn named<T: Copy>(all: &[(&str, T)], value: &str) -> Option<T> {
    all.iter().find(|(name, _)| *name == value).map(|(_, found)| *found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Asked, String> {
        parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn every_option_is_explained() {
        let manual = include_str!("../../../../../docs/SIMULATION.md");
        for flag in FLAGS {
            assert!(manual.contains(&format!("\n| `{flag} ")), "{flag}");
        }
    }

    #[test]
    fn options_are_what_they_say() {
        let asked =
            parsed("--ranks 1,128 --workload mixed --seconds 0.25 --store-us 1.5 --seed 0").expect("good");
        assert_eq!(asked.ranks, [1, 128]);
        assert_eq!(asked.settings.workload, Workload::Mixed);
        assert_eq!((asked.settings.measured_ns, asked.settings.store_ns), (250_000_000, 1_500));
        let placed = |line| parsed(line).map(|asked| (asked.settings.placement, asked.settings.tasks)).ok();
        let (subtree, hash) = (Placement::Subtree, Placement::Hash);
        assert_eq!(placed("--workload one-directory"), Some((subtree, Tasks::EachRank(160))));
        assert_eq!(placed("--workload rename-storm --tasks 3"), Some((hash, Tasks::EachRank(3))));
        let total = placed("--placement subtree --workload rename-storm --tasks-total 3");
        assert_eq!(total, Some((subtree, Tasks::Total(3))));
        for (line, error) in [
            ("--rank 1", "--rank is no option"),
            ("--ranks", "--ranks needs a value"),
            ("--ranks 1,x", "--ranks 1,x: no such value"),
            ("--ranks 0", "--ranks 0: no such value"),
            ("--ranks 257", "--ranks 257: no such value"),
            ("--workload fast", "--workload fast: no such value"),
            ("--tasks 0", "--tasks 0: no such value"),
            ("--tasks-total 0", "--tasks-total 0: no such value"),
            ("--seconds -1", "--seconds -1: no such value"),
        ] {
            assert_eq!(parsed(line).err(), Some(error.to_owned()), "{line}");
        }
        assert!(parsed("--costs /nowhere/costs").is_err_and(|error| error.starts_with("/nowhere/costs: ")));
    }
}
