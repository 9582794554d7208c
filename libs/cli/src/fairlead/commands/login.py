"""`fairlead login`."""

import click


@click.command()
@click.option(
    "--prepare", is_flag=True, hidden=True, help="Create the home and the token; print only a new token."
)
@click.option("--url", help="Address in the link (default: FAIRLEAD_URL, else this machine).")
def login(prepare: bool, url: str | None) -> None:
    """Print a link that opens the page in a browser, logged in. It works once, within ten minutes.

    Run it on the machine that has the home: the link is signed with the key there.
    """
    from fairlead.login_links import login_code, prepare_auth
    from fairlead_common.installation.access import link_url, server_url
    from fairlead_common.installation.home import home_from_environment

    home = home_from_environment()
    if prepare:
        home.prepare()
        generated, _ = prepare_auth(home)
        if generated:
            click.echo(f"admin token (shown only now): {generated}")
        return
    click.echo(f"{link_url(server_url(url), url)}/login?code={login_code(home)}")
