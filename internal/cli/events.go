package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newEvents(a *app) *cobra.Command {
	return newGroup("events", "Show the events of the last 7 days", newEventsList(a), newEventsGet(a))
}

type eventsList struct {
	*app
	filter client.EventFilter
	span   spanFlags
	limit  int
}

func newEventsList(a *app) *cobra.Command {
	o := &eventsList{app: a}
	c := &cobra.Command{
		Use: "list", Short: "List events, newest first", Long: "List events, newest first.\n\n" + eventTypes, Args: noArgs, RunE: o.run,
		Example: "  keygate events list --type rate_limit.exceeded --since 1h",
	}
	f := c.Flags()
	f.StringVar(&o.filter.Type, "type", "", "only events of this `type`")
	o.span.add(f, "events")
	limitFlag(f, &o.limit)
	return c
}

func (o *eventsList) run(c *cobra.Command, _ []string) error {
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
	return terminal.PrintList(o.Console, o.limit, api.Events(c.Context(), o.filter), terminal.Listing[client.Event]{
		Columns: []terminal.Column{{Name: "EVENT ID"}, {Name: "TYPE"}, {Name: "CREATED", Rank: 1}, {Name: "DATA", Rank: 2, Flex: true}},
		Row:     func(e *client.Event) []string { return []string{e.ID, e.Type, o.When(&e.CreatedAt), string(e.Data)} },
		Empty:   noneMatch(c, "events", ""),
	})
}

func newEventsGet(a *app) *cobra.Command {
	var flag string
	c := &cobra.Command{Use: "get EVENT_ID", Short: "Show an event", Args: atMost(1), RunE: func(c *cobra.Command, args []string) error {
		id, err := idOf("event-id", flag, args)
		if err != nil {
			return err
		}
		api, err := a.connect()
		if err != nil {
			return err
		}
		e, err := api.Event(c.Context(), id)
		if err != nil {
			return err
		}
		return a.PrintRecord(e, func() []terminal.Field {
			return []terminal.Field{{"EVENT ID", e.ID}, {"TYPE", e.Type}, {"CREATED", terminal.Moment(&e.CreatedAt)}, {"DATA", string(e.Data)}}
		})
	}}
	c.Flags().StringVar(&flag, "event-id", "", "`id` of the event; also the first argument")
	return c
}
