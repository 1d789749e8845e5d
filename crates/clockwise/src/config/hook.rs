//! The `[[hook]]` sections: programs and addresses that get events.

use serde::Deserialize;
use toml::Spanned;

use crate::failure::{Failure, SourceFile};
use crate::hooks::{HookConfig, HookTarget};
use crate::wire::events::EventKind;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    on: Option<Vec<EventKind>>,
    run: Option<Spanned<Vec<String>>>,
    post: Option<Spanned<String>>,
}

/// The validated hooks.
///
/// # Errors
/// The first hook that is not valid.
pub(super) fn hooks(
    source: &SourceFile<'_>,
    sections: Vec<Spanned<Section>>,
) -> Result<Vec<HookConfig>, Failure> {
    let mut hooks: Vec<HookConfig> = Vec::new();
    for section in sections {
        let span = section.span();
        let Section { on, run, post } = section.into_inner();
        let (target, span) = match (run, post) {
            (Some(run), None) => (program(source, &run)?, run.span()),
            (None, Some(post)) => (address(source, &post)?, post.span()),
            (None, None) => {
                return Err(source
                    .bad_input(span, "the hook has neither `run` nor `post`")
                    .help("set `run` to a program and its arguments, or `post` to an address"));
            }
            (Some(_), Some(post)) => {
                return Err(source
                    .bad_input(post.span(), "the hook has both `run` and `post`")
                    .help("write a [[hook]] for each of them"));
            }
        };
        // The name of a queue's file is made of the text.
        let text = target.to_string();
        if hooks.iter().any(|hook| hook.target.to_string() == text) {
            return Err(source
                .bad_input(span, "another hook has the same target")
                .help("put the kinds of both into one `on`"));
        }
        let kinds = on;
        hooks.push(HookConfig { kinds, target });
    }
    Ok(hooks)
}

fn program(source: &SourceFile<'_>, run: &Spanned<Vec<String>>) -> Result<HookTarget, Failure> {
    if run.get_ref().first().is_none_or(String::is_empty) {
        return Err(source.bad_input(run.span(), "`run` names no program").help(
            "write the program and its arguments, such as [\"/usr/local/bin/notify\", \"-v\"]",
        ));
    }
    Ok(HookTarget::Run(run.get_ref().clone()))
}

fn address(source: &SourceFile<'_>, post: &Spanned<String>) -> Result<HookTarget, Failure> {
    let text = post.get_ref();
    let address = text.parse::<hyper::Uri>().ok();
    let address = address
        .filter(|of| matches!(of.scheme_str(), Some("http" | "https")) && of.host().is_some());
    address.map(HookTarget::Post).ok_or_else(|| {
        source
            .bad_input(
                post.span(),
                format!("`{text}` is not an address for a hook"),
            )
            .help("write http://HOST:PORT/PATH or https://HOST/PATH")
    })
}
