//! Texts people type: mount options and addresses.
//!
//! Absent: the command line's own words (clap's), pando.toml.

use crate::class::class;
use crate::target::{Target, Verdict, check_size};
use fuse::adapter::{Options, OptionsError};
use runtime::Addr;

pub(super) const MOUNT_OPTIONS: Target =
    Target { name: "mount-options", execute: mount_options, repair: None, seeds: option_seeds };
pub(super) const ADDRESS: Target =
    Target { name: "addr", execute: address, repair: None, seeds: address_seeds };

fn mount_options(input: &[u8]) -> Verdict {
    let text = String::from_utf8_lossy(input);
    let whole = Options::parse(&[&*text]);
    // Where the words are cut into several -o does not matter.
    let words: Vec<&str> = text.split(',').collect();
    if Options::parse(&words) != whole {
        return Err(format!("{text:?} is another thing word by word"));
    }
    match whole {
        Ok(options) => {
            let texts = [&options.subdir, &options.conf, &options.log];
            check_size(texts.iter().map(|text| text.as_ref().map_or(0, String::len)).sum(), input)?;
            let config = options.config("x");
            if config.mount.read_only != options.read_only
                || options.behaviour().read_only != options.read_only
            {
                return Err(format!("{text:?} is read-only only in parts"));
            }
            Ok(class("read", &options))
        }
        Err(error) => {
            let (said, name) = (error.to_string(), name_of(&error));
            if !said.contains(name) || !words.iter().any(|word| word.starts_with(name)) {
                return Err(format!("{said:?} names no word of {text:?}"));
            }
            Ok(class("refused", &error))
        }
    }
}

fn name_of(error: &OptionsError) -> &str {
    match error {
        OptionsError::Unknown(name) | OptionsError::NotInThisVersion(name) => name,
        OptionsError::BadValue { name, .. } => name,
        _ => "",
    }
}

fn option_seeds() -> Vec<(String, Vec<u8>)> {
    let texts = [
        "",
        "rw,async,_netdev,nofail,x-systemd.automount,x-a=b,defaults,user,nowsync,acl,locks=cluster",
        "ro,noatime,sync,rw,wsync,subdir=/a,io_uring=off,rasize=128K",
        "locks=local,noacl,nosuid,nodev,noexec,nocreate,allow_other",
        "conf=/a/b,log=/c,data_cache=2G,mount_timeout=30,recover_session=clean",
        "caps_max=5,client_cache_size=7",
        "noopen,locks=local",
        "noopen",
        "caps_max=-1",
        "rasize=5KK",
        "rasize=99999999999999999999T",
        "data_cache=18014398509481984K",
        "frob",
        "io_uring=maybe",
        "subdir=",
        "strictatime,nodiratime,relatime,dirsync,suid,dev,exec",
    ];
    numbered(&texts)
}

fn address(input: &[u8]) -> Verdict {
    let text = String::from_utf8_lossy(input);
    let addr = match Addr::parse(&text) {
        Ok(addr) => addr,
        Err(error) if error.to_string().contains(&*text) => return Ok(class("refused", &error)),
        Err(error) => return Err(format!("{error} does not name {text:?}")),
    };
    match Addr::parse(&addr.to_string()) {
        Ok(again) if again == addr => Ok(class("read", &addr)),
        other => Err(format!("{addr:?} became {other:?}")),
    }
}

fn address_seeds() -> Vec<(String, Vec<u8>)> {
    let texts =
        ["unix:/a/b", "host", "host:7420", "[::1]", "[::1]:1", "10.0.0.1:65535", "", "unix:", "h:x", "/data"];
    numbered(&texts)
}

fn numbered(texts: &[&str]) -> Vec<(String, Vec<u8>)> {
    texts
        .iter()
        .enumerate()
        .map(|(number, text)| (format!("{number:02}"), text.as_bytes().to_vec()))
        .collect()
}
