package cli

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newDeliveries(a *app) *cobra.Command {
	return newGroup("deliveries", "Show webhook deliveries and redeliver them",
		newDeliveriesList(a), newDeliveriesGet(a), newDeliveriesRedeliver(a))
}

func newDeliveriesList(a *app) *cobra.Command {
	filter, span := &client.DeliveryFilter{}, &spanFlags{}
	c := &cobra.Command{
		Use: "list", Short: "List deliveries, newest first", Args: noArgs,
		Example: "  keygate deliveries list --state failed --since 24h",
	}
	f := c.Flags()
	f.StringVar(&filter.WebhookID, "webhook-id", "", "only deliveries to the endpoint with this `id`, URL or host")
	f.StringVar(&filter.EventID, "event-id", "", "only deliveries of the event with this `id`")
	f.StringVar(&filter.State, "state", "", "only deliveries in this `state`: pending, retry_scheduled, delivered or failed")
	f.StringVar(&filter.EventType, "event-type", "", "only deliveries of events of this `type`")
	span.add(f, "deliveries")
	return lists(a, c, lister[client.Delivery]{
		options: &filter.ListOptions, check: span.check(&filter.Since, &filter.Until),
		find: func(ctx context.Context, api *client.Client) (_ iter.Seq2[client.Delivery, error], err error) {
			if filter.WebhookID != "" {
				filter.WebhookID, err = a.webhookID(api, filter.WebhookID)
			}
			return api.Deliveries(ctx, *filter), err
		},
		columns: []terminal.Column{
			{Name: "DELIVERY ID"}, {Name: "EVENT TYPE", Flex: true}, {Name: "STATE", State: true}, {Name: "ATTEMPTS", Rank: 3},
			{Name: "LAST RESULT", Rank: 2, Flex: true}, {Name: "NEXT ATTEMPT", Rank: 4}, {Name: "CREATED", Rank: 1}, {Name: "WEBHOOK ID", Rank: 5},
		},
		row: func(d *client.Delivery) []string {
			last := ""
			if n := len(d.Attempts); n > 0 {
				last = attemptResult(&d.Attempts[n-1])
			}
			return []string{
				d.DeliveryID, d.EventType, string(d.State), strconv.Itoa(len(d.Attempts)), last, a.When(d.NextAttemptAt), a.When(&d.CreatedAt), d.WebhookID,
			}
		},
		empty: func(c *cobra.Command) string {
			return noneMatch(c, "deliveries", "Send one: keygate webhooks test WEBHOOK_ID")
		},
	})
}

// attemptResult returns the status that an attempt received, or its error.
func attemptResult(t *client.Attempt) string {
	if t.Error != nil {
		return *t.Error
	}
	if t.Status != nil {
		return strconv.FormatInt(*t.Status, 10)
	}
	return ""
}

func deliveryFields(d *client.Delivery) []terminal.Field {
	fields := []terminal.Field{
		{"DELIVERY ID", d.DeliveryID}, {"WEBHOOK ID", d.WebhookID}, {"EVENT ID", d.EventID}, {"EVENT TYPE", d.EventType},
		{"STATE", string(d.State)}, {"TRIGGER", string(d.Trigger)}, {"CREATED", terminal.Moment(&d.CreatedAt)}, {"NEXT ATTEMPT", terminal.Moment(d.NextAttemptAt)},
	}
	for i := range d.Attempts {
		t := &d.Attempts[i]
		took := (time.Duration(t.DurationMs) * time.Millisecond).String()
		fields = append(fields, terminal.Field{fmt.Sprintf("ATTEMPT %d", t.Number), terminal.Moment(&t.StartedAt) + "  " + attemptResult(t) + " in " + took})
	}
	return fields
}

// deliveryDetails returns the fields of a delivery with its headers and payload.
func deliveryDetails(d *client.DeliveryDetail) []terminal.Field {
	fields := deliveryFields(&d.Delivery)
	if n := len(d.Attempts); n > 0 {
		fields = append(fields, terminal.Field{"LAST RESPONSE BODY", str(d.Attempts[n-1].ResponseBody)})
	}
	for _, name := range sortedKeys(d.RequestHeaders) {
		fields = append(fields, terminal.Field{"HEADER " + terminal.Clean(name), d.RequestHeaders[name]})
	}
	return append(fields, terminal.Field{"PAYLOAD", d.Payload})
}

func newDeliveriesGet(a *app) *cobra.Command {
	return shows(oneOf(a, "delivery"), &cobra.Command{Use: "get DELIVERY_ID", Short: "Show a delivery with its attempts, headers and payload"},
		(*client.Client).Delivery, deliveryDetails)
}

func newDeliveriesRedeliver(a *app) *cobra.Command {
	return shows(oneOf(a, "delivery"), &cobra.Command{Use: "redeliver DELIVERY_ID", Short: "Deliver an event to its endpoint again, or make its next attempt now"},
		(*client.Client).Redeliver, deliveryFields)
}
