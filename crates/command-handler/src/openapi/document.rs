//! The whole document.

use daybook_decider::Registry;
use daybook_projection::Projections;
use serde_json::{Value, json};

use super::operation::Operations;
use super::schemas::Schemas;
use super::subject::{AggregateType, Service, Subject};
use super::view::ViewSubject;
use super::{gateway, parameters, problems};

/// The document of an API of these aggregates, with the views of these projections.
pub fn document(registry: &Registry, projections: &Projections) -> Value {
    let has_views = projections.iter().next().is_some();
    let mut schemas = Schemas::default();
    let (name, gateway_schema) = gateway::schema();
    let mut operations = Operations::new(registry, &schemas.add(name, gateway_schema));
    let mut tags = Vec::new();
    let types: Vec<_> = registry.iter().map(|model| AggregateType::new(model, &mut schemas)).collect();
    for aggregate_type in &types {
        tags.push(json!({"name": aggregate_type.tag(), "description": aggregate_type.schemas.description}));
        operations.add_all(aggregate_type);
    }
    for model in projections.iter() {
        let view = ViewSubject::new(model, &types, &mut schemas);
        tags.push(json!({"name": view.tag(), "description": view.description}));
        operations.add_all(&view);
    }
    let service = Service::new(&types, &mut schemas);
    tags.push(json!({"name": service.tag(), "description": "Operations that are not about one aggregate type."}));
    operations.add_all(&service);
    operations.responses.extend(other_responses());
    schemas.extend(problems::schemas(registry, has_views));
    json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Daybook",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Commands to aggregates, and their states and events.",
            "description": include_str!("description.md").trim_end(),
            "license": {"name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE")},
        },
        "servers": [{"url": "/", "description": "The server of this document."}],
        "security": [{}, {"iam": []}, {"jwt": []}],
        "tags": tags,
        "paths": operations.paths,
        "components": {
            "schemas": schemas.into_all(),
            "responses": operations.responses,
            "parameters": parameters::shared(has_views),
            "examples": problems::examples(registry, has_views),
            "securitySchemes": gateway::security_schemes(),
        },
    })
}

/// The responses to requests that match no operation. No operation refers to them, so their descriptions name the
/// requests.
fn other_responses() -> impl Iterator<Item = (String, Value)> {
    let other_method = "For a path that is in this document, with a method that the path does not support.";
    let responses = [
        ("UnknownPath", "For a path that is not in this document.", problems::UNKNOWN_PATH),
        ("MethodNotAllowed", other_method, problems::OTHER_METHOD),
    ];
    responses.into_iter().map(|(name, requests, types)| {
        let mut response = problems::response(types[0].status, types);
        let causes = response["description"].as_str().unwrap_or_default();
        response["description"] = format!("{requests}\n\n{causes}").into();
        (name.to_owned(), response)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
    fn each_route_of_the_router_is_documented() {
        let (registry, views) = (aggregates::registry().unwrap(), projections::projections().unwrap());
        for projections in [&views, &Projections::default()] {
            let routes: BTreeSet<_> =
                endpoints::served(projections.iter().next().is_some()).map(|endpoint| endpoint.path).collect();
            let of_types = |route: &str| -> Vec<_> {
                registry.iter().map(|model| route.replace("{type}", model.type_name())).collect()
            };
            let of_views = |route: &str| -> Vec<_> {
                projections.iter().map(|model| route.replace("{view}", model.name())).collect()
            };
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
        for of_views in ["/views", "ViewRow", "no-such-row", "behind", "RowIfNoneMatch"] {
            assert!(!without.contains(of_views), "{of_views}");
        }
    }
}
