//! The OpenAPI 3.1 document of the API, made from the endpoints and the registered aggregates.
//!
//! Schemas come from the types that are read and written, and examples from aggregates that execute a sample of each
//! command, so the examples show what the code does. The description of the messages is made from the same samples and
//! schemas.
//!
//! In reading order:
//! - `aggregate_type`, `view`: what operations are about. Each endpoint makes its bodies of them.
//! - `operation`: an endpoint as an operation, with the parameters of its requests.
//! - `responses`: the responses that operations share. `fixed.json`: the parts that depend on no code: the gateway, the headers
//!   of responses, the members of problems.
//! - `schemas`: the schemas, the names of shared parts, and the sample values of examples.

pub(crate) mod aggregate_type;
mod operation;
mod responses;
pub(crate) mod schemas;
pub(crate) mod view;

use daybook_decider::Registry;
use daybook_projection::Projections;
use serde_json::{Value, json};

use self::aggregate_type::AggregateType;
pub use self::aggregate_type::execute;
use self::operation::{Operations, Subject};
use self::responses::fixed;
pub use self::schemas::{ID, Schemas, Variant, variants};
use self::view::ViewSubject;

/// The document of an API of these aggregates, with the views of these projections. A view with several versions is
/// described in the version that is read without a pointer, because the document does not depend on the table.
pub fn document(registry: &Registry, projections: &Projections) -> Value {
    let has_views = projections.iter().next().is_some();
    let mut schemas = Schemas::default();
    // A typed client can match on its member `type` before it knows whether the gateway or the API responded.
    schemas.add("GatewayAnswer", fixed("gatewaySchema"));
    let mut operations = Operations::new(registry);
    let mut tags = Vec::new();
    let types: Vec<_> = registry.iter().map(|model| AggregateType::new(registry, model, &mut schemas)).collect();
    for aggregate_type in &types {
        let subject = Subject::Type(aggregate_type);
        tags.push(json!({"name": subject.tag(), "description": aggregate_type.description}));
        operations.add_all(subject, &mut schemas);
    }
    for name in projections.names() {
        let Some(model) = projections.read_version(name, None) else { continue };
        let view = ViewSubject::new(model, &types, &mut schemas);
        let description = match projections.versions(name).as_slice() {
            [_] => view.description.clone(),
            versions => {
                let others = versions.iter().skip(1).map(|model| model.version().to_string()).collect::<Vec<_>>();
                let description = view.description.as_str().unwrap_or_default();
                let (version, others) = (model.version(), others.join(", "));
                format!(
                    "{description}\n\nThis document describes version {version} of the view. The API can also return rows of \
                     version {others}, whose members may differ: the operator of the API chooses."
                )
                .into()
            }
        };
        tags.push(json!({"name": view.tag, "description": description}));
        operations.add_all(Subject::View(&view), &mut schemas);
    }
    let service = Subject::Service(&types);
    tags.push(json!({"name": service.tag(), "description": "Operations that are not about one aggregate type."}));
    operations.add_all(service, &mut schemas);
    for (name, response) in other_responses() {
        operations.share_response(name, response);
    }
    schemas.extend(responses::schemas(registry, has_views));
    let mut components = operations.components;
    components["schemas"] = schemas.into_all();
    components["examples"] = responses::examples(registry, has_views);
    components["securitySchemes"] = fixed("securitySchemes");
    json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Daybook",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Commands to aggregates, and their states and events.",
            "description": include_str!("openapi/description.md").trim_end(),
            "license": {"name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE")},
        },
        "servers": [{"url": "/", "description": "The server of this document."}],
        "security": [{}, {"iam": []}, {"jwt": []}],
        "tags": tags,
        "paths": operations.paths,
        "components": components,
    })
}

/// The responses to requests that match no operation. No operation refers to them, so their descriptions name the
/// requests.
fn other_responses() -> impl Iterator<Item = (&'static str, Value)> {
    let other_method = "For a path that is in this document, with a method that the path does not support.";
    let responses = [
        ("UnknownPath", "For a path that is not in this document.", responses::UNKNOWN_PATH),
        ("MethodNotAllowed", other_method, responses::OTHER_METHOD),
    ];
    responses.into_iter().map(|(name, requests, types)| {
        let mut response = responses::response(types[0].status, types);
        let causes = response["description"].as_str().unwrap_or_default();
        response["description"] = format!("{requests}\n\n{causes}").into();
        (name, response)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use daybook_decider::registry::RESERVED_TYPES;

    use super::*;
    use crate::endpoints;

    #[test]
    fn the_ids_of_operations_are_unique() {
        let document = document(&aggregates::registry().unwrap(), &projections::projections().unwrap());
        let paths = document["paths"].as_object().unwrap().values();
        let ids: Vec<_> =
            paths.flat_map(|path| path.as_object().unwrap().values()).map(|one| &one["operationId"]).collect();
        assert_eq!(ids.iter().map(|id| id.as_str().unwrap()).collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    }

    #[test]
    fn no_aggregate_type_has_the_name_of_a_route() {
        for endpoint in endpoints::ENDPOINTS.iter().filter(|endpoint| !endpoint.is_about_a_type()) {
            let segment = endpoint.path.split('/').nth(1).unwrap();
            assert!(RESERVED_TYPES.contains(&segment), "{segment} is missing in RESERVED_TYPES");
        }
    }

    #[test]
    fn each_route_of_the_router_is_documented() {
        let (registry, views) = (aggregates::registry().unwrap(), projections::projections().unwrap());
        for projections in [&views, &Projections::default()] {
            let routes: BTreeSet<_> =
                endpoints::served(projections.iter().next().is_some()).map(|endpoint| endpoint.path).collect();
            let of_types = |route: &str| -> Vec<_> {
                registry.iter().map(|model| route.replace("{type}", model.type_name())).collect()
            };
            let of_views =
                |route: &str| -> Vec<_> { projections.names().map(|name| route.replace("{view}", name)).collect() };
            let paths = routes.iter().flat_map(|route| {
                if route.contains("{view}") { of_views(&route.replace("{*key}", "{key}")) } else { of_types(route) }
            });
            let document = document(&registry, projections);
            let documented: BTreeSet<_> = document["paths"].as_object().unwrap().keys().cloned().collect();
            assert_eq!(paths.collect::<BTreeSet<_>>(), documented);
        }
    }

    #[test]
    fn document_without_views_names_none() {
        let without = document(&aggregates::registry().unwrap(), &Projections::default()).to_string();
        for of_views in ["/views", "ViewRow", "no-such-row", "behind", "RowIfNoneMatch", "RowETag"] {
            assert!(!without.contains(of_views), "{of_views}");
        }
    }

    /// The next version of `orders-by-day`, with other rows.
    struct NextOrdersByDay;

    #[derive(Clone, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    struct NextRow {
        of_next_version: u64,
    }

    impl daybook_projection::Projection for NextOrdersByDay {
        const NAME: &'static str = "orders-by-day";
        const VERSION: u32 = 2;
        type Row = NextRow;
        type Change = ();

        fn sources() -> Vec<daybook_projection::Source<Self>> {
            vec![daybook_projection::Source::of::<aggregates::Order>()]
        }

        fn apply(row: Option<NextRow>, (): &()) -> Option<NextRow> {
            row
        }
    }

    impl daybook_projection::Follows<aggregates::Order> for NextOrdersByDay {
        type State = ();

        fn advance((): (), _: &daybook_projection::FollowedEvent<'_, aggregates::order::Event>) {}

        fn changes(
            (): &(),
            _: &daybook_projection::FollowedEvent<'_, aggregates::order::Event>,
            (): &(),
        ) -> Vec<(String, ())> {
            Vec::new()
        }
    }

    #[test]
    fn document_describes_the_lowest_version_of_a_view_and_names_the_others() {
        let registry = aggregates::registry().unwrap();
        let one = projections::projections().unwrap();
        let two = projections::projections().unwrap().with::<NextOrdersByDay>().unwrap();
        let (mut of_one, of_two) = (document(&registry, &one), document(&registry, &two));
        let tag = |document: &Value| {
            let mut tags = document["tags"].as_array().unwrap().iter();
            tags.position(|tag| tag["name"] == "views/orders-by-day").unwrap()
        };
        let description = of_two["tags"][tag(&of_two)]["description"].clone();
        let expected = "\n\nThis document describes version 1 of the view. The API can also return rows of version 2, whose \
                        members may differ: the operator of the API chooses.";
        assert!(description.as_str().unwrap().ends_with(expected), "{description}");
        let at = tag(&of_one);
        of_one["tags"][at]["description"] = description;
        assert!(of_one == of_two);
    }
}
