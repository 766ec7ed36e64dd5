//! What every run prints: per phase the rate, latency percentiles and CPU seconds, as text or JSON.
//!
//! Absent: averages over runs. `bench/figures` prints each run, docs/results keeps what it printed.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// One measured phase.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    pub name: String,
    pub ops: u64,
    /// From the first task's start to the last task's end.
    pub seconds: f64,
    pub ops_per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    /// User and system time of the watched process (all threads) during the phase; absent without one.
    pub server_cpu_seconds: Option<f64>,
    /// Checkpoints the rank completed during the phase; absent where nobody counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<u64>,
}

/// Latencies of one phase: 1 us to 100 s, three digits.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("bounds and digits are constants in range")
}

impl Phase {
    /// Summarises latencies given in nanoseconds.
    #[must_use]
    pub fn new(name: &str, latencies: &Histogram<u64>, elapsed: Duration, cpu: Option<f64>) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let micros = |nanos: u64| nanos as f64 / 1_000.0;
        Self {
            name: name.to_owned(),
            ops: latencies.len(),
            seconds,
            ops_per_second: latencies.len() as f64 / seconds,
            p50_us: micros(latencies.value_at_quantile(0.50)),
            p99_us: micros(latencies.value_at_quantile(0.99)),
            p999_us: micros(latencies.value_at_quantile(0.999)),
            max_us: micros(latencies.max()),
            server_cpu_seconds: cpu,
            checkpoints: None,
        }
    }
}

/// User and system seconds that process `pid` has used, all threads; `None` when it is gone.
#[must_use]
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold spaces; fields are counted behind its closing parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    // USER_HZ is 100 on every Linux this project supports.
    Some(ticks as f64 / 100.0)
}

/// The most memory this process had in use at one time, pages of mapped files included.
#[must_use]
pub fn memory_peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

/// Prints phases as one aligned table.
#[must_use]
pub fn table(phases: &[Phase]) -> String {
    let mut text =
        format!("{:<18} {:>10} {:>12} {:>10} {:>10} {:>8}\n", "phase", "ops", "ops/s", "p50", "p99", "cpu s");
    for phase in phases {
        let cpu = phase.server_cpu_seconds.map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.2}"));
        text += &format!(
            "{:<18} {:>10} {:>12.0} {:>8.0}us {:>8.0}us {:>8}\n",
            phase.name, phase.ops, phase.ops_per_second, phase.p50_us, phase.p99_us, cpu
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_cpu_time_and_a_missing_one_has_none() {
        assert!(cpu_seconds(std::process::id()).is_some());
        assert!(cpu_seconds(u32::MAX).is_none());
    }

    #[test]
    fn a_phase_counts_and_rates() {
        let mut latencies = histogram();
        latencies.record(2_000).expect("in range");
        latencies.record(4_000).expect("in range");
        let phase = Phase::new("create", &latencies, Duration::from_secs(2), None);
        assert_eq!((phase.ops, phase.ops_per_second), (2, 1.0));
        assert!(table(&[phase]).contains("create"));
    }
}
