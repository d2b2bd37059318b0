//! The answer to `GET /index`: the document's page. Pure.

use crate::records::Record;

/// The page: number of views, time of the request (milliseconds since 1970), MongoDB's latest records as JSON, and
/// Elasticsearch's answer as a JSON text.
///
/// # Errors
/// The records cannot be written as JSON.
pub fn page(views: i64, now_ms: u128, records: &[Record], found: &str) -> serde_json::Result<String> {
    let records = escaped(&serde_json::to_string(records)?);
    let found = escaped(&serde_json::to_string(found)?);
    Ok(format!(
        "<html><head><title>index</title></head><body><pre>view count: {views}\ntime: {now_ms}\nmongo: {records}\n\
         elastic: {found}\n</pre></body></html>\n"
    ))
}

/// Text escaped for use between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page() {
        let records = [Record { id: "a3f1".into(), data: "Jq7<&".into() }];
        let page = page(7, 1_677_785_502_534, &records, r#"{"took":22}"#).unwrap();
        assert_eq!(
            page,
            "<html><head><title>index</title></head><body><pre>view count: 7\ntime: 1677785502534\n\
             mongo: [{\"_id\":\"a3f1\",\"data\":\"Jq7&lt;&amp;\"}]\nelastic: \"{\\\"took\\\":22}\"\n</pre></body></html>\n"
        );
    }
}
