package adminapi

import (
	"net/http"
	"reflect"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

func keyFilters() []queryParam {
	return []queryParam{
		enumParam("state", "Only keys with this state.", string(apikey.Active), string(apikey.Expired), string(apikey.Revoked)),
		{name: "gateway_id", doc: "Only keys restricted to this gateway.", schema: textSchema(), example: "gw_01jz8y5c3te9b8r2m6q4v7x0aa"},
		enumParam("level", "Only keys of this level.", string(apikey.GatewayLevel), string(apikey.AccountLevel)),
		{name: "owner", doc: "Only keys of the owner with this external ID.", schema: textSchema(), example: "customer-42"},
		{name: "plan_id", doc: "Only keys that have this plan themselves.", schema: textSchema(), example: "plan_01jz8y5c3te9b8r2m6q4v7x0bb"},
		{name: "name", doc: "Only keys with exactly this name.", schema: textSchema(), example: "mobile"},
		{name: "q", doc: "Only keys whose name contains this text, or whose prefix starts with it.", schema: textSchema(), example: "mobile"},
	}
}

func (a *API) keyOperations() []operation {
	record, created := reflect.TypeFor[KeyRecord](), reflect.TypeFor[newKeyRecord]()
	return []operation{{
		id: "listKeys", method: http.MethodGet, path: "/v1/keys", tag: "Keys",
		summary: "List keys", description: "Returns the API keys of the account, newest first. The full keys are never included.",
		query: append(pageParams(), keyFilters()...), success: http.StatusOK, result: reflect.TypeFor[list[KeyRecord]](),
		run: a.listKeys,
	}, {
		id: "createKey", method: http.MethodPost, path: "/v1/keys", tag: "Keys",
		summary:     "Create a key",
		description: "Creates an API key. Only this response contains the full key; if you lose it, revoke the key and create a new one. The new key cannot have more rights than the calling key. A scope that is not well formed is a 422 whose message has the right form.",
		body:        reflect.TypeFor[CreateKeyRequest](), replayable: true,
		success: http.StatusCreated, result: created, hasETag: true, hasLocation: true,
		run: takes(a.createKey),
	}, {
		id: "importKeys", method: http.MethodPost, path: "/v1/keys/import", tag: "Keys",
		summary: "Import keys",
		description: "Makes keys that exist already, such as those of another gateway, keys of this account, so that callers need no new ones. Each is given by its SHA-256 or in clear, and has the fields of createKey; its level is gateway. " +
			"All keys are imported, or none. A key that the account has, or had before it was revoked or replaced, is a 409 whose errors name each of them; whether another account has it does not matter. " +
			"An imported key may be rotated, which replaces it by one of Keygate's own keys, and be changed and revoked like any other.",
		body: reflect.TypeFor[importKeysRequest](), maxBody: maxImport, replayable: true,
		success: http.StatusCreated, result: reflect.TypeFor[importedKeys](), errors: []int{http.StatusConflict},
		run: takes(a.importKeys),
	}, {
		id: "verifyKey", method: http.MethodPost, path: "/v1/keys/verify", tag: "Keys",
		summary:     "Verify a key or a token",
		description: "Checks whether a gateway-level key, or a token of an issuer, would be accepted for a request, which needs an owner that is not suspended too. Of a token that is refused, reason says why. Charges no rate limit. Needs the scope read.",
		body:        reflect.TypeFor[verifyKeyRequest](), readScope: true, replayable: true,
		success: http.StatusOK, result: reflect.TypeFor[verificationRecord](),
		run: takes(a.verifyKey),
	}, {
		id: "getKey", method: http.MethodGet, path: "/v1/keys/{key_id}", tag: "Keys",
		summary: "Get a key", description: "Returns one key, without the full key.",
		success: http.StatusOK, result: record, hasETag: true,
		run: a.getKey,
	}, {
		id: "updateKey", method: http.MethodPatch, path: "/v1/keys/{key_id}", tag: "Keys",
		summary: "Update a key", description: "Changes the given fields; null clears an optional field. A revoked or expired key cannot be changed (409).",
		body: reflect.TypeFor[updateKeyRequest](), ifMatch: true,
		success: http.StatusOK, result: record, hasETag: true, errors: []int{http.StatusConflict},
		run: takes(a.updateKey),
	}, {
		id: "revokeKey", method: http.MethodDelete, path: "/v1/keys/{key_id}", tag: "Keys",
		summary:     "Revoke a key",
		description: "Revokes the key before the response is sent: every later request with it gets a 401. Revoking a revoked key succeeds and changes nothing. A key may always revoke itself.",
		ifMatch:     true, allowOwnKey: true, success: http.StatusOK, result: record, hasETag: true,
		run: a.revokeKey,
	}, {
		id: "rotateKey", method: http.MethodPost, path: "/v1/keys/{key_id}/rotate", tag: "Keys",
		summary:     "Rotate a key",
		description: "Creates a new key that replaces an old one. The old key stays valid during the overlap, and both share one rate limit and one concurrency. Only this response contains the full new key.",
		body:        reflect.TypeFor[rotateKeyRequest](), replayable: true, ifMatch: true,
		success: http.StatusCreated, result: created, hasETag: true, hasLocation: true,
		run: takes(a.rotateKey),
	}}
}

func (a *API) listKeys(c *call) (response, error) {
	filter := control.KeyFilter{
		State: apikey.State(c.query.Get("state")), GatewayID: c.query.Get("gateway_id"), Level: apikey.Level(c.query.Get("level")),
		Owner: c.query.Get("owner"), PlanID: c.query.Get("plan_id"), Name: c.query.Get("name"), Query: c.query.Get("q"), Now: c.now,
	}
	return page(c, "keys", c.cursorBinding(keyFilters()), func(p control.Page) ([]apikey.Key, error) {
		list := func() ([]apikey.Key, error) { return a.cfg.Control.Keys(c.ctx, &c.actor, filter, p) }
		if !filter.Searches() {
			return list()
		}
		return searching(c, list)
	}, func(k *apikey.Key) (string, KeyRecord) { return k.ID, presentKey(k, c.now) })
}

func (c *call) keyResponse(k *apikey.Key) response {
	return withETag(presentKey(k, c.now), k.Version)
}

func (a *API) getKey(c *call) (response, error) {
	return respond(c.keyResponse)(a.cfg.Control.Key(c.ctx, &c.actor, c.params["key_id"]))
}

// presentNewKey returns the response with a new key, and the response for replays. The record has
// the state at the key's creation, which may be slightly later than the start of the call.
func presentNewKey(k *control.NewKey) response {
	r := newKeyRecord{KeyRecord: presentKey(&k.Key, k.CreatedAt), Key: k.Secret, OverlapEndsAt: optionalTime(k.OverlapEndsAt), Warnings: orEmpty(k.Warnings)}
	replay := r
	replay.Key = ""
	replay.Message = "this is a replay of the first response, which was the only one with the key: if the key is lost, revoke it and create a new one"
	res := withETag(r, k.Version).created("/v1/keys/" + k.ID)
	res.replay = replay
	return res
}

func (a *API) createKey(c *call, req CreateKeyRequest) (response, error) {
	return respond(presentNewKey)(a.cfg.Control.CreateKey(withIdempotency(c, presentNewKey), &c.actor, req.input()))
}

// presentImported returns the response with imported keys.
func presentImported(all []control.NewKey) response {
	r := importedKeys{Data: make([]importedKeyRecord, len(all))}
	for i := range all {
		r.Data[i] = importedKeyRecord{KeyRecord: presentKey(&all[i].Key, all[i].CreatedAt), Warnings: orEmpty(all[i].Warnings)}
	}
	return response{status: http.StatusCreated, body: r}
}

func (a *API) importKeys(c *call, req importKeysRequest) (response, error) {
	inputs := make([]control.ImportInput, len(req.Keys))
	for i := range req.Keys {
		k := &req.Keys[i]
		inputs[i] = control.ImportInput{
			KeyInput: k.input(), SHA256: value(k.SHA256), Secret: value(k.Key), Prefix: value(k.KeyPrefix), LastUsedAt: value(k.LastUsedAt),
		}
	}
	return respond(presentImported)(a.cfg.Control.ImportKeys(withIdempotency(c, presentImported), &c.actor, inputs))
}

// input returns the fields of a new key.
func (r *CreateKeyRequest) input() control.KeyInput {
	return control.KeyInput{
		Name: r.Name, Scope: r.Scope, ExpiresAt: value(r.ExpiresAt), GatewayID: value(r.GatewayID),
		RateLimit: value(r.RateLimit).KeyLimitInput, Concurrency: r.Concurrency, Level: value(r.Level), Owner: value(r.Owner), Metadata: r.Metadata,
		Plan: control.ChoosePlan(value(r.PlanID), value(r.Plan)), Addresses: addrlist.Lists{Allow: r.AllowIPs, Deny: r.DenyIPs},
	}
}

func (a *API) updateKey(c *call, req updateKeyRequest) (response, error) {
	return respond(c.keyResponse)(a.cfg.Control.UpdateKey(c.ctx, &c.actor, c.params["key_id"], control.KeyPatch{
		Name: setTo(req.Name), Owner: req.Owner.Optional, Plan: control.PlanChoice{ID: req.PlanID.Optional, Name: req.Plan.Optional},
		RateLimit:   control.Optional[control.KeyLimitInput]{Present: req.RateLimit.Present, Null: req.RateLimit.Null, Value: req.RateLimit.Value.KeyLimitInput},
		Concurrency: req.Concurrency.Optional, Metadata: req.Metadata.Optional, ExpiresAt: req.ExpiresAt.Optional, AllowIPs: req.AllowIPs.Optional, DenyIPs: req.DenyIPs.Optional,
	}, c.match))
}

func (a *API) revokeKey(c *call) (response, error) {
	return respond(c.keyResponse)(a.cfg.Control.RevokeKey(c.ctx, &c.actor, c.params["key_id"], c.match))
}

func (a *API) rotateKey(c *call, req rotateKeyRequest) (response, error) {
	return respond(presentNewKey)(a.cfg.Control.RotateKey(withIdempotency(c, presentNewKey), &c.actor, c.params["key_id"], req.OverlapDays, value(req.ExpiresAt), c.match))
}

func (a *API) verifyKey(c *call, req verifyKeyRequest) (response, error) {
	present := func(v *control.Verification) response { return ok(presentVerification(v)) }
	switch {
	case req.Key != nil && req.Token != nil:
		return response{}, fault.Invalid("token", "must not be given with key: give one of them")
	case req.Token != nil:
		return respond(present)(a.cfg.Control.VerifyToken(withIdempotency(c, present), &c.actor, *req.Token, value(req.GatewayID), value(req.Method), value(req.Path)))
	}
	return respond(present)(a.cfg.Control.VerifyKey(withIdempotency(c, present), &c.actor, value(req.Key), value(req.GatewayID), value(req.Method), value(req.Path)))
}
