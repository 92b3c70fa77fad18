//! Numbers that were typed after an example's name.

use std::env::{Args, args};
use std::iter::Skip;
use std::str::FromStr;

/// The words that were typed, one after the other.
#[derive(Debug)]
pub struct Words(Skip<Args>);

impl Words {
    /// All of them.
    pub fn typed() -> Self {
        Self(args().skip(1))
    }

    /// The next one as a number; `otherwise` where there is none.
    pub fn number<T: FromStr>(&mut self, otherwise: T) -> T {
        let word = self.0.next();
        word.and_then(|word| word.parse().ok()).unwrap_or(otherwise)
    }
}
