"""The engine for Hugging Face models on PyTorch: paged attention, captured steps, quantised linears, adapters."""
