"""Which models take back what another one added to its replies: ids of calls, signed thoughts."""


def family(model: str) -> str:
    """The family of a model; what it added is sent back to models of the same family only.

    Args:
        model: name with its back end, `litellm/anthropic/claude-opus-4-6`.
    """
    *path, name = model.split("/")
    vendor = next((each for each in ("claude", "gemini") if each in model), "")
    if path == ["litellm"] and vendor == "claude":
        path = ["litellm", "anthropic"]
    return f"{'/'.join(path) or name}:{vendor}"
