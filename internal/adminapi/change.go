package adminapi

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/keygate/keygate/internal/control"
)

// The headers of a response to a mutation, if there are several nodes.
const (
	changeHeader       = "X-Keygate-Change"
	acknowledgedHeader = "X-Keygate-Acknowledged"
)

// mutates reports whether the call changes the configuration, so that its response waits for all nodes.
func (o *operation) mutates() bool {
	return o.method != http.MethodGet && !o.public && !o.readScope && o.id != "simulateLimit"
}

// waitParam is the query parameter of all mutations.
func waitParam() queryParam {
	return enumParam("wait", "Whether to wait until every node has the change. With false, the response tells in X-Keygate-Acknowledged how many have it. Default: true.", "true", "false")
}

// expectChange lets a mutation report its change, and any other call report what its response lacks.
func (c *call) expectChange() {
	c.ctx = control.WithCompleteness(c.ctx, &c.completeness)
	if c.op.mutates() {
		c.receipt = &control.Receipt{NoWait: c.query.Get("wait") == "false"}
		c.ctx = control.WithReceipt(c.ctx, c.receipt)
	}
}

// reportChange sets the headers that tell the number of the change, and how many nodes have it.
func (c *call) reportChange() {
	r := c.receipt
	if r == nil || r.Change == 0 {
		return
	}
	c.header.Set(changeHeader, strconv.FormatInt(r.Change, 10))
	if r.NoWait && r.Nodes > 0 {
		c.header.Set(acknowledgedHeader, fmt.Sprintf("%d/%d", r.Acknowledged, r.Nodes))
	}
}
