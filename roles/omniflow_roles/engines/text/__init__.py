"""From drawn tokens to the text of an answer, piece by piece. Pure: tokenizers are given."""
