//! The errors of every call, for the OpenAPI description: the meaning of each status, and the statuses that
//! any call of a form can have. Each error is a problem object.

use utoipa::openapi::path::Operation;
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder};

use crate::wire::PROBLEM_TYPE;

/// The meaning of an error status, the same for all calls.
fn meaning(status: &str) -> &'static str {
    match status {
        "400" => "The path, the query or the body does not match this description",
        "404" => "Nothing has that name or number",
        "408" => "The body did not arrive completely in time",
        "409" => {
            "The present state does not allow it: something else has to be done or to end first"
        }
        "413" => "The body is too long",
        "415" => "The content type is not `application/json`",
        "422" => "The request contradicts itself or its target, or asks for more than there is",
        "500" => "The server or a disk failed during this call",
        "502" => "The camera does not answer, or sends nothing",
        "503" => {
            "The pool is being opened (then `opening` is true), the server is ending, its host has no memory, descriptors or threads left, or too many long bodies arrive at the same time"
        }
        "507" => "Not enough memory can be guaranteed",
        _ => "The call failed",
    }
}

/// The description of a problem response.
fn problem(status: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem")));
    ResponseBuilder::new()
        .description(meaning(status))
        .content(PROBLEM_TYPE, content.build())
        .build()
}

/// Completes the errors of one call: those that its handler names, and those that follow from its form.
fn complete(call: &mut Operation) {
    let answers = &mut call.responses.responses;
    let is_error = |status: &String| status.starts_with(['4', '5']);
    let mut errors: Vec<String> = answers
        .keys()
        .filter(|key| is_error(key))
        .cloned()
        .collect();
    // Every call gets 503 while the pool is being opened.
    errors.extend(["500", "503"].map(str::to_owned));
    if call.parameters.as_ref().is_some_and(|of| !of.is_empty()) {
        errors.push("400".to_owned());
    }
    if call.request_body.is_some() {
        errors.extend(["400", "408", "413", "415", "422"].map(str::to_owned));
    }
    for status in errors {
        let problem = RefOr::T(problem(&status));
        answers.insert(status, problem);
    }
}

/// Returns the description with the errors of every call.
pub(super) fn with_errors(mut description: OpenApi) -> OpenApi {
    for path in description.paths.paths.values_mut() {
        let calls = [
            &mut path.get,
            &mut path.post,
            &mut path.patch,
            &mut path.delete,
        ];
        calls.into_iter().flatten().for_each(complete);
    }
    description
}
