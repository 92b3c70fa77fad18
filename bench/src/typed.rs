//! Reads numbers from an example's command line.

use std::env::{Args, args};
use std::iter::Skip;
use std::str::FromStr;

/// Command-line words that have not been read yet.
#[derive(Debug)]
pub struct Words(Skip<Args>);

impl Words {
    /// Returns all words after the program's name.
    pub fn typed() -> Self {
        Self(args().skip(1))
    }

    /// Reads the next word as a number. Returns `otherwise` if the word is missing or not a valid
    /// number.
    pub fn number<T: FromStr>(&mut self, otherwise: T) -> T {
        let word = self.0.next();
        word.and_then(|word| word.parse().ok()).unwrap_or(otherwise)
    }
}
