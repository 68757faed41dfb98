package adminapi

import (
	"net/http"
	"reflect"
	"time"

	"github.com/keygate/keygate/internal/control"
)

// nodeRecord is one of several nodes.
type nodeRecord struct {
	NodeID     string     `json:"node_id" doc:"Identifier of the node, which stays the same for its name." example:"node_01jz8y5c3te9b8r2m6q4v7x0kk"`
	Name       string     `json:"name" doc:"Name of the node." example:"gw-1"`
	Role       string     `json:"role" enum:"all,gateway,control" doc:"What the node serves: all, only the data plane, or only the management API."`
	Version    string     `json:"version" doc:"Version of Keygate." example:"1.0.0"`
	StartedAt  time.Time  `json:"started_at" doc:"When the node's process was started."`
	State      string     `json:"state" enum:"live,expired,stopped" doc:"live: the node holds a lease, and changes wait for it. expired: its lease has run out. stopped: it has given its lease back."`
	Applied    int64      `json:"applied" doc:"Number of the newest change that the node has applied." example:"4711"`
	Lag        int64      `json:"lag" doc:"How many changes the node has not applied." example:"0"`
	Limits     string     `json:"limits" enum:"leased,exact,divided" doc:"How the node shares rate limits with the others (--shared-limits)." example:"leased"`
	LeaseUntil *time.Time `json:"lease_until" doc:"When the node's lease ends unless it is renewed; null without a lease."`
}

func presentNode(n *control.Node) nodeRecord {
	r := nodeRecord{
		NodeID: n.ID, Name: n.Name, Role: n.Role, Version: n.Version, StartedAt: n.StartedAt.UTC(), State: n.State, Applied: n.Applied, Lag: n.Lag, Limits: n.Limits,
	}
	if !n.LeaseUntil.IsZero() {
		until := n.LeaseUntil.UTC()
		r.LeaseUntil = &until
	}
	return r
}

func (a *API) nodeOperations() []operation {
	record := reflect.TypeFor[nodeRecord]()
	return []operation{{
		id: "listNodes", method: http.MethodGet, path: "/v1/nodes", tag: "Nodes", operatorOnly: true,
		summary: "List the nodes",
		description: "Returns the nodes that share the database, in the order of their names. Without PostgreSQL there are none." +
			onlyOperator,
		query: pageParams(), success: http.StatusOK, result: reflect.TypeFor[list[nodeRecord]](),
		run: a.listNodes,
	}, {
		id: "getNode", method: http.MethodGet, path: "/v1/nodes/{node_id}", tag: "Nodes", operatorOnly: true,
		summary: "Get a node", description: "Returns one node." + onlyOperator,
		success: http.StatusOK, result: record,
		run: func(c *call) (response, error) {
			return show(presentNode)(a.cfg.Control.Node(c.ctx, c.params["node_id"]))
		},
	}, {
		id: "deleteNode", method: http.MethodDelete, path: "/v1/nodes/{node_id}", tag: "Nodes", operatorOnly: true,
		summary: "Delete a node that will not come back",
		description: "Declares a node dead, so that no change waits for its lease to end. Only for a node that has ended for certain: one that still runs may, until its lease ends, " +
			"work without changes that were answered, and then joins again. Returns the record as it was before." + onlyOperator,
		success: http.StatusOK, result: record,
		run: func(c *call) (response, error) {
			return show(presentNode)(a.cfg.Control.DeleteNode(c.ctx, &c.actor, c.params["node_id"]))
		},
	}}
}

func (a *API) listNodes(c *call) (response, error) {
	return page(c, "nodes", "", func(p control.Page) ([]control.Node, error) {
		nodes, err := a.cfg.Control.Nodes(c.ctx)
		for len(nodes) > 0 && nodes[0].Name <= p.After {
			nodes = nodes[1:]
		}
		return nodes[:min(p.Limit, len(nodes))], err
	}, func(n *control.Node) (string, nodeRecord) { return n.Name, presentNode(n) })
}
