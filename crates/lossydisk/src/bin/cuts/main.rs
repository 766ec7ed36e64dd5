//! `cuts PANDO ROUNDS [SEED [CONF]]`: a server on the lossy disk, clients over its socket, the power cut under load, again and
//! again; after each cut everything that was acknowledged must be there.
//!
//! Every answer over the socket is a promise of durability for names and sizes, and a completed fsync one for content. Absent: the
//! embedded mount, whose answers promise less.

mod model;
mod round;

use anyhow::{Context, Result, bail};
use std::path::PathBuf;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [pando, rounds, rest @ ..] = words.as_slice() else {
        bail!("usage: cuts PANDO ROUNDS [SEED [CONF]]")
    };
    let (rounds, seed) = (rounds.parse()?, rest.first().map_or(Ok(1), |seed| seed.parse())?);
    let tools = round::Tools { pando: pando.into(), conf: rest.get(1).map(PathBuf::from) };
    let base = std::env::temp_dir().join(format!("pando-cuts-{}", std::process::id()));
    std::fs::create_dir_all(&base).with_context(|| base.display().to_string())?;
    let outcome = round::run(&tools, &base, rounds, seed);
    match &outcome {
        Ok(told) => {
            println!("{rounds} cuts: {told}");
            std::fs::remove_dir_all(&base)?;
        }
        Err(_) => eprintln!("cuts: what is left lies in {}", base.display()),
    }
    outcome.map(|_| ())
}
