//! `pando perf`: counters of a server.
//!
//! Absent: rates (`pando top`), counters over time (the metrics page).

use crate::args::Perf;
use crate::output::Output;
use crate::problem::{Problem, Verdict};
use crate::source::Source;
use crate::{ANSWER_TIME, admin};
use serde_json::{Value, json};

/// Runs the verb.
///
/// # Errors
/// No server, no answer, not permitted.
pub fn run(verb: &Perf, source: Result<Source, Problem>, out: &Output) -> Verdict {
    let source = source?;
    match verb {
        Perf::Dump => {
            let answer = admin::ask(&source, &json!({"cmd": "perf dump"}), ANSWER_TIME)?;
            out.result(&listing(&answer), answer);
        }
        Perf::Reset => {
            let answer = admin::ask(&source, &json!({"cmd": "perf reset"}), ANSWER_TIME)?;
            out.result("counters start from zero", answer);
        }
    }
    Ok(0)
}

/// A line per counter: `section.counter value`; of a latency its count and average.
fn listing(answer: &Value) -> String {
    let mut text = String::new();
    for (section, counters) in answer.as_object().into_iter().flatten() {
        for (name, value) in counters.as_object().into_iter().flatten() {
            let value = match (value["avgcount"].as_u64(), value["avgtime"].as_f64()) {
                (Some(0), _) => continue,
                (Some(count), Some(average)) => format!("{count}  average {:.3} ms", average * 1e3),
                _ => value.to_string(),
            };
            text.push_str(&format!("{section}.{name} {value}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_per_counter() {
        let latency = |count: u64, average: f64| json!({"avgcount": count, "sum": 1.0, "avgtime": average});
        let answer = json!({
            "mds": {"request": 12},
            "mds_server": {"req_create_latency": latency(3, 0.0015), "req_link_latency": latency(0, 0.0)},
        });
        let expected = "mds.request 12\nmds_server.req_create_latency 3  average 1.500 ms\n";
        assert_eq!(listing(&answer), expected);
    }
}
