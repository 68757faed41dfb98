package cli

import (
	"context"
	"iter"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newEvents(a *app) *cobra.Command {
	return newGroup("events", "Show the events of the last 7 days", newEventsList(a), newEventsGet(a))
}

func newEventsList(a *app) *cobra.Command {
	filter, span := &client.EventFilter{}, &spanFlags{}
	c := &cobra.Command{
		Use: "list", Short: "List events, newest first", Long: "List events, newest first.\n\n" + eventTypes, Args: noArgs,
		Example: "  keygate events list --type rate_limit.exceeded --since 1h",
	}
	c.Flags().StringVar(&filter.Type, "type", "", "only events of this `type`")
	span.add(c.Flags(), "events")
	return lists(a, c, lister[client.Event]{
		options: &filter.ListOptions, check: span.check(&filter.Since, &filter.Until),
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.Event, error], error) {
			return api.Events(ctx, *filter), nil
		},
		columns: []terminal.Column{{Name: "EVENT ID"}, {Name: "TYPE"}, {Name: "CREATED", Rank: 1}, {Name: "DATA", Rank: 2, Flex: true}},
		row:     func(e *client.Event) []string { return []string{e.ID, e.Type, a.When(&e.CreatedAt), string(e.Data)} },
		empty:   func(c *cobra.Command) string { return noneMatch(c, "events", "") },
	})
}

func newEventsGet(a *app) *cobra.Command {
	return shows(oneOf(a, "event"), &cobra.Command{Use: "get EVENT_ID", Short: "Show an event"}, (*client.Client).Event, eventFields)
}

func eventFields(e *client.Event) []terminal.Field {
	return []terminal.Field{{"EVENT ID", e.ID}, {"TYPE", e.Type}, {"CREATED", terminal.Moment(&e.CreatedAt)}, {"DATA", string(e.Data)}}
}
