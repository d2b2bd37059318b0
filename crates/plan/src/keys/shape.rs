//! The values a key may have: their shapes, the patterns of names, and the limits of counts.

/// A map with fixed keys.
pub(crate) struct Section {
    /// Its name in the schema.
    pub id: &'static str,
    /// Its name in messages: "a component", "`limits`".
    pub called: &'static str,
    /// Description for readers.
    pub doc: &'static str,
    pub keys: &'static [Key],
    /// Keys that are required.
    pub required: &'static [&'static str],
    /// Groups of keys: exactly one key of each must be given.
    pub groups: &'static [Group],
    /// Keys that only make sense beside another key.
    pub needs: &'static [Need],
}

/// A key that needs one of some others; messages name the first.
pub(crate) struct Need {
    pub key: &'static str,
    pub needs: &'static [&'static str],
    pub hint: &'static str,
}

/// Keys that exclude each other.
pub(crate) struct Group {
    pub keys: &'static [&'static str],
    /// Reported if two of them are given.
    pub why: &'static str,
}

/// One key.
pub(crate) struct Key {
    pub name: &'static str,
    pub doc: &'static str,
    pub shape: Shape,
}

/// The form of a key's value.
pub(crate) enum Shape {
    /// The language's version.
    Version,
    Text,
    Duration,
    /// A duration, or `auto`.
    DurationOrAuto,
    /// A duration, or a distribution of durations.
    Think,
    /// The shortest and the longest duration.
    Between,
    /// The lowest and the highest level of a search.
    LevelRange,
    /// A number of users, or a rate; 0 is either.
    Level,
    Size,
    Cpu,
    /// A count, or `none`.
    CountOrNone,
    /// Bytes per second, or `none`.
    ByteRate,
    /// A duration, or `none`.
    DurationOrNone,
    /// A share such as `1%`, or `none`.
    ShareOrNone,
    /// A share: `2%`.
    Share,
    /// A rate, or `none`.
    RateOrNone,
    Rate,
    Count(u64, u64),
    Bool,
    /// `true`, `false` or `shared`.
    Isolation,
    /// Only `true`.
    True,
    OneOf(&'static [&'static str]),
    /// `auto` or a port number.
    Port,
    /// A shell line or a list of words.
    Command,
    /// One shell line, or a list of commands.
    Commands,
    Status,
    /// Text, or `{file: …}`, or `{json: …}`.
    Body,
    /// Anything at all.
    Any,
    /// A value of an axis: a text, a number or a flag.
    Scalar,
    /// Named cases or axes.
    Matrix,
    /// Values by dotted path.
    Profile,
    In(&'static Section),
    /// A section with at least one of its keys.
    SomeOf(&'static Section),
    /// A text, or a section with more detail.
    TextOr(&'static Section),
    /// A text, or a list of them.
    Texts,
    /// An expected value, or `{exists: …}` and the like.
    Expect,
    /// A rate, or a section with more detail.
    RateOr(&'static Section),
    /// A count within these bounds, or a section with more detail.
    CountOr(u64, u64, &'static Section),
    /// `true` or `false`, or a section with more detail.
    BoolOr(&'static Section),
    /// A text, or `{json: …}`.
    Message,
    ListOf(&'static Shape),
    /// Names (a pattern) to values.
    MapOf(&'static str, &'static Shape),
}

pub(crate) const fn key(name: &'static str, shape: Shape, doc: &'static str) -> Key {
    Key { name, doc, shape }
}

/// Names of components, loads and ports.
pub(crate) const NAME_PATTERN: &str = "^[a-z0-9_-]+$";
/// Names of probes and axes: they appear in expressions and templates.
pub(crate) const WORD_PATTERN: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
/// Names of environment variables.
pub(crate) const ENV_PATTERN: &str = "^[^=]+$";
/// Names of form fields.
pub(crate) const ANY_PATTERN: &str = "";
/// JSON pointers.
pub(crate) const POINTER_PATTERN: &str = "^(/|$)";
/// Names of headers.
pub(crate) const HEADER_PATTERN: &str = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$";

pub(crate) const SIGNALS: &[&str] = &["TERM", "INT", "QUIT", "HUP", "KILL", "USR1", "USR2"];
/// Methods that are keys of a step.
pub const METHODS: &[&str] = &["get", "post", "put", "delete", "patch", "head", "options"];
/// Keys that make a map a step.
pub(crate) const STEP_KINDS: &[&str] =
    &["get", "post", "put", "delete", "patch", "head", "options", "urls", "websocket"];
pub(crate) const PROTOCOLS: &[&str] = &["http/1.1", "http/2", "auto"];
/// Maximum count: still exact in a double.
pub(crate) const MAX_COUNT: u64 = u64::MAX >> 11;
/// Maximum number of values over all cases of a plan: keeps checking fast.
pub(crate) const MAX_EXPANDED: usize = 1_000_000;
pub(crate) const MAX_USERS: u64 = 10_000_000;
pub(crate) const MAX_REPLICAS: u64 = 1000;
pub(crate) const MAX_TRIALS: u64 = loadlab_record::documents::manifest::MAX_TRIALS as u64;

impl Section {
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|k| k.name == name)
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|k| k.name).collect()
    }
}
