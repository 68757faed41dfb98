package control

import (
	"context"
	"slices"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// The default gateway (contract, 4.1) is the first one of the account default, until it is moved
// or deleted. If that account has one gateway, it is the default gateway.

// putDefault reads the field default of a patch. Only the account default may give it, and true
// moves the default gateway. false changes nothing, so the default gateway itself refuses it.
func putDefault(e *gatewayEdit, actor *Actor, o Optional[bool]) error {
	switch {
	case !o.Present:
		return nil
	case !actor.Account.IsDefault():
		return fault.Invalid("default", "only a gateway of the operator's account can be the default gateway: leave out this field")
	case o.Null:
		return fault.Invalid("default", "must be true or absent")
	}
	e.isDefault = o
	return nil
}

// applyDefault sets Default of g. If g is the default gateway anyway, it is set already.
func (e *gatewayEdit) applyDefault(g *gateway.Gateway) error {
	if !e.isDefault.Present {
		return nil
	}
	if g.Default && !e.isDefault.Value {
		return fault.Invalid("default", "this is the default gateway: to move it, set default to true for another gateway")
	}
	g.Default = e.isDefault.Value
	return nil
}

// isFirst reports whether the next gateway of the actor's account becomes the default gateway because the
// account default has none.
func isFirst(ctx context.Context, tx GatewayReader, actor *Actor) (bool, error) {
	if !actor.Account.IsDefault() {
		return false, nil
	}
	some, err := tx.Gateways(ctx, actor.Account.ID, Page{Limit: 1})
	return len(some) == 0, err
}

// clearDefault makes the default gateway, if there is one, an ordinary gateway.
func (w *work) clearDefault(ctx context.Context) error {
	former, err := w.DefaultGateway(ctx)
	if fault.CodeOf(err) == fault.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return w.setDefault(ctx, former, false)
}

// lastBeside returns the only gateway of the account default that is left when another one is deleted, or nil if
// several or none are left. It becomes the default gateway.
func (w *work) lastBeside(ctx context.Context, gone *gateway.Gateway) (*gateway.Gateway, error) {
	if !w.actor.Account.IsDefault() {
		return nil, nil
	}
	left, err := w.Gateways(ctx, w.actor.Account.ID, Page{Limit: 3})
	left = slices.DeleteFunc(left, func(g gateway.Gateway) bool { return g.ID == gone.ID })
	if err != nil || len(left) != 1 {
		return nil, err
	}
	return &left[0], nil
}

// setDefault changes Default of a gateway that the call did not name.
func (w *work) setDefault(ctx context.Context, before *gateway.Gateway, value bool) error {
	g := *before
	g.Default, g.Version = value, before.Version+1
	if err := w.UpdateGateway(ctx, &g); err != nil {
		return err
	}
	if err := w.audit(ctx, audit.GatewayUpdate, g.ID, g.ID, gatewayDiff(before, &g)); err != nil {
		return err
	}
	return w.settingsChanged(ctx, &g)
}
