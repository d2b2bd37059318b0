//! The live page: one file that loads nothing; the report's style and chart library, and its own script.

use loadlab_report::assets::{self, Asset, STYLE, UPLOT_LICENCE, UPLOT_SCRIPT, UPLOT_STYLE};
use loadlab_report::markup::escaped;
use loadlab_report::terminal::harmless;

static OWN_STYLE: Asset = Asset::new(include_bytes!(concat!(env!("OUT_DIR"), "/live.css.zlib")));
static SCRIPT: Asset = Asset::new(include_bytes!(concat!(env!("OUT_DIR"), "/live.js.zlib")));
static BODY: Asset = Asset::new(include_bytes!(concat!(env!("OUT_DIR"), "/live.html.zlib")));

/// The page, with a title until the first frame arrives.
pub fn page(title: &str) -> String {
    let title = escaped(&harmless(title));
    let body = BODY.replace("TITLE", &title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{title} – loadlab, live</title>\n<style>{UPLOT_STYLE}\n{STYLE}\n{OWN_STYLE}</style>\n</head>\n\
         <body>\n{body}{UPLOT_LICENCE}<script>{UPLOT_SCRIPT}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// The page's content security policy: the report's, plus events from its own server; it must not be framed.
pub fn policy() -> String {
    let own = "connect-src 'self'; img-src data:; frame-ancestors 'none'";
    format!("{}; {own}", assets::policy(&[&UPLOT_SCRIPT, &SCRIPT]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_loads_nothing_and_a_title_stays_text() {
        let page = page("<script>alert(1)</script> & \u{1b}[31m\"x\"");
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt; &amp; "), "{}", &page[..600]);
        assert!(!page.contains('\u{1b}'));
        for from_elsewhere in ["src=", "@import", "url(", "//cdn", "integrity="] {
            assert!(!page.contains(from_elsewhere), "{from_elsewhere}");
        }
        assert_eq!(page.matches("<script>").count(), 2);
        assert_eq!(policy().matches("'sha256-").count(), 2);
    }
}
