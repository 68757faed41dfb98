package cli

import (
	"context"
	"fmt"
	"iter"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newNodes(a *app) *cobra.Command {
	list := newNodesList(a)
	c := listsAlone(newGroup("nodes", "Show the nodes that share the database, with a key of the account default",
		list, newNodesGet(a), newNodesDelete(a)), list)
	c.Long = `Show the nodes that share a PostgreSQL database, and delete those that will not come
back. It needs a key of the account default, the operator's.`
	return c
}

func nodeLabel(n *client.Node) string { return "node " + withID(n.Name, n.NodeID) }

// nodeID returns the identifier of the node with an identifier or name.
func (a *app) nodeID(api *client.Client, ref string) (string, error) {
	return named("node", ref, "keygate nodes list shows the names", api.Nodes(a.Context, client.ListOptions{}),
		func(one *client.Node) bool { return one.Name == ref },
		func(one *client.Node) match { return match{one.NodeID, []string{one.Name}} })
}

func nodeFields(n *client.Node) []terminal.Field {
	return []terminal.Field{
		{"NODE ID", n.NodeID}, {"NAME", n.Name}, {"ROLE", string(n.Role)}, {"VERSION", n.Version}, {"STATE", string(n.State)},
		{"APPLIED", strconv.FormatInt(n.Applied, 10)}, {"LAG", lagText(n.Lag)}, {"LIMITS", string(n.Limits)}, {"LEASE UNTIL", terminal.Moment(n.LeaseUntil)}, {"STARTED", terminal.Moment(&n.StartedAt)},
	}
}

// lagText returns a number of changes with its noun.
func lagText(n int64) string {
	if n == 1 {
		return "1 change"
	}
	return fmt.Sprintf("%d changes", n)
}

func newNodesList(a *app) *cobra.Command {
	var options client.ListOptions
	return lists(a, &cobra.Command{Use: "list", Short: "List the nodes in the order of their names", Args: noArgs}, lister[client.Node]{
		options: &options,
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.Node, error], error) {
			return api.Nodes(ctx, options), nil
		},
		columns: []terminal.Column{
			{Name: "NODE ID", Rank: 2}, {Name: "NAME", Flex: true}, {Name: "ROLE"}, {Name: "STATE"}, {Name: "APPLIED", Rank: 1}, {Name: "LAG"}, {Name: "VERSION", Rank: 1}, {Name: "STARTED", Rank: 1},
		},
		row: func(n *client.Node) []string {
			return []string{n.NodeID, n.Name, string(n.Role), string(n.State), strconv.FormatInt(n.Applied, 10), strconv.FormatInt(n.Lag, 10), n.Version, a.When(&n.StartedAt)}
		},
		empty: always("No nodes: this server shares its store with no others."),
	})
}

func newNodesGet(a *app) *cobra.Command {
	return shows(oneNode(a), &cobra.Command{Use: "get NODE_ID", Short: "Show a node"}, (*client.Client).Node, nodeFields)
}

func newNodesDelete(a *app) *cobra.Command {
	return destroys(oneNode(a), &cobra.Command{Use: "delete NODE_ID", Short: "Declare a node dead that will not come back, so that no change waits for it"},
		destroyer[client.Node]{"delete", (*client.Client).Node, lostWithNode, (*client.Client).DeleteNode, nodeLabel, nodeFields})
}

func lostWithNode(_ context.Context, _ *client.Client, n *client.Node) (lost, error) {
	l := lost{name: n.Name}
	if n.State == client.NodeStateLive {
		l.records = []string{"the certainty that it has every change, if it still runs"}
	}
	return l, nil
}
