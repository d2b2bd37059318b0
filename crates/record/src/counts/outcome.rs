//! How a started request ended.

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize};

/// Every way in which a started request can fail. The order is the order of tables and documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// A complete response with a status of 400 to 499.
    Http4xx,
    /// A complete response with a status of 500 or more.
    Http5xx,
    /// A complete response that failed a check of the plan.
    Check,
    /// No complete response within the timeout; the exchange was abandoned.
    Timeout,
    /// The connection could not be made (refused, unreachable, no free port or descriptor).
    Connect,
    /// The name could not be resolved.
    Dns,
    /// The TLS handshake failed.
    Tls,
    /// The peer reset or closed the connection before any byte of a response.
    Reset,
    /// The connection ended inside a response.
    Truncated,
    /// The bytes received are not a valid response.
    Protocol,
    /// A response head, or a body that must be kept whole, above its limit.
    TooLarge,
}

impl Failure {
    /// All failures, in the order of tables and documents.
    pub const ALL: [Failure; 11] = [
        Failure::Http4xx,
        Failure::Http5xx,
        Failure::Check,
        Failure::Timeout,
        Failure::Connect,
        Failure::Dns,
        Failure::Tls,
        Failure::Reset,
        Failure::Truncated,
        Failure::Protocol,
        Failure::TooLarge,
    ];

    /// The name used in documents, expressions and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Failure::Http4xx => "http_4xx",
            Failure::Http5xx => "http_5xx",
            Failure::Check => "check",
            Failure::Timeout => "timeout",
            Failure::Connect => "connect",
            Failure::Dns => "dns",
            Failure::Tls => "tls",
            Failure::Reset => "reset",
            Failure::Truncated => "truncated",
            Failure::Protocol => "protocol",
            Failure::TooLarge => "too_large",
        }
    }
}

/// How a started request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Complete, with a status below 400 or as its checks decided.
    Ok,
    /// Ended otherwise.
    Failed(Failure),
}

impl Outcome {
    /// `ok`, or the failure's name.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Failed(failure) => failure.name(),
        }
    }
}

/// A count for every failure; serialises as an object with every name, zeros included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures([u64; Failure::ALL.len()]);

impl Failures {
    /// Adds `n` to one failure.
    pub fn add(&mut self, failure: Failure, n: u64) {
        self.0[failure as usize] += n;
    }

    /// The count of one failure.
    pub fn get(&self, failure: Failure) -> u64 {
        self.0[failure as usize]
    }

    /// The sum over all failures.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds every count of another.
    pub fn merge(&mut self, other: &Failures) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// Failures that occurred, with their counts.
    pub fn nonzero(&self) -> impl Iterator<Item = (Failure, u64)> + '_ {
        Failure::ALL.into_iter().map(|f| (f, self.get(f))).filter(|(_, n)| *n > 0)
    }
}

impl Serialize for Failures {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A struct, since its names are ours: a secret equal to one of them must not make it unreadable.
        let mut fields = serializer.serialize_struct("Failures", Failure::ALL.len())?;
        for failure in Failure::ALL {
            fields.serialize_field(failure.name(), &self.get(failure))?;
        }
        fields.end()
    }
}

impl<'de> Deserialize<'de> for Failures {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = std::collections::BTreeMap::<String, u64>::deserialize(deserializer)?;
        let mut failures = Failures::default();
        for (name, n) in map {
            let failure = Failure::ALL
                .into_iter()
                .find(|f| f.name() == name)
                .ok_or_else(|| serde::de::Error::custom(format!("unknown failure `{name}`")))?;
            failures.add(failure, n);
        }
        Ok(failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_serialise_with_every_name_and_come_back() {
        let mut failures = Failures::default();
        failures.add(Failure::Reset, 3);
        failures.add(Failure::Http5xx, 2);
        let text = serde_json::to_string(&failures).unwrap();
        for failure in Failure::ALL {
            assert!(text.contains(failure.name()), "{text}");
        }
        assert_eq!(serde_json::from_str::<Failures>(&text).unwrap(), failures);
        assert_eq!(failures.total(), 5);
        assert!(serde_json::from_str::<Failures>(r#"{"nonsense":1}"#).is_err());
    }
}
