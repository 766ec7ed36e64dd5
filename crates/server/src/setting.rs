//! `fs set`: what of the file system an operator sets; and what Ceph sets there that is none here, with what comes nearest.
//!
//! Absent: settings of a process (`runtime::config`); what a change comes to (the coordinator's).

use crate::admin::{refusal, refusal_with};
use crate::fs::{carry_out, not_of_mount, text};
use crate::server::Server;
use mds::coordinator::Command;
use proto::RankId;
use proto::admin::Refusal;
use proto::cluster::{Mask, MaskError, RANKS_MAX, WEIGHT_MAX};
use serde_json::{Value, json};

/// What `fs set` knows.
const SETTINGS: [&str; 5] = ["max_mds", "joinable", "bal_rank_mask", "placement", "rank_weight"];

/// Settings of Ceph's that are not in this version, and what to do instead, if there is something.
const LATER: [(&str, &str); 15] = [
    ("allow_dirfrags", "`pando config set mds_bal_fragment_dirs false`: no directory is spread by itself"),
    ("allow_new_snaps", ""),
    ("allow_standby_replay", "`pando serve --ranks N`: slots that carry no rank stand by"),
    ("balance_automate", "`pando subtree move PATH RANK`, or `pando fs set FS placement hash`"),
    ("balancer", "`pando subtree move PATH RANK`, or `pando fs set FS placement hash`"),
    ("cluster_down", "`pando fs fail FS`"),
    ("down", "`pando fs fail FS`"),
    ("inline_data", "`pando format --small-file SIZE`: small files are packed together"),
    ("max_file_size", ""),
    ("max_xattr_size", ""),
    ("mds_join_fs", ""),
    ("min_compat_client", ""),
    ("refuse_client_session", "`pando fs fail FS`"),
    ("refuse_standby_for_another_fs", ""),
    ("session_autoclose", "`pando config set session_timeout SECONDS`: who is silent for so long is evicted"),
];
/// Settings of the server's process here, and of the file system in Ceph.
const OF_PROCESS: [&str; 2] = ["session_timeout", "standby_count_wanted"];

fn not_here(key: &str, value: &str) -> Value {
    if OF_PROCESS.contains(&key) {
        let what = format!("{key}: a setting of the server's process in this version");
        let step = format!("`pando config set {key} {value}`, and start the server again");
        return refusal_with(Refusal::Usage, &what, &step);
    }
    match LATER.iter().find(|(name, _)| *name == key) {
        Some((_, "")) => refusal(Refusal::Usage, &format!("{key}: not in this version")),
        Some((_, step)) => refusal_with(Refusal::Usage, &format!("{key}: not in this version"), step),
        None => {
            let what = format!("{key}: unknown setting (known: {})", SETTINGS.join(", "));
            refusal(Refusal::Usage, &what)
        }
    }
}

/// Changes a setting.
///
/// # Errors
/// What is refused, to the operator.
pub(crate) fn set(server: &Server, command: &Value) -> Result<Value, Value> {
    let (key, value) = (text(command, "key")?, text(command, "value")?);
    let usage = |what: String| Err(refusal(Refusal::Usage, &what));
    match key {
        "max_mds" | "max_ranks" => match value.parse::<u16>() {
            Ok(ranks @ 1..=RANKS_MAX) => {
                if ranks > 1 {
                    not_of_mount(server)?;
                }
                carry_out(server, Command::SetMaxMds(ranks), |reply| reply.text.clone())
            }
            Ok(_) | Err(_) => usage(format!("max_mds {value}: not between 1 and {RANKS_MAX}")),
        },
        "joinable" => match value {
            "true" | "1" | "yes" => carry_out(server, Command::SetJoinable(true), |reply| reply.text.clone()),
            "false" | "0" | "no" => {
                // It would be the next mount that finds it closed.
                not_of_mount(server)?;
                carry_out(server, Command::SetJoinable(false), |reply| reply.text.clone())
            }
            _ => usage(format!("joinable {value}: neither true nor false")),
        },
        "bal_rank_mask" => match mask(value) {
            Ok(mask) => {
                let text = format!("setting the metadata balancer rank mask to {}", mask.hex());
                let mut max_mds = 0;
                let mut answer = carry_out(server, Command::SetBalRankMask(mask), |reply| {
                    max_mds = reply.map.max_mds;
                    text
                })?;
                if names_nobody(mask, max_mds) {
                    answer["result"]["warning"] = json!(format!(
                        "none of its ranks is wanted (max_mds is {max_mds}): slots go to rank 0, directories stay"
                    ));
                }
                Ok(answer)
            }
            Err(MaskError::Rank) => usage(format!("bal_rank_mask {value}: ranks are 0 to {}", RANKS_MAX - 1)),
            Err(MaskError::Text) => {
                usage(format!("bal_rank_mask {value}: neither all nor a hexadecimal number"))
            }
        },
        "placement" => match value {
            "hash" | "subtree" => {
                let text = format!("setting the placement of new directories to {value}");
                carry_out(server, Command::SetHashPlacement(value == "hash"), |_| text)
            }
            _ => usage(format!("placement {value}: neither subtree nor hash")),
        },
        "rank_weight" => match weight(value) {
            Some((rank, weight)) => {
                carry_out(server, Command::SetRankWeight { rank, weight }, |reply| reply.text.clone())
            }
            None => usage(format!(
                "rank_weight {value}: not RANK=WEIGHT with a rank from 0 to {} and a weight from 1 to {WEIGHT_MAX}",
                RANKS_MAX - 1
            )),
        },
        _ => Err(not_here(key, value)),
    }
}

/// `all`, or a hexadecimal number, with `0x` before it or without, as Ceph takes it.
fn mask(text: &str) -> Result<Mask, MaskError> {
    if matches!(text, "all" | "-1") {
        return Ok(Mask::ALL);
    }
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    Mask::from_hex(&format!("0x{digits}"))
}

/// Whether the mask has ranks, and none of those that there are to be. It may be set before these come to be, so it is no error.
fn names_nobody(mask: Mask, max_mds: u16) -> bool {
    mask != Mask::NONE && !(0..max_mds).any(|rank| mask.has(RankId(rank)))
}

/// `RANK=WEIGHT`, both as they may be.
fn weight(text: &str) -> Option<(RankId, u16)> {
    let (rank, weight) = text.split_once('=')?;
    let (rank, weight) = (rank.parse().ok()?, weight.parse().ok()?);
    (rank < RANKS_MAX && (1..=WEIGHT_MAX).contains(&weight)).then_some((RankId(rank), weight))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ceph_sets_and_this_version_does_not_is_told_apart_from_mistakes() {
        let told = |key: &str| {
            let answer = not_here(key, "1");
            assert_eq!(answer["code"], 2, "{answer}");
            let word = |of: &Value| of.as_str().unwrap_or_default().to_owned();
            (word(&answer["error"]), word(&answer["do"]))
        };
        let none = |text: &str| (text.to_owned(), String::new());
        assert_eq!(told("allow_new_snaps"), none("allow_new_snaps: not in this version"));
        let (what, step) = told("allow_standby_replay");
        assert!(what.ends_with(": not in this version") && step.contains("--ranks N"), "{what} {step}");
        let (what, step) = told("balance_automate");
        assert!(what.ends_with(": not in this version") && step.contains("subtree move"), "{what} {step}");
        let (what, step) = told("session_timeout");
        assert!(what.contains("process") && step.contains("config set session_timeout 1"), "{what} {step}");
        assert!(told("max_mdss").0.contains("unknown setting (known: max_mds, "));
        assert!(SETTINGS.iter().all(|known| LATER.iter().all(|(later, _)| later != known)));
    }

    #[test]
    fn masks_are_as_ceph_takes_them() {
        let three = Mask::NONE.with(RankId(3)).with(RankId(4)).with(RankId(5));
        for text in ["38", "0x38", "0X38", "0038"] {
            assert_eq!(mask(text), Ok(three), "{text}");
        }
        assert_eq!((mask("all"), mask("-1"), mask("0")), (Ok(Mask::ALL), Ok(Mask::ALL), Ok(Mask::NONE)));
        for text in ["", "0x", "0x0x38", "x38", "-2", "3,4", "ALL"] {
            assert_eq!(mask(text), Err(MaskError::Text), "{text}");
        }
        assert_eq!(mask(&format!("1{}", "0".repeat(64))), Err(MaskError::Rank));
        assert!(names_nobody(three, 3) && !names_nobody(three, 4));
        assert!(!names_nobody(Mask::NONE, 3) && !names_nobody(Mask::ALL, 1));
    }
}
