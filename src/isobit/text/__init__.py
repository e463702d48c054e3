"""Between text and token ids: tokenizer, incremental detokenizer, chat templates."""
