package cli

import (
	"context"
	"iter"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// alsoArgument ends the help for the flag of a record that the first argument may name as well.
const alsoArgument = "; also the first argument"

// one is a command on one record, which a flag or the first argument names.
type one struct {
	*app
	flag, usage string // of the flag
	optional    bool   // find is called with "" if nothing is named
	find        func(api *client.Client, ref string) (id string, err error)

	ref string // value of the flag
}

func oneKey(a *app) *one {
	return &one{app: a, flag: "key-id", usage: "`id`, name or prefix of the key" + alsoArgument, find: a.keyID}
}

func oneGateway(a *app) *one {
	return &one{app: a, flag: "gateway", usage: "`id`, name or hostname of the gateway" + alsoArgument, find: a.gatewayID}
}

// defaultGatewayOr is oneGateway with the default gateway if none is named.
func defaultGatewayOr(a *app) *one {
	return &one{app: a, flag: "gateway", usage: defaultGatewayUsage + alsoArgument, optional: true, find: a.gatewayID}
}

func oneWebhook(a *app) *one {
	return &one{app: a, flag: "webhook-id", usage: "`id`, URL or host of the endpoint" + alsoArgument, find: a.webhookID}
}

func oneAccount(a *app) *one {
	return &one{app: a, flag: "account", usage: "`id` or name of the account" + alsoArgument, find: a.accountID}
}

func onePlan(a *app) *one {
	return &one{app: a, flag: "plan", usage: "`id` or name of the plan" + alsoArgument, find: a.planID}
}

func oneOwner(a *app) *one {
	return &one{app: a, flag: "owner", usage: "`id` or external ID of the owner" + alsoArgument, find: a.ownerID}
}

func oneNode(a *app) *one {
	return &one{app: a, flag: "node", usage: "`id` or name of the node" + alsoArgument, find: a.nodeID}
}

// oneOf is a command on a record that has no name: a delivery or an event.
func oneOf(a *app, noun string) *one {
	return &one{
		app: a, flag: noun + "-id", usage: "`id` of the " + noun + alsoArgument,
		find: func(_ *client.Client, ref string) (string, error) { return ref, nil },
	}
}

// add adds the flag to c, and lets it take the argument.
func (o *one) add(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&o.ref, o.flag, "", o.usage)
	c.Args = atMost(1)
	return c
}

// open returns the identifier of the record, and a client.
func (o *one) open(args []string) (id string, api *client.Client, err error) {
	named := idOf
	if o.optional {
		named = optionalID
	}
	ref, err := named(o.flag, o.ref, args)
	if err != nil {
		return "", nil, err
	}
	if api, err = o.connect(); err != nil {
		return "", nil, err
	}
	id, err = o.find(api, ref)
	return id, api, err
}

// runs makes c the command that does f with one record.
func (o *one) runs(c *cobra.Command, f func(ctx context.Context, api *client.Client, id string) error) *cobra.Command {
	c.RunE = func(c *cobra.Command, args []string) error {
		id, api, err := o.open(args)
		if err != nil {
			return err
		}
		return f(c.Context(), api, id)
	}
	return o.add(c)
}

// show prints a record.
func show[T any](a *app, record *T, fields func(*T) []terminal.Field) error {
	return a.PrintRecord(record, func() []terminal.Field { return fields(record) })
}

// shows makes c the command that makes a call for one record and prints what the server returns.
func shows[T any](o *one, c *cobra.Command, call func(*client.Client, context.Context, string) (*T, error), fields func(*T) []terminal.Field) *cobra.Command {
	return o.runs(c, func(ctx context.Context, api *client.Client, id string) error {
		record, err := call(api, ctx, id)
		if err != nil {
			return err
		}
		return show(o.app, record, fields)
	})
}

// destroyer is what a command that destroys a record needs.
type destroyer[T any] struct {
	verb   string // such as delete
	read   func(*client.Client, context.Context, string) (*T, error)
	lost   func(context.Context, *client.Client, *T) (lost, error)
	call   func(*client.Client, context.Context, string) (*T, error)
	label  func(*T) string // names the record in sentences
	fields func(*T) []terminal.Field
}

// loss returns what the command is about to destroy.
func (d *destroyer[T]) loss(ctx context.Context, api *client.Client, id string) (terminal.Loss, error) {
	record, err := d.read(api, ctx, id)
	if err != nil {
		return terminal.Loss{}, err
	}
	with, err := d.lost(ctx, api, record)
	return terminal.Loss{Verb: d.verb, What: d.label(record), With: with.records, Name: with.name}, err
}

// destroys makes c the command that destroys one record, after a question on a terminal.
func destroys[T any](o *one, c *cobra.Command, d destroyer[T]) *cobra.Command {
	return o.confirmFlag(o.runs(c, func(ctx context.Context, api *client.Client, id string) error {
		if err := o.Confirm(func() (terminal.Loss, error) { return d.loss(ctx, api, id) }); err != nil {
			return err
		}
		record, err := d.call(api, ctx, id)
		if err != nil {
			return err
		}
		return o.Destroyed(d.verb, d.label(record), func() error { return show(o.app, record, d.fields) })
	}))
}

// lister is what a command that lists records needs.
type lister[T any] struct {
	options *client.ListOptions
	check   func(c *cobra.Command, args []string) error // of the flags and arguments, before a call; may be nil
	find    func(ctx context.Context, api *client.Client) (iter.Seq2[T, error], error)
	columns []terminal.Column
	shown   func() []terminal.Column // in place of columns, if flags decide
	row     func(*T) []string
	empty   func(c *cobra.Command) string // said if there are none
}

// lists makes c the command that lists records.
func lists[T any](a *app, c *cobra.Command, l lister[T]) *cobra.Command {
	var limit int
	limitFlag(c.Flags(), &limit)
	c.RunE = func(c *cobra.Command, args []string) error {
		if l.check != nil {
			if err := l.check(c, args); err != nil {
				return err
			}
		}
		api, err := a.list(l.options, limit)
		if err != nil {
			return err
		}
		records, err := l.find(c.Context(), api)
		if err != nil {
			return err
		}
		if l.shown != nil {
			l.columns = l.shown()
		}
		return terminal.PrintList(a.Console, limit, records, terminal.Listing[T]{Columns: l.columns, Row: l.row, Empty: l.empty(c)})
	}
	return c
}

// emptyFlags is the check that refuses flags with an empty value.
func emptyFlags(c *cobra.Command, _ []string) error { return noneEmpty(c) }

// optionalGateway is the check of a list of a gateway, which the flag or the first argument names.
func optionalGateway(gateway *string) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) (err error) {
		*gateway, err = optionalID("gateway", *gateway, args)
		return err
	}
}

// always returns a text whatever the flags are.
func always(text string) func(*cobra.Command) string {
	return func(*cobra.Command) string { return text }
}
