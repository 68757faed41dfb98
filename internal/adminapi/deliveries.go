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

// DeliveryRecord is exported so that it can be embedded, as KeyRecord is.
type DeliveryRecord struct {
	DeliveryID    string          `json:"delivery_id" doc:"Identifier of the delivery." example:"dlv_01jz8y5c3te9b8r2m6q4v7x0hh"`
	WebhookID     string          `json:"webhook_id" doc:"Endpoint that it goes to." example:"wh_01jz8y5c3te9b8r2m6q4v7x0gg"`
	EventID       string          `json:"event_id" doc:"Event that it carries." example:"evt_01jz8y5c3te9b8r2m6q4v7x0jj"`
	EventType     string          `json:"event_type" doc:"Type of the event." example:"key.created"`
	State         string          `json:"state" enum:"pending,retry_scheduled,delivered,failed" doc:"Where the delivery stands: no attempt ended yet, another is to come, the receiver took it, or five attempts failed."`
	Trigger       string          `json:"trigger" enum:"event,manual,recover,test" doc:"What began the delivery."`
	Attempts      []attemptRecord `json:"attempts" nullable:"false" doc:"The attempts so far, the first one first."`
	NextAttemptAt *time.Time      `json:"next_attempt_at" doc:"When the next attempt is due; null if none is to come."`
	CreatedAt     time.Time       `json:"created_at" doc:"When the delivery was begun."`
}

type attemptRecord struct {
	Number       int       `json:"number" doc:"Number of the attempt, from 1." example:"1"`
	StartedAt    time.Time `json:"started_at" doc:"When it was begun."`
	DurationMS   int64     `json:"duration_ms" doc:"How long it took, in milliseconds." example:"87"`
	Status       *int      `json:"status" doc:"HTTP status of the answer; null if none came." example:"200"`
	Error        *string   `json:"error" doc:"Why it failed without an answer that counts; null if the answer counts."`
	ResponseBody *string   `json:"response_body" doc:"The first 8 KiB of the answer's body; null if no answer came."`
}

// deliveryDetailRecord is a single delivery.
type deliveryDetailRecord struct {
	DeliveryRecord
	Payload        string            `json:"payload" doc:"The exact body of each attempt."`
	RequestHeaders map[string]string `json:"request_headers" nullable:"false" doc:"Header fields of the last attempt, or of the one to come."`
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

// eventTypes are the types that an endpoint can ask for.
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
		enumParam("state", "Only deliveries in this state.",
			string(webhook.Pending), string(webhook.RetryScheduled), string(webhook.Delivered), string(webhook.Failed)),
		enumParam("event_type", "Only deliveries of events of this type.", append(eventTypes(), string(webhook.Test))...),
	}, timeRangeParams("deliveries begun")...)
}

func (a *API) deliveryOperations() []operation {
	return []operation{{
		id: "listDeliveries", method: http.MethodGet, path: "/v1/webhook-deliveries", tag: "Webhook deliveries",
		summary:     "List webhook deliveries",
		description: "Lists the deliveries of the account, newest first. Failed ones are kept for 7 days, delivered ones for 3.",
		query:       append(pageParams(), deliveryFilters()...), success: http.StatusOK, result: reflect.TypeFor[list[DeliveryRecord]](),
		run: a.listDeliveries,
	}, {
		id: "getDelivery", method: http.MethodGet, path: "/v1/webhook-deliveries/{delivery_id}", tag: "Webhook deliveries",
		summary: "Get a webhook delivery", description: "Gives one delivery with what it sends.",
		success: http.StatusOK, result: reflect.TypeFor[deliveryDetailRecord](),
		run: a.getDelivery,
	}, {
		id: "redeliver", method: http.MethodPost, path: "/v1/webhook-deliveries/{delivery_id}/redeliver", tag: "Webhook deliveries",
		summary:     "Deliver an event again",
		description: "Begins a new delivery of the same event, with the same identifier and the same bytes, to the same endpoint. One that is still to come is a 409.",
		replayable:  true, success: http.StatusCreated, result: reflect.TypeFor[DeliveryRecord](), hasLocation: true,
		run: a.redeliver,
	}}
}

func (a *API) listDeliveries(c *call) (response, error) {
	since, until, err := c.timeRange()
	if err != nil {
		return response{}, err
	}
	filter := control.DeliveryFilter{
		WebhookID: c.query.Get("webhook_id"), State: webhook.DeliveryState(c.query.Get("state")),
		EventType: event.Type(c.query.Get("event_type")), Since: since, Until: until,
	}
	return page(c, "webhook-deliveries", c.cursorBinding(deliveryFilters()), func(p control.Page) ([]webhook.Delivery, error) {
		return a.cfg.Control.Deliveries(c.ctx, &c.caller, filter, p)
	}, func(d *webhook.Delivery) (string, DeliveryRecord) { return d.ID, presentDelivery(d) })
}

func (a *API) getDelivery(c *call) (response, error) {
	d, err := a.cfg.Control.Delivery(c.ctx, &c.caller, c.params["delivery_id"])
	if err != nil {
		return response{}, err
	}
	return ok(presentDetail(d)), nil
}

func (a *API) redeliver(c *call) (response, error) {
	present := func(d *webhook.Delivery) response {
		return ok(presentDelivery(d)).created("/v1/webhook-deliveries/" + d.ID)
	}
	d, err := a.cfg.Control.Redeliver(withIdempotency(c, present), &c.caller, c.params["delivery_id"])
	if err != nil {
		return response{}, err
	}
	return present(d), nil
}
