"""Models behind one interface: a request goes in, pieces of an assistant message come out.

`demo` needs no key, `openai/<model>` speaks HTTP to any OpenAI-compatible server, and
`litellm/<provider>/<model>` reaches every other provider.
"""
