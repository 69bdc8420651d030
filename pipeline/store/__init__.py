"""Files of documents, each document once."""
