package control

import (
	"cmp"
	"context"
	"fmt"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/openapi"
)

// documentCheck is the check of requests against an operation of an OpenAPI document.
type documentCheck struct {
	route  gateway.RouteSpec // with its one method
	reason string            // why there is none, or ""
	bytes  int64             // of all checks up to this one
}

// checksOf compiles the checks of a document, and returns what they take.
func checksOf(spec *openapi.Document) []documentCheck {
	results := spec.Compile(len(spec.Routes))
	list := make([]documentCheck, len(results))
	for i := range results {
		list[i] = documentCheck{spec.Routes[i], results[i].Reason, results[i].Bytes}
	}
	return list
}

// otherChecks returns how many bytes the checks of the account's gateways take, except for one.
func otherChecks(ctx context.Context, tx GatewayReader, accountID, exceptID string) (n int64, err error) {
	for page := (Page{Limit: 1000}); ; {
		list, err := tx.Gateways(ctx, accountID, page)
		if err != nil {
			return 0, err
		}
		for i := range list {
			if g := &list[i]; g.ID != exceptID {
				n += g.Requests.Checks.Bytes
			}
		}
		if len(list) < page.Limit {
			return n, nil
		}
		page.After = list[len(list)-1].ID
	}
}

// chooseChecks sets which operations of the document of g are checked: as many as the account has room for. A configuration file has
// none.
func (d *document) chooseChecks(ctx context.Context, tx GatewayReader, bounds *AccountBounds, g *gateway.Gateway) error {
	g.Requests.Checks = gateway.Checks{}
	if len(d.checks) == 0 {
		return nil
	}
	others, err := otherChecks(ctx, tx, g.AccountID, g.ID)
	if err != nil {
		return err
	}
	room := cmp.Or(bounds.CheckBytes, MaxAccountCheckBytes) - others
	for i := range d.checks {
		if d.checks[i].bytes > room {
			break
		}
		g.Requests.Checks = gateway.Checks{Operations: i + 1, Bytes: d.checks[i].bytes}
	}
	return nil
}

// confirmChecks returns errChangedMeanwhile if other gateways have taken the room for the checks of p.
func (p *pushChange) confirmChecks(ctx context.Context, tx GatewayReader, bounds *AccountBounds) error {
	if p.after.Requests.Checks.Bytes == 0 {
		return nil
	}
	others, err := otherChecks(ctx, tx, p.before.AccountID, p.before.ID)
	if err == nil && others+p.after.Requests.Checks.Bytes > cmp.Or(bounds.CheckBytes, MaxAccountCheckBytes) {
		err = errChangedMeanwhile
	}
	return err
}

// Unchecked is an operation whose requests are not held against the document.
type Unchecked struct {
	Method, Path string
	Reason       string
}

// maxUncheckedWarnings is how many of them the warnings of a push name.
const maxUncheckedWarnings = 20

// noCheckRoom is why an operation is unchecked for which the account has no room.
const noCheckRoom = "the documents of the account's gateways have more schemas than an account may have in memory: remove schemas, or gateways that are not used"

// unchecked returns the operations that are not checked, of those that g holds against the document.
func (d *document) unchecked(g *gateway.Gateway) (list []Unchecked) {
	for i := range d.checks {
		c := &d.checks[i]
		reason := c.reason
		if i >= g.Requests.Checks.Operations {
			reason = noCheckRoom
		}
		if reason != "" && g.Requests.ModeOf(c.route.Handling).Looks() {
			list = append(list, Unchecked{c.route.Methods[0], c.route.Path, reason})
		}
	}
	return list
}

// uncheckedWarnings returns the warnings about them, and about a gateway without a document.
func (d *document) uncheckedWarnings(g *gateway.Gateway) (list []string) {
	if d.kind == gateway.ConfigDocument && g.Validates(d.table()) {
		return []string{"validate has no effect: the routes come from a configuration file, so there is no OpenAPI document to hold requests against"}
	}
	unchecked := d.unchecked(g)
	for i := range unchecked[:min(len(unchecked), maxUncheckedWarnings)] {
		u := &unchecked[i]
		list = append(list, fmt.Sprintf("%s %s is unchecked: %s", u.Method, u.Path, u.Reason))
	}
	if more := len(unchecked) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more operations are unchecked: see keygate validation", more))
	}
	return list
}
