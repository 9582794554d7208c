"""Source of an MCP server behind OAuth, made with the official SDK: tokens last seconds, and are rotated."""

SOURCE = '''
import asyncio, os, pathlib, secrets, sys, time
import uvicorn
from mcp.server.auth.provider import AccessToken, AuthorizationCode, RefreshToken, construct_redirect_uri
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthToken

port, lasts_s = int(sys.argv[1]), int(sys.argv[2])
url = f"http://127.0.0.1:{port}"
journal = pathlib.Path(os.environ["JOURNAL"])

def note(line):
    with journal.open("a") as file:
        file.write(line + "\\n")

class Provider:
    def __init__(self):
        self.clients, self.codes, self.access, self.refresh = {}, {}, {}, {}

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):  # the person agrees at once
        code = AuthorizationCode(
            code=secrets.token_urlsafe(24), scopes=params.scopes or [], expires_at=time.time() + 60,
            client_id=client.client_id, code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri, resource=params.resource,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state, iss=url)

    async def load_authorization_code(self, client, code):
        return self.codes.get(code)

    async def exchange_authorization_code(self, client, code):
        if "DIES" in os.environ:
            os._exit(9)
        del self.codes[code.code]
        note("login")
        return self.given(client.client_id, code.scopes)

    def given(self, client_id, scopes):
        token, refresh = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        ends = int(time.time()) + lasts_s
        self.access[token] = AccessToken(token=token, client_id=client_id, scopes=scopes, expires_at=ends)
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
        return OAuthToken(access_token=token, expires_in=lasts_s, refresh_token=refresh)

    async def load_refresh_token(self, client, refresh_token):
        return None if journal.with_name("revoked").exists() else self.refresh.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        del self.refresh[refresh_token.token]
        note("renewed")
        return self.given(client.client_id, refresh_token.scopes)

    async def load_access_token(self, token):
        found = self.access.get(token)
        return found if found is not None and found.expires_at > time.time() else None

    async def revoke_token(self, token):
        pass

server = MCPServer("vault", auth_server_provider=Provider(), auth=AuthSettings(
    issuer_url=url,
    resource_server_url=os.environ.get("OTHER_RESOURCE", f"{url}/mcp"), validate_token_resource=False,
    client_registration_options=ClientRegistrationOptions(enabled=True),
))

def odd_metadata():
    if "WITHOUT_PKCE" in os.environ:
        return {"code_challenge_methods_supported": None}
    return {"issuer": "https://login.elsewhere.example/"} if "OTHER_ISSUER" in os.environ else {}

import mcp.server.auth.routes as routes
build = routes.build_metadata
routes.build_metadata = lambda *args, **kwargs: build(*args, **kwargs).model_copy(update=odd_metadata())

@server.tool()
def secret() -> str:
    """Tells what only those hear who are logged in."""
    return "the vault is open"

asyncio.run(uvicorn.Server(
    uvicorn.Config(server.streamable_http_app(), port=port, log_level="error")).serve())
'''
