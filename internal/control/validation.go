package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/validation"
)

// ValidationReporter has what the requests of gateways did otherwise than their documents say.
type ValidationReporter interface {
	Report(ctx context.Context, gatewayID string) (*validation.Report, error)
}

// Validation is what the requests of a gateway did otherwise than its document says, in the last validation.Hours hours, and what is not
// checked.
type Validation struct {
	Mode gateway.ValidateMode // of the gateway
	*validation.Report
	Unchecked []Unchecked // routes that are not off, in the order of their paths
}

// notAnOperation is why a route is unchecked that the document does not describe.
const notAnOperation = "the gateway's OpenAPI document has no such operation"

// Validation returns what the requests of a gateway did otherwise than its document says (edge.md, section 6).
func (s *Service) Validation(ctx context.Context, actor *Actor, gatewayID string) (*Validation, error) {
	var table []gateway.Route
	g, err := readOf(ctx, s, actor, gatewayID, func(tx ReadTx, g *gateway.Gateway) (_ *gateway.Gateway, err error) {
		table, err = tx.RouteTable(ctx, gatewayID)
		return g, err
	})
	if err != nil {
		return nil, err
	}
	v := &Validation{Mode: g.Requests.Validate.OrOff(), Report: &validation.Report{}}
	if s.cfg.Validation != nil {
		if v.Report, err = s.cfg.Validation.Report(ctx, gatewayID); err != nil {
			return nil, err
		}
		slices.SortFunc(v.Rows, func(a, b *validation.Row) int {
			return cmp.Or(cmp.Compare(b.Sum().Requests, a.Sum().Requests), strings.Compare(a.Path, b.Path), strings.Compare(a.Method, b.Method), strings.Compare(a.Schema, b.Schema), strings.Compare(a.Rule, b.Rule), strings.Compare(a.Message, b.Message))
		})
	}
	v.Unchecked, err = s.unchecked(ctx, g, table)
	return v, err
}

// unchecked returns the operations of routes that are not off and are not checked.
func (s *Service) unchecked(ctx context.Context, g *gateway.Gateway, table []gateway.Route) (list []Unchecked, err error) {
	if !g.Validates(table) {
		return nil, nil
	}
	reasons := map[[2]string]string{}
	document := s.cfg.Documents.Of(g)
	if document != nil {
		known, err := document.Unchecked(ctx)
		if err != nil {
			return nil, err
		}
		for _, u := range known {
			reasons[[2]string{u.Method, u.Path}] = u.Reason
		}
	}
	for i := range table {
		r := &table[i]
		if !g.Requests.ModeOf(r.Handling).Looks() {
			continue
		}
		for _, method := range r.Methods {
			if document != nil {
				if o, err := document.Operation(ctx, method, r.Path); err != nil {
					return nil, err
				} else if o != nil {
					continue
				}
			}
			list = append(list, Unchecked{method, r.Path, cmp.Or(reasons[[2]string{method, r.Path}], notAnOperation)})
		}
	}
	slices.SortFunc(list, func(a, b Unchecked) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Method, b.Method))
	})
	return list, nil
}

// enforceWarning says what the last hours of reports would have meant for routes that a push makes enforce the document, in a dry run;
// "" for nothing.
func (s *Service) enforceWarning(ctx context.Context, p *pushChange) (string, error) {
	enforced := map[string]bool{} // the routes that do so already
	for i := range p.current {
		if r := &p.current[i]; p.before.Requests.ModeOf(r.Handling) == gateway.ValidateEnforce {
			enforced[r.ID] = true
		}
	}
	begins, some := false, "" // whether a route begins to; whether others only report
	for i := range p.delta.table {
		r := &p.delta.table[i]
		switch mode := p.after.Requests.ModeOf(r.Handling); {
		case mode == gateway.ValidateEnforce && !enforced[r.ID]:
			begins = true
		case mode == gateway.ValidateEnforce, mode == gateway.ValidateReport:
			some = "at most "
		}
	}
	if s.cfg.Validation == nil || !begins {
		return "", nil
	}
	report, err := s.cfg.Validation.Report(ctx, p.before.ID)
	if err != nil {
		return "", err
	}
	sum := report.Totals.Sum()
	if sum.Requests == 0 {
		return "validate: enforce refuses requests that do not meet the document, and none of the last 24 hours was held against it: set it to report first", nil
	}
	keys := fmt.Sprint(len(report.Totals.Keys))
	if len(report.Totals.Keys) >= validation.MaxKeys {
		keys += " or more"
	}
	return fmt.Sprintf("validate: enforce would have refused %s%d of the %d requests of the last 24 hours that were held against the document, of %s keys: see keygate validation", some, sum.Refused, sum.Requests, keys), nil
}
