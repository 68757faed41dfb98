package cli

import (
	"fmt"
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

type deliveriesList struct {
	*app
	filter client.DeliveryFilter
	span   spanFlags
	limit  int
}

func newDeliveriesList(a *app) *cobra.Command {
	o := &deliveriesList{app: a}
	c := &cobra.Command{
		Use: "list", Short: "List deliveries, newest first", Args: noArgs, RunE: o.run,
		Example: "  keygate deliveries list --state failed --since 24h",
	}
	f := c.Flags()
	f.StringVar(&o.filter.WebhookID, "webhook-id", "", "only deliveries to the endpoint with this `id`, URL or host")
	f.StringVar(&o.filter.EventID, "event-id", "", "only deliveries of the event with this `id`")
	f.StringVar(&o.filter.State, "state", "", "only deliveries in this `state`: pending, retry_scheduled, delivered or failed")
	f.StringVar(&o.filter.EventType, "event-type", "", "only deliveries of events of this `type`")
	o.span.add(f, "deliveries")
	limitFlag(f, &o.limit)
	return c
}

func (o *deliveriesList) run(c *cobra.Command, _ []string) error {
	if err := noneEmpty(c); err != nil {
		return err
	}
	var err error
	if o.filter.Since, o.filter.Until, err = o.span.span(time.Now()); err != nil {
		return err
	}
	api, err := o.list(&o.filter.ListOptions, o.limit)
	if err != nil {
		return err
	}
	if o.filter.WebhookID != "" {
		if o.filter.WebhookID, err = o.webhookID(api, o.filter.WebhookID); err != nil {
			return err
		}
	}
	return terminal.PrintList(o.Console, o.limit, api.Deliveries(c.Context(), o.filter), terminal.Listing[client.Delivery]{
		Columns: []terminal.Column{
			{Name: "DELIVERY ID"}, {Name: "EVENT TYPE", Flex: true}, {Name: "STATE", State: true}, {Name: "ATTEMPTS", Rank: 3},
			{Name: "LAST RESULT", Rank: 2, Flex: true}, {Name: "NEXT ATTEMPT", Rank: 4}, {Name: "CREATED", Rank: 1}, {Name: "WEBHOOK ID", Rank: 5},
		},
		Row: func(d *client.Delivery) []string {
			last := ""
			if n := len(d.Attempts); n > 0 {
				last = attemptResult(&d.Attempts[n-1])
			}
			return []string{
				d.DeliveryID, d.EventType, string(d.State), strconv.Itoa(len(d.Attempts)), last, o.When(d.NextAttemptAt), o.When(&d.CreatedAt), d.WebhookID,
			}
		},
		Empty: noneMatch(c, "deliveries", "Send one: keygate webhooks test WEBHOOK_ID"),
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

// deliveryCommand is a command on one delivery.
type deliveryCommand struct {
	*app
	id string
}

func (o *deliveryCommand) flag(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&o.id, "delivery-id", "", "`id` of the delivery; also the first argument")
	c.Args = atMost(1)
	return c
}

// delivery returns the identifier of the delivery, and a client.
func (o *deliveryCommand) delivery(args []string) (string, *client.Client, error) {
	id, err := idOf("delivery-id", o.id, args)
	if err != nil {
		return "", nil, err
	}
	api, err := o.connect()
	return id, api, err
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

func newDeliveriesGet(a *app) *cobra.Command {
	o := &deliveryCommand{app: a}
	return o.flag(&cobra.Command{Use: "get DELIVERY_ID", Short: "Show a delivery with its attempts, headers and payload", RunE: func(c *cobra.Command, args []string) error {
		id, api, err := o.delivery(args)
		if err != nil {
			return err
		}
		d, err := api.Delivery(c.Context(), id)
		if err != nil {
			return err
		}
		return o.PrintRecord(d, func() []terminal.Field {
			fields := deliveryFields(&d.Delivery)
			if n := len(d.Attempts); n > 0 {
				fields = append(fields, terminal.Field{"LAST RESPONSE BODY", str(d.Attempts[n-1].ResponseBody)})
			}
			for _, name := range sortedKeys(d.RequestHeaders) {
				fields = append(fields, terminal.Field{"HEADER " + terminal.Clean(name), d.RequestHeaders[name]})
			}
			return append(fields, terminal.Field{"PAYLOAD", d.Payload})
		})
	}})
}

func newDeliveriesRedeliver(a *app) *cobra.Command {
	o := &deliveryCommand{app: a}
	return o.flag(&cobra.Command{Use: "redeliver DELIVERY_ID", Short: "Deliver an event to its endpoint again", RunE: func(c *cobra.Command, args []string) error {
		id, api, err := o.delivery(args)
		if err != nil {
			return err
		}
		d, err := api.Redeliver(c.Context(), id)
		if err != nil {
			return err
		}
		return o.PrintRecord(d, func() []terminal.Field { return deliveryFields(d) })
	}})
}
