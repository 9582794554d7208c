"""The API of OpenAI's clients, on top of sessions."""
