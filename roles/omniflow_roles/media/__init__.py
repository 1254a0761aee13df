"""Media codecs that roles share: PCM samples, WAV files, sample-rate conversion. No model, no I/O."""
