//! The two stores, as this service uses them: MongoDB through the official driver, Elasticsearch through plain HTTP.
//! Connections are kept and shared by all requests; each thing that a request needs from a store is one method.

use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::doc;
use mongodb::options::{ClientOptions, InsertManyOptions, ReturnDocument};
use mongodb::{Client, Collection};
use reqwest::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::records::{Entry, Record};

/// Number of records that a page shows from each store.
const LATEST: i64 = 10;
/// Records written per batch.
const BATCH: usize = 5000;
/// Longest wait for MongoDB to be available, and for a connection to Elasticsearch.
const CONNECT: Duration = Duration::from_secs(5);
/// Timeout of a request to Elasticsearch for a page.
const ANSWER: Duration = Duration::from_secs(30);
/// Timeout of a request while Elasticsearch is being filled.
const FILLED: Duration = Duration::from_secs(300);
/// Name of the index, from the document.
const INDEX: &str = "test_index";
/// `_id` of the one document in `counter`.
const VIEWS: &str = "view_counter";

/// The error is a description of what went wrong with a store.
pub type Result<T> = std::result::Result<T, String>;

#[derive(Serialize, Deserialize)]
struct Counter {
    value: i64,
}

/// MongoDB: the counter and the records.
#[derive(Clone)]
pub struct Mongo {
    records: Collection<Record>,
    counter: Collection<Counter>,
}

impl Mongo {
    /// From a `mongodb://` URL; connects on first use.
    pub async fn new(url: &str) -> Result<Mongo> {
        let mut options = ClientOptions::parse(url).await.map_err(|error| format!("{url}: {error}"))?;
        options.server_selection_timeout = Some(CONNECT);
        let client = Client::with_options(options).map_err(|error| format!("{url}: {error}"))?;
        let database = client.database("test_db");
        Ok(Mongo { records: database.collection("test_coll"), counter: database.collection("counter") })
    }

    /// Counts a view, and returns the new total.
    pub async fn count_view(&self) -> Result<i64> {
        let counted = self
            .counter
            .find_one_and_update(doc! { "_id": VIEWS }, doc! { "$inc": { "value": 1_i64 } })
            .upsert(true)
            .return_document(ReturnDocument::After);
        let counter = counted.await.map_err(in_words)?;
        counter.map(|c| c.value).ok_or_else(|| "MongoDB: the counter was not there".to_owned())
    }

    /// The number of views counted.
    pub async fn views(&self) -> Result<i64> {
        let counter = self.counter.find_one(doc! { "_id": VIEWS }).await.map_err(in_words)?;
        Ok(counter.map_or(0, |c| c.value))
    }

    /// Ten records. The document calls them the latest; but they have no timestamp, so they come in MongoDB's order.
    pub async fn latest(&self) -> Result<Vec<Record>> {
        let found = self.records.find(doc! {}).limit(LATEST).await.map_err(in_words)?;
        found.try_collect().await.map_err(in_words)
    }

    /// Replaces all records.
    pub async fn fill(&self, records: impl Iterator<Item = Record>) -> Result<()> {
        // Not `drop`: if there is nothing to drop, the stand-in for MongoDB answers differently.
        self.records.delete_many(doc! {}).await.map_err(in_words)?;
        let unordered = InsertManyOptions::builder().ordered(false).build();
        let mut records = records.peekable();
        while records.peek().is_some() {
            let batch: Vec<Record> = records.by_ref().take(BATCH).collect();
            self.records.insert_many(batch).with_options(unordered.clone()).await.map_err(in_words)?;
        }
        Ok(())
    }

    /// The number of records.
    pub async fn records(&self) -> Result<u64> {
        self.records.count_documents(doc! {}).await.map_err(in_words)
    }
}

fn in_words(error: mongodb::error::Error) -> String {
    format!("MongoDB: {error}")
}

/// Elasticsearch: the index of entries.
#[derive(Clone)]
pub struct Elastic {
    http: reqwest::Client,
    url: String,
}

impl Elastic {
    /// From an `http://` URL; connects on first use.
    pub fn new(url: &str) -> Result<Elastic> {
        let http = reqwest::Client::builder().connect_timeout(CONNECT).timeout(ANSWER).no_proxy();
        let http = http.build().map_err(|error| format!("{url}: {error}"))?;
        Ok(Elastic { http, url: url.trim_end_matches('/').to_owned() })
    }

    /// The latest entries: Elasticsearch's whole answer, as the page shows it.
    pub async fn latest(&self) -> Result<String> {
        // Hits are counted up to 10,000, which is the default: it is stated so that another version does the same work.
        let query = json!({ "size": LATEST, "sort": [{ "time": "desc" }], "track_total_hits": 10_000 });
        self.ask(self.http.post(self.at("_search")).json(&query)).await
    }

    /// Replaces the index, with the document's mapping.
    pub async fn fill(&self, entries: impl Iterator<Item = Entry>) -> Result<()> {
        self.ask(self.http.delete(self.at("?ignore_unavailable=true"))).await?;
        let keyword = json!({ "type": "keyword", "ignore_above": 256 });
        let data = json!({ "type": "text", "fields": { "keyword": keyword } });
        let mappings = json!({ "properties": { "data": data, "time": { "type": "long" } } });
        // A single node can hold only one copy.
        let index = json!({ "settings": { "number_of_replicas": 0 }, "mappings": mappings });
        self.ask(self.http.put(self.at("")).json(&index)).await?;
        let mut entries = entries.peekable();
        while entries.peek().is_some() {
            let mut lines = String::new();
            for entry in entries.by_ref().take(BATCH) {
                let body = serde_json::to_string(&entry).map_err(|error| error.to_string())?;
                lines.push_str(&format!("{{\"index\":{{\"_id\":\"{}\"}}}}\n{body}\n", entry.id));
            }
            let bulk = self
                .http
                .post(self.at("_bulk"))
                .header(CONTENT_TYPE, "application/x-ndjson")
                .body(lines)
                .timeout(FILLED);
            let answer = self.ask(bulk).await?;
            let answer: Value = serde_json::from_str(&answer).map_err(|error| error.to_string())?;
            if answer["errors"] != Value::Bool(false) {
                return Err("Elasticsearch: some entries were not indexed".to_owned());
            }
        }
        // One segment, visible to searches: no merge is left to run during the load.
        self.ask(self.http.post(self.at("_forcemerge?max_num_segments=1")).timeout(FILLED)).await?;
        self.ask(self.http.post(self.at("_refresh"))).await.map(drop)
    }

    /// The number of entries.
    pub async fn entries(&self) -> Result<u64> {
        let answer = self.ask(self.http.get(self.at("_count"))).await?;
        let answer: Value = serde_json::from_str(&answer).map_err(|error| error.to_string())?;
        answer["count"].as_u64().ok_or_else(|| format!("Elasticsearch: no count in {answer}"))
    }

    /// Whether it answers at all.
    pub async fn cluster(&self) -> Result<()> {
        self.ask(self.http.get(&self.url)).await.map(drop)
    }

    fn at(&self, what: &str) -> String {
        if what.is_empty() || what.starts_with('?') {
            format!("{}/{INDEX}{what}", self.url)
        } else {
            format!("{}/{INDEX}/{what}", self.url)
        }
    }

    /// Sends a request, and returns the body of a successful answer.
    async fn ask(&self, request: reqwest::RequestBuilder) -> Result<String> {
        let in_words = |error: reqwest::Error| format!("Elasticsearch: {}", causes(&error));
        let answer = request.send().await.map_err(in_words)?;
        let status = answer.status();
        let body = answer.text().await.map_err(in_words)?;
        if status.is_success() { Ok(body) } else { Err(format!("Elasticsearch: {status}: {body}")) }
    }
}

/// An error with its causes, which reqwest's own text leaves out.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}
