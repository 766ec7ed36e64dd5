//! POSIX ACLs in the kernel's xattr form, version 2: parse, check, inherit, and their interplay with
//! the mode.
//!
//! Absent: NFSv4 ACLs.

use proto::inode::InodeExt;
use proto::{Cred, Errno};

pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;
const ENTRIES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// A valid ACL: entries in the order owner, users, group, groups, mask, other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    entries: Vec<Entry>,
}

/// The ACL an inode has under this xattr name.
pub(crate) fn stored(ext: &InodeExt, name: &[u8]) -> Option<Acl> {
    let at = ext.xattrs.binary_search_by(|(n, _)| n.as_ref().cmp(name)).ok()?;
    Acl::parse(&ext.xattrs[at].1).ok().flatten()
}

impl Acl {
    /// Parses an xattr value; `None` for one without entries (which removes the ACL).
    pub(crate) fn parse(value: &[u8]) -> Result<Option<Self>, Errno> {
        let (head, rest) = value.split_first_chunk::<4>().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*head) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        if rest.len() % 8 != 0 || rest.len() / 8 > ENTRIES_MAX {
            return Err(Errno::EINVAL);
        }
        let mut entries: Vec<Entry> = rest
            .chunks_exact(8)
            .map(|c| Entry {
                tag: u16::from_le_bytes([c[0], c[1]]),
                perm: u16::from_le_bytes([c[2], c[3]]),
                id: u32::from_le_bytes([c[4], c[5], c[6], c[7]]),
            })
            .collect();
        if entries.is_empty() {
            return Ok(None);
        }
        for entry in &mut entries {
            if entry.perm > 7 {
                return Err(Errno::EINVAL);
            }
            match entry.tag {
                USER | GROUP => {
                    if entry.id == NO_ID {
                        return Err(Errno::EINVAL);
                    }
                }
                USER_OBJ | GROUP_OBJ | MASK | OTHER => entry.id = NO_ID,
                _ => return Err(Errno::EINVAL),
            }
        }
        entries.sort_by_key(|e| (e.tag, e.id));
        let acl = Self { entries };
        acl.check()?;
        Ok(Some(acl))
    }

    fn check(&self) -> Result<(), Errno> {
        let count = |tag| self.entries.iter().filter(|e| e.tag == tag).count();
        let named = count(USER) + count(GROUP);
        let one = [USER_OBJ, GROUP_OBJ, OTHER].iter().all(|tag| count(*tag) == 1);
        let twice = self.entries.windows(2).any(|w| w[0].tag == w[1].tag && w[0].id == w[1].id);
        let mask = count(MASK);
        if one && !twice && mask <= 1 && (named == 0 || mask == 1) { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// The xattr value.
    pub(crate) fn bytes(&self) -> Box<[u8]> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            out.extend_from_slice(&entry.tag.to_le_bytes());
            out.extend_from_slice(&entry.perm.to_le_bytes());
            out.extend_from_slice(&entry.id.to_le_bytes());
        }
        out.into()
    }

    fn perm(&self, tag: u16) -> Option<u32> {
        self.entries.iter().find(|e| e.tag == tag).map(|e| u32::from(e.perm))
    }

    fn set(&mut self, tag: u16, perm: u32) {
        if let Some(entry) = self.entries.iter_mut().find(|e| e.tag == tag) {
            entry.perm = perm as u16;
        }
    }

    /// Whether three mode classes say all of it.
    pub(crate) fn is_mode(&self) -> bool {
        self.entries.len() == 3
    }

    /// The nine permission bits this ACL shows as a mode.
    pub(crate) fn mode(&self) -> u32 {
        let group = self.perm(MASK).or_else(|| self.perm(GROUP_OBJ)).unwrap_or(0);
        self.perm(USER_OBJ).unwrap_or(0) << 6 | group << 3 | self.perm(OTHER).unwrap_or(0)
    }

    /// Whether a caller who is not the owner has `mask`.
    pub(crate) fn permits(&self, cred: &Cred, gid: u32, mode: u32, mask: u32) -> bool {
        let limit = self.perm(MASK).unwrap_or(7);
        if let Some(user) = self.entries.iter().find(|e| e.tag == USER && e.id == cred.uid) {
            return u32::from(user.perm) & limit & mask == mask;
        }
        let mut member = false;
        for entry in &self.entries {
            let matches = match entry.tag {
                GROUP_OBJ => cred.in_group(gid),
                GROUP => cred.in_group(entry.id),
                _ => false,
            };
            if matches {
                member = true;
                if u32::from(entry.perm) & limit & mask == mask {
                    return true;
                }
            }
        }
        !member && mode & mask == mask
    }

    /// chmod: owner, mask (or group) and other follow the mode.
    pub(crate) fn follow_mode(&mut self, mode: u32) {
        self.set(USER_OBJ, (mode >> 6) & 7);
        let group = if self.perm(MASK).is_some() { MASK } else { GROUP_OBJ };
        self.set(group, (mode >> 3) & 7);
        self.set(OTHER, mode & 7);
    }

    /// As the access ACL of a new inode made with `mode` under this default ACL: the ACL and the
    /// permission bits.
    pub(crate) fn inherit(mut self, mode: u32) -> (Self, u32) {
        let limited = self.mode() & mode & 0o777;
        self.follow_mode(limited);
        (self, limited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut out = 2_u32.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&perm.to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        }
        out
    }

    #[test]
    fn named_users_and_groups_are_limited_by_the_mask() {
        let bytes =
            acl(&[(1, 7, NO_ID), (2, 7, 5), (4, 0, NO_ID), (8, 6, 9), (0x10, 4, NO_ID), (0x20, 0, NO_ID)]);
        let acl = Acl::parse(&bytes).expect("valid").expect("entries");
        let user = Cred { uid: 5, gid: 1, groups: vec![] };
        assert!(acl.permits(&user, 1, 0o740, 4) && !acl.permits(&user, 1, 0o740, 2));
        let member = Cred { uid: 6, gid: 9, groups: vec![] };
        assert!(acl.permits(&member, 1, 0o740, 4) && !acl.permits(&member, 1, 0o740, 1));
        assert_eq!(acl.mode(), 0o740);
        let (inherited, mode) = acl.inherit(0o666);
        assert_eq!((mode, inherited.mode()), (0o640, 0o640));
    }

    #[test]
    fn refuses_what_the_kernel_refuses() {
        assert_eq!(Acl::parse(&acl(&[(1, 7, NO_ID)])), Err(Errno::EINVAL));
        assert_eq!(Acl::parse(&[1, 0, 0, 0]), Err(Errno::EOPNOTSUPP));
        assert_eq!(Acl::parse(&acl(&[])), Ok(None));
        let no_mask = acl(&[(1, 7, NO_ID), (2, 7, 5), (4, 0, NO_ID), (0x20, 0, NO_ID)]);
        assert_eq!(Acl::parse(&no_mask), Err(Errno::EINVAL));
    }
}
