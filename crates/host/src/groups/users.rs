//! Names and home directories of users, from `/etc/passwd`.

use std::collections::HashMap;

use crate::Proc;

use super::state;

#[derive(Debug)]
pub(super) struct Users(HashMap<u32, User>);

#[derive(Debug)]
struct User {
    name: String,
    home: String,
}

impl Users {
    pub(super) fn read(proc: &Proc) -> Self {
        let text = state::read(&proc.root.join("etc/passwd"), state::MAX_LIST_BYTES);
        let text = text.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let user = |line: &str| {
            let mut fields = line.split(':');
            let name = state::name(fields.next()?)?;
            let uid = fields.nth(1)?.parse().ok()?;
            let home = fields.nth(2)?.to_owned();
            Some((uid, User { name, home }))
        };
        Self(text.lines().filter_map(user).collect())
    }

    /// Returns the name of a user, or the number if the name is unknown.
    pub(super) fn name(&self, uid: u32) -> String {
        let user = self.0.get(&uid);
        user.map_or_else(|| uid.to_string(), |user| user.name.clone())
    }

    pub(super) fn home(&self, uid: u32) -> Option<String> {
        self.0.get(&uid).map(|user| user.home.clone())
    }
}
