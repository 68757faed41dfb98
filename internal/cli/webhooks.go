package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
)

func newWebhooks(a *app) *cobra.Command {
	return newGroup("webhooks", "Register, find, change and try the addresses that are told of events",
		newWebhooksCreate(a), newWebhooksList(a), newWebhooksGet(a), newWebhooksUpdate(a), newWebhooksDelete(a),
		newWebhooksTest(a), newWebhooksRotateSecret(a), newWebhooksRecover(a), newWebhooksListen(a), newWebhooksVerify(a))
}

// eventTypes is how help shows the types of events.
const eventTypes = `Events: key.created, key.rotated, key.revoked, key.expired,
rate_limit.exceeded, gateway.upstream_error, gateway.spec_pushed.`

type webhooksCreate struct {
	*app
	address, secretFile string
	events              []string
}

func newWebhooksCreate(a *app) *cobra.Command {
	o := &webhooksCreate{app: a}
	c := &cobra.Command{
		Use:   "create URL --events TYPE,…",
		Short: "Register an endpoint; its signing secret is shown this once",
		Long: `Register an endpoint: an address that gets the events of the given types. Its
signing secret is shown this once.

` + eventTypes,
		Example: "  keygate webhooks create https://hooks.example.com/keygate --events key.created,key.revoked",
		Args:    atMost(1),
		RunE:    o.run,
	}
	f := c.Flags()
	f.StringVar(&o.address, "endpoint-url", "", "`url` that receives the deliveries; also the first argument")
	f.StringSliceVar(&o.events, "events", nil, "`types` of the events to deliver, joined by commas")
	f.StringVar(&o.secretFile, "secret-file", "", "`file` that holds a signing secret of yours, - for standard input; without it the server makes one")
	return c
}

func (o *webhooksCreate) run(c *cobra.Command, args []string) error {
	address, err := idOf("endpoint-url", o.address, args)
	if err := errors.Join(err, required("events", strings.Join(o.events, ""))); err != nil {
		return usagef("%s", err)
	}
	if err := noneEmpty(c); err != nil {
		return err
	}
	in := client.CreateWebhookRequest{URL: address, Events: o.events}
	if o.secretFile != "" {
		secret, err := o.readSigningSecret(o.secretFile)
		if err != nil {
			return err
		}
		in.SigningSecret = secret
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	w, err := api.CreateWebhook(c.Context(), in)
	if err != nil {
		return err
	}
	return o.printNewWebhook(w)
}

// readSigningSecret reads a secret from a file, or from standard input for "-".
// One line end at its end does not count: editors put it there.
func (a *app) readSigningSecret(file string) (string, error) {
	content, err := a.readInput(file)
	if err != nil {
		return "", fmt.Errorf("read the signing secret: %w", err)
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if secret == "" {
		return "", usagef("no signing secret was given: %s is empty", file)
	}
	return secret, nil
}

// printNewWebhook shows an endpoint with its new secret, and fails if the secret
// was lost on the way.
func (a *app) printNewWebhook(w *client.NewWebhook) error {
	err := a.printRecord(w, func() []field {
		fields := webhookFields(&w.Webhook)
		if w.SigningSecret != "" {
			fields = append(fields, field{"SIGNING SECRET", w.SigningSecret})
		}
		if w.StandardWebhooksSecret != "" {
			fields = append(fields, field{"STANDARD WEBHOOKS SECRET", w.StandardWebhooksSecret})
		}
		return fields
	})
	if err != nil {
		return err
	}
	if w.SigningSecret == "" {
		return fmt.Errorf("the secret was made but lost with the connection: keygate webhooks rotate-secret %s makes another", w.WebhookID)
	}
	if a.output == "table" {
		fmt.Fprintln(a.Err, "The signing secret is shown this once. Keep it now.")
	}
	return nil
}

func webhookFields(w *client.Webhook) []field {
	fields := []field{
		{"WEBHOOK ID", w.WebhookID}, {"URL", w.URL}, {"EVENTS", strings.Join(w.Events, ", ")}, {"STATE", string(w.State)},
	}
	if w.DisabledReason != nil {
		fields = append(fields, field{"DISABLED BECAUSE", *w.DisabledReason})
	}
	return append(fields, field{"CREATED", moment(&w.CreatedAt)})
}

func (a *app) printWebhook(w *client.Webhook) error {
	return a.printRecord(w, func() []field { return webhookFields(w) })
}

func newWebhooksList(a *app) *cobra.Command {
	var options client.ListOptions
	var limit int
	c := &cobra.Command{Use: "list", Short: "List endpoints, newest first", Args: noArgs, RunE: func(c *cobra.Command, _ []string) error {
		api, err := a.list(&options, limit)
		if err != nil {
			return err
		}
		return printList(a, limit, api.Webhooks(c.Context(), options), []string{"WEBHOOK ID", "STATE", "URL", "EVENTS", "DISABLED BECAUSE"},
			func(w *client.Webhook) []string {
				return []string{w.WebhookID, string(w.State), w.URL, strings.Join(w.Events, ","), str(w.DisabledReason)}
			})
	}}
	limitFlag(c.Flags(), &limit)
	return c
}

// webhookCommand is a command on one endpoint.
type webhookCommand struct {
	*app
	id string
}

func (o *webhookCommand) flag(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&o.id, "webhook-id", "", "`id` of the endpoint; also the first argument")
	c.Args = atMost(1)
	return c
}

// webhook returns the identifier of the endpoint, and a client.
func (o *webhookCommand) webhook(args []string) (string, *client.Client, error) {
	id, err := idOf("webhook-id", o.id, args)
	if err != nil {
		return "", nil, err
	}
	api, err := o.connect()
	return id, api, err
}

func newWebhooksGet(a *app) *cobra.Command {
	o := &webhookCommand{app: a}
	return o.flag(&cobra.Command{Use: "get WEBHOOK_ID", Short: "Show an endpoint", RunE: func(c *cobra.Command, args []string) error {
		id, api, err := o.webhook(args)
		if err != nil {
			return err
		}
		w, err := api.Webhook(c.Context(), id)
		if err != nil {
			return err
		}
		return o.printWebhook(w)
	}})
}

func newWebhooksDelete(a *app) *cobra.Command {
	o := &webhookCommand{app: a}
	return o.flag(&cobra.Command{Use: "delete WEBHOOK_ID", Short: "End an endpoint; what was not yet delivered to it fails", RunE: func(c *cobra.Command, args []string) error {
		id, api, err := o.webhook(args)
		if err != nil {
			return err
		}
		w, err := api.DeleteWebhook(c.Context(), id)
		if err != nil {
			return err
		}
		return o.printWebhook(w)
	}})
}

type webhooksUpdate struct {
	webhookCommand
	address, state string
	events         []string
}

func newWebhooksUpdate(a *app) *cobra.Command {
	o := &webhooksUpdate{webhookCommand: webhookCommand{app: a}}
	c := o.flag(&cobra.Command{
		Use: "update WEBHOOK_ID", Short: "Change an endpoint, or enable one that was disabled",
		Long:    "Change an endpoint, or enable one that was disabled.\n\n" + eventTypes,
		Example: "  keygate webhooks update wh_01j… --state active", RunE: o.run,
	})
	f := c.Flags()
	f.StringVar(&o.address, "endpoint-url", "", "`url` that receives the deliveries")
	f.StringSliceVar(&o.events, "events", nil, "`types` of the events to deliver, in place of all that stand")
	f.StringVar(&o.state, "state", "", "active or disabled: the `state` to put it in")
	return c
}

func (o *webhooksUpdate) run(c *cobra.Command, args []string) error {
	if err := noneEmpty(c); err != nil {
		return err
	}
	var p client.WebhookPatch
	if o.address != "" {
		p.URL = client.Set(o.address)
	}
	if len(o.events) > 0 {
		p.Events = client.Set(o.events)
	}
	if o.state != "" {
		p.State = client.Set(o.state)
	}
	if p.URL.IsZero() && p.Events.IsZero() && p.State.IsZero() {
		return usagef("nothing to change: give at least one of --endpoint-url, --events and --state")
	}
	id, api, err := o.webhook(args)
	if err != nil {
		return err
	}
	w, err := api.UpdateWebhook(c.Context(), id, p)
	if err != nil {
		return err
	}
	return o.printWebhook(w)
}

func newWebhooksTest(a *app) *cobra.Command {
	o := &webhookCommand{app: a}
	return o.flag(&cobra.Command{
		Use: "test WEBHOOK_ID", Short: "Deliver an event of the type webhook.test",
		Example: "  keygate deliveries get $(keygate webhooks test wh_01j… -o json | jq -r .delivery_id)",
		RunE: func(c *cobra.Command, args []string) error {
			id, api, err := o.webhook(args)
			if err != nil {
				return err
			}
			deliveryID, err := api.TestWebhook(c.Context(), id)
			if err != nil {
				return err
			}
			return o.printRecord(map[string]string{"delivery_id": deliveryID}, func() []field { return []field{{"DELIVERY ID", deliveryID}} })
		},
	})
}

func newWebhooksRotateSecret(a *app) *cobra.Command {
	o := &webhookCommand{app: a}
	var overlap int
	c := o.flag(&cobra.Command{
		Use: "rotate-secret WEBHOOK_ID", Short: "Make a new signing secret; the old one signs beside it for the overlap",
		RunE: func(c *cobra.Command, args []string) error {
			id, api, err := o.webhook(args)
			if err != nil {
				return err
			}
			w, err := api.RotateWebhookSecret(c.Context(), id, overlap)
			if err != nil {
				return err
			}
			return o.printNewWebhook(w)
		},
	})
	c.Flags().IntVar(&overlap, "overlap-hours", 24, "for how many `hours` both secrets sign, 0 to 168")
	return c
}

func newWebhooksRecover(a *app) *cobra.Command {
	o := &webhookCommand{app: a}
	var since string
	c := o.flag(&cobra.Command{
		Use: "recover WEBHOOK_ID --since TIME", Short: "Deliver again what failed since a time",
		Example: "  keygate webhooks recover wh_01j… --since 12h", RunE: func(c *cobra.Command, args []string) error {
			if err := required("since", since); err != nil {
				return err
			}
			from, err := parseTime("since", since, time.Now())
			if err != nil {
				return err
			}
			id, api, err := o.webhook(args)
			if err != nil {
				return err
			}
			n, err := api.RecoverWebhook(c.Context(), id, from)
			if err != nil {
				return err
			}
			return o.printRecord(map[string]int{"deliveries": n}, func() []field { return []field{{"DELIVERIES", fmt.Sprint(n)}} })
		},
	})
	c.Flags().StringVar(&since, "since", "", "what failed from this `time` on: 2027-01-31T12:00:00Z, 2027-01-31, or how long ago, as in 15m, 24h or 7d")
	return c
}
