package adminapi

import (
	"net/http"
	"reflect"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/webhook"
)

type createWebhookRequest struct {
	URL            string   `json:"url" minLength:"1" maxLength:"2048" doc:"URL that receives deliveries. It must use https and have no userinfo or fragment." example:"https://hooks.example.com/keygate"`
	Events         []string `json:"events" nullable:"false" minItems:"1" maxItems:"32" enum:"key.created,key.rotated,key.revoked,key.expired,rate_limit.exceeded,gateway.upstream_error,gateway.spec_pushed,gateway.sync_failed,owner.suspended,owner.resumed,quota.threshold,usage.finalized,upstream.target_down,upstream.target_up,canary.advanced,canary.aborted,canary.promoted,canary.paused,issuer.unreachable,user.role_changed,user.suspended,certificate.renewed,certificate.failed,certificate.expiring" doc:"Event types to deliver." example:"key.created,key.revoked"`
	SigningSecret  *string  `json:"signing_secret,omitempty" nullable:"true" minLength:"1" maxLength:"128" doc:"Secret that signs deliveries, 16 to 128 bytes long. If auto or absent, one is generated." example:"auto"`
	AllowDuplicate *bool    `json:"allow_duplicate,omitempty" nullable:"true" doc:"Allow a URL that another endpoint of the account has. Otherwise it is a 409." example:"true"`
}

type updateWebhookRequest struct {
	URL            *string   `json:"url,omitempty" minLength:"1" maxLength:"2048" doc:"URL that receives deliveries." example:"https://hooks.example.com/keygate"`
	Events         *[]string `json:"events,omitempty" minItems:"1" maxItems:"32" enum:"key.created,key.rotated,key.revoked,key.expired,rate_limit.exceeded,gateway.upstream_error,gateway.spec_pushed,gateway.sync_failed,owner.suspended,owner.resumed,quota.threshold,usage.finalized,upstream.target_down,upstream.target_up,canary.advanced,canary.aborted,canary.promoted,canary.paused,issuer.unreachable,user.role_changed,user.suspended,certificate.renewed,certificate.failed,certificate.expiring" doc:"Event types to deliver. Replaces all of them." example:"key.created,key.revoked"`
	State          *string   `json:"state,omitempty" enum:"active,disabled" doc:"active enables a disabled endpoint; disabled stops deliveries to it."`
	AllowDuplicate *bool     `json:"allow_duplicate,omitempty" nullable:"true" doc:"Allow a new URL that another endpoint of the account has. Otherwise it is a 409." example:"true"`
}

type rotateSecretRequest struct {
	OverlapHours *int `json:"overlap_hours,omitempty" nullable:"true" minimum:"0" maximum:"168" default:"24" doc:"How long deliveries are also signed with the old secret, in hours; 0 stops immediately." example:"24"`
}

type recoverRequest struct {
	Since string `json:"since" minLength:"1" doc:"Redeliver what failed at or after this time: an RFC 3339 time, or a date, which means midnight UTC." example:"2026-03-01T12:00:00Z"`
}

// defaultOverlapHours is the default overlap of a secret rotation, in hours.
const defaultOverlapHours = 24

// WebhookRecord is a webhook endpoint. It is exported so that it can be embedded;
// see KeyRecord.
type WebhookRecord struct {
	WebhookID      string     `json:"webhook_id" doc:"Identifier of the endpoint." example:"wh_01jz8y5c3te9b8r2m6q4v7x0gg"`
	URL            string     `json:"url" doc:"URL that receives deliveries." example:"https://hooks.example.com/keygate"`
	Events         []string   `json:"events" nullable:"false" doc:"Event types that are delivered." example:"key.created,key.revoked"`
	State          string     `json:"state" enum:"active,disabled" doc:"State of the endpoint. A disabled endpoint receives no deliveries."`
	DisabledReason *string    `json:"disabled_reason" doc:"Why the endpoint is disabled; null while it is active."`
	PausedUntil    *time.Time `json:"paused_until" doc:"Until when deliveries that have had no attempt are postponed, because attempts failed in a row; null while the endpoint is not paused."`
	CreatedAt      time.Time  `json:"created_at" doc:"When the endpoint was created."`
}

// newWebhookRecord is the only record that holds a signing secret. A response
// replayed for an Idempotency-Key omits it and says so in Message.
type newWebhookRecord struct {
	WebhookRecord
	SigningSecret          string `json:"signing_secret,omitempty" doc:"The signing secret. It is returned only once, and is absent from a replayed response. The key of X-Service-Signature is this whole string." example:"whsec_ZXhhbXBsZWV4YW1wbGVleGFtcGxlZXhhbXBsZTE="`
	StandardWebhooksSecret string `json:"standard_webhooks_secret,omitempty" doc:"The same secret in the form that Standard Webhooks libraries take. Absent if signing_secret already has that form." example:"whsec_ZXhhbXBsZWV4YW1wbGVleGFtcGxlZXhhbXBsZTE="`
	Message                string `json:"message,omitempty" doc:"In a replayed response: why the secret is absent."`
}

type webhookTestRecord struct {
	DeliveryID string `json:"delivery_id" doc:"Identifier of the new delivery." example:"dlv_01jz8y5c3te9b8r2m6q4v7x0hh"`
}

type webhookRecoveryRecord struct {
	Deliveries int `json:"deliveries" doc:"Number of new deliveries." example:"12"`
}

func presentWebhook(w *webhook.Webhook, now time.Time) WebhookRecord {
	r := WebhookRecord{
		WebhookID: w.ID, URL: w.URL, Events: make([]string, len(w.Events)), State: string(w.State),
		DisabledReason: optionalText(w.DisabledReason), PausedUntil: optionalTime(w.PausedAt(now)), CreatedAt: w.CreatedAt.UTC(),
	}
	for i, e := range w.Events {
		r.Events[i] = string(e)
	}
	return r
}

// presentNewWebhook returns the response with an endpoint's new secret, and the response for
// replays.
func presentNewWebhook(w *control.NewWebhook, now time.Time) response {
	r := newWebhookRecord{WebhookRecord: presentWebhook(&w.Webhook, now), SigningSecret: w.Secret, StandardWebhooksSecret: w.StandardSecret}
	replay := r
	replay.SigningSecret, replay.StandardWebhooksSecret = "", ""
	replay.Message = "this is a replay of the first response, which was the only one with the secret: if the secret is lost, rotate it"
	res := withETag(r, w.Version)
	res.replay = replay
	return res
}

func (a *API) webhookOperations() []operation {
	record, created := reflect.TypeFor[WebhookRecord](), reflect.TypeFor[newWebhookRecord]()
	return []operation{{
		id: "listWebhooks", method: http.MethodGet, path: "/v1/webhooks", tag: "Webhooks",
		summary: "List webhook endpoints", description: "Returns the webhook endpoints of the account, newest first, without their secrets.",
		query: pageParams(), success: http.StatusOK, result: reflect.TypeFor[list[WebhookRecord]](),
		run: a.listWebhooks,
	}, {
		id: "createWebhook", method: http.MethodPost, path: "/v1/webhooks", tag: "Webhooks",
		summary: "Create a webhook endpoint",
		description: "Registers a URL that receives events of the given types. Only this response contains the signing secret. " +
			"Loopback, private, link-local and metadata addresses are refused unless the operator allows their network.",
		body: reflect.TypeFor[createWebhookRequest](), replayable: true,
		success: http.StatusCreated, result: created, hasETag: true, hasLocation: true,
		run: takes(a.createWebhook),
	}, {
		id: "getWebhook", method: http.MethodGet, path: "/v1/webhooks/{webhook_id}", tag: "Webhooks",
		summary: "Get a webhook endpoint", description: "Returns one endpoint, without its secret.",
		success: http.StatusOK, result: record, hasETag: true,
		run: a.getWebhook,
	}, {
		id: "updateWebhook", method: http.MethodPatch, path: "/v1/webhooks/{webhook_id}", tag: "Webhooks",
		summary: "Update a webhook endpoint", description: "Changes the given fields. Setting state to active enables a disabled endpoint.",
		body: reflect.TypeFor[updateWebhookRequest](), ifMatch: true,
		success: http.StatusOK, result: record, hasETag: true, errors: []int{http.StatusConflict},
		run: takes(a.updateWebhook),
	}, {
		id: "deleteWebhook", method: http.MethodDelete, path: "/v1/webhooks/{webhook_id}", tag: "Webhooks",
		summary: "Delete a webhook endpoint", description: "Deletes the endpoint. Deliveries that have not yet succeeded fail. Returns the record as it was before.",
		ifMatch: true, success: http.StatusOK, result: record,
		run: a.deleteWebhook,
	}, {
		id: "rotateWebhookSecret", method: http.MethodPost, path: "/v1/webhooks/{webhook_id}/rotate-secret", tag: "Webhooks",
		summary: "Rotate the secret of a webhook endpoint",
		description: "Creates a new signing secret. Only this response contains it. During the overlap, deliveries are signed with both secrets: " +
			"the new one in X-Service-Signature, the old one in X-Service-Signature-Previous, and both in webhook-signature.",
		body: reflect.TypeFor[rotateSecretRequest](), bodyOptional: true, replayable: true, ifMatch: true,
		success: http.StatusOK, result: created, hasETag: true,
		run: takes(a.rotateWebhookSecret),
	}, {
		id: "testWebhook", method: http.MethodPost, path: "/v1/webhooks/{webhook_id}/test", tag: "Webhooks",
		summary: "Test a webhook endpoint", description: "Delivers an event of type webhook.test, which appears in no list of events.",
		replayable: true, success: http.StatusOK, result: reflect.TypeFor[webhookTestRecord](),
		run: a.testWebhook,
	}, {
		id: "recoverWebhook", method: http.MethodPost, path: "/v1/webhooks/{webhook_id}/recover", tag: "Webhooks",
		summary:     "Redeliver failed events",
		description: "Starts a new delivery of each event whose delivery to the endpoint failed at or after the given time and that was not redelivered afterwards.",
		body:        reflect.TypeFor[recoverRequest](), replayable: true,
		success: http.StatusOK, result: reflect.TypeFor[webhookRecoveryRecord](),
		run: takes(a.recoverWebhook),
	}}
}

func (a *API) listWebhooks(c *call) (response, error) {
	return page(c, "webhooks", "", func(p control.Page) ([]webhook.Webhook, error) {
		return a.cfg.Control.Webhooks(c.ctx, &c.actor, p)
	}, func(w *webhook.Webhook) (string, WebhookRecord) { return w.ID, presentWebhook(w, c.now) })
}

func webhookResponse(c *call) func(w *webhook.Webhook) response {
	return func(w *webhook.Webhook) response { return withETag(presentWebhook(w, c.now), w.Version) }
}

func (a *API) getWebhook(c *call) (response, error) {
	return respond(webhookResponse(c))(a.cfg.Control.Webhook(c.ctx, &c.actor, c.params["webhook_id"]))
}

func (a *API) createWebhook(c *call, req createWebhookRequest) (response, error) {
	present := func(w *control.NewWebhook) response {
		return presentNewWebhook(w, c.now).created("/v1/webhooks/" + w.ID)
	}
	return respond(present)(a.cfg.Control.CreateWebhook(withIdempotency(c, present), &c.actor, control.WebhookInput{
		URL: req.URL, Events: req.Events, Secret: value(req.SigningSecret), AllowDuplicate: value(req.AllowDuplicate),
	}))
}

func (a *API) updateWebhook(c *call, req updateWebhookRequest) (response, error) {
	return respond(webhookResponse(c))(a.cfg.Control.UpdateWebhook(c.ctx, &c.actor, c.params["webhook_id"], control.WebhookPatch{
		URL: setTo(req.URL), Events: setTo(req.Events), State: setTo(req.State), AllowDuplicate: value(req.AllowDuplicate),
	}, c.match))
}

func (a *API) deleteWebhook(c *call) (response, error) {
	present := func(w *webhook.Webhook) WebhookRecord { return presentWebhook(w, c.now) }
	return show(present)(a.cfg.Control.DeleteWebhook(c.ctx, &c.actor, c.params["webhook_id"], c.match))
}

func (a *API) rotateWebhookSecret(c *call, req rotateSecretRequest) (response, error) {
	hours := defaultOverlapHours
	if req.OverlapHours != nil {
		hours = *req.OverlapHours
	}
	present := func(w *control.NewWebhook) response { return presentNewWebhook(w, c.now) }
	return respond(present)(a.cfg.Control.RotateWebhookSecret(withIdempotency(c, present), &c.actor, c.params["webhook_id"], hours, c.match))
}

func (a *API) testWebhook(c *call) (response, error) {
	present := func(d *webhook.Delivery) response { return ok(webhookTestRecord{DeliveryID: d.ID}) }
	return respond(present)(a.cfg.Control.TestWebhook(withIdempotency(c, present), &c.actor, c.params["webhook_id"]))
}

func (a *API) recoverWebhook(c *call, req recoverRequest) (response, error) {
	since, err := parseTime(req.Since)
	if err != nil {
		c.refuse(invalidTime("since"))
	}
	present := func(n int) response { return ok(webhookRecoveryRecord{Deliveries: n}) }
	return respond(present)(a.cfg.Control.RecoverWebhook(withIdempotency(c, present), &c.actor, c.params["webhook_id"], since))
}
