package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
)

func nodePath(nodeID string) string { return "/v1/nodes/" + url.PathEscape(nodeID) }

// Nodes lists the nodes that share the database, in the order of their names. Without PostgreSQL there are
// none. It is for keys of the account default.
func (c *Client) Nodes(ctx context.Context, o ListOptions) iter.Seq2[Node, error] {
	return list[Node](ctx, c, "/v1/nodes", nil, o.PageSize)
}

// Node returns a node. It is for keys of the account default.
func (c *Client) Node(ctx context.Context, nodeID string) (*Node, error) {
	return call[Node](ctx, c, http.MethodGet, nodePath(nodeID), nil)
}

// DeleteNode declares that a node is dead and will not come back, so that no change waits for its lease to
// end. It returns the record as it was before. It is for keys of the account default.
func (c *Client) DeleteNode(ctx context.Context, nodeID string) (*Node, error) {
	return call[Node](ctx, c, http.MethodDelete, nodePath(nodeID), nil)
}
