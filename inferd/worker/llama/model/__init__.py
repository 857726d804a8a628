"""A loaded model: weights, vocabulary, tokenization, contexts and batches."""
