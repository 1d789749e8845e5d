//! The errors of every call, for the description that is made of the handlers: what each status means,
//! those that come of the way a call is made, and that all are problem objects.

use utoipa::openapi::path::Operation;
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder};

use crate::wire::PROBLEM_TYPE;

/// What an error of a status means, whichever call it answers.
fn meaning(status: &str) -> &'static str {
    match status {
        "400" => "The path, the query or the body is not of the form that is described",
        "404" => "There is nothing of that name or number",
        "408" => "The body has not come to its end in time",
        "409" => "It cannot be done as things are: something else has to be done or end first",
        "413" => "The body is too long",
        "415" => "The body is not said to be `application/json`",
        "422" => "What is asked for makes no sense, or is more than there is",
        "500" => "The server or a disk failed at this call",
        "503" => {
            "The pool is being opened (`opening` is true then), the server is ending, its host has no memory, descriptors or threads left for this, or too many long bodies are on their way"
        }
        "507" => "There is not so much memory to be guaranteed",
        _ => "It was not done",
    }
}

/// A problem object.
fn problem(status: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem")));
    ResponseBuilder::new()
        .description(meaning(status))
        .content(PROBLEM_TYPE, content.build())
        .build()
}

/// The errors of one call: those that its handler is described with, and those of its form.
fn complete(call: &mut Operation) {
    let answers = &mut call.responses.responses;
    let is_error = |status: &String| status.starts_with(['4', '5']);
    let mut errors: Vec<String> = answers
        .keys()
        .filter(|key| is_error(key))
        .cloned()
        .collect();
    // Any call may come while the pool is being opened.
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

/// The description with the errors of every call.
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
