package adminapi

import (
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
)

// eventRecord describes the envelope of an event for the document. The API returns
// the stored envelope byte for byte, because those bytes were signed.
type eventRecord struct {
	ID        string         `json:"id" doc:"Identifier of the event, the same in every delivery." example:"evt_01jz8y5c3te9b8r2m6q4v7x0jj"`
	Type      string         `json:"type" enum:"key.created,key.rotated,key.revoked,key.expired,rate_limit.exceeded,gateway.upstream_error,gateway.spec_pushed,gateway.sync_failed,owner.suspended,owner.resumed,quota.threshold,usage.finalized,upstream.target_down,upstream.target_up,canary.advanced,canary.aborted,canary.promoted,canary.paused,issuer.unreachable,user.role_changed,user.suspended,certificate.renewed,certificate.failed,certificate.expiring" doc:"Type of the event."`
	CreatedAt time.Time      `json:"created_at" doc:"When the event occurred."`
	Data      map[string]any `json:"data" nullable:"false" doc:"Details of the event. The fields depend on the type."`
}

func eventFilters() []queryParam {
	return append([]queryParam{enumParam("type", "Only events of this type.", eventTypes()...)}, timeRangeParams("events")...)
}

func (a *API) eventOperations() []operation {
	return []operation{{
		id: "listEvents", method: http.MethodGet, path: "/v1/events", tag: "Events",
		summary:     "List events",
		description: "Returns the events of the account, newest first, in the form in which they are delivered. An event that is stored later comes before all others, whatever its created_at is; with since or until, the order is that of created_at. Events are kept for 7 days, with or without a webhook endpoint.",
		query:       append(pageParams(), eventFilters()...), success: http.StatusOK, result: reflect.TypeFor[list[eventRecord]](),
		run: a.listEvents,
	}, {
		id: "getEvent", method: http.MethodGet, path: "/v1/events/{event_id}", tag: "Events",
		summary: "Get an event", description: "Returns one event, byte for byte as it is delivered.",
		success: http.StatusOK, result: reflect.TypeFor[eventRecord](),
		run: a.getEvent,
	}}
}

func (a *API) listEvents(c *call) (response, error) {
	since, until, err := c.timeRange()
	if err != nil {
		return response{}, err
	}
	filter := control.EventFilter{Type: event.Type(c.query.Get("type")), Since: since, Until: until}
	return page(c, "events", c.cursorBinding(eventFilters()), func(p control.Page) ([]event.Event, error) {
		return a.cfg.Control.Events(c.ctx, &c.actor, filter, p)
	}, func(e *event.Event) (string, json.RawMessage) { return e.ID, e.Payload })
}

func (a *API) getEvent(c *call) (response, error) {
	e, err := a.cfg.Control.Event(c.ctx, &c.actor, c.params["event_id"])
	if err != nil {
		return response{}, err
	}
	return response{status: http.StatusOK, raw: e.Payload}.with("Content-Type", jsonType), nil
}
