//! A view as the subject of operations.

use daybook_decider::Json;
use daybook_projection::{MAX_KEY, ProjectionModel};
use serde_json::{Map, Value, json};

use super::component::upper_camel;
use super::examples::{json_of, named};
use super::sample::ID;
use super::schemas::Schemas;
use super::subject::{AggregateType, Content, Subject};
use crate::endpoints::endpoint::{Endpoint, Success};
use crate::endpoints::view_row::RowResponse;
use crate::endpoints::view_rows::RowPage;

pub(super) struct ViewSubject<'a> {
    model: &'a dyn ProjectionModel,
    /// The name in the form with which the names of its schemas begin.
    name: String,
    tag: String,
    pub(super) description: Value,
    row: Value,
    page: Value,
    /// The key and the contents of a row that the example of an aggregate makes.
    example: Option<(String, Json)>,
}

impl<'a> ViewSubject<'a> {
    pub(super) fn new(model: &'a dyn ProjectionModel, types: &[AggregateType<'_>], schemas: &mut Schemas) -> Self {
        let name = upper_camel(model.name());
        let row = schemas.adopt(&name, model.row_schema().into());
        let description = row["description"].clone();
        let row = schemas.add(&format!("{name}Row"), row);
        let row = schemas.add_response::<RowResponse<'_>>(&format!("{name}RowRead"), &[("row", &row)]);
        let page = schemas.add_response::<RowPage<'_>>(&format!("{name}Rows"), &[("rows/items", &row)]);
        let tag = format!("views/{}", model.name());
        let example = types.iter().find_map(|aggregate_type| example(model, aggregate_type));
        Self { model, name, tag, description, row, page, example }
    }

    fn example_key(&self) -> &str {
        self.example.as_ref().map_or(ID, |(key, _)| key)
    }

    fn example_seen(&self) -> String {
        let follows = self.model.follows().first().copied().unwrap_or_default();
        format!("{follows}/{ID}@1")
    }
}

impl Subject for ViewSubject<'_> {
    fn tag(&self) -> &str {
        &self.tag
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn has(&self, endpoint: &Endpoint) -> bool {
        endpoint.is_about_a_view()
    }

    fn path(&self, endpoint: &Endpoint) -> String {
        endpoint.path.replace("views/{view}", &self.tag).replace("{*key}", "{key}")
    }

    fn summary(&self, endpoint: &Endpoint) -> String {
        format!("{} ({})", endpoint.summary, self.model.name())
    }

    fn path_parameter(&self, endpoint: &Endpoint) -> Option<Value> {
        endpoint.path.contains("{*key}").then(|| {
            json!({
                "name": "key",
                "in": "path",
                "required": true,
                "description": "The key of the row.",
                "example": self.example_key(),
                "schema": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_KEY,
                    // Clients resolve these away.
                    "not": {"enum": [".", ".."]},
                },
            })
        })
    }

    fn query_example(&self, name: &str, schema: &mut Map<String, Value>) -> Option<Value> {
        match name {
            "after" => Some(self.example_key().into()),
            "prefix" => Some(self.example_key().chars().take(1).collect::<String>().into()),
            "seen" => {
                let types = self.model.follows().join("|");
                let pattern = format!("^({types})/[A-Za-z0-9._~-]{{1,128}}@[1-9][0-9]{{0,11}}$");
                schema.insert("pattern".to_owned(), pattern.into());
                // An id is neither of these.
                schema.insert("not".to_owned(), json!({"pattern": r"/\.{1,2}@"}));
                Some(self.example_seen().into())
            }
            _ => None,
        }
    }

    fn response(&self, _endpoint: &Endpoint, success: Success) -> Option<Content> {
        let row = self.example.as_ref().map(|(key, row)| RowResponse { key, row });
        match success {
            Success::Row => {
                let examples = named([("one", row.and_then(|row| json_of(&row)))]);
                Some(Content { schema: self.row.clone(), examples })
            }
            Success::RowPage => {
                let page = row.map(|row| RowPage { cursor: row.key, rows: vec![row] });
                Some(Content {
                    schema: self.page.clone(),
                    examples: named([("one", page.and_then(|page| json_of(&page)))]),
                })
            }
            _ => None,
        }
    }
}

/// The first row that the creation of an aggregate of this type makes, if the view shows it.
fn example(model: &dyn ProjectionModel, aggregate_type: &AggregateType<'_>) -> Option<(String, Json)> {
    if !model.follows().contains(&aggregate_type.tag()) {
        return None;
    }
    let steps = model.advance(aggregate_type.tag(), ID, None, aggregate_type.examples.creation()).steps;
    let changes: Vec<_> = steps.into_iter().flat_map(|step| step.changes).collect();
    let key = changes.first()?.0.clone();
    let of_row: Vec<_> = changes.iter().filter(|(other, _)| *other == key).map(|(_, change)| change).collect();
    Some((key, model.apply(None, &of_row).ok()??))
}
