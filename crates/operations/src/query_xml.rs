//! The XML of S3, and of the services with the Query protocol.

use aws_smithy_xml::decode::{Document, XmlDecodeError, try_data};

/// The texts of all elements with one of these names, in the order of the document. None contains an element.
pub(crate) fn texts<'n>(xml: &str, names: &[&'n str]) -> Result<Vec<(&'n str, String)>, XmlDecodeError> {
    let mut document = Document::new(xml);
    let mut texts = Vec::new();
    document.next_start_element().ok_or_else(|| XmlDecodeError::custom("no root element"))?;
    while let Some(element) = document.next_start_element() {
        if let Some(name) = names.iter().find(|name| **name == element.local()) {
            texts.push((*name, try_data(&mut document.scoped_to(element))?.into_owned()));
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_without_escapes() {
        let xml = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Contents><Key>a/b&amp;c\
                   </Key><Size>1</Size></Contents><Contents><Key>d</Key></Contents><NextContinuationToken>t==\
                   </NextContinuationToken></ListBucketResult>";
        let found = texts(xml, &["Key", "NextContinuationToken"]).unwrap();
        let found: Vec<_> = found.iter().map(|(name, text)| (*name, text.as_str())).collect();
        assert_eq!(found, [("Key", "a/b&c"), ("Key", "d"), ("NextContinuationToken", "t==")]);
        assert!(texts("", &["Key"]).is_err());
    }
}
