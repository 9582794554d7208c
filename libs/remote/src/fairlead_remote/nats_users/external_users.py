"""Rights of other systems on the bus: they prompt sessions, offer tools, set triggers off, hear answers.

Of such a user, and of a host that was added, a recipe is kept and not the list of subjects, so that a later
version of Fairlead gives them the rights that it has for them.
"""

from collections.abc import Iterable, Mapping

from fairlead_common.errors import InvalidInputError
from fairlead_common.permissions.rights import ANY_NUMBER, NOBODY, Others, Rights, executor, micro_subjects
from fairlead_common.protocol.ids import check_id
from fairlead_remote.nats_users.patterns import covers, overlap


def other(
    name: str,
    *,
    sessions: Iterable[str] = (),
    services: Iterable[str] = (),
    tools: Iterable[str] = (),
    triggers: Iterable[str] = (),
    answers: Iterable[str] = (),
) -> Rights:
    """Another system: it prompts the sessions named, offers tools, sets triggers off, hears answers.

    Args:
        sessions: names, or `*` for all.
        services: names of its NATS micro services. tools: the subjects that they are asked on.
        triggers: subjects it publishes to. answers: subjects it hears.

    Raises:
        InvalidInputError: one of them cannot be, or would reach into what is Fairlead's own.
    """
    recipe = {
        "kind": "other",
        "name": check_id(name, "user"),
        "sessions": list(sessions),
        "services": list(services),
        "tools": list(tools),
        "triggers": list(triggers),
        "answers": list(answers),
    }
    return remade(recipe)


def remade(recipe: Mapping[str, object], others: Others = NOBODY) -> Rights:
    """The rights that `recipe` stands for.

    Raises:
        InvalidInputError: it is no recipe, or a subject or name in it cannot be.
    """
    match recipe:
        case {"kind": "executor", "host": str(host)}:
            return executor(host, others)
        case {"kind": "other", "name": str(name)}:
            return _other(name, recipe)
        case _:
            raise InvalidInputError("kind", f"must be executor or other, got {recipe.get('kind')!r}")


def check_beside(recipe: Mapping[str, object], others: Mapping[str, Mapping[str, object]]) -> None:
    """Nothing, if a user of `recipe` fits beside the ones there are, by name.

    Each message must have one way through the accounts: with two it would arrive twice, and nats-server
    refuses a circle. Subjects of tools are one user's; replicas of a service share its key.

    Raises:
        InvalidInputError: two subjects overlap that may not; the text names them and whose they are.
    """
    mine = [(kind, subject) for kind in Others._fields for subject in _texts(recipe, kind)]
    theirs = [
        (name, kind, subject)
        for name, other in others.items()
        for kind in Others._fields
        for subject in _texts(other, kind)
    ]
    for number, (kind, subject) in enumerate(mine):
        beside = [("the same user", *each) for each in mine[:number]]
        for name, its_kind, its_subject in (*beside, *theirs):
            if overlap(subject, its_subject) is None:
                continue
            nested = covers(subject, its_subject) or covers(its_subject, subject)
            shared = kind == its_kind and (kind != "tools" or name == "the same user")
            if not (nested and shared):
                raise InvalidInputError(
                    kind, f"{subject} overlaps {its_subject} ({its_kind} of {name}): choose another subject"
                )


def others_of(recipes: Iterable[Mapping[str, object]]) -> Others:
    """What the services of Fairlead have to do with, given the users there are."""
    wanted = list(recipes)
    return Others(
        *(tuple(each for recipe in wanted for each in _texts(recipe, key)) for key in Others._fields)
    )


def check_foreign(subject: str) -> str:
    """`subject` itself, if it may be another system's.

    Raises:
        InvalidInputError: it reaches into what belongs to Fairlead, to the server or to inboxes.
    """
    tokens = subject.split(".")
    if len(subject) > 255 or not all(tokens) or any(c in subject for c in ' "\\{}\t\r\n'):
        raise InvalidInputError("subject", f"cannot be one: {subject[:80]!r}")
    if tokens[0] in ("fairlead", ">", "*") or tokens[0].startswith(("$", "_")):
        raise InvalidInputError(
            "subject", f"must not lie under fairlead., $, _ or begin with a wildcard, got {subject[:80]!r}"
        )
    if any((">" in token or "*" in token) and len(token) > 1 for token in tokens) or ">" in tokens[:-1]:
        raise InvalidInputError(
            "subject", f"`*` stands for one whole word, `>` for the rest: {subject[:80]!r}"
        )
    return subject


def _other(name: str, recipe: Mapping[str, object]) -> Rights:
    tools, triggers, answers = (_texts(recipe, key) for key in Others._fields)
    for subject in (*tools, *triggers, *answers):
        check_foreign(subject)
    may: list[str] = []
    for session in _texts(recipe, "sessions"):
        if session != "*":
            check_id(session, "session")
        prompt = f"fairlead.session.{session}.in.prompt"
        may += [f"fairlead.prompt.{session}", prompt, f"{prompt}.*"]
    micro: list[str] = []
    for service in _texts(recipe, "services"):
        if check_id(service, "service").startswith("fairlead"):
            raise InvalidInputError("service", f"names that begin with fairlead are taken: {service!r}")
        micro += micro_subjects(service)
    return Rights(
        f"_INBOX.{check_id(name, 'user')}",
        publish=(*may, *triggers),
        subscribe=(*tools, *answers, *dict.fromkeys(micro), *(["fairlead.cancel.*"] if tools else [])),
        answers=ANY_NUMBER if tools else 0,
        offers_tools=bool(tools),
        recipe=recipe,
    )


def _texts(recipe: Mapping[str, object], key: str) -> tuple[str, ...]:
    found = recipe.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InvalidInputError(key, f"must be a list of names, got {found!r}")
    return tuple(found)
