//! Checks responses against the OpenAPI document.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jsonschema::{Draft, Registry, Validator};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

/// The response headers that the document must contain.
const HEADERS: [&str; 7] =
    ["etag", "location", "link", "retry-after", "allow", "x-correlation-id", "idempotency-replayed"];

/// The URI by which schemas refer to the document.
const URI: &str = "urn:openapi";

/// The generated document.
pub struct Document {
    json: Value,
    /// The document, which is read once for all validators.
    schemas: Registry<'static>,
    /// The validators, by the JSON pointer of the schema.
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

impl Document {
    /// The document of the suite's aggregates and projections.
    ///
    /// # Panics
    ///
    /// When these cannot be registered.
    pub fn get() -> &'static Self {
        static DOCUMENT: OnceLock<Document> = OnceLock::new();
        DOCUMENT.get_or_init(|| {
            let registry = aggregates::registry().expect("the aggregates can be registered together");
            let projections = projections::projections().expect("the projections can be registered together");
            let json = daybook_command_handler::openapi::document(&registry, &projections);
            let schemas = Registry::new().draft(Draft::Draft202012).add(URI, json.clone());
            let schemas = schemas.and_then(|added| added.prepare()).expect("the document refers to its own schemas");
            Self { json, schemas, validators: Mutex::default() }
        })
    }

    /// The document itself.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// The part of the document that a reference refers to, or the part itself if it is none.
    ///
    /// # Panics
    ///
    /// When there is no such part.
    pub fn resolve<'a>(&'a self, part: &'a Value) -> &'a Value {
        let Some(reference) = part["$ref"].as_str() else { return part };
        let referred = self.json.pointer(reference.trim_start_matches('#'));
        self.resolve(referred.unwrap_or_else(|| panic!("there is no {reference}")))
    }

    /// The path template of the document that matches a request's path.
    pub fn path(&self, path: &str) -> Option<&str> {
        let path = path.split('?').next().unwrap_or_default();
        let fits = |template: &str| {
            let (mut template, mut path) = (template.split('/'), path.split('/'));
            template.by_ref().zip(path.by_ref()).all(|(expected, found)| expected.starts_with('{') || expected == found)
                && template.next().is_none()
                && path.next().is_none()
        };
        let same_length = |template: &str| template.matches('/').count() == path.matches('/').count();
        let paths = self.json["paths"].as_object()?;
        paths.keys().map(String::as_str).find(|template| same_length(template) && fits(template))
    }

    /// Checks that the document contains a response for the request.
    ///
    /// # Errors
    ///
    /// The difference from the document.
    pub fn check(
        &self,
        method: &str,
        path: &str,
        status: u16,
        headers: &HeaderMap,
        body: &Value,
    ) -> Result<(), String> {
        let (place, response) = self.response(method, path, status)?;
        self.check_headers(response, headers)?;
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let Some(content) = response["content"].as_object().filter(|_| method != "HEAD") else {
            return if body.is_null() { Ok(()) } else { Err(format!("{status} has no body, {body:.200}")) };
        };
        let media_type = header("content-type");
        if !content.contains_key(media_type) {
            return Err(format!("{status} is not {media_type:?}"));
        }
        self.fits(&format!("{place}/content/{}/schema", escaped(media_type)), body)
    }

    /// Checks a value against the schema at a JSON pointer of the document.
    ///
    /// # Errors
    ///
    /// Why the value does not match.
    pub fn fits(&self, place: &str, value: &Value) -> Result<(), String> {
        let misfits: Vec<_> = self
            .validator(place)
            .iter_errors(value)
            .map(|error| format!("{}: {error:.300}", error.instance_path()))
            .collect();
        if misfits.is_empty() { Ok(()) } else { Err(format!("{place}: {}", misfits.join("; "))) }
    }

    /// The documented response, and its JSON pointer.
    fn response(&self, method: &str, path: &str, status: u16) -> Result<(String, &Value), String> {
        let elsewhere = |name: &str, only: u16| {
            let place = format!("/components/responses/{name}");
            let response = self.json.pointer(&place).ok_or_else(|| format!("there is no {place}"))?;
            if status == only { Ok((place, response)) } else { Err(format!("{status}, where {only} is documented")) }
        };
        let Some(template) = self.path(path) else {
            return elsewhere("UnknownPath", 404).or_else(|_| elsewhere("MethodNotAllowed", 405));
        };
        let operation = format!("/paths/{}/{}", escaped(template), method.to_lowercase());
        if self.json.pointer(&operation).is_none() {
            return elsewhere("MethodNotAllowed", 405);
        }
        let place = format!("{operation}/responses/{status}");
        let response = self.json.pointer(&place).ok_or_else(|| format!("{status} is not documented"))?;
        let Some(reference) = response["$ref"].as_str() else { return Ok((place, response)) };
        let place = reference.trim_start_matches('#').to_owned();
        let response = self.json.pointer(&place).ok_or_else(|| format!("there is no {place}"))?;
        Ok((place, response))
    }

    fn check_headers(&self, response: &Value, headers: &HeaderMap) -> Result<(), String> {
        let documented = response["headers"].as_object();
        for (name, header) in documented.into_iter().flatten() {
            let header = self.resolve(header);
            let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()) else {
                if header["required"] == true {
                    return Err(format!("{name} is missing"));
                }
                continue;
            };
            let schema = &header["schema"];
            let number = value.parse::<u64>().ok().filter(|_| schema["type"] == "integer");
            let value = number.map_or_else(|| json!(value), |number| json!(number));
            let validator = jsonschema::validator_for(schema).map_err(|error| error.to_string())?;
            validator.validate(&value).map_err(|error| format!("{name}: {error}"))?;
        }
        let is_documented =
            |name: &str| documented.is_some_and(|known| known.keys().any(|key| key.eq_ignore_ascii_case(name)));
        match HEADERS.iter().find(|name| headers.contains_key(**name) && !is_documented(name)) {
            Some(name) => Err(format!("{name} is not documented")),
            None => Ok(()),
        }
    }

    fn validator(&self, place: &str) -> Arc<Validator> {
        let mut validators = self.validators.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let encoded = place.replace('{', "%7B").replace('}', "%7D");
            let schema = json!({"$ref": format!("{URI}#{encoded}")});
            let options = jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true);
            let built = options.with_registry(&self.schemas).build(&schema);
            Arc::new(built.unwrap_or_else(|error| panic!("{place} is no schema: {error}")))
        };
        Arc::clone(validators.entry(place.to_owned()).or_insert_with(make))
    }
}

/// A name, escaped as part of a JSON pointer.
pub fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
