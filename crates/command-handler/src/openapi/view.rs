//! A view in the document: the schemas and the example of its rows.

use daybook_decider::Json;
use daybook_projection::{MAX_KEY, ProjectionModel};
use serde_json::{Map, Value, json};

use super::aggregate_type::AggregateType;
use super::schemas::{ID, Schemas, upper_camel};

pub(crate) struct ViewSubject<'a> {
    pub(crate) model: &'a dyn ProjectionModel,
    /// The name in the form with which the names of its schemas begin.
    pub(crate) name: String,
    pub(crate) tag: String,
    pub(crate) description: Value,
    pub(crate) row: Value,
    /// The key and the contents of a row that the example of an aggregate makes.
    pub(crate) example: Option<(String, Json)>,
}

impl<'a> ViewSubject<'a> {
    pub(crate) fn new(model: &'a dyn ProjectionModel, types: &[AggregateType<'_>], schemas: &mut Schemas) -> Self {
        let name = upper_camel(model.name());
        let row = schemas.adopt(&name, model.row_schema().into());
        let description = row["description"].clone();
        let row = schemas.add(&format!("{name}Row"), row);
        let tag = format!("views/{}", model.name());
        let example = types.iter().find_map(|aggregate_type| example(model, aggregate_type));
        Self { model, name, tag, description, row, example }
    }

    fn example_key(&self) -> &str {
        self.example.as_ref().map_or(ID, |(key, _)| key)
    }

    pub(crate) fn key_parameter(&self) -> Value {
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
    }

    /// The example of a query parameter. It may also restrict the parameter's schema.
    pub(crate) fn query_example(&self, name: &str, schema: &mut Map<String, Value>) -> Option<Value> {
        match name {
            "from" | "to" | "after" => Some(self.example_key().into()),
            "prefix" => Some(self.example_key().chars().take(1).collect::<String>().into()),
            "seen" => {
                let follows = self.model.follows();
                let pattern = format!("^({})/[A-Za-z0-9._~-]{{1,128}}@[1-9][0-9]{{0,11}}$", follows.join("|"));
                schema.insert("pattern".to_owned(), pattern.into());
                // An id is neither of these.
                schema.insert("not".to_owned(), json!({"pattern": r"/\.{1,2}@"}));
                Some(format!("{}/{ID}@1", follows.first().copied().unwrap_or_default()).into())
            }
            _ => None,
        }
    }
}

/// The first row that the creation of an aggregate of this type makes, if the view shows it.
fn example(model: &dyn ProjectionModel, aggregate_type: &AggregateType<'_>) -> Option<(String, Json)> {
    let type_name = aggregate_type.model.type_name();
    let created = aggregate_type.created.as_ref().filter(|_| model.follows().contains(&type_name))?;
    let steps = model.advance(type_name, ID, None, &created.events).steps;
    let changes: Vec<_> = steps.into_iter().flat_map(|step| step.changes).collect();
    let key = changes.first()?.0.clone();
    let of_row: Vec<_> = changes.iter().filter(|(other, _)| *other == key).map(|(_, change)| change).collect();
    Some((key, model.apply(None, &of_row).ok()??))
}
