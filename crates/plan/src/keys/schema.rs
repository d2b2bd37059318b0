//! The plan language as a JSON Schema (2020-12), for editors that complete and check while typing.
//!
//! It is made from the table of keys that the reader uses. It accepts every plan that the reader accepts, but knows
//! less (nothing of templates' names, of times that must fit together, of the matrix's consistency).

use serde_json::{Map, Value, json};

use crate::keys::journey::{EXPECT, WEBSOCKET_SEND};
use crate::keys::{self, Section, Shape};

/// A text that contains `${name}`, whose value the case or the environment decides.
const TEMPLATE: &str = r"\$\{";
const DURATION: &str = "^([0-9._]+(ns|us|µs|ms|s|m|min|h|d))+$";
const SIZE: &str = "^[0-9._]+ *([kKmMgGtT]i?)?[bB]?$";
const RATE: &str = "^[0-9._]+ *(/(s|sec|m|min|h))?$";
const CPU: &str = "^[0-9._]+ *%?$";
const COUNT: &str = "^[0-9][0-9_]*$";

/// The schema of plan files that can be carried out.
pub fn schema() -> Value {
    let defs: Map<String, Value> =
        keys::SECTIONS.iter().skip(1).map(|s| (s.id.to_owned(), section(s))).collect();
    let mut out = Map::new();
    out.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    out.insert("title".into(), json!("loadlab plan"));
    if let Value::Object(plan) = section(&keys::PLAN) {
        out.extend(plan);
    }
    out.insert("$defs".into(), Value::Object(defs));
    Value::Object(out)
}

fn section(section: &'static Section) -> Value {
    let properties: Map<String, Value> =
        section.keys.iter().map(|k| (k.name.to_owned(), described(shape(&k.shape), k.doc))).collect();
    let mut out = Map::new();
    out.insert("description".into(), json!(section.doc));
    out.insert("type".into(), json!("object"));
    out.insert("properties".into(), Value::Object(properties));
    out.insert("additionalProperties".into(), json!(false));
    if !section.required.is_empty() {
        out.insert("required".into(), json!(section.required));
    }
    let one_of = |keys: &[&str]| -> Value {
        json!({ "oneOf": keys.iter().map(|k| json!({ "required": [k] })).collect::<Vec<_>>() })
    };
    if !section.groups.is_empty() {
        out.insert("allOf".into(), section.groups.iter().map(|g| one_of(g.keys)).collect());
    }
    if !section.needs.is_empty() {
        let any = |names: &[&str]| -> Value {
            json!({ "anyOf": names.iter().map(|n| json!({ "required": [n] })).collect::<Vec<_>>() })
        };
        let needs: Map<String, Value> =
            section.needs.iter().map(|n| (n.key.to_owned(), any(n.needs))).collect();
        out.insert("dependentSchemas".into(), Value::Object(needs));
    }
    Value::Object(out)
}

/// A shape with its description first, where people look.
fn described(shape: Value, doc: &str) -> Value {
    let mut out = Map::new();
    out.insert("description".into(), json!(doc));
    if let Value::Object(shape) = shape {
        out.extend(shape);
    }
    Value::Object(out)
}

/// A text matching a pattern, or one that the case decides.
fn written(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": format!("({pattern})|{TEMPLATE}") })
}

/// One of some values, or a text that the case or the environment decides.
fn one_of(values: Value) -> Value {
    json!({ "anyOf": [{ "enum": values }, { "type": "string", "pattern": TEMPLATE }] })
}

fn text() -> Value {
    json!({ "type": ["string", "number", "boolean"] })
}

fn count(least: u64, most: u64) -> Value {
    json!({ "anyOf": [{ "type": "integer", "minimum": least, "maximum": most }, written(COUNT)] })
}

fn positive_or(pattern: &str) -> Value {
    json!({ "anyOf": [{ "type": "number", "exclusiveMinimum": 0 }, written(pattern)] })
}

fn shape(shape: &Shape) -> Value {
    match shape {
        Shape::Version => one_of(json!([1, "1"])),
        Shape::Text => text(),
        Shape::Scalar => text(),
        Shape::Duration => duration(),
        Shape::DurationOrAuto => json!({ "anyOf": [duration(), { "enum": ["auto"] }] }),
        Shape::Think => json!({ "anyOf": [duration(), { "$ref": "#/$defs/think" }] }),
        Shape::Between => json!({ "type": "array", "minItems": 2, "maxItems": 2, "items": duration() }),
        Shape::LevelRange => written(r"^\s*\d[\d_]*\s*\.\.\s*\d[\d_]*\s*(/s)?\s*$"),
        Shape::Level => json!({ "anyOf": [
            { "type": "integer", "minimum": 0, "maximum": keys::MAX_USERS },
            written(&format!("{COUNT}|{RATE}")),
        ] }),
        Shape::Size => positive_or(&format!("{SIZE}|^none$")),
        Shape::Cpu => positive_or(&format!("{CPU}|^none$")),
        Shape::CountOrNone => {
            json!({ "anyOf": [{ "type": "integer", "minimum": 1 }, written(&format!("{COUNT}|^none$"))] })
        }
        Shape::ByteRate => written("^[0-9._]+ *([kKmMgGtT]i?)?[bB]? */s$|^none$"),
        Shape::DurationOrNone => json!({ "anyOf": [duration(), { "enum": ["none"] }] }),
        Shape::ShareOrNone => written("^[0-9._]+ *%$|^none$"),
        Shape::Share => written("^[0-9._]+ *%$"),
        Shape::RateOrNone => positive_or(&format!("{RATE}|^none$")),
        Shape::Rate => positive_or(RATE),
        Shape::Count(least, most) => count(*least, *most),
        Shape::Bool => json!({ "anyOf": [{ "type": "boolean" }, written("^(true|false)$")] }),
        Shape::Isolation => one_of(json!([true, false, "true", "false", "shared"])),
        Shape::True => one_of(json!([true, "true"])),
        Shape::OneOf(words) => one_of(json!(words)),
        Shape::Port => {
            json!({ "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 65535 }, written("^(auto|[0-9]+)$")] })
        }
        Shape::Command => command(),
        Shape::Commands => json!({ "anyOf": [text(), { "type": "array", "items": command() }] }),
        Shape::Status => {
            let one = count(100, 599);
            json!({ "anyOf": [one, { "type": "array", "minItems": 1, "items": one }] })
        }
        Shape::Body => json!({ "anyOf": [text(), { "$ref": "#/$defs/body" }] }),
        Shape::Any => json!({}),
        Shape::Matrix => matrix(),
        Shape::Profile => json!({ "type": "object", "propertyNames": { "pattern": r"^[^.]+(\.[^.]+)*$" } }),
        Shape::In(section) => reference(section),
        Shape::SomeOf(section) => json!({ "allOf": [reference(section)], "minProperties": 1 }),
        Shape::TextOr(section) => json!({ "anyOf": [text(), reference(section)] }),
        Shape::Texts => json!({ "anyOf": [text(), { "type": "array", "minItems": 1, "items": text() }] }),
        Shape::Expect => {
            let scalar = json!({ "type": ["string", "number", "boolean", "null"] });
            json!({ "anyOf": [scalar, { "allOf": [reference(&EXPECT)], "minProperties": 1 }] })
        }
        Shape::RateOr(section) => json!({ "anyOf": [positive_or(RATE), reference(section)] }),
        Shape::CountOr(least, most, section) => {
            json!({ "anyOf": [count(*least, *most), reference(section)] })
        }
        Shape::BoolOr(section) => {
            json!({ "anyOf": [{ "type": "boolean" }, written("^(true|false)$"), reference(section)] })
        }
        Shape::Message => json!({ "anyOf": [text(), reference(&WEBSOCKET_SEND)] }),
        Shape::ListOf(inner) => {
            let least = if matches!(inner, Shape::In(_) | Shape::SomeOf(_) | Shape::Scalar) { 1 } else { 0 };
            json!({ "type": "array", "minItems": least, "items": self::shape(inner) })
        }
        Shape::MapOf(pattern, inner) => json!({
            "type": "object",
            "propertyNames": { "pattern": pattern },
            "additionalProperties": self::shape(inner),
        }),
    }
}

fn duration() -> Value {
    json!({ "anyOf": [{ "const": 0 }, written(&format!("{DURATION}|^0$"))] })
}

fn reference(section: &Section) -> Value {
    json!({ "$ref": format!("#/$defs/{}", section.id) })
}

fn command() -> Value {
    json!({ "anyOf": [text(), { "type": "array", "minItems": 1, "items": text() }] })
}

fn matrix() -> Value {
    json!({ "anyOf": [
        {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["name"],
                "propertyNames": { "pattern": keys::WORD_PATTERN },
                "additionalProperties": text(),
            },
        },
        { "$ref": "#/$defs/matrix" },
    ] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_described() {
        for section in keys::SECTIONS {
            for key in section.keys {
                assert!(key.doc.ends_with('.'), "{}.{}: {}", section.id, key.name, key.doc);
            }
            for name in section.required.iter().chain(section.groups.iter().flat_map(|g| g.keys)) {
                assert!(section.key(name).is_some(), "{}.{name}", section.id);
            }
            for need in section.needs {
                let known = need.needs.iter().all(|name| section.key(name).is_some());
                assert!(section.key(need.key).is_some() && known, "{}", need.key);
            }
        }
    }

    #[test]
    fn it_is_a_schema() {
        let schema = schema();
        assert!(jsonschema::draft202012::meta::is_valid(&schema));
        assert_eq!(schema["properties"]["load"]["$ref"], "#/$defs/load");
        assert_eq!(schema["properties"]["events"]["items"]["$ref"], "#/$defs/event");
    }
}
