//! Tokens to a tree, by precedence climbing: or, and, comparison, sum, product, primary.
//!
//! A parenthesis may contain a condition or a number, so every level returns either and demands what it needs. Depth
//! is bounded by parentheses alone: chains of one level are lists, never nested.

use super::lex::{Token, TokenKind, tokens};
use super::other_tools;
use super::{
    Comparison, Cond, ExprError, Literal, MAX_BYTES, MAX_DEPTH, Name, Num, NumberKind, PartText, Span,
};

/// A condition or a number.
enum Any {
    Cond(Cond),
    Num(Num),
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
}

type Result<T> = std::result::Result<T, ExprError>;

/// A condition.
pub(super) fn parse(text: &str) -> Result<Cond> {
    let (parser, any) = whole(text, "a condition such as `p99 < 200ms`")?;
    parser.cond(any, 0)
}

/// A number.
pub(super) fn parse_num(text: &str) -> Result<Num> {
    let (parser, any) = whole(text, "a number such as `elapsed + drain`")?;
    parser.num(any, 0)
}

fn whole<'a>(text: &'a str, what: &str) -> Result<(Parser<'a>, Any)> {
    if text.len() > MAX_BYTES {
        let message = format!("the expression has {} bytes; at most {MAX_BYTES} are allowed", text.len());
        return Err(ExprError {
            message,
            at: MAX_BYTES,
            len: 0,
            hint: Some("split it into several".to_owned()),
        });
    }
    let mut parser = Parser { text, tokens: tokens(text)?, next: 0, depth: 0 };
    if parser.peek() == &TokenKind::End {
        return Err(parser.expected(what));
    }
    let any = parser.any()?;
    if parser.peek() != &TokenKind::End {
        return Err(parser.trailing());
    }
    Ok((parser, any))
}

impl Parser<'_> {
    fn token(&self) -> &Token {
        // the last token is End, and nothing moves beyond it
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn peek(&self) -> &TokenKind {
        &self.token().what
    }

    fn advance(&mut self) -> Token {
        let token = self.token().clone();
        self.next += 1;
        token
    }

    fn take(&mut self, what: &TokenKind) -> bool {
        let found = self.peek() == what;
        self.next += usize::from(found);
        found
    }

    fn error(&self, token: &Token, message: String, hint: Option<&str>) -> ExprError {
        ExprError { message, at: token.at, len: token.len, hint: hint.map(str::to_owned) }
    }

    /// A token as text.
    fn shown(&self, token: &Token) -> String {
        match token.what {
            TokenKind::End => "the end".to_owned(),
            _ => format!("`{}`", self.text.get(token.at..token.at + token.len).unwrap_or_default()),
        }
    }

    fn expected(&self, what: &str) -> ExprError {
        let token = self.token();
        self.error(token, format!("expected {what}, found {}", self.shown(token)), None)
    }

    /// The error for text that follows a complete expression.
    fn trailing(&self) -> ExprError {
        let token = self.token();
        let before = self.next.checked_sub(1).and_then(|i| self.tokens.get(i));
        let hint = match (&token.what, before.map(|b| &b.what)) {
            (TokenKind::Operator(_), _) => Some("compare two at a time: `1s < p99 and p99 < 2s`"),
            (TokenKind::Name(_), Some(TokenKind::Literal(_))) => {
                Some("write a unit directly after its number: `15MiB`")
            }
            (TokenKind::Literal(_) | TokenKind::Name(_), Some(_)) => {
                Some("join conditions with `and` or `or`")
            }
            (TokenKind::Close, _) => Some("it has no matching `(`"),
            (TokenKind::OpenWindow, _) => Some("a window follows a name: `p99[10s..30s]`"),
            _ => None,
        };
        self.error(token, format!("unexpected {}", self.shown(token)), hint)
    }

    /// Demands a condition.
    fn cond(&self, any: Any, first: usize) -> Result<Cond> {
        match any {
            Any::Cond(cond) => Ok(cond),
            Any::Num(num) => {
                let message = format!("`{num}` is a number, not a condition");
                Err(self.spanning(first, message, "compare it, as in `p99 < 200ms`"))
            }
        }
    }

    /// Demands a number.
    fn num(&self, any: Any, first: usize) -> Result<Num> {
        match any {
            Any::Num(num) => Ok(num),
            Any::Cond(cond) => {
                let message = format!("`{cond}` is a condition, not a number");
                Err(self.spanning(first, message, "join conditions with `and` or `or`"))
            }
        }
    }

    /// An error about everything from the token `first` to the last one read.
    fn spanning(&self, first: usize, message: String, hint: &str) -> ExprError {
        let at = self.tokens.get(first).map_or(0, |t| t.at);
        let last = self.next.saturating_sub(1).max(first);
        let end = self.tokens.get(last).map_or(self.text.len(), |t| t.at + t.len);
        ExprError { message, at, len: end.saturating_sub(at), hint: Some(hint.to_owned()) }
    }

    fn any(&mut self) -> Result<Any> {
        self.joined(&TokenKind::Or, Self::and, Cond::Or)
    }

    fn and(&mut self) -> Result<Any> {
        self.joined(&TokenKind::And, Self::comparison, Cond::And)
    }

    /// One or more of `part`, joined by one word.
    fn joined(
        &mut self,
        word: &TokenKind,
        part: fn(&mut Self) -> Result<Any>,
        all: fn(Vec<Cond>) -> Cond,
    ) -> Result<Any> {
        let mut start = self.next;
        let mut any = part(self)?;
        if self.peek() != word {
            return Ok(any);
        }
        let mut conds = vec![self.cond(any, start)?];
        while self.take(word) {
            start = self.next;
            any = part(self)?;
            conds.push(self.cond(any, start)?);
        }
        Ok(Any::Cond(all(conds)))
    }

    fn comparison(&mut self) -> Result<Any> {
        let start = self.next;
        let left = self.sum()?;
        let TokenKind::Operator(operator) = *self.peek() else {
            return Ok(left);
        };
        let left = self.num(left, start)?;
        self.advance();
        let start = self.next;
        let right = self.sum()?;
        let right = self.num(right, start)?;
        Ok(Any::Cond(Cond::Compare(Comparison { left, operator, right })))
    }

    fn sum(&mut self) -> Result<Any> {
        let mut start = self.next;
        let mut minus = self.take(&TokenKind::Minus);
        let first = self.product()?;
        let more = matches!(self.peek(), TokenKind::Plus | TokenKind::Minus);
        if !minus && !more {
            return Ok(first);
        }
        let mut terms = vec![(minus, self.num(first, start)?)];
        while matches!(self.peek(), TokenKind::Plus | TokenKind::Minus) {
            minus = self.advance().what == TokenKind::Minus;
            start = self.next;
            let term = self.product()?;
            terms.push((minus, self.num(term, start)?));
        }
        Ok(Any::Num(Num::Sum(terms)))
    }

    fn product(&mut self) -> Result<Any> {
        let mut start = self.next;
        let first = self.primary()?;
        if !matches!(self.peek(), TokenKind::Times | TokenKind::Divide) {
            return Ok(first);
        }
        let mut factors = vec![(false, self.num(first, start)?)];
        while matches!(self.peek(), TokenKind::Times | TokenKind::Divide) {
            let divides = self.advance().what == TokenKind::Divide;
            start = self.next;
            let factor = self.primary()?;
            let factor = self.num(factor, start)?;
            if divides && matches!(&factor, Num::Literal(l) if l.quantity.value == 0.0) {
                let message = "nothing can be divided by 0".to_owned();
                return Err(self.error(&self.tokens[start], message, None));
            }
            factors.push((divides, factor));
        }
        Ok(Any::Num(Num::Product(factors)))
    }

    fn primary(&mut self) -> Result<Any> {
        match self.peek().clone() {
            TokenKind::Open => self.parenthesis(),
            TokenKind::Literal(literal) => {
                self.advance();
                Ok(Any::Num(Num::Literal(literal)))
            }
            TokenKind::Name(_) => {
                let name = self.name()?;
                let unquoted = self.text.get(name.at..).is_some_and(|t| t.starts_with("steady"));
                match self.peek() {
                    TokenKind::Open if name.text == "steady" && unquoted => self.steady(),
                    TokenKind::Open => {
                        let message = format!("there is no function `{}`", name.text);
                        let meant = other_tools::function(&name.text, self.argument());
                        let only = || "the only one is `steady(NAME, 5s)`".to_owned();
                        let hint = Some(meant.unwrap_or_else(only));
                        Err(ExprError { message, at: name.at, len: name.len, hint })
                    }
                    _ => Ok(Any::Num(Num::Name(self.part(name)?))),
                }
            }
            _ => Err(self.expected("a number or a name")),
        }
    }

    /// The number after the `(` that is next.
    fn argument(&self) -> Option<f64> {
        match &self.tokens.get(self.next + 1)?.what {
            TokenKind::Literal(literal) => Some(literal.quantity.value),
            _ => None,
        }
    }

    fn parenthesis(&mut self) -> Result<Any> {
        let open = self.advance();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let message = format!("parentheses are nested more than {MAX_DEPTH} deep");
            return Err(self.error(&open, message, None));
        }
        let inner = self.any()?;
        if !self.take(&TokenKind::Close) {
            return Err(match self.peek() {
                TokenKind::End => self.error(&open, "this `(` has no matching `)`".to_owned(), None),
                _ => self.trailing(),
            });
        }
        self.depth -= 1;
        Ok(inner)
    }

    fn name(&mut self) -> Result<Name> {
        let token = self.token().clone();
        let TokenKind::Name(text) = token.what else {
            return Err(self.expected("a name"));
        };
        self.advance();
        Ok(Name { text, part: None, at: token.at, len: token.len })
    }

    /// The part of the trial after a name, if there is one.
    fn part(&mut self, mut name: Name) -> Result<Name> {
        let start = self.next;
        if self.take(&TokenKind::OpenWindow) {
            if let TokenKind::Name(word) = self.peek().clone() {
                name.part = Some(self.named_part(&word)?);
                return Ok(name);
            }
            let from = self.duration()?;
            if !self.take(&TokenKind::Dots) {
                return Err(self.expected("`..` and the window's end"));
            }
            let to = self.duration()?;
            if !self.take(&TokenKind::CloseWindow) {
                return Err(self.expected("`]`"));
            }
            if from.quantity.value >= to.quantity.value {
                let message = format!("the window {}..{} is empty", from.text, to.text);
                return Err(self.spanning(start, message, "write the earlier time first"));
            }
            name.part = Some(PartText::Window(Span { from, to }));
        }
        Ok(name)
    }

    /// `drain]` or `batch 2]`.
    fn named_part(&mut self, word: &str) -> Result<PartText> {
        let part = match word {
            "drain" => {
                self.advance();
                PartText::Drain
            }
            "batch" => {
                self.advance();
                let number = match &self.token().what {
                    TokenKind::Literal(l) if l.quantity.kind == NumberKind::Plain => l.quantity.value,
                    _ => return Err(self.expected("the number of a batch, as in `[batch 2]`")),
                };
                if number.fract() != 0.0 || !(1.0..=f64::from(u32::MAX)).contains(&number) {
                    let message = "batches are numbered from 1".to_owned();
                    return Err(self.error(self.token(), message, None));
                }
                self.advance();
                PartText::Batch(number as u32)
            }
            _ => return Err(self.expected("a part of the trial: `10s..30s`, `batch 2` or `drain`")),
        };
        if !self.take(&TokenKind::CloseWindow) {
            return Err(self.expected("`]`"));
        }
        Ok(part)
    }

    fn duration(&mut self) -> Result<Literal> {
        let token = self.token().clone();
        let TokenKind::Literal(mut literal) = token.what else {
            return Err(self.expected("a duration such as `10s`"));
        };
        // 0 needs no unit
        if literal.quantity.kind == NumberKind::Plain && literal.quantity.value == 0.0 {
            literal.quantity.kind = NumberKind::Duration;
        }
        if literal.quantity.kind != NumberKind::Duration {
            return Err(self.expected("a duration such as `10s`"));
        }
        self.advance();
        Ok(literal)
    }

    /// What follows the word `steady`.
    fn steady(&mut self) -> Result<Any> {
        let open = self.advance();
        let name = self.name()?;
        if self.peek() == &TokenKind::OpenWindow {
            let hint = Some("it always looks back by its duration");
            return Err(self.error(self.token(), "`steady` takes no window".to_owned(), hint));
        }
        if !self.take(&TokenKind::Comma) {
            return Err(self.expected("`,` and a duration, as in `steady(stored, 5s)`"));
        }
        let long = self.duration()?;
        if !self.take(&TokenKind::Close) {
            return Err(match self.peek() {
                TokenKind::End => self.error(&open, "this `(` has no matching `)`".to_owned(), None),
                _ => self.expected("`)`"),
            });
        }
        Ok(Any::Cond(Cond::Steady(name, long)))
    }
}
