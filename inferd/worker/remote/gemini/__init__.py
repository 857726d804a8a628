"""Google's Gemini API: translation of requests, of streamed answers and of errors."""
