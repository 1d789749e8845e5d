//! The description of the API is complete: every call, every schema that it names, every answer.

use std::collections::BTreeSet;

use serde_json::Value;

fn description() -> Value {
    serde_json::to_value(clockwise::http::openapi()).expect("it is JSON")
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                match (key.as_str(), member) {
                    ("$ref", Value::String(target)) => drop(found.insert(target.clone())),
                    _ => references(member, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_call_is_described() {
    let description = description();
    let mut calls = Vec::new();
    for (path, methods) in description["paths"].as_object().expect("paths") {
        for (method, call) in methods.as_object().expect("methods") {
            assert!(
                call["summary"].is_string() || call["description"].is_string(),
                "{method} {path} says nothing"
            );
            assert!(
                !call["responses"].as_object().expect("answers").is_empty(),
                "{method} {path}"
            );
            calls.push(format!("{method} {path}"));
        }
    }
    calls.sort();
    insta::assert_snapshot!(calls.join("\n"), @"
    delete /v1/disks/{number}/measurement
    delete /v1/locks/{name}
    delete /v1/sessions/{number}
    delete /v1/sources/{name}
    delete /v1/streams/{id}
    delete /v1/users/{name}
    delete /v1/users/{name}/tokens/{token}
    delete /v1/volumes/{name}
    delete /v1/volumes/{name}/move
    delete /v1/volumes/{name}/recordings/{number}
    get /v1/disks
    get /v1/disks/{number}
    get /v1/disks/{number}/faults
    get /v1/disks/{number}/profile
    get /v1/events
    get /v1/locks
    get /v1/pool
    get /v1/recordings
    get /v1/sessions
    get /v1/sessions/{number}
    get /v1/sources
    get /v1/sources/{name}
    get /v1/status
    get /v1/streams
    get /v1/streams/{id}
    get /v1/streams/{id}/blocks
    get /v1/users
    get /v1/users/{name}
    get /v1/volumes
    get /v1/volumes/{name}
    get /v1/volumes/{name}/move
    get /v1/volumes/{name}/places
    get /v1/volumes/{name}/recordings
    get /v1/volumes/{name}/recordings/{number}
    get /v1/volumes/{name}/recordings/{number}/check
    get /v1/volumes/{name}/recordings/{number}/index
    get /v1/volumes/{name}/retention
    get /v1/volumes/{name}/timeline
    patch /v1/disks/{number}/faults
    patch /v1/sessions/{number}
    patch /v1/streams/{id}
    patch /v1/users/{name}
    patch /v1/volumes/{name}
    patch /v1/volumes/{name}/retention
    post /v1/cameras
    post /v1/disks/{number}/measurement
    post /v1/disks/{number}/measurement/requests
    post /v1/sources
    post /v1/streams
    post /v1/users
    post /v1/users/{name}/tokens
    post /v1/volumes
    post /v1/volumes/{name}/locks
    post /v1/volumes/{name}/move
    post /v1/window
    ");
}

#[test]
fn every_schema_that_is_named_is_there() {
    let description = description();
    assert!(
        description["openapi"]
            .as_str()
            .is_some_and(|version| version.starts_with("3.1"))
    );
    let mut found = BTreeSet::new();
    references(&description, &mut found);
    assert!(found.len() > 10, "{found:?}");
    for target in found {
        let pointer = target
            .strip_prefix('#')
            .unwrap_or_else(|| panic!("{target} leads elsewhere"));
        assert!(
            description.pointer(pointer).is_some(),
            "{target} leads nowhere"
        );
    }
}

#[test]
fn every_part_of_a_path_is_a_parameter() {
    let description = description();
    for (path, methods) in description["paths"].as_object().expect("paths") {
        let wanted: Vec<&str> = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .collect();
        for (method, call) in methods.as_object().expect("methods") {
            for name in &wanted {
                let is_there = call["parameters"].as_array().is_some_and(|list| {
                    list.iter()
                        .any(|given| given["name"] == **name && given["in"] == "path")
                });
                assert!(is_there, "{method} {path} does not describe {name}");
            }
        }
    }
}
