package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newNodes(a *app) *cobra.Command {
	c := newGroup("nodes", "Show the nodes that share the database, with a key of the account default",
		newNodesList(a), newNodesGet(a), newNodesDelete(a))
	c.Long = `Show the nodes that share a PostgreSQL database, and delete those that will not come
back. It needs a key of the account default, the operator's.`
	return c
}

func nodeLabel(n *client.Node) string { return "node " + withID(n.Name, n.NodeID) }

// nodeID returns the identifier of the node with an identifier or name.
func (a *app) nodeID(api *client.Client, ref string) (string, error) {
	if isID(ref) {
		return ref, nil
	}
	found, err := search("node", api.Nodes(a.Context, client.ListOptions{}),
		func(one *client.Node) bool { return one.Name == ref },
		func(one *client.Node) match { return match{one.NodeID, []string{one.Name}} })
	if err != nil {
		return "", err
	}
	return only("node", ref, found, "keygate nodes list shows the names")
}

// nodeCommand is a command on one node.
type nodeCommand struct {
	*app
	id string
}

func (o *nodeCommand) flag(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&o.id, "node", "", "`id` or name of the node; also the first argument")
	c.Args = atMost(1)
	return c
}

// node returns the identifier of the node, and a client.
func (o *nodeCommand) node(args []string) (string, *client.Client, error) {
	ref, err := idOf("node", o.id, args)
	if err != nil {
		return "", nil, err
	}
	api, err := o.connect()
	if err != nil {
		return "", nil, err
	}
	id, err := o.nodeID(api, ref)
	return id, api, err
}

func (a *app) printNode(n *client.Node) error {
	return a.PrintRecord(n, func() []terminal.Field {
		return []terminal.Field{
			{"NODE ID", n.NodeID}, {"NAME", n.Name}, {"ROLE", string(n.Role)}, {"VERSION", n.Version}, {"STATE", string(n.State)},
			{"APPLIED", strconv.FormatInt(n.Applied, 10)}, {"LAG", lagText(n.Lag)}, {"LIMITS", string(n.Limits)}, {"LEASE UNTIL", terminal.Moment(n.LeaseUntil)}, {"STARTED", terminal.Moment(&n.StartedAt)},
		}
	})
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
	var limit int
	c := &cobra.Command{Use: "list", Short: "List the nodes in the order of their names", Args: noArgs, RunE: func(c *cobra.Command, _ []string) error {
		api, err := a.list(&options, limit)
		if err != nil {
			return err
		}
		return terminal.PrintList(a.Console, limit, api.Nodes(c.Context(), options), terminal.Listing[client.Node]{
			Columns: []terminal.Column{
				{Name: "NODE ID", Rank: 2}, {Name: "NAME", Flex: true}, {Name: "ROLE"}, {Name: "STATE"}, {Name: "APPLIED", Rank: 1}, {Name: "LAG"}, {Name: "VERSION", Rank: 1}, {Name: "STARTED", Rank: 1},
			},
			Row: func(n *client.Node) []string {
				return []string{n.NodeID, n.Name, string(n.Role), string(n.State), strconv.FormatInt(n.Applied, 10), strconv.FormatInt(n.Lag, 10), n.Version, a.When(&n.StartedAt)}
			},
			Empty: "No nodes: this server shares its store with no others.",
		})
	}}
	limitFlag(c.Flags(), &limit)
	return c
}

func newNodesGet(a *app) *cobra.Command {
	o := &nodeCommand{app: a}
	return o.flag(&cobra.Command{Use: "get NODE_ID", Short: "Show a node", RunE: func(c *cobra.Command, args []string) error {
		id, api, err := o.node(args)
		if err != nil {
			return err
		}
		n, err := api.Node(c.Context(), id)
		if err != nil {
			return err
		}
		return o.printNode(n)
	}})
}

func newNodesDelete(a *app) *cobra.Command {
	o := &nodeCommand{app: a}
	return o.confirmFlag(o.flag(&cobra.Command{
		Use: "delete NODE_ID", Short: "Declare a node dead that will not come back, so that no change waits for it",
		RunE: func(c *cobra.Command, args []string) error {
			id, api, err := o.node(args)
			if err != nil {
				return err
			}
			err = o.Confirm(func() (terminal.Loss, error) {
				n, err := api.Node(c.Context(), id)
				if err != nil {
					return terminal.Loss{}, err
				}
				l := terminal.Loss{Verb: "delete", What: nodeLabel(n), Name: n.Name}
				if n.State == client.NodeStateLive {
					l.With = []string{"the certainty that it has every change, if it still runs"}
				}
				return l, nil
			})
			if err != nil {
				return err
			}
			n, err := api.DeleteNode(c.Context(), id)
			if err != nil {
				return err
			}
			return o.Destroyed("delete", nodeLabel(n), func() error { return o.printNode(n) })
		},
	}))
}
