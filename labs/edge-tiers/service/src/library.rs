//! The magazine: articles of very different lengths, the same on every machine, and the two operations that cost a
//! backend work. Articles are stored as word numbers. A page is rendered on request, and its most similar articles are
//! found by comparing it with all others, as on a site without an index. Nothing here is kept between requests: caching
//! is the edges' job.

use std::fmt::Write;

/// Number of articles in the whole magazine.
pub const ARTICLES: usize = 2000;

/// Size of the vocabulary. Some words are in most articles and most are in few, as in any language.
const WORDS: usize = 4000;

/// Chosen once; another value makes another magazine of the same size.
const SEED: u64 = 0x4544_4745;

/// Lengths of the shortest and the longest article, in words. Lengths are distributed log-uniformly.
const LENGTH: (f64, f64) = (150.0, 9000.0);

/// Number of words that represent an article's topics.
const TOPICS: usize = 48;

/// Number of articles that a page or a search result lists.
const NAMED: usize = 10;

const SYLLABLES: [&str; 32] = [
    "ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "qui", "ro", "su", "ta", "ve",
    "wi", "xo", "yu", "za", "ble", "cri", "dro", "flu", "gra", "ple", "sti", "tro", "shu", "an", "el",
];

struct Article {
    /// Word numbers, in the order of the text.
    text: Vec<u16>,
    /// Its most frequent rare words, in ascending order.
    topics: Vec<u16>,
}

/// All articles.
pub struct Library {
    words: Vec<String>,
    articles: Vec<Article>,
    /// How much a word shared by two articles counts: the rarer the word, the more.
    weights: Vec<f32>,
}

impl Library {
    /// A magazine of this many articles, numbered from 1.
    pub fn new(articles: usize) -> Library {
        let mut random = Random(SEED);
        let words = (0..WORDS).map(word).collect();
        let articles: Vec<Article> = (0..articles).map(|_| Article::new(&mut random)).collect();
        let mut having = vec![0u32; WORDS];
        for topic in articles.iter().flat_map(|a| &a.topics) {
            having[usize::from(*topic)] += 1;
        }
        let all = articles.len() as f32;
        let weights = having.iter().map(|n| (1.0 + all / (1.0 + *n as f32)).ln()).collect();
        Library { words, articles, weights }
    }

    /// The page of an article; `None` if it does not exist.
    pub fn page(&self, number: usize) -> Option<String> {
        let article = self.articles.get(number.checked_sub(1)?)?;
        let mut page = String::with_capacity(article.text.len() * 7 + 2000);
        self.head(&mut page, &self.title(article));
        for paragraph in article.text.chunks(80) {
            page.push_str("<p>");
            for word in paragraph {
                page.push_str(&self.words[usize::from(*word)]);
                page.push(' ');
            }
            page.push_str("</p>\n");
        }
        page.push_str("<h2>More like this</h2>\n");
        self.list(&mut page, self.ranked(|other| self.likeness(article, other)), number - 1);
        Some(page)
    }

    /// The articles in which a word is most frequent, relative to their length; `None` if there is no such word.
    pub fn search(&self, word: usize) -> Option<String> {
        let name = self.words.get(word)?;
        let wanted = word as u16;
        let mut page = String::new();
        self.head(&mut page, name);
        let score = |article: &Article| {
            article.text.iter().filter(|w| **w == wanted).count() as f32 / (article.text.len() as f32).sqrt()
        };
        self.list(&mut page, self.ranked(score), usize::MAX);
        Some(page)
    }

    fn head(&self, page: &mut String, title: &str) {
        page.push_str("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>");
        page.push_str(title);
        page.push_str("</title>\n<h1>");
        page.push_str(title);
        page.push_str("</h1>\n");
    }

    fn list(&self, page: &mut String, ranked: Vec<usize>, without: usize) {
        page.push_str("<ul>\n");
        for index in ranked.into_iter().filter(|i| *i != without).take(NAMED) {
            let title = self.title(&self.articles[index]);
            // Writing to a string does not fail.
            let _ = writeln!(page, "<li><a href=\"/articles/{}\">{title}</a>", index + 1);
        }
        page.push_str("</ul>\n</html>\n");
    }

    fn title(&self, article: &Article) -> String {
        let words: Vec<&str> =
            article.text.iter().take(5).map(|w| self.words[usize::from(*w)].as_str()).collect();
        words.join(" ")
    }

    /// The best articles by a score, best first, one more than are listed; articles with a score of zero are left out.
    fn ranked(&self, score: impl Fn(&Article) -> f32) -> Vec<usize> {
        let scores = self.articles.iter().map(&score).enumerate();
        let mut ranked: Vec<(usize, f32)> = scores.filter(|(_, score)| *score > 0.0).collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked.into_iter().take(NAMED + 1).map(|(index, _)| index).collect()
    }

    /// The sum of the weights of the articles' common topics.
    fn likeness(&self, one: &Article, other: &Article) -> f32 {
        let (mut a, mut b) = (one.topics.iter().peekable(), other.topics.iter().peekable());
        let mut sum = 0.0;
        while let (Some(left), Some(right)) = (a.peek(), b.peek()) {
            match left.cmp(right) {
                std::cmp::Ordering::Less => drop(a.next()),
                std::cmp::Ordering::Greater => drop(b.next()),
                std::cmp::Ordering::Equal => {
                    sum += self.weights[usize::from(**left)];
                    a.next();
                    b.next();
                }
            }
        }
        sum
    }
}

impl Article {
    fn new(random: &mut Random) -> Article {
        let (least, most) = LENGTH;
        let length = least * (most / least).powf(random.share());
        let text: Vec<u16> = (0..length as usize).map(|_| random.word()).collect();
        let mut counts = vec![0u16; WORDS];
        for word in &text {
            counts[usize::from(*word)] += 1;
        }
        // The hundred most common words carry no meaning.
        let mut found: Vec<u16> = (100..WORDS as u16).filter(|w| counts[usize::from(*w)] > 0).collect();
        found.sort_by_key(|w| (std::cmp::Reverse(counts[usize::from(*w)]), *w));
        found.truncate(TOPICS);
        found.sort_unstable();
        Article { text, topics: found }
    }
}

/// A word by its number: lower numbers are shorter, and no two are alike.
fn word(number: usize) -> String {
    let (mut word, mut rest) = (String::new(), number);
    loop {
        word.push_str(SYLLABLES[rest % SYLLABLES.len()]);
        rest /= SYLLABLES.len();
        if rest == 0 {
            return word;
        }
        rest -= 1;
    }
}

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A word number; a word's probability is about inversely proportional to its number (Zipf's law).
    fn word(&mut self) -> u16 {
        ((WORDS as f64).powf(self.share()) - 1.0) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_magazine_is_the_same_every_time_and_no_two_pages_are() {
        let (one, other) = (Library::new(30), Library::new(30));
        let pages: Vec<String> = (1..=30).filter_map(|n| one.page(n)).collect();
        assert_eq!(pages, (1..=30).filter_map(|n| other.page(n)).collect::<Vec<_>>());
        assert_eq!(pages.iter().collect::<BTreeSet<_>>().len(), 30);
        assert_eq!((one.page(0), one.page(31)), (None, None));
    }

    #[test]
    fn pages_are_of_very_different_size() {
        let library = Library::new(200);
        let sizes: Vec<usize> = (1..=200).filter_map(|n| library.page(n)).map(|p| p.len()).collect();
        let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!(*least > 1_000 && *least < 4_000 && *most > 30_000 && *most < 80_000, "{least} to {most}");
    }

    #[test]
    fn words_are_distinct() {
        let words: BTreeSet<String> = (0..WORDS).map(word).collect();
        assert_eq!(words.len(), WORDS);
    }

    #[test]
    fn a_page_names_the_articles_most_like_it_and_not_itself() {
        let library = Library::new(60);
        let page = library.page(7).unwrap();
        assert_eq!(page.matches("<li>").count(), NAMED);
        assert!(!page.contains("\"/articles/7\""));
        let likeness = |other: usize| library.likeness(&library.articles[6], &library.articles[other]);
        let best = (0..60).filter(|i| *i != 6).max_by(|a, b| likeness(*a).total_cmp(&likeness(*b))).unwrap();
        let first = page.split("<li>").nth(1).unwrap();
        assert!(first.contains(&format!("\"/articles/{}\"", best + 1)), "{first}");
    }

    #[test]
    fn a_search_finds_what_holds_the_word() {
        let library = Library::new(60);
        let rare = usize::from(library.articles[3].topics[TOPICS - 1]);
        let page = library.search(rare).unwrap();
        assert!(page.contains(&format!("<h1>{}</h1>", word(rare))));
        for link in page.split("/articles/").skip(1) {
            let number: usize = link.split('"').next().unwrap().parse().unwrap();
            assert!(library.articles[number - 1].text.contains(&(rare as u16)));
        }
        assert_eq!(library.search(WORDS), None);
    }
}
