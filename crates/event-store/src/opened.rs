//! Events and other rows of aggregates with their personal values opened, and what is forgotten.

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::{AggregateKey, Json, RecordedEvent, personal};
use daybook_table::{StoredText, attributes, keys};

use crate::error::StoreError;
use crate::item::Item;
use crate::packing::unpack;
use crate::store::EventStore;
use crate::subject_keys::{Sealing, SubjectKey};

impl EventStore {
    /// Opens the personal values of a row of an aggregate: an event, or a snapshot.
    pub async fn open_row(&self, key: &AggregateKey, row: &mut Item) -> Result<(), StoreError> {
        if self.sealing.keys.is_none() {
            return Ok(());
        }
        for name in [attributes::DATA, attributes::STATE] {
            let Some(attribute) = row.get_mut(name) else { continue };
            let Ok(stored) = serde_dynamo::from_attribute_value::<_, StoredText>(attribute.clone()) else { continue };
            let Ok(mut json) = unpack(stored).and_then(|text| Ok(Json::parse(text)?)) else { continue };
            if personal::contains(json.text()) {
                self.sealing.open([(keys::pk(key), &mut json)].into_iter()).await?;
                *attribute = AttributeValue::S(json.text().to_owned());
            }
        }
        Ok(())
    }

    /// The same store without the keys: it reads and writes personal values as they are stored.
    pub fn sealed(self) -> Self {
        Self { sealing: Sealing::leaving(), ..self }
    }

    /// Whether the personal data of an aggregate is forgotten; `None` if it has no key.
    pub async fn is_forgotten(&self, key: &AggregateKey) -> Result<Option<bool>, StoreError> {
        match &self.sealing.keys {
            Some(keys) => keys.is_forgotten(&key.to_string()).await,
            None => Ok(None),
        }
    }

    /// JSON in which each personal value has a subject, without the values about those that are forgotten.
    pub async fn without_forgotten(&self, json: Json) -> Result<Json, StoreError> {
        let subjects = personal::subjects(json.text());
        let Some(subject_keys) = self.sealing.keys.as_ref().filter(|_| !subjects.is_empty()) else { return Ok(json) };
        let (mut keys, missing) = subject_keys.in_memory(subjects);
        keys.extend(subject_keys.fetch(&missing).await?);
        let forgotten = keys.into_iter().filter(|(_, key)| matches!(key, SubjectKey::Forgotten));
        Ok(forgotten.fold(json, |json, (subject, _)| personal::forgotten(json, &subject)))
    }

    /// Ends the key of the personal data of an aggregate that is forgotten, as the append of the event has done, if a restore has
    /// brought it back.
    pub async fn end_key(&self, key: &AggregateKey) -> Result<(), StoreError> {
        if let Some(keys) = &self.sealing.keys {
            keys.end(&key.to_string(), self.now()).await?;
        }
        self.forget(key);
        Ok(())
    }

    /// Forgets in memory what an append has forgotten. Cached states with such values are not current any more.
    pub(crate) fn forget(&self, key: &AggregateKey) {
        if let Some(keys) = &self.sealing.keys {
            keys.remember(&key.to_string(), SubjectKey::Forgotten);
        }
        // It may have its history.
        self.cache.remove(key);
    }

    pub async fn open_events<'a>(
        &self,
        events: impl Iterator<Item = (&'a AggregateKey, &'a mut RecordedEvent)>,
    ) -> Result<(), StoreError> {
        let sealed = events.filter(|(_, event)| personal::contains(event.data.text()));
        self.sealing.open(sealed.map(|(key, event)| (keys::pk(key), &mut event.data))).await
    }
}
