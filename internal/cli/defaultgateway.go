package cli

import (
	"context"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// searchedGateways is the largest number of gateways among which printWhereItAnswers looks for the default gateway.
const searchedGateways = 1000

// printWhereItAnswers prints which requests reach the new gateway g, and which gateway gets
// requests for unknown hosts. before is the gateway that was the default gateway, or nil.
func (a *app) printWhereItAnswers(ctx context.Context, api *client.Client, g, before *client.Gateway) {
	name, host := terminal.Clean(g.Name), terminal.Clean(g.Hostname)
	if g.Default {
		a.Say("%s is the default gateway: it answers at %s and at every host that no other gateway has.", name, host)
		a.printDisplaced(g, before)
		return
	}
	a.Say("%s answers at %s.", name, host)
	if d := defaultGateway(ctx, api); d != nil {
		a.Say("Unknown hosts reach the default gateway, %s (%s). To change that: keygate gateways update %s --default",
			terminal.Clean(d.Name), terminal.Clean(d.GatewayID), terminal.Clean(g.GatewayID))
	}
}

// printDisplaced prints which gateway, before, is not the default gateway any more because g is.
func (a *app) printDisplaced(g, before *client.Gateway) {
	if before != nil && g.Default && before.GatewayID != g.GatewayID {
		a.Say("Before, that was %s (%s), which now answers at %s alone. To change it back: keygate gateways update %s --default",
			terminal.Clean(before.Name), terminal.Clean(before.GatewayID), terminal.Clean(before.Hostname), terminal.Clean(before.GatewayID))
	}
}

// defaultGateway returns the default gateway, or nil if it is not found, for example because the
// account has none. It is only for a message, so an error is not worth reporting.
func defaultGateway(ctx context.Context, api *client.Client) *client.Gateway {
	searched := 0
	for g, err := range api.Gateways(ctx, client.ListOptions{}) {
		if searched++; err != nil || searched > searchedGateways {
			return nil
		}
		if g.Default {
			return &g
		}
	}
	return nil
}
