//! The API under load, and the credentials for it.

use axum::http::Uri;
use daybook_settings::Environment;

use super::options::Header;
use crate::dev::Usage;
use crate::http::{HttpClient, HttpError, TextResponse};
use crate::operator::OperatorError;
use crate::operator::target::{is_loopback, signer};

/// The variable for another endpoint of API Gateway, as AWS's own tools would name it.
const API_ENDPOINT: &str = "AWS_ENDPOINT_URL_EXECUTE_API";

/// The API under load.
#[derive(Debug)]
pub(super) struct LoadTarget {
    client: HttpClient,
    url: String,
    headers: Vec<(String, String)>,
    /// Whether it is on this machine. Then its requests cost nothing, and are not signed.
    pub(super) is_local: bool,
}

impl LoadTarget {
    /// The API at a URL. Requests to another machine are signed, unless a header authorizes them.
    pub(super) async fn connect(
        url: &str,
        headers: &[Header],
        environment: &Environment,
    ) -> Result<Self, OperatorError> {
        let parsed: Option<Uri> = url.parse().ok();
        let usable = parsed.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some());
        if usable.is_none() {
            return Err(OperatorError::Usage(format!("--url is {url:?}, expected http://HOST:PORT or https://HOST")));
        }
        let is_local = is_loopback(url);
        let signer = if is_local || headers.iter().any(|header| header.name == "authorization") {
            None
        } else {
            Some(signer(environment, API_ENDPOINT, "execute-api").await?)
        };
        Ok(Self {
            client: HttpClient::new(url, signer),
            url: url.trim_end_matches('/').to_owned(),
            headers: headers.iter().map(|header| (header.name.clone(), header.value.clone())).collect(),
            is_local,
        })
    }

    /// Sends a request with a path below the API's URL.
    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<String>,
        if_match: Option<String>,
    ) -> Result<TextResponse, HttpError> {
        let mut headers = self.headers.clone();
        headers.extend(body.is_some().then(|| ("content-type".to_owned(), "application/json".to_owned())));
        headers.extend(if_match.map(|version| ("if-match".to_owned(), version)));
        self.client.send(method, &format!("{}{path}", self.url), &headers, body).await
    }

    /// The usage that a local stack has counted; `None` for another API.
    pub(super) async fn usage(&self) -> Result<Option<Usage>, OperatorError> {
        if !self.is_local {
            return Ok(None);
        }
        match self.send("GET", "/_dev/usage", None, None).await {
            Ok(response) => Ok(serde_json::from_str(&response.body).ok().filter(|_| response.status == 200)),
            Err(error) => {
                Err(OperatorError::Api { url: self.url.clone(), cause: daybook_function_runtime::with_causes(&*error) })
            }
        }
    }
}
