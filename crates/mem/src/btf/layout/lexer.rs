//! Splits a layout file into words, numbers and symbols.

use crate::error::{LayoutError, LayoutProblem};

/// Most tokens that a file may have. The parser's numbers of types and names stay far below 2^32.
const MOST: usize = 1 << 18;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Word(&'a str),
    Number(u64),
    Symbol(char),
}

/// The tokens of a file, and the position of the parser.
pub(super) struct Tokens<'a> {
    /// Each token with its line number.
    tokens: Vec<(Token<'a>, usize)>,
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Result<Self, LayoutError> {
        let mut tokens = Vec::new();
        let mut line = 1;
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let error = move |problem| LayoutError { line, problem };
            let length = if let Some(comment) = rest.strip_prefix("/*") {
                let end = comment.find("*/");
                4 + end.ok_or_else(|| error(LayoutProblem::OpenComment))?
            } else if rest.starts_with("//") || first == '#' {
                rest.find('\n').unwrap_or(rest.len())
            } else if first.is_ascii_digit() {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric());
                let digits = &rest[..end.unwrap_or(rest.len())];
                let number = number(digits);
                let number = number
                    .ok_or_else(|| error(LayoutProblem::Number(digits.chars().take(30).collect())));
                tokens.push((Token::Number(number?), line));
                digits.len()
            } else if first.is_ascii_alphabetic() || first == '_' {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let word = &rest[..end.unwrap_or(rest.len())];
                tokens.push((Token::Word(word), line));
                word.len()
            } else if first.is_whitespace() {
                first.len_utf8()
            } else if "{}[]();,:*@".contains(first) {
                tokens.push((Token::Symbol(first), line));
                1
            } else {
                return Err(error(LayoutProblem::Character(first)));
            };
            line += rest[..length].matches('\n').count();
            rest = &rest[length..];
            if tokens.len() > MOST {
                return Err(error(LayoutProblem::TooLong));
            }
        }
        Ok(Self { tokens, at: 0 })
    }

    pub(super) fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|(token, _)| *token)
    }

    pub(super) fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek();
        self.at += usize::from(token.is_some());
        token
    }

    pub(super) fn number(&mut self) -> Result<u64, LayoutError> {
        let Some(Token::Number(number)) = self.peek() else {
            return Err(self.expected("a number"));
        };
        self.at += 1;
        Ok(number)
    }

    pub(super) fn word(&mut self, wanted: &str) -> Result<&'a str, LayoutError> {
        let Some(Token::Word(word)) = self.peek() else {
            return Err(self.expected(wanted));
        };
        self.at += 1;
        Ok(word)
    }

    pub(super) fn symbol(&mut self, symbol: char) -> Result<(), LayoutError> {
        if self.peek() != Some(Token::Symbol(symbol)) {
            return Err(self.expected(&format!("`{symbol}`")));
        }
        self.at += 1;
        Ok(())
    }

    /// Returns an error on the line of the token before this position.
    pub(super) fn error(&self, problem: LayoutProblem) -> LayoutError {
        let token = self.tokens.get(self.at.saturating_sub(1));
        let line = token.or(self.tokens.last()).map_or(1, |(_, line)| *line);
        LayoutError { line, problem }
    }

    /// Returns an error that names the next token.
    pub(super) fn expected(&self, wanted: &str) -> LayoutError {
        let found = self.tokens.get(self.at);
        let problem = LayoutProblem::Expected {
            wanted: wanted.to_owned(),
            found: found.map_or_else(
                || "the end of the file".to_owned(),
                |(token, _)| token.to_string(),
            ),
        };
        let line = found.or(self.tokens.last()).map_or(1, |(_, line)| *line);
        LayoutError { line, problem }
    }
}

impl std::fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Word(word) => write!(f, "`{word}`"),
            Self::Number(number) => write!(f, "`{number}`"),
            Self::Symbol(symbol) => write!(f, "`{symbol}`"),
        }
    }
}

/// Parses a decimal number, or a hexadecimal one after `0x`.
fn number(digits: &str) -> Option<u64> {
    match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    }
}
