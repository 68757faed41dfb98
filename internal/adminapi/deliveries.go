package adminapi

import (
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/webhook"
)

// DeliveryRecord is a delivery. It is exported so that it can be embedded; see
// KeyRecord.
type DeliveryRecord struct {
	DeliveryID    string          `json:"delivery_id" doc:"Identifier of the delivery." example:"dlv_01jz8y5c3te9b8r2m6q4v7x0hh"`
	WebhookID     string          `json:"webhook_id" doc:"Endpoint that the event is delivered to." example:"wh_01jz8y5c3te9b8r2m6q4v7x0gg"`
	EventID       string          `json:"event_id" doc:"Event that is delivered." example:"evt_01jz8y5c3te9b8r2m6q4v7x0jj"`
	EventType     string          `json:"event_type" doc:"Type of the event." example:"key.created"`
	State         string          `json:"state" enum:"pending,retry_scheduled,delivered,failed" doc:"State of the delivery. pending: no attempt has finished yet. retry_scheduled: an attempt failed, and another will follow. delivered: the receiver accepted the event. failed: there will be no more attempts."`
	Trigger       string          `json:"trigger" enum:"event,manual,recover,test" doc:"What caused the delivery."`
	Attempts      []attemptRecord `json:"attempts" nullable:"false" doc:"Attempts so far, oldest first."`
	NextAttemptAt *time.Time      `json:"next_attempt_at" doc:"When the next attempt is due; null if there will be none."`
	CreatedAt     time.Time       `json:"created_at" doc:"When the delivery was created."`
}

type attemptRecord struct {
	Number       int       `json:"number" doc:"Number of the attempt, starting at 1." example:"1"`
	StartedAt    time.Time `json:"started_at" doc:"When the attempt started."`
	DurationMS   int64     `json:"duration_ms" doc:"How long the attempt took, in milliseconds." example:"87"`
	Status       *int      `json:"status" doc:"HTTP status of the response; null if there was no response." example:"200"`
	Error        *string   `json:"error" doc:"Why no complete response was received; null if one was."`
	ResponseBody *string   `json:"response_body" doc:"First 8 KiB of the response body; null if there was no response."`
}

// deliveryDetailRecord is a delivery with the request that it sends.
type deliveryDetailRecord struct {
	DeliveryRecord
	Payload        string            `json:"payload" doc:"Exact request body, the same in each attempt."`
	RequestHeaders map[string]string `json:"request_headers" nullable:"false" doc:"Request headers of the last attempt, or of the first one if there was none yet."`
}

func presentDelivery(d *webhook.Delivery) DeliveryRecord {
	r := DeliveryRecord{
		DeliveryID: d.ID, WebhookID: d.WebhookID, EventID: d.EventID, EventType: string(d.EventType),
		State: string(d.State), Trigger: string(d.Trigger), Attempts: make([]attemptRecord, len(d.Attempts)),
		NextAttemptAt: optionalTime(d.NextAttemptAt), CreatedAt: d.CreatedAt.UTC(),
	}
	for i := range d.Attempts {
		t := &d.Attempts[i]
		a := attemptRecord{Number: t.Number, StartedAt: t.StartedAt.UTC(), DurationMS: t.Duration.Milliseconds(), Error: optionalText(t.Error)}
		if t.Status != 0 {
			body := strings.ToValidUTF8(string(t.Response), "\uFFFD")
			a.Status, a.ResponseBody = &t.Status, &body
		}
		r.Attempts[i] = a
	}
	return r
}

func presentDetail(d *control.DeliveryDetail) deliveryDetailRecord {
	r := deliveryDetailRecord{DeliveryRecord: presentDelivery(&d.Delivery), Payload: string(d.Payload), RequestHeaders: d.RequestHeaders}
	if r.RequestHeaders == nil {
		r.RequestHeaders = map[string]string{}
	}
	return r
}

// eventTypes returns the event types that an endpoint can subscribe to.
func eventTypes() []string {
	var names []string
	for _, t := range webhook.EventTypes() {
		names = append(names, string(t))
	}
	return names
}

func deliveryFilters() []queryParam {
	return append([]queryParam{
		{name: "webhook_id", doc: "Only deliveries to this endpoint.", schema: textSchema(), example: "wh_01jz8y5c3te9b8r2m6q4v7x0gg"},
		{name: "event_id", doc: "Only deliveries of this event.", schema: textSchema(), example: "evt_01jz8y5c3te9b8r2m6q4v7x0jj"},
		enumParam("state", "Only deliveries with this state.",
			string(webhook.Pending), string(webhook.RetryScheduled), string(webhook.Delivered), string(webhook.Failed)),
		enumParam("event_type", "Only deliveries of events of this type.", append(eventTypes(), string(webhook.Test))...),
	}, timeRangeParams("deliveries created")...)
}

func (a *API) deliveryOperations() []operation {
	return []operation{{
		id: "listDeliveries", method: http.MethodGet, path: "/v1/webhook-deliveries", tag: "Webhook deliveries",
		summary:     "List webhook deliveries",
		description: "Returns the deliveries of the account, newest first. Failed deliveries are kept for 7 days, successful ones for 3 days.",
		query:       append(pageParams(), deliveryFilters()...), success: http.StatusOK, result: reflect.TypeFor[list[DeliveryRecord]](),
		run: a.listDeliveries,
	}, {
		id: "getDelivery", method: http.MethodGet, path: "/v1/webhook-deliveries/{delivery_id}", tag: "Webhook deliveries",
		summary: "Get a webhook delivery", description: "Returns one delivery with its request body and headers.",
		success: http.StatusOK, result: reflect.TypeFor[deliveryDetailRecord](),
		run: a.getDelivery,
	}, {
		id: "redeliver", method: http.MethodPost, path: "/v1/webhook-deliveries/{delivery_id}/redeliver", tag: "Webhook deliveries",
		summary:     "Redeliver an event",
		description: "Starts a new delivery of the same event to the same endpoint, with the same event identifier and the same body. If a retry is scheduled, no new delivery starts: the retry is due now, and the response is a 200 with the same delivery. A delivery that is pending is a 409.",
		replayable:  true, success: http.StatusCreated, result: reflect.TypeFor[DeliveryRecord](), hasLocation: true, alsoOK: "The same delivery, whose scheduled retry is due now.",
		run: a.redeliver,
	}}
}

func (a *API) listDeliveries(c *call) (response, error) {
	since, until, err := c.timeRange()
	if err != nil {
		return response{}, err
	}
	filter := control.DeliveryFilter{
		WebhookID: c.query.Get("webhook_id"), EventID: c.query.Get("event_id"), State: webhook.DeliveryState(c.query.Get("state")),
		EventType: event.Type(c.query.Get("event_type")), Since: since, Until: until,
	}
	return page(c, "webhook-deliveries", c.cursorBinding(deliveryFilters()), func(p control.Page) ([]webhook.Delivery, error) {
		return a.cfg.Control.Deliveries(c.ctx, &c.actor, filter, p)
	}, func(d *webhook.Delivery) (string, DeliveryRecord) { return d.ID, presentDelivery(d) })
}

func (a *API) getDelivery(c *call) (response, error) {
	return show(presentDetail)(a.cfg.Control.Delivery(c.ctx, &c.actor, c.params["delivery_id"]))
}

func (a *API) redeliver(c *call) (response, error) {
	present := func(d *control.Redelivery) response {
		res := ok(presentDelivery(&d.Delivery))
		if d.New {
			res = res.created("/v1/webhook-deliveries/" + d.ID)
		}
		return res
	}
	return respond(present)(a.cfg.Control.Redeliver(withIdempotency(c, present), &c.actor, c.params["delivery_id"]))
}
