package adminapi

import (
	"net/http"
	"net/url"
	"reflect"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
)

func keyFilters() []queryParam {
	return []queryParam{
		enumParam("state", "Only keys in this state.", string(apikey.Active), string(apikey.Expired), string(apikey.Revoked)),
		{name: "gateway_id", doc: "Only keys restricted to this gateway.", schema: textSchema(), example: "gw_01jz8y5c3te9b8r2m6q4v7x0aa"},
		enumParam("level", "Only keys of this level.", string(apikey.GatewayLevel), string(apikey.AccountLevel)),
		{name: "owner", doc: "Only keys of this owner.", schema: textSchema(), example: "customer-42"},
		{name: "q", doc: "Only keys whose name holds this text, or whose prefix begins with it.", schema: textSchema(), example: "mobile"},
	}
}

func (a *API) keyOperations() []operation {
	record, made := reflect.TypeFor[KeyRecord](), reflect.TypeFor[newKeyRecord]()
	return []operation{{
		id: "listKeys", method: http.MethodGet, path: "/v1/keys", tag: "Keys",
		summary: "List keys", description: "Lists the API keys of the account as metadata and prefix, newest first; never the keys themselves.",
		query: append(pageParams(), keyFilters()...), success: http.StatusOK, result: reflect.TypeFor[list[KeyRecord]](),
		run: a.listKeys,
	}, {
		id: "createKey", method: http.MethodPost, path: "/v1/keys", tag: "Keys",
		summary:     "Create a key",
		description: "Creates an API key. The answer shows it this once; a lost key must be revoked and replaced. No key gives more than its maker has.",
		body:        reflect.TypeFor[createKeyRequest](), replayable: true,
		success: http.StatusCreated, result: made, hasETag: true, hasLocation: true,
		run: a.createKey,
	}, {
		id: "verifyKey", method: http.MethodPost, path: "/v1/keys/verify", tag: "Keys",
		summary:     "Verify a key",
		description: "Tells whether a gateway-level key would be let in. Charges no limit, and needs the scope read.",
		body:        reflect.TypeFor[verifyKeyRequest](), readScope: true, replayable: true,
		success: http.StatusOK, result: reflect.TypeFor[verificationRecord](),
		run: a.verifyKey,
	}, {
		id: "getKey", method: http.MethodGet, path: "/v1/keys/{key_id}", tag: "Keys",
		summary: "Get a key", description: "Gives one key as metadata and prefix.",
		success: http.StatusOK, result: record, hasETag: true,
		run: a.getKey,
	}, {
		id: "updateKey", method: http.MethodPatch, path: "/v1/keys/{key_id}", tag: "Keys",
		summary: "Update a key", description: "Changes the members that are given; null clears an optional one. A revoked or expired key cannot be changed.",
		body: reflect.TypeFor[updateKeyRequest](), ifMatch: true,
		success: http.StatusOK, result: record, hasETag: true, errors: []int{http.StatusConflict},
		run: a.updateKey,
	}, {
		id: "revokeKey", method: http.MethodDelete, path: "/v1/keys/{key_id}", tag: "Keys",
		summary:     "Revoke a key",
		description: "Revokes the key before the answer leaves: every later request with it is a 401. Again is 200. A key may always revoke itself.",
		ifMatch:     true, allowOwnKey: true, success: http.StatusOK, result: record, hasETag: true,
		run: a.revokeKey,
	}, {
		id: "rotateKey", method: http.MethodPost, path: "/v1/keys/{key_id}/rotate", tag: "Keys",
		summary:     "Rotate a key",
		description: "Makes a new key in place of an old one, which stays valid during the overlap. Both share one limit. The answer shows the new key this once.",
		body:        reflect.TypeFor[rotateKeyRequest](), replayable: true, ifMatch: true,
		success: http.StatusCreated, result: made, hasETag: true, hasLocation: true,
		run: a.rotateKey,
	}}
}

func (a *API) listKeys(c *call) (response, error) {
	filter := control.KeyFilter{
		State: apikey.State(c.query.Get("state")), GatewayID: c.query.Get("gateway_id"), Level: apikey.Level(c.query.Get("level")),
		Owner: c.query.Get("owner"), Query: c.query.Get("q"), Now: c.now,
	}
	bound := url.Values{}
	for _, p := range keyFilters() {
		if v := c.query.Get(p.name); v != "" {
			bound.Set(p.name, v)
		}
	}
	return page(c, "keys", bound.Encode(), func(p control.Page) ([]apikey.Key, error) {
		return a.cfg.Control.Keys(c.ctx, &c.caller, filter, p)
	}, func(k *apikey.Key) (string, KeyRecord) { return k.ID, presentKey(k, c.now) })
}

func (a *API) getKey(c *call) (response, error) {
	k, err := a.cfg.Control.Key(c.ctx, &c.caller, c.params["key_id"])
	if err != nil {
		return response{}, err
	}
	return withETag(presentKey(k, c.now), k.Version), nil
}

// presentNewKey shows a key just made, and what a replay shows of it. The record
// is shown as of the key's creation, which may lie a little after the call's
// acquire.
func presentNewKey(k *control.NewKey) response {
	r := newKeyRecord{KeyRecord: presentKey(&k.Key, k.CreatedAt), Key: k.Secret, OverlapEndsAt: optionalTime(k.OverlapEndsAt)}
	again := r
	again.Key = ""
	again.Message = "this is a replay of the first answer: the key was shown there once and is not kept; if it is lost, revoke this key and create another"
	shown := withETag(r, k.Version).created("/v1/keys/" + k.ID)
	shown.replay = again
	return shown
}

func (a *API) createKey(c *call) (response, error) {
	var req createKeyRequest
	if err := c.decode(&req); err != nil {
		return response{}, err
	}
	k, err := a.cfg.Control.CreateKey(withIdempotency(c, presentNewKey), &c.caller, control.KeyInput{
		Name: req.Name, Scope: req.Scope, ExpiresAt: value(req.ExpiresAt), GatewayID: value(req.GatewayID),
		RateLimit: value(req.RateLimit), Level: value(req.Level), Owner: value(req.Owner), Metadata: req.Metadata,
	})
	if err != nil {
		return response{}, err
	}
	return presentNewKey(k), nil
}

func (a *API) updateKey(c *call) (response, error) {
	var req updateKeyRequest
	if err := c.decode(&req); err != nil {
		return response{}, err
	}
	k, err := a.cfg.Control.UpdateKey(c.ctx, &c.caller, c.params["key_id"], control.KeyPatch{
		Name: setTo(req.Name), Owner: req.Owner.Optional, RateLimit: req.RateLimit.Optional,
		Metadata: req.Metadata.Optional, ExpiresAt: req.ExpiresAt.Optional,
	}, c.match)
	if err != nil {
		return response{}, err
	}
	return withETag(presentKey(k, c.now), k.Version), nil
}

func (a *API) revokeKey(c *call) (response, error) {
	k, err := a.cfg.Control.RevokeKey(c.ctx, &c.caller, c.params["key_id"], c.match)
	if err != nil {
		return response{}, err
	}
	return withETag(presentKey(k, c.now), k.Version), nil
}

func (a *API) rotateKey(c *call) (response, error) {
	var req rotateKeyRequest
	if err := c.decode(&req); err != nil {
		return response{}, err
	}
	k, err := a.cfg.Control.RotateKey(withIdempotency(c, presentNewKey), &c.caller, c.params["key_id"], req.OverlapDays, value(req.ExpiresAt), c.match)
	if err != nil {
		return response{}, err
	}
	return presentNewKey(k), nil
}

func (a *API) verifyKey(c *call) (response, error) {
	var req verifyKeyRequest
	if err := c.decode(&req); err != nil {
		return response{}, err
	}
	present := func(v *control.Verification) response { return ok(presentVerification(v)) }
	v, err := a.cfg.Control.VerifyKey(withIdempotency(c, present), &c.caller, req.Key, value(req.GatewayID), value(req.Method), value(req.Path))
	if err != nil {
		return response{}, err
	}
	return present(v), nil
}
