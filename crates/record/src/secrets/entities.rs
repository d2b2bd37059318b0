//! Names of characters in HTML: ASCII punctuation, and Latin-1 in order.

/// The character of a name without `&` and `;`.
pub fn character(name: &[u8]) -> Option<char> {
    let ascii = ASCII.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, c)| *c);
    ascii.or_else(|| {
        let place = LATIN.iter().position(|known| known.as_bytes() == name)?;
        char::from_u32(0xA0 + place as u32)
    })
}

/// Whether a longer name begins with it.
pub fn may_begin(start: &[u8]) -> bool {
    let names = ASCII.iter().map(|(name, _)| *name).chain(LATIN);
    start.len() < MAX_NAME_BYTES && names.map(str::as_bytes).any(|name| name.starts_with(start))
}

/// Length of the longest name.
pub const MAX_NAME_BYTES: usize = 8;

const ASCII: [(&str, char); 46] = [
    ("amp", '&'),
    ("AMP", '&'),
    ("lt", '<'),
    ("LT", '<'),
    ("gt", '>'),
    ("GT", '>'),
    ("quot", '"'),
    ("QUOT", '"'),
    ("apos", '\''),
    ("Tab", '\t'),
    ("NewLine", '\n'),
    ("excl", '!'),
    ("num", '#'),
    ("dollar", '$'),
    ("percnt", '%'),
    ("lpar", '('),
    ("rpar", ')'),
    ("ast", '*'),
    ("midast", '*'),
    ("plus", '+'),
    ("comma", ','),
    ("period", '.'),
    ("sol", '/'),
    ("colon", ':'),
    ("semi", ';'),
    ("equals", '='),
    ("quest", '?'),
    ("commat", '@'),
    ("lsqb", '['),
    ("lbrack", '['),
    ("bsol", '\\'),
    ("rsqb", ']'),
    ("rbrack", ']'),
    ("Hat", '^'),
    ("lowbar", '_'),
    ("UnderBar", '_'),
    ("grave", '`'),
    ("lcub", '{'),
    ("lbrace", '{'),
    ("vert", '|'),
    ("verbar", '|'),
    ("VertLine", '|'),
    ("rcub", '}'),
    ("rbrace", '}'),
    ("hyphen", '\u{2010}'),
    ("dash", '\u{2010}'),
];

/// U+00A0 to U+00FF.
#[rustfmt::skip]
const LATIN: [&str; 96] = [
    "nbsp", "iexcl", "cent", "pound", "curren", "yen", "brvbar", "sect", "uml", "copy", "ordf", "laquo", "not", "shy",
    "reg", "macr", "deg", "plusmn", "sup2", "sup3", "acute", "micro", "para", "middot", "cedil", "sup1", "ordm",
    "raquo", "frac14", "frac12", "frac34", "iquest", "Agrave", "Aacute", "Acirc", "Atilde", "Auml", "Aring", "AElig",
    "Ccedil", "Egrave", "Eacute", "Ecirc", "Euml", "Igrave", "Iacute", "Icirc", "Iuml", "ETH", "Ntilde", "Ograve",
    "Oacute", "Ocirc", "Otilde", "Ouml", "times", "Oslash", "Ugrave", "Uacute", "Ucirc", "Uuml", "Yacute", "THORN",
    "szlig", "agrave", "aacute", "acirc", "atilde", "auml", "aring", "aelig", "ccedil", "egrave", "eacute", "ecirc",
    "euml", "igrave", "iacute", "icirc", "iuml", "eth", "ntilde", "ograve", "oacute", "ocirc", "otilde", "ouml",
    "divide", "oslash", "ugrave", "uacute", "ucirc", "uuml", "yacute", "thorn", "yuml",
];
