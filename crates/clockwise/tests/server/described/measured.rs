//! A measurement of a disk by way of the API.

use serde_json::{Value, json};

use super::whole::Described;

/// A read and a write of a measurement, and the requests that it may not make.
pub(super) fn a_disk_is_measured(described: &Described<'_>) {
    let measurement = "/v1/disks/{number}/measurement";
    let requests = "/v1/disks/{number}/measurement/requests";
    let ask = |status, method, template, body: &Value| {
        described.ask(status, method, template, ["1", "", &body.to_string()])
    };
    let write = json!({ "write": true });
    described.ask(404, "POST", measurement, ["9", "", "{}"]);
    let begun = ask(201, "POST", measurement, &write);
    ask(409, "POST", measurement, &write);
    let lent = begun["writable"][0]["start_sector"].clone();
    let call = |token: &Value, op: &str, start: &Value| {
        let request = json!({ "op": op, "start_sector": start, "sectors": 8, "not_before_ns": begun["now_ns"] });
        json!({ "token": token, "requests": [request, request] })
    };
    let token = &begun["token"];
    let samples = ask(200, "POST", requests, &call(token, "write", &lent));
    let second = &samples["samples"][1];
    assert_eq!(
        (&second["alone"], &second["errno"]),
        (&true.into(), &Value::Null)
    );
    assert!(
        second["issued_ns"].as_u64() < second["completed_ns"].as_u64(),
        "{second}"
    );
    ask(200, "POST", requests, &call(token, "read", &0.into()));
    ask(422, "POST", requests, &call(token, "write", &0.into()));
    ask(
        409,
        "POST",
        requests,
        &call(&"another".into(), "read", &0.into()),
    );
    let ended = described.ask(200, "DELETE", measurement, ["1", "", ""]);
    assert_eq!(ended["served"], 4);
    described.ask(404, "DELETE", measurement, ["1", "", ""]);
    ask(404, "POST", requests, &call(token, "read", &0.into()));
}
