//! `pando ops`: requests under way and what they wait for; those of late that were slow.
//!
//! Absent: what happens outside the rank (sockets, the kernel of a client).

use crate::args::Ops;
use crate::output::{Output, grouped, table};
use crate::problem::{Problem, Verdict};
use crate::source::Source;
use crate::{ANSWER_TIME, admin};
use serde_json::{Value, json};

const COLUMNS: [&str; 5] = ["AGE", "CLIENT", "OP", "PATH", "WAITING-FOR"];

/// Runs the verb.
///
/// # Errors
/// No server, no answer.
pub fn run(args: &Ops, source: Result<Source, Problem>, out: &Output) -> Verdict {
    let answer = admin::ask(&source?, &json!({"cmd": "ops"}), ANSWER_TIME)?;
    let (chosen, count) = chosen(&answer, args);
    if count > chosen.len() as u64 {
        out.say(&format!("{} of {}", grouped(chosen.len() as u64), grouped(count)));
    }
    let held_back = answer["held_back"].as_u64().unwrap_or(0);
    if held_back > 0 {
        out.say(&format!("{} more wait for the end of a backup", grouped(held_back)));
    }
    let limit = answer["complaint_s"].as_u64().unwrap_or(0);
    if args.slow || args.blocked {
        let which = if args.slow { "took" } else { "have waited" };
        out.say(&format!("those that {which} longer than {limit} s (mds_op_complaint_time)"));
    }
    let json = json!({"ops": chosen, "num_ops": count, "held_back": held_back, "complaint_s": limit});
    out.result(&listing(&chosen), json);
    Ok(0)
}

/// What is wanted of an answer, and how many there are of it.
fn chosen(answer: &Value, args: &Ops) -> (Vec<Value>, u64) {
    let of = |key: &str| answer[key].as_array().cloned().unwrap_or_default();
    if args.slow {
        let slow = of("slow");
        let count = slow.len() as u64;
        return (slow, count);
    }
    let all = of("ops");
    if !args.blocked {
        return (all, answer["count"].as_u64().unwrap_or(0));
    }
    let blocked = all.into_iter().filter(|op| op["blocked"] == true).collect();
    (blocked, answer["blocked"].as_u64().unwrap_or(0))
}

fn listing(ops: &[Value]) -> String {
    let mut rows = vec![COLUMNS.iter().map(|name| (*name).to_owned()).collect()];
    for op in ops {
        let age = op["age_ms"].as_u64().unwrap_or(0);
        let word = |key: &str| op[key].as_str().unwrap_or("-").to_owned();
        let age = format!("{}.{:03}s", age / 1000, age % 1000);
        rows.push(vec![age, op["client"].to_string(), word("op"), word("path"), word("waiting_for")]);
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_those_promised() {
        let op = |age: u64, waits: &str| {
            json!({
                "age_ms": age, "client": 7, "op": "create", "path": "/a b/c", "waiting_for": waits,
                "blocked": age > 30_000
            })
        };
        let over = json!({"age_ms": 45_000, "client": 7, "op": "read", "path": "/x", "waiting_for": null});
        let answer = json!({
            "ops": [op(31_004, "journal room"), op(5, "metadata store")], "count": 2,
            "slow": [over], "blocked": 1
        });
        let text = |slow, blocked| listing(&chosen(&answer, &Ops { slow, blocked }).0);
        let all = "AGE      CLIENT  OP      PATH    WAITING-FOR\n\
            31.004s  7       create  /a b/c  journal room\n\
            0.005s   7       create  /a b/c  metadata store\n";
        assert_eq!(text(false, false), all);
        let blocked =
            "AGE      CLIENT  OP      PATH    WAITING-FOR\n31.004s  7       create  /a b/c  journal room\n";
        assert_eq!(text(false, true), blocked);
        assert_eq!(
            text(true, false),
            "AGE      CLIENT  OP    PATH  WAITING-FOR\n45.000s  7       read  /x    -\n"
        );
    }
}
