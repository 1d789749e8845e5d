//! Compares answers of the control API with its description, and counts the calls.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::Value;

use testkit::site::{Answer, Site, call, call_with};

/// A value that is not as its schema says; where, and why.
pub(crate) type Misfit = Result<(), String>;

/// The schema at the end of references.
fn resolved<'a>(description: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(target) => description
            .pointer(target.trim_start_matches('#'))
            .unwrap_or_else(|| panic!("{target} leads nowhere")),
        None => schema,
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("a type {other} in the description"),
    }
}

/// All members that a schema describes, those of its parts included.
fn members<'a>(description: &'a Value, schema: &'a Value, found: &mut Vec<(&'a str, &'a Value)>) {
    let schema = resolved(description, schema);
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        found.push((name, member));
    }
    for way in ["allOf", "oneOf", "anyOf"] {
        for part in schema[way].as_array().into_iter().flatten() {
            members(description, part, found);
        }
    }
}

/// Checks that `value` has all members that `schema` demands.
pub(crate) fn fits(description: &Value, schema: &Value, value: &Value, at: &str) -> Misfit {
    let schema = resolved(description, schema);
    for part in schema["allOf"].as_array().into_iter().flatten() {
        fits(description, part, value, at)?;
    }
    for way in ["oneOf", "anyOf"] {
        if let Some(parts) = schema[way].as_array() {
            let misfits: Vec<String> = parts
                .iter()
                .filter_map(|part| fits(description, part, value, at).err())
                .collect();
            if misfits.len() == parts.len() {
                return Err(format!("{at}: none of {misfits:?}"));
            }
        }
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !kinds.is_empty() && !kinds.iter().any(|kind| is_of(kind, value)) {
        return Err(format!("{at}: {value} is none of {kinds:?}"));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        return Err(format!("{at}: {value} is none of {allowed:?}"));
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().expect("a name");
        if value.is_object() && value.get(name).is_none() {
            return Err(format!("{at}: no {name}"));
        }
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(inner) = value.get(name) {
            fits(description, member, inner, &format!("{at}.{name}"))?;
        }
    }
    for (index, element) in value.as_array().into_iter().flatten().enumerate() {
        let at = format!("{at}[{index}]");
        fits(description, &schema["items"], element, &at)?;
        nothing_else(description, &schema["items"], element, &at)?;
    }
    Ok(())
}

/// Checks that every member of `value` is described.
pub(crate) fn nothing_else(description: &Value, schema: &Value, value: &Value, at: &str) -> Misfit {
    let mut described = Vec::new();
    members(description, schema, &mut described);
    for (name, inner) in value.as_object().into_iter().flatten() {
        let Some((_, member)) = described.iter().find(|(known, _)| known == name) else {
            return Err(format!("{at}: {name} is not described"));
        };
        nothing_else(description, member, inner, &format!("{at}.{name}"))?;
    }
    Ok(())
}

/// Checks that an answer has everything that is described, and nothing else.
pub(crate) fn is_whole(description: &Value, schema: &Value, answer: &Value, at: &str) -> Misfit {
    fits(description, schema, answer, at)?;
    nothing_else(description, schema, answer, at)
}

/// A server's description of itself, and its calls so far.
pub(crate) struct Described<'a> {
    site: &'a Site,
    pub(crate) description: Value,
    /// Calls that were answered with what was asked for: path and method.
    answered: RefCell<BTreeSet<(String, String)>>,
}

impl<'a> Described<'a> {
    /// Takes the description from the server.
    pub(crate) fn new(site: &'a Site) -> Self {
        let (status, description) = call(site, "GET", "/v1/openapi.json", "");
        assert_eq!(status, 200);
        Self {
            site,
            description,
            answered: RefCell::default(),
        }
    }

    /// Makes a call and checks that its answer has this status, and is as that is described for it.
    /// `parts` are what stands in the path for the name or number, the query, and the body.
    #[track_caller]
    pub(crate) fn ask(&self, wanted: u16, method: &str, template: &str, parts: [&str; 3]) -> Value {
        let [name, query, body] = parts;
        // A part of a volume has both.
        let (name, number) = name.split_once('/').unwrap_or((name, name));
        let path = template
            .replace("{name}", name)
            .replace("{id}", name)
            .replace("{number}", number)
            .replace("{token}", number);
        let query = format!("{path}{query}");
        let sent = call_with(self.site, method, &query, "application/json", body);
        self.check(wanted, method, template, sent)
    }

    /// Checks an answer that there is already.
    #[track_caller]
    pub(crate) fn check(&self, wanted: u16, method: &str, template: &str, sent: Answer) -> Value {
        let at = format!("{method} {template}");
        let (status, answer) = (sent.status, sent.body);
        assert_eq!(status, wanted, "{at}: {answer}");
        let call = &self.description["paths"][template][method.to_lowercase()];
        let described = &call["responses"][status.to_string()];
        let schema = &described["content"][&sent.content_type]["schema"];
        assert!(
            schema.is_object(),
            "{at}: {status} as {} is not described: {answer}",
            sent.content_type
        );
        let fit = is_whole(&self.description, schema, &answer, &at);
        assert_eq!(fit, Ok(()), "{answer:#}");
        if status < 300 {
            let asked = (template.to_owned(), method.to_lowercase());
            self.answered.borrow_mut().insert(asked);
        }
        answer
    }

    /// A call that a test of its own answers.
    pub(crate) fn is_answered_elsewhere(&self, method: &str, template: &str) {
        let asked = (template.to_owned(), method.to_lowercase());
        self.answered.borrow_mut().insert(asked);
    }

    /// Checks that every call that is described has been answered with what it was asked for.
    #[track_caller]
    pub(crate) fn all_are_answered(&self) {
        let paths = self.description["paths"].as_object().expect("paths");
        let described = paths.iter().flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("methods").keys();
            methods.map(move |method| (path.clone(), method.clone()))
        });
        assert_eq!(described.collect::<BTreeSet<_>>(), self.answered.take());
    }
}
