package fault

// Explanation says for users what an error code means and what to do about it. The error
// reference in docs/errors.md is made from it.
type Explanation struct {
	Code            string // the value of "error", "code" or "limit_scope"
	Status          int    // 0 for a limit scope
	Data            bool   // a gateway responds with it
	Management      bool   // the management API responds with it
	Meaning, Remedy string
}

// Codes explains every Code, by status.
func Codes() []Explanation {
	const data, management, both = 1, 2, 3
	var out []Explanation
	for _, e := range []struct {
		code            Code
		planes          int
		meaning, remedy string
	}{
		{InvalidJSON, both, "The body is not one JSON value in UTF-8, or an object has a field twice.", "Correct the place that the message names."},
		{InvalidRequest, both, "The request, its path, a header, the query or the body cannot be parsed or is incomplete, or the request has more than one key.", "Correct what the message names."},
		{AuthorizationPending, management, "No user has approved the sign-in of the device yet.", "Ask again after `interval` seconds."},
		{SlowDown, management, "The device asks too often.", "Ask again, from now on with an interval that is 5 seconds longer."},
		{AccessDenied, management, "The user has denied the sign-in of the device.", "Begin again if it was a mistake."},
		{ExpiredToken, management, "The device code has expired.", "Begin again (`keygate login --device`)."},
		{InvalidGrant, management, "The device code is unknown or was used, or its user may not sign in any more.", "Begin again (`keygate login --device`)."},
		{InvalidClient, management, "The `client_id` is not `keygate-cli`.", "Send `keygate-cli`, or no `client_id`."},
		{UnsupportedGrantType, management, "The `grant_type` is not that of a device code.", "Send `urn:ietf:params:oauth:grant-type:device_code`."},
		{Unauthorized, both, "There is no valid key. `code` says more.", "See `code` below."},
		{Forbidden, both, "The key is valid, but does not allow the request. `code` says more.", "See `code` below."},
		{NotFound, management, "The account has no such record, or the API no such path. Records of other accounts do not exist for you.", "Check the identifier and the account of the key."},
		{GatewayNotFound, data, "No gateway of an active account has the request's host, and there is no default gateway.", "Send the hostname of a gateway (`keygate gateways list`), or set a default gateway."},
		{RouteNotFound, data, "The gateway has no route for the path.", "Check the path, or add a route."},
		{MethodNotAllowed, both, "The path exists, but not with this method. Gateways refuse CONNECT and TRACE on every path.", "Use a method of the header `Allow`."},
		{Conflict, both, "The state of a record forbids the change, a name is taken, or a request with the same `Idempotency-Key` is running. Of an import, `errors` names the keys that the account has.", "Read the record again and decide; the message says what is in the way."},
		{PreconditionFailed, management, "The record has changed: its `ETag` is not in `If-Match`.", "Read the record again, and repeat the change with its new `ETag`."},
		{BodyTooLarge, both, "The body is larger than the limit.", "Send less. The limit of a gateway is its `max_body_bytes`; those of the management API and of self-service are fixed."},
		{TargetTooLong, data, "The path and query are too long.", "Send a shorter URL."},
		{UnsupportedMediaType, management, "The body has no supported `Content-Type`, or it is compressed.", "Send the type that the message names, uncompressed."},
		{ValidationFailed, both, "Fields, query parameters or a document are invalid or missing, or the `Idempotency-Key` was used for another request. `errors` lists all problems, at most 50; `errors_left_out` is the number of the others of a document.", "Correct everything that `errors` names."},
		{RateLimitExceeded, both, "A rate limit is used up. `limit_scope` says which.", "Wait for the seconds of `Retry-After`, then repeat the request."},
		{HeaderTooLarge, data, "The request has too many headers, or they are too large.", "Send fewer or shorter headers."},
		{Internal, both, "Keygate failed.", "Look for `request_id` in the server's log."},
		{ProtocolNotSupported, data, "An extended CONNECT request (RFC 8441) asks for a protocol other than `websocket`.", "Ask for `websocket`, or send an ordinary request."},
		{UpstreamUnreachable, data, "The upstream could not be reached or closed the connection, its response was malformed or too large, or `upstream_url` leads back to the gateway.", "Check the upstream; `keygate explain` gives the reason."},
		{Unavailable, both, "The server cannot handle the request now: its store fails or is full, it is stopping, or it has no free file descriptors.", "Repeat the request later. Before you repeat a change, check whether it was made."},
		{UpstreamTimeout, data, "The upstream did not respond in time, or no connection to it became free in time.", "Check the upstream, or raise `timeout` or `upstream_max_connections` of the gateway."},
		{VersionNotSupported, data, "The HTTP version is not supported.", "Use HTTP/1.1 or HTTP/2."},
	} {
		out = append(out, Explanation{string(e.code), e.code.Status(), e.planes&data != 0, e.planes&management != 0, e.meaning, e.remedy})
	}
	return out
}

// AuthCodes explains every AuthCode.
func AuthCodes() []Explanation {
	return []Explanation{
		{string(KeyInvalid), Unauthorized.Status(), true, true, "The key is missing, malformed, unknown, revoked or of the other level, or its account is suspended.", "Send an active key as `Authorization: Bearer KEY`, or in a header of the gateway's `key_headers`. Gateways take keys of the level gateway, the management API those of the level account."},
		{string(KeyExpired), Unauthorized.Status(), true, true, "The key has expired.", "Create or rotate a key."},
		{string(TokenInvalid), Unauthorized.Status(), true, false, "The token is not valid for this gateway, or a key was sent on a route that takes only tokens. The response does not say which check has failed: `keygate explain REQUEST_ID` does.", "Get a new token from its issuer, and compare the issuer's settings with `reason` of the request."},
		{string(TokenExpired), Unauthorized.Status(), true, false, "The token has expired.", "Get a new one from its issuer."},
		{string(ScopeInsufficient), Forbidden.Status(), true, true, "The scope of the key does not allow the method on the path, or the key is restricted to another gateway. On the management API also: the call is only for the account `default`, or it creates or changes a key that the calling key has no right to.", "Use a key whose scope, gateway and account fit."},
		{string(ReauthenticationRequired), Forbidden.Status(), false, true, "The call is made with the session of a user who has authenticated more than 5 minutes ago, and changes keys of the level account or users, or deletes a gateway or an account.", "Sign in once more (`GET /v1/session/sso?reauthenticate=true`; the dashboard asks), and repeat the call."},
		{string(OwnerSuspended), Forbidden.Status(), true, false, "The owner of the key is suspended. The key itself keeps its state.", "Resume the owner (`keygate owners resume`, or PATCH `/v1/owners/{id}` with `{\"state\": \"active\"}`)."},
		{string(AddressNotAllowed), Forbidden.Status(), true, false, "`allow_ips` and `deny_ips` of the gateway, the key or the route do not allow the client's address.", "Send the request from an address that is allowed, or change the lists. `keygate explain` says whose lists they are."},
		{string(SchemaMismatch), InvalidRequest.Status(), true, false, "The request does not meet the OpenAPI document of the gateway, whose `validate` is `enforce`: `errors` lists what must be otherwise, with its `place` in the request and a JSON `pointer`. A body that is too large to be checked is a 413, and one of another media type, charset or coding a 415. It is charged.", "Change the request, or the document. `keygate validation` shows what requests do otherwise."},
		{string(UnderMaintenance), Unavailable.Status(), true, false, "The gateway is under maintenance, and the client's address is not exempt. Nothing is charged.", "Wait for the end of the maintenance (`keygate gateways maintenance off`)."},
	}
}
