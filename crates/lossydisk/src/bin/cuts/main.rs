//! `cuts PANDO ROUNDS [SEED]`: a server on the lossy disk, clients over its socket, the power cut under load, again and again; after
//! each cut everything that was acknowledged must be there.
//!
//! Every answer over the socket is a promise of durability for names and sizes, and a completed fsync one for content. Absent: the
//! embedded mount, whose answers promise less.

mod model;
mod round;

use anyhow::{Context, Result, bail};
use std::path::PathBuf;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (pando, rounds, seed) = match words.as_slice() {
        [pando, rounds] => (pando, rounds.parse()?, 1),
        [pando, rounds, seed] => (pando, rounds.parse()?, seed.parse()?),
        _ => bail!("usage: cuts PANDO ROUNDS [SEED]"),
    };
    let base = std::env::temp_dir().join(format!("pando-cuts-{}", std::process::id()));
    std::fs::create_dir_all(&base).with_context(|| base.display().to_string())?;
    let outcome = round::run(&PathBuf::from(pando), &base, rounds, seed);
    match &outcome {
        Ok(told) => {
            println!("{rounds} cuts: {told}");
            std::fs::remove_dir_all(&base)?;
        }
        Err(_) => eprintln!("cuts: what is left lies in {}", base.display()),
    }
    outcome.map(|_| ())
}
